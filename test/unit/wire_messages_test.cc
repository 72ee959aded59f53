#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "wire/backend_messages.h"
#include "wire/frontend_messages.h"
#include "wire/startup.h"

namespace sluice::wire {
namespace {

using namespace std::string_literals;

class WireMessages : public ::testing::Test {
 protected:
  ByteWriter fresh() { return ByteWriter(buffer_); }

  // The payload of the only message that was written, after a look at its header.
  static Bytes payload(const ByteWriter& writer, char type) {
    EXPECT_TRUE(writer.ok());
    Bytes whole = writer.written();
    EXPECT_EQ(whole[0], static_cast<std::uint8_t>(type));
    EXPECT_EQ(read_uint32(whole.data() + 1), whole.size() - 1);
    return whole.subspan(5);
  }

  std::array<std::uint8_t, 512> buffer_;
};

// No shortened payload, and none with a byte more, is taken for the message.
template <typename Read>
void expect_exact(Bytes payload, Read read) {
  for (std::size_t cut = 0; cut < payload.size(); cut++) {
    std::vector<std::uint8_t> part(payload.begin(), payload.begin() + static_cast<std::ptrdiff_t>(cut));
    EXPECT_FALSE(read(Bytes(part))) << cut;
  }
  std::vector<std::uint8_t> longer(payload.begin(), payload.end());
  longer.push_back(0);
  EXPECT_FALSE(read(Bytes(longer)));
  // Last, so that what was read are views into the payload itself.
  EXPECT_TRUE(read(payload));
}

TEST_F(WireMessages, ReadyForQuery) {
  for (auto status : {TransactionStatus::idle, TransactionStatus::in_transaction, TransactionStatus::failed}) {
    ByteWriter writer = fresh();
    write_ready_for_query(writer, status);
    TransactionStatus found = {};
    expect_exact(payload(writer, 'Z'), [&](Bytes bytes) { return read_ready_for_query(bytes, found); });
    EXPECT_EQ(found, status);
  }
  TransactionStatus unused = {};
  EXPECT_FALSE(read_ready_for_query(as_bytes("X"), unused));
}

TEST_F(WireMessages, ParameterStatus) {
  ByteWriter writer = fresh();
  write_parameter_status(writer, {"TimeZone", "UTC"});
  ParameterStatus found;
  expect_exact(payload(writer, 'S'), [&](Bytes bytes) { return read_parameter_status(bytes, found); });
  EXPECT_EQ(found.name, "TimeZone");
  EXPECT_EQ(found.value, "UTC");
  EXPECT_FALSE(read_parameter_status(as_bytes("\0x\0"s), found));
}

TEST_F(WireMessages, BackendKeysHaveFourBytesIn30AndUpTo256In32) {
  for (std::size_t size : {3U, 4U, 5U, 32U, 256U, 257U}) {
    std::string secret(size, 's');
    ByteWriter writer = fresh();
    write_backend_key(writer, {99, as_bytes(secret)});
    BackendKey found;
    EXPECT_EQ(read_backend_key(payload(writer, 'K'), kProtocol30, found), size == 4) << size;
    EXPECT_EQ(read_backend_key(payload(writer, 'K'), kProtocol32, found), size >= 4 && size <= 256) << size;
    EXPECT_EQ(found.process_id, 99U);
    EXPECT_EQ(as_text(found.key), secret);
  }
  BackendKey found;
  EXPECT_FALSE(read_backend_key(as_bytes("abc"), kProtocol32, found));
}

TEST_F(WireMessages, CommandCompleteAndEmptyOnes) {
  ByteWriter writer = fresh();
  write_command_complete(writer, "INSERT 0 1");
  std::string_view tag;
  expect_exact(payload(writer, 'C'), [&](Bytes bytes) { return read_command_complete(bytes, tag); });
  EXPECT_EQ(tag, "INSERT 0 1");
  ByteWriter empty = fresh();
  write_empty_message(empty, '1');
  EXPECT_TRUE(payload(empty, '1').empty());
}

TEST_F(WireMessages, NegotiatedVersion) {
  ByteWriter writer = fresh();
  std::string names = "_pq_.x\0on\0_pq_.y\0on\0\0"s;
  write_negotiate_protocol_version(writer, kProtocol30, as_bytes(names));
  NegotiatedVersion found = {};
  expect_exact(payload(writer, 'v'), [&](Bytes bytes) { return read_negotiated_version(bytes, found); });
  EXPECT_EQ(found.version, kProtocol30);
  EXPECT_EQ(found.unknown_options, 2U);
  EXPECT_FALSE(read_negotiated_version(as_bytes("\0\3\0\0\xFF\xFF\xFF\xFF"s), found));
}

TEST_F(WireMessages, Authentication) {
  Authentication found = {};
  ByteWriter ok = fresh();
  write_authentication(ok, AuthenticationCode::ok, {});
  expect_exact(payload(ok, 'R'), [&](Bytes bytes) { return read_authentication(bytes, found); });
  EXPECT_EQ(found.code, AuthenticationCode::ok);
  EXPECT_FALSE(read_authentication(as_bytes("\0\0\0\5abc"s), found));
  EXPECT_TRUE(read_authentication(as_bytes("\0\0\0\5abcd"s), found));
  ByteWriter offer = fresh();
  write_sasl_offer(offer, "SCRAM-SHA-256-PLUS", "SCRAM-SHA-256");
  ASSERT_TRUE(read_authentication(payload(offer, 'R'), found));
  EXPECT_EQ(found.code, AuthenticationCode::sasl);
  EXPECT_TRUE(offers_mechanism(found.data, "SCRAM-SHA-256"));
  EXPECT_TRUE(offers_mechanism(found.data, "SCRAM-SHA-256-PLUS"));
  EXPECT_FALSE(offers_mechanism(found.data, "SCRAM-SHA-1"));
  EXPECT_FALSE(offers_mechanism(found.data, ""));
  for (std::size_t cut = 0; cut < found.data.size(); cut++) {
    EXPECT_FALSE(offers_mechanism(found.data.first(cut), "SCRAM-SHA-256")) << cut;
  }
  EXPECT_FALSE(offers_mechanism(as_bytes("A\0\0B\0\0"s), "A"));
}

TEST_F(WireMessages, HeadsAreReadFromTheBeginningAndReplaced) {
  std::string bind = "portal\0client_name\0\0\0\0\1the rest"s;
  BindHead head = {};
  for (std::size_t cut = 0; cut < bind.size(); cut++) {
    Reading expected = cut < 19 ? Reading::need_more : Reading::complete;
    EXPECT_EQ(read_bind_head(as_bytes(bind).first(cut), false, head), expected) << cut;
  }
  EXPECT_EQ(read_bind_head(as_bytes(bind).first(18), true, head), Reading::invalid);
  ASSERT_EQ(read_bind_head(as_bytes(bind), true, head), Reading::complete);
  EXPECT_EQ(head.portal, "portal");
  EXPECT_EQ(head.statement, "client_name");
  EXPECT_EQ(head.size, 19U);
  ByteWriter writer = fresh();
  Bytes rest = as_bytes(bind).subspan(head.size);
  write_bind_head(writer, head.portal, "s_1", static_cast<std::uint32_t>(rest.size()));
  writer.bytes(rest);
  EXPECT_EQ(as_text(payload(writer, 'B')), "portal\0s_1\0\0\0\0\1the rest"s);

  ParseHead parse = {};
  EXPECT_EQ(read_parse_head(as_bytes("name"), false, parse), Reading::need_more);
  EXPECT_EQ(read_parse_head(as_bytes("name"), true, parse), Reading::invalid);
  std::string whole = "name\0select 1\0\0\0"s;
  ASSERT_EQ(read_parse_head(as_bytes(whole), true, parse), Reading::complete);
  EXPECT_EQ(parse.statement, "name");
  ByteWriter again = fresh();
  write_parse_head(again, "s_2", static_cast<std::uint32_t>(whole.size() - parse.size));
  again.bytes(as_bytes(whole).subspan(parse.size));
  EXPECT_EQ(as_text(payload(again, 'P')), "s_2\0select 1\0\0\0"s);
}

TEST_F(WireMessages, ParseWithItsTypes) {
  ByteWriter writer = fresh();
  write_parse(writer, {"s", "select $1", as_bytes("\0\0\0\x17\0\0\0\x19"s)});
  Parse found;
  expect_exact(payload(writer, 'P'), [&](Bytes bytes) { return read_parse(bytes, found); });
  EXPECT_EQ(found.query, "select $1");
  EXPECT_EQ(found.types.size(), 8U);
  EXPECT_FALSE(read_parse(as_bytes("s\0q\0\xFF\xFF"s), found));
}

TEST_F(WireMessages, DescribeCloseExecuteAndQuery) {
  Named named = {};
  ByteWriter describe = fresh();
  write_describe(describe, {Target::statement, "s1"});
  expect_exact(payload(describe, 'D'), [&](Bytes bytes) { return read_named(bytes, named); });
  EXPECT_EQ(named.target, Target::statement);
  ByteWriter close = fresh();
  write_close(close, {Target::portal, ""});
  expect_exact(payload(close, 'C'), [&](Bytes bytes) { return read_named(bytes, named); });
  EXPECT_EQ(named.target, Target::portal);
  EXPECT_EQ(named.name, "");
  EXPECT_FALSE(read_named(as_bytes("Xname\0"s), named));
  Execute execute = {};
  ByteWriter run = fresh();
  write_execute(run, {"p", 50});
  expect_exact(payload(run, 'E'), [&](Bytes bytes) { return read_execute(bytes, execute); });
  EXPECT_EQ(execute.max_rows, 50U);
  std::string_view query;
  ByteWriter text = fresh();
  write_query(text, "select 1");
  expect_exact(payload(text, 'Q'), [&](Bytes bytes) { return read_query(bytes, query); });
  EXPECT_EQ(query, "select 1");
  EXPECT_FALSE(read_query(as_bytes("a\0b\0"s), query));
}

TEST_F(WireMessages, MessagesWithoutPayload) {
  ByteWriter writer = fresh();
  write_sync(writer);
  write_flush(writer);
  write_terminate(writer);
  EXPECT_EQ(as_text(writer.written()), "S\0\0\0\4H\0\0\0\4X\0\0\0\4"s);
}

TEST_F(WireMessages, PasswordsAndSaslResponses) {
  std::string_view password;
  ByteWriter writer = fresh();
  write_password(writer, "geheim");
  expect_exact(payload(writer, 'p'), [&](Bytes bytes) { return read_password(bytes, password); });
  EXPECT_EQ(password, "geheim");
  SaslInitialResponse found;
  ByteWriter initial = fresh();
  write_sasl_initial_response(initial, {"SCRAM-SHA-256", as_bytes("n,,n=,r=abc")});
  expect_exact(payload(initial, 'p'), [&](Bytes bytes) { return read_sasl_initial_response(bytes, found); });
  EXPECT_EQ(found.mechanism, "SCRAM-SHA-256");
  EXPECT_EQ(as_text(found.data), "n,,n=,r=abc");
  EXPECT_TRUE(read_sasl_initial_response(as_bytes("M\0\xFF\xFF\xFF\xFF"s), found));
  EXPECT_TRUE(found.data.empty());
  EXPECT_FALSE(read_sasl_initial_response(as_bytes("M\0\x7F\xFF\xFF\xFFx"s), found));
  EXPECT_FALSE(read_sasl_initial_response(as_bytes("\0\0\0\0\0"s), found));
  ByteWriter later = fresh();
  write_sasl_response(later, as_bytes("c=biws"));
  EXPECT_EQ(as_text(payload(later, 'p')), "c=biws");
}

}  // namespace
}  // namespace sluice::wire
