#include "wire/startup.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <list>
#include <string>
#include <vector>

namespace sluice::wire {
namespace {

using namespace std::string_literals;

std::string number(std::uint32_t value) {
  return {static_cast<char>(value >> 24U), static_cast<char>(value >> 16U), static_cast<char>(value >> 8U),
          static_cast<char>(value)};
}

std::string packet(std::uint32_t code, const std::string& body) {
  return number(static_cast<std::uint32_t>(8 + body.size())) + number(code) + body;
}

// Packets point into their input, so inputs are kept until the test ends.
std::list<std::string> kept;

StartupPacket read(const std::string& input) { return read_startup(as_bytes(kept.emplace_back(input))); }

const std::string kLogin = "user\0me\0database\0shop\0\0"s;

TEST(WireStartup, AcceptsUpToTenThousandAndFourBytesAndClosesFromTheLengthAlone) {
  std::string body = "user\0me\0options\0"s;
  body += std::string(kMaxStartupBytes - 8 - body.size() - 2, 'x') + "\0\0"s;
  std::string largest = packet(kProtocol30, body);
  ASSERT_EQ(largest.size(), 10004U);
  EXPECT_EQ(read(largest).kind, StartupKind::startup_message);
  EXPECT_EQ(read(largest).size, 10004U);
  EXPECT_EQ(read(number(10004)).kind, StartupKind::need_more);
  for (std::uint32_t length : {10005U, 7U, 4U, 0U, 0xFFFFFFFFU, 0x80000000U}) {
    EXPECT_EQ(read(number(length)).kind, StartupKind::invalid_length) << length;
  }
}

TEST(WireStartup, EveryPrefixNeedsMoreAndBytesBehindThePacketAreLeftAlone) {
  std::string whole = packet(kProtocol30, kLogin);
  for (std::size_t cut = 0; cut < whole.size(); cut++) {
    EXPECT_EQ(read(whole.substr(0, cut)).kind, StartupKind::need_more) << cut;
  }
  StartupPacket found = read(whole + "Q\0\0");
  EXPECT_EQ(found.kind, StartupKind::startup_message);
  EXPECT_EQ(found.size, whole.size());
  EXPECT_EQ(found.version, kProtocol30);
}

TEST(WireStartup, RefusesALayoutThatTheServerRefuses) {
  const std::string broken[] = {
      ""s,                        // not even a terminator
      "user\0me\0"s,              // no terminator
      "user\0me"s,                // no NUL at all behind the value
      "user\0me\0database\0\0"s,  // odd number of strings
      "user\0me\0database\0"s,    // a name without its value
      "user\0me\0\0x"s,           // something behind the terminator
      "user\0me\0\0\0"s,          // a second terminator
      "\0user\0me\0\0"s,          // a terminator first
  };
  for (const std::string& body : broken) {
    EXPECT_EQ(read(packet(kProtocol30, body)).kind, StartupKind::invalid_layout) << body.size();
  }
  // An empty list is well-formed; what is missing then is the user.
  StartupPacket empty = read(packet(kProtocol30, "\0"s));
  EXPECT_EQ(empty.kind, StartupKind::startup_message);
  EXPECT_EQ(summarize_startup(empty.parameters).problem, StartupProblem::no_user);
}

TEST(WireStartup, TellsEncryptionRequestsApart) {
  EXPECT_EQ(read(packet(kSslRequestCode, "")).kind, StartupKind::ssl_request);
  EXPECT_EQ(read(packet(kGssencRequestCode, "")).kind, StartupKind::gssenc_request);
  EXPECT_EQ(read(packet(kSslRequestCode, "x")).kind, StartupKind::invalid_layout);
  // What follows an SSLRequest is no part of it: the caller sees it and refuses it.
  EXPECT_EQ(read(packet(kSslRequestCode, "") + "early").size, 8U);
  EXPECT_EQ(read("\x16\x03\x01"s).kind, StartupKind::direct_tls);
  EXPECT_EQ(read("\x16"s).kind, StartupKind::direct_tls);
}

TEST(WireStartup, CancelKeysHaveFourTo256Bytes) {
  for (std::size_t key = 0; key < 300; key++) {
    StartupPacket found = read(packet(kCancelRequestCode, number(4711) + std::string(key, 'k')));
    if (key < 4 || key > 256) {
      EXPECT_EQ(found.kind, StartupKind::invalid_length) << key;
      continue;
    }
    ASSERT_EQ(found.kind, StartupKind::cancel_request) << key;
    EXPECT_EQ(found.cancel.process_id, 4711U);
    EXPECT_EQ(found.cancel.key.size(), key);
  }
  EXPECT_EQ(read(packet(kCancelRequestCode, std::string(9992, 'k'))).kind, StartupKind::invalid_length);
  EXPECT_EQ(read(packet(kCancelRequestCode, "abc")).kind, StartupKind::invalid_length);
}

TEST(WireStartup, AKeyOfOneByteTooManyEqualsNoKeyOfProtocol30) {
  StartupPacket found = read(packet(kCancelRequestCode, number(1) + "abcde"));
  EXPECT_FALSE(equal_in_constant_time(found.cancel.key, as_bytes("abcd")));
  EXPECT_TRUE(equal_in_constant_time(found.cancel.key, as_bytes("abcde")));
  EXPECT_FALSE(equal_in_constant_time(found.cancel.key, as_bytes("abcdf")));
}

TEST(WireStartup, OtherMajorVersionsAreUnsupportedAndMinorOnesNegotiated) {
  EXPECT_EQ(read(packet(2U << 16U, kLogin)).kind, StartupKind::unsupported_version);
  EXPECT_EQ(read(packet(4U << 16U, kLogin)).kind, StartupKind::unsupported_version);
  EXPECT_EQ(read(packet(1234U << 16U | 5681U, "")).kind, StartupKind::unsupported_version);
  StartupPacket greased = read(packet(3U << 16U | 9999U, kLogin));
  EXPECT_EQ(greased.kind, StartupKind::startup_message);
  EXPECT_TRUE(must_negotiate(greased.version, kProtocol32, 0));
  EXPECT_FALSE(must_negotiate(kProtocol32, kProtocol32, 0));
  EXPECT_FALSE(must_negotiate(kProtocol30, kProtocol32, 0));
  EXPECT_TRUE(must_negotiate(kProtocol30, kProtocol32, 1));
}

TEST(WireStartup, NegotiateProtocolVersionNamesTheUnknownOptions) {
  StartupPacket found = read(packet(kProtocol32, "user\0me\0_pq_.a\0on\0_pq_.bc\0\0\0"s));
  ASSERT_EQ(found.kind, StartupKind::startup_message);
  EXPECT_EQ(summarize_startup(found.parameters).protocol_options, 2U);
  std::array<std::uint8_t, 64> buffer;
  ByteWriter writer(buffer);
  write_negotiate_protocol_version(writer, kProtocol30, found.parameters);
  std::string body = number(kProtocol30) + number(2) + "_pq_.a\0_pq_.bc\0"s;
  EXPECT_EQ(as_text(writer.written()), "v" + number(static_cast<std::uint32_t>(4 + body.size())) + body);
}

TEST(WireStartup, SummarizesTheLogin) {
  std::string body =
      "user\0old\0user\0me\0application_name\0psql\0options\0-c a=b\0replication\0database\0search_path\0x\0\0"s;
  StartupPacket found = read(packet(kProtocol30, body));
  ASSERT_EQ(found.kind, StartupKind::startup_message);
  StartupSummary summary = summarize_startup(found.parameters);
  EXPECT_EQ(summary.problem, StartupProblem::none);
  EXPECT_EQ(summary.user, "me");
  EXPECT_EQ(summary.database, "me");
  EXPECT_EQ(summary.application_name, "psql");
  EXPECT_EQ(summary.options, "-c a=b");
  EXPECT_EQ(summary.replication, Replication::logical);
  std::vector<std::string> names;
  ParameterReader reader(found.parameters);
  std::string_view name;
  std::string_view value;
  while (reader.next(name, value)) names.emplace_back(name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"user", "user", "application_name", "options", "replication", "search_path"}));
}

