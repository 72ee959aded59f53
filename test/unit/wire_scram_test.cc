#include "wire/scram.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

namespace sluice::wire {
namespace {

using namespace std::string_literals;

// The exchange of RFC 7677, section 3.
const std::string kClientFirst = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
const std::string kServerFirst =
    "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
const std::string kClientFinal =
    "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
const std::string kServerFinal = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

TEST(WireScram, ReadsTheExchangeOfTheRfc) {
  ClientFirst first;
  ASSERT_TRUE(read_client_first(kClientFirst, first));
  EXPECT_EQ(first.channel_binding, ChannelBinding::unsupported);
  EXPECT_EQ(first.gs2_header, "n,,");
  EXPECT_EQ(first.bare, "n=user,r=rOprNGfwEbeRWgbNEkqO");
  EXPECT_EQ(first.nonce, "rOprNGfwEbeRWgbNEkqO");
  ServerFirst server;
  ASSERT_TRUE(read_server_first(kServerFirst, first.nonce, server));
  EXPECT_EQ(server.salt, "W22ZaJ0SNY7soEsUEjb6gQ==");
  EXPECT_EQ(server.iterations, 4096U);
  ClientFinal last;
  ASSERT_TRUE(read_client_final(kClientFinal, last));
  EXPECT_EQ(last.channel_binding, "biws");
  EXPECT_EQ(last.nonce, server.nonce);
  EXPECT_EQ(last.without_proof, "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0");
  std::string_view signature;
  ASSERT_TRUE(read_server_final(kServerFinal, signature));
  EXPECT_EQ(signature, "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
}

TEST(WireScram, WritesWhatItReads) {
  std::array<std::uint8_t, 512> buffer;
  ByteWriter client(buffer);
  write_client_first(client, "n,,", "rOprNGfwEbeRWgbNEkqO");
  EXPECT_EQ(as_text(client.written()), "n,,n=,r=rOprNGfwEbeRWgbNEkqO");
  ByteWriter server(buffer);
  write_server_first(server, "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
                     "W22ZaJ0SNY7soEsUEjb6gQ==", 4096);
  EXPECT_EQ(as_text(server.written()), kServerFirst);
  ClientFinal last;
  ASSERT_TRUE(read_client_final(kClientFinal, last));
  ByteWriter final_message(buffer);
  write_client_final(final_message, last.without_proof, last.proof);
  EXPECT_EQ(as_text(final_message.written()), kClientFinal);
  ByteWriter signature(buffer);
  write_server_final(signature, kServerFinal.substr(2));
  EXPECT_EQ(as_text(signature.written()), kServerFinal);
}

TEST(WireScram, TellsTheKindsOfChannelBindingApart) {
  ClientFirst first;
  ASSERT_TRUE(read_client_first("p=tls-server-end-point,,n=,r=abc", first));
  EXPECT_EQ(first.channel_binding, ChannelBinding::required);
  EXPECT_EQ(first.binding_type, "tls-server-end-point");
  EXPECT_EQ(first.gs2_header, "p=tls-server-end-point,,");
  ASSERT_TRUE(read_client_first("y,,n=,r=abc", first));
  EXPECT_EQ(first.channel_binding, ChannelBinding::not_offered);
}

TEST(WireScram, RefusesClientsThatKeepNoRules) {
  ClientFirst first;
  for (const std::string& message :
       {""s, "n"s, "n,"s, "n,,"s, "x,,n=,r=abc"s, "n,a=admin,n=,r=abc"s, "n,,m=ext,n=,r=abc"s, "n,,n="s, "n,,n=,r="s,
        "n,,r=abc"s, "n,,n=,r=a c"s, "n,,n=,r=a\0c"s, "p=,,n=,r=abc"s, "p,,n=,r=abc"s,
        "n,,n=,r=" + std::string(257, 'a'), "n=x,,n=,r=abc"s}) {
    EXPECT_FALSE(read_client_first(message, first)) << message;
  }
  ClientFinal last;
  for (const std::string& message :
       {""s, "c=biws"s, "c=biws,r=abc"s, "c=biws,r=abc,p="s, "c=biws,r=abc,p=dGVzdA=="s, "r=abc,c=biws,p="s,
        "c=biws,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="s, kClientFinal + "x"}) {
    EXPECT_FALSE(read_client_final(message, last)) << message;
  }
  EXPECT_TRUE(read_client_final("c=biws,r=abc,x=ext,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=", last));
  EXPECT_EQ(last.without_proof, "c=biws,r=abc,x=ext");
}

TEST(WireScram, RefusesServersThatWouldHarm) {
  ServerFirst first;
  EXPECT_TRUE(read_server_first("r=abcdef,s=c2FsdA==,i=4096", "abc", first));
  for (const std::string& message :
       {"r=abc,s=c2FsdA==,i=4096"s,                              // added nothing of its own
        "r=xbcdef,s=c2FsdA==,i=4096"s,                           // another client's nonce
        "r=abc" + std::string(65536, 'd') + ",s=c2FsdA==,i=1"s,  // an endless nonce
        "r=abcdef,s=c2FsdA==,i=2147483648"s, "r=abcdef,s=c2FsdA==,i=99999999"s, "r=abcdef,s=c2FsdA==,i=0"s,
        "r=abcdef,s=c2FsdA==,i=-1"s, "r=abcdef,s=c2FsdA==,i="s, "r=abcdef,s=c2FsdA==,i=4096x"s, "r=abcdef,s=,i=4096"s,
        "r=abcdef,s=c2FsdA,i=4096"s, "r=abcdef,s=" + std::string(2048, 'A') + ",i=4096", "r=abcdef,s=c2FsdA=="s,
        "r=abcdef"s, "m=ext,r=abcdef,s=c2FsdA==,i=4096"s, ""s}) {
    EXPECT_FALSE(read_server_first(message, "abc", first)) << message.substr(0, 60);
  }
  std::string_view signature;
  EXPECT_FALSE(read_server_final("e=invalid-proof", signature));
  EXPECT_FALSE(read_server_final("v=dGVzdA==", signature));
  EXPECT_FALSE(read_server_final("", signature));
}

TEST(WireScram, Base64HasOneSpellingForEachSequence) {
  // RFC 4648, section 10.
  const std::pair<const char*, const char*> vectors[] = {{"", ""},
                                                         {"f", "Zg=="},
                                                         {"fo", "Zm8="},
                                                         {"foo", "Zm9v"},
                                                         {"foob", "Zm9vYg=="},
                                                         {"fooba", "Zm9vYmE="},
                                                         {"foobar", "Zm9vYmFy"}};
  for (const auto& [plain, text] : vectors) {
    std::array<std::uint8_t, 16> buffer;
    ByteWriter writer(buffer);
    write_base64(writer, as_bytes(plain));
    EXPECT_EQ(as_text(writer.written()), text);
    EXPECT_EQ(writer.length(), base64_length(std::string(plain).size()));
    std::array<std::uint8_t, 6> bytes;
    std::size_t length = 0;
    ASSERT_TRUE(read_base64(text, bytes, length)) << text;
    EXPECT_EQ(as_text(Bytes(bytes).first(length)), plain);
  }
  std::array<std::uint8_t, 6> bytes;
  std::size_t length = 0;
  for (const char* text : {"Zg", "Zg=", "Zh==", "Zm9=", "Z===", "====", "Zg==Zg==", "Zm 9", "Zm9-", "Zm9vYmFyYQ=="}) {
    EXPECT_FALSE(read_base64(text, bytes, length)) << text;
  }
}

TEST(WireScram, ReadsTheServersVerifier) {
  const std::string key = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
  const std::string verifier = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$" + key + ":" + key;
  ScramVerifier found = {};
  ASSERT_TRUE(read_scram_verifier(verifier, found));
  EXPECT_EQ(found.iterations, 4096U);
  EXPECT_EQ(found.salt, "W22ZaJ0SNY7soEsUEjb6gQ==");
  EXPECT_EQ(found.stored_key[0], 0x74);
  EXPECT_EQ(found.server_key[31], 0x54);
  for (std::size_t cut = 0; cut < verifier.size(); cut++) {
    EXPECT_FALSE(read_scram_verifier(verifier.substr(0, cut), found)) << cut;
  }
  EXPECT_FALSE(read_scram_verifier("md5" + std::string(32, 'a'), found));
  EXPECT_FALSE(read_scram_verifier(verifier + "x", found));
  EXPECT_FALSE(read_scram_verifier("SCRAM-SHA-1$" + verifier.substr(14), found));
}

TEST(WireScram, RandomChangesNeverLeaveTheText) {
  std::uint32_t state = 5;
  auto random = [&state](std::size_t below) { return state = state * 1664525U + 1013904223U, (state >> 8U) % below; };
  for (int round = 0; round < 20000; round++) {
    std::string text[] = {kClientFirst, kServerFirst, kClientFinal, kServerFinal};
    for (std::string& message : text) {
      for (std::size_t i = random(3); i > 0; i--)
        message[random(message.size())] =
            ",=nrsip\0\xFF"
            "A"[random(10)];
      message.resize(random(5) == 0 ? random(message.size() + 1) : message.size());
    }
    ClientFirst first;
    ServerFirst server;
    ClientFinal last;
    std::string_view signature;
    static_cast<void>(read_server_first(text[1], read_client_first(text[0], first) ? first.nonce : "", server));
    static_cast<void>(read_client_final(text[2], last));
    static_cast<void>(read_server_final(text[3], signature));
  }
}

}  // namespace
}  // namespace sluice::wire
