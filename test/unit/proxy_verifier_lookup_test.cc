#include "proxy/verifier_lookup.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "proxy_login_fixture.h"
#include "wire/frontend_messages.h"

namespace sluice::proxy {
namespace {

using namespace std::string_literals;

std::string column(const std::optional<std::string>& value) {
  if (!value) return big_endian(0xFFFFFFFF);
  return big_endian(static_cast<std::uint32_t>(value->size())) + *value;
}

std::string row(const std::optional<std::string>& verifier, const std::optional<std::string>& valid) {
  return made_message('D', "\0\2"s + column(verifier) + column(valid));
}

const std::string kBegin = made_message('1', "") + made_message('2', "");
const std::string kEnd = made_message('C', "SELECT 1\0"s) + made_message('Z', "I");

class ProxyVerifierLookup : public ::testing::Test {
 protected:
  LookupStep answer(const std::string& bytes) {
    wire::Bytes input = wire::as_bytes(bytes);
    return lookup_.receive(input);
  }

  VerifierLookup lookup_{"SELECT * FROM lookup($1);\n", "app"};
};

TEST_F(ProxyVerifierLookup, AsksWithTheNameAsAParameter) {
  Recorder out;
  lookup_.start(out);
  std::vector<SentMessage> sent = out.take_server();
  ASSERT_EQ(sent.size(), 4U);
  wire::Parse parse = {};
  ASSERT_TRUE(wire::read_parse(wire::as_bytes(sent[0].payload), parse));
  EXPECT_EQ(parse.statement, "");
  EXPECT_NE(parse.query.find("FROM (SELECT * FROM lookup($1)\n) AS q(verifier, valid_until)"), std::string::npos)
      << parse.query;
  EXPECT_EQ(parse.query.find("app"), std::string::npos);
  EXPECT_EQ(sent[1].type, 'B');
  EXPECT_EQ(sent[1].payload, "\0\0\0\0\0\1\0\0\0\3app\0\0"s);
  EXPECT_EQ(sent[2].type, 'E');
  EXPECT_EQ(sent[3].type, 'S');
}

TEST_F(ProxyVerifierLookup, ReadsARoleThatIsValidForEver) {
  EXPECT_EQ(answer(kBegin + row("SCRAM-SHA-256$x", std::nullopt)), LookupStep::need_more);
  EXPECT_EQ(answer(kEnd), LookupStep::done);
  EXPECT_TRUE(lookup_.result().has_role);
  EXPECT_EQ(lookup_.result().verifier, "SCRAM-SHA-256$x");
  EXPECT_EQ(lookup_.result().valid_for, kNever);
}

TEST_F(ProxyVerifierLookup, ReadsHowLongARoleIsValid) {
  EXPECT_EQ(answer(kBegin + row("v", "1500") + kEnd), LookupStep::done);
  EXPECT_EQ(lookup_.result().valid_for, 1500 * kMillisecond);
}

TEST_F(ProxyVerifierLookup, AnExpiredRoleIsValidForNoTime) {
  EXPECT_EQ(answer(kBegin + row("v", "-1") + kEnd), LookupStep::done);
  EXPECT_EQ(lookup_.result().valid_for, 0);
}

TEST_F(ProxyVerifierLookup, TheEndOfTimeDoesNotOverflow) {
  EXPECT_EQ(answer(kBegin + row("v", "9223372036854775807") + kEnd), LookupStep::done);
  EXPECT_EQ(lookup_.result().valid_for, kNever);
}

TEST_F(ProxyVerifierLookup, NoRowIsNoRoleAndNullIsNoPassword) {
  EXPECT_EQ(answer(kBegin + kEnd), LookupStep::done);
  EXPECT_FALSE(lookup_.result().has_role);
  VerifierLookup without_password("q", "app");
  std::string bytes = kBegin + row(std::nullopt, std::nullopt) + kEnd;
  wire::Bytes input = wire::as_bytes(bytes);
  EXPECT_EQ(without_password.receive(input), LookupStep::done);
  EXPECT_TRUE(without_password.result().has_role);
  EXPECT_EQ(without_password.result().verifier, "");
}

TEST_F(ProxyVerifierLookup, ArrivesInAnyPieces) {
  std::string bytes =
      kBegin + made_message('N', "SNOTICE\0C00000\0Mx\0\0"s) + made_message('S', "a\0b\0"s) + row("v", "7") + kEnd;
  for (std::size_t i = 0; i + 1 < bytes.size(); i++) EXPECT_EQ(answer(bytes.substr(i, 1)), LookupStep::need_more) << i;
  EXPECT_EQ(answer(bytes.substr(bytes.size() - 1)), LookupStep::done);
  EXPECT_EQ(lookup_.result().valid_for, 7 * kMillisecond);
}

TEST_F(ProxyVerifierLookup, LeavesWhatFollowsToTheCaller) {
  std::string bytes = kBegin + kEnd + "more";
  wire::Bytes input = wire::as_bytes(bytes);
  EXPECT_EQ(lookup_.receive(input), LookupStep::done);
  EXPECT_EQ(wire::as_text(input), "more");
}

TEST_F(ProxyVerifierLookup, AnErrorIsTheServersAndLeavesTheConnectionUsable) {
  EXPECT_EQ(answer(made_error("ERROR", "42883", "function does not exist")), LookupStep::need_more);
  EXPECT_EQ(answer(made_message('Z', "I")), LookupStep::failed);
  EXPECT_EQ(lookup_.sqlstate(), "42883");
  EXPECT_EQ(lookup_.message(), "function does not exist");
  EXPECT_FALSE(lookup_.result().has_role);
}

TEST_F(ProxyVerifierLookup, TwoRowsForOneRoleAreAnError) {
  EXPECT_EQ(answer(kBegin + row("v", std::nullopt) + row("w", std::nullopt) + kEnd), LookupStep::failed);
  EXPECT_EQ(lookup_.sqlstate(), "21000");
}

TEST(ProxyVerifierLookupShape, WhatIsNotTheShapeBreaksTheConnection) {
  const std::string cases[] = {
      made_error("FATAL", "57P01", "terminating"),
      made_message('E', "Mno code\0\0"s),
      made_message('E', ""),
      made_message('D', "\0\1"s + column("v")),
      made_message('D', "\0\3"s + column("v") + column("1") + column("2")),
      made_message('D', "\0\2"s + column("v")),
      made_message('D', "\0\2"s + column("v") + column("1") + "x"),
      made_message('D', "\0\2"s + column("v") + column("soon")),
      made_message('D', "\0\2"s + column("v") + column("")),
      made_message('D', "\0\2"s + column("v") + column("1.5")),
      made_message('D', "\0\2\x7F\xFF\xFF\xFFv"s),
      made_message('D', ""),
      "D" + big_endian(100'000),
      made_message('Z', "T"),
      made_message('Z', ""),
      made_message('T', "\0\0"s),
      made_message('G', "\0\0\0"s),
      "\x01\x02\x03\x04\x05\x06",
  };
  for (const std::string& bytes : cases) {
    VerifierLookup lookup("q", "app");
    wire::Bytes input = wire::as_bytes(bytes);
    EXPECT_EQ(lookup.receive(input), LookupStep::broken) << testing::PrintToString(bytes);
    EXPECT_FALSE(lookup.message().empty());
  }
}

}  // namespace
}  // namespace sluice::proxy