TEST(WireStartup, NamesOver63BytesAreAProblem) {
  for (std::size_t length : {63U, 64U, 5000U}) {
    StartupProblem expected = length > 63 ? StartupProblem::name_too_long : StartupProblem::none;
    std::string name(length, 'n');
    EXPECT_EQ(summarize_startup(as_bytes("user\0"s + name + "\0database\0d\0\0"s)).problem, expected);
    EXPECT_EQ(summarize_startup(as_bytes("user\0me\0database\0"s + name + "\0\0"s)).problem, expected);
  }
}

TEST(WireStartup, ReplicationIsABooleanOrADatabase) {
  const std::pair<const char*, Replication> cases[] = {{"database", Replication::logical},
                                                       {"true", Replication::physical},
                                                       {"ON", Replication::physical},
                                                       {"1", Replication::physical},
                                                       {"y", Replication::physical},
                                                       {"off", Replication::no},
                                                       {"0", Replication::no},
                                                       {"f", Replication::no},
                                                       {"o", Replication::invalid},
                                                       {"maybe", Replication::invalid},
                                                       {"", Replication::invalid},
                                                       {"trueish", Replication::invalid},
                                                       {"Database", Replication::invalid},
                                                       {"overlong value", Replication::invalid}};
  for (const auto& [text, expected] : cases) {
    std::string body = "user\0me\0replication\0"s + text + "\0\0"s;
    EXPECT_EQ(summarize_startup(as_bytes(body)).replication, expected) << text;
  }
}

