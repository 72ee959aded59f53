#include "proxy/credential_file.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice::proxy {
namespace {

const std::string kVerifier =
    "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:"
    "wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";

TEST(ProxyCredentialFile, ReadsVerifiersAndPasswords) {
  CredentialFile file = read_credential_file("# roles\n\n\"app\" \"" + kVerifier + "\"\n  batch\tsecret # why\r\n" +
                                             R"("a ""b"" c" "pass ""word"" #1")");
  EXPECT_EQ(file.error, "");
  ASSERT_EQ(file.entries.size(), 3U);
  EXPECT_EQ(file.entries[0].user, "app");
  EXPECT_FALSE(file.entries[0].has_password);
  EXPECT_EQ(file.entries[0].keys.verifier.salt, "W22ZaJ0SNY7soEsUEjb6gQ==");
  EXPECT_EQ(file.entries[1].user, "batch");
  EXPECT_TRUE(file.entries[1].has_password);
  EXPECT_EQ(file.entries[1].password.view(), "secret");
  EXPECT_EQ(file.entries[2].user, "a \"b\" c");
  EXPECT_EQ(file.entries[2].password.view(), "pass \"word\" #1");
}

TEST(ProxyCredentialFile, APasswordBecomesAVerifierWithASaltOfItsOwn) {
  CredentialFile first = read_credential_file("app secret");
  CredentialFile second = read_credential_file("app secret");
  ASSERT_EQ(first.entries.size(), 1U);
  ASSERT_EQ(second.entries.size(), 1U);
  EXPECT_NE(first.entries[0].keys.verifier.salt, second.entries[0].keys.verifier.salt);
  ClientKeys again;
  ASSERT_TRUE(derive_keys("secret", first.entries[0].keys.verifier.salt, 4096, again));
  EXPECT_TRUE(same_verifier(again.verifier, first.entries[0].keys.verifier));
}

TEST(ProxyCredentialFile, AnErrorNamesTheLineAndNeverTheSecret) {
  const std::string cases[] = {
      "app",                                               // no secret
      "\"app\" \"sesame",                                  // a quote that is not closed
      "\"app sesame",                                      //
      "app sesame more",                                   // a third word
      "app \"\"",                                          // empty
      "\"\" sesame",                                       // no name
      std::string(64, 'x') + " sesame",                    // too long for one
      "app md5" + std::string(32, 'a'),                    // md5
      "app SCRAM-SHA-256$sesame",                          // malformed
      "app " + kVerifier.substr(0, kVerifier.size() - 4),  //
      "app sesame\napp sesame",                            // twice
  };
  for (const std::string& text : cases) {
    CredentialFile file = read_credential_file("first sesame\n" + text + "\n");
    EXPECT_TRUE(file.error.starts_with(text.find('\n') == std::string::npos ? "line 2: " : "line 3: "))
        << text << " -> " << file.error;
    EXPECT_EQ(file.error.find("sesame"), std::string::npos);
    EXPECT_TRUE(file.entries.empty()) << text;
  }
}

TEST(ProxyCredentialFile, NothingIsAFileToo) {
  for (std::string text : {"", "\n", "# nothing", " \t\r\n\n"}) {
    CredentialFile file = read_credential_file(text);
    EXPECT_EQ(file.error, "");
    EXPECT_TRUE(file.entries.empty());
  }
}

TEST(ProxyCredentialFile, PasswordsAreLimitedForTheTimeTheirHashesTake) {
  std::string text;
  for (std::size_t i = 0; i < kMaxFilePasswords; i++) text += "p" + std::to_string(i) + " secret\n";
  for (std::size_t i = 0; i < 50; i++) text += "v" + std::to_string(i) + " " + kVerifier + "\n";
  EXPECT_EQ(read_credential_file(text).entries.size(), kMaxFilePasswords + 50);
  CredentialFile file = read_credential_file(text + "last secret");
  EXPECT_TRUE(file.error.starts_with("line 1051: ")) << file.error;
  EXPECT_TRUE(file.entries.empty());
}

}  // namespace
}  // namespace sluice::proxy