TEST(WireStartup, WritesWhatItReads) {
  std::array<std::uint8_t, 128> buffer;
  ByteWriter writer(buffer);
  begin_startup_message(writer, kProtocol32);
  add_startup_parameter(writer, "user", "me");
  add_startup_parameter(writer, "database", "shop");
  end_startup_message(writer);
  EXPECT_EQ(as_text(writer.written()), packet(kProtocol32, kLogin));
  ByteWriter cancel(buffer);
  write_cancel_request(cancel, {4711, as_bytes("key of the server")});
  EXPECT_EQ(as_text(cancel.written()), packet(kCancelRequestCode, number(4711) + "key of the server"));
  ByteWriter ssl(buffer);
  write_ssl_request(ssl);
  EXPECT_EQ(as_text(ssl.written()), packet(kSslRequestCode, ""));
}

// Whatever the bytes are, the reader ends, stays inside, and answers the same however much follows.
TEST(WireStartup, RandomBytesNeverConfuseIt) {
  std::uint32_t state = 12345;
  auto random = [&state] { return state = state * 1664525U + 1013904223U, state >> 16U; };
  for (int round = 0; round < 20000; round++) {
    std::string body;
    for (std::uint32_t i = random() % 40; i > 0; i--) body += "\0\0ua"[random() % 4];
    std::string whole = packet(round % 3 == 0 ? random() << 16U | random() : kProtocol30, body);
    if (round % 5 == 0) whole[random() % whole.size()] = static_cast<char>(random());
    std::vector<std::uint8_t> exact(whole.begin(), whole.end());
    StartupPacket found = read_startup(exact);
    EXPECT_LE(found.parameters.size(), exact.size());
    if (found.kind == StartupKind::startup_message) {
      ASSERT_LE(found.size, exact.size());
      static_cast<void>(summarize_startup(found.parameters));
      std::vector<std::uint8_t> longer = exact;
      longer.push_back('x');
      EXPECT_EQ(read_startup(longer).kind, found.kind);
    }
  }
}

}  // namespace
}  // namespace sluice::wire
