#include "proxy/verifier_lookup.h"

#include <charconv>

#include "proxy/message_buffer.h"
#include "wire/backend_messages.h"
#include "wire/error_response.h"
#include "wire/frontend_messages.h"

namespace sluice::proxy {
namespace {

constexpr std::uint32_t kMaxAnswerBytes = 30000;  // as long as an ErrorResponse may be
constexpr std::int64_t kMaxMilliseconds = kNever / kMillisecond / 2;

// The query sits inside another one that turns the end of validity into milliseconds by the server's own clock, so that
// neither time zones nor DateStyle matter. A line break ends a comment at the query's end.
std::string wrapped(std::string_view query) {
  std::size_t end = query.find_last_not_of("; \t\r\n");
  return "SELECT q.verifier, CASE WHEN q.valid_until IS NULL THEN NULL"
         " WHEN pg_catalog.isfinite(q.valid_until) THEN CAST(pg_catalog.floor(pg_catalog.date_part('epoch',"
         " q.valid_until OPERATOR(pg_catalog.-) pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000)"
         " AS pg_catalog.int8)"
         " WHEN q.valid_until OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp() THEN NULL ELSE -1 END FROM (" +
         std::string(query.substr(0, end + 1)) + "\n) AS q(verifier, valid_until)";
}

// One column of a DataRow. False where there is none.
bool take_column(wire::ByteReader& reader, std::string_view& value, bool& is_null) {
  constexpr std::uint32_t kNull = 0xFFFFFFFF;
  std::uint32_t length = reader.uint32();
  is_null = length == kNull;
  value = is_null ? std::string_view() : wire::as_text(reader.bytes(length));
  return !reader.failed();
}

}  // namespace

VerifierLookup::VerifierLookup(std::string_view query, std::string_view user)
    : query_(wrapped(query)),
      user_(user),
      walker_(wire::Direction::backend, wire::Phase::relay, kMaxAnswerBytes),
      storage_(kMaxAnswerBytes),
      collector_(storage_) {}

VerifierLookup::~VerifierLookup() {
  OPENSSL_cleanse(storage_.data(), storage_.size());
  OPENSSL_cleanse(result_.verifier.data(), result_.verifier.size());
}

void VerifierLookup::start(Output& out) {
  out.to_server(make_message(query_.size() + user_.size() + kMessageFrameBytes, [&](wire::ByteWriter& writer) {
    wire::write_parse(writer, {{}, query_, {}});
    // No format for the parameter, one parameter, no format for the columns: all in text.
    auto rest = static_cast<std::uint32_t>(2 + 2 + 4 + user_.size() + 2);
    wire::write_bind_head(writer, {}, {}, rest);
    writer.uint16(0).uint16(1).uint32(static_cast<std::uint32_t>(user_.size())).bytes(wire::as_bytes(user_)).uint16(0);
    wire::write_execute(writer, {{}, 0});
    wire::write_sync(writer);
  }));
}

LookupStep VerifierLookup::receive(wire::Bytes& input) {
  for (;;) {
    wire::Piece piece = walker_.next(input);
    if (piece.kind == wire::PieceKind::nothing || piece.kind == wire::PieceKind::partial_header) {
      return LookupStep::need_more;
    }
    if (piece.kind != wire::PieceKind::message) return broken("not a message that could be an answer");
    wire::Collected collected = collector_.add(piece);
    if (collected == wire::Collected::more) continue;
    if (collected == wire::Collected::too_long) return broken("a message is too long");
    LookupStep step = message(piece.type, collector_.payload());
    if (step != LookupStep::need_more) return step;
  }
}

LookupStep VerifierLookup::message(std::uint8_t type, wire::Bytes payload) {
  wire::TransactionStatus status = {};
  wire::ErrorFields error;
  switch (type) {
    case '1':  // ParseComplete
    case '2':  // BindComplete
    case 'C':  // CommandComplete
    case 'N':
    case 'S':
    case 'A':
      return LookupStep::need_more;
    case 'D':
      return row(payload) ? LookupStep::need_more : broken("the row has not two columns of text and time");
    case 'E':
      if (!wire::read_error(payload, error)) return broken("malformed ErrorResponse");
      failed_ = true;
      sqlstate_ = error.sqlstate();
      message_ = error.message();
      return error.is_fatal() ? LookupStep::broken : LookupStep::need_more;
    case 'Z':
      if (!wire::read_ready_for_query(payload, status) || status != wire::TransactionStatus::idle) {
        return broken("the connection is not idle afterwards");
      }
      if (rows_ > 1 && !failed_) {
        failed_ = true;
        sqlstate_ = "21000";
        message_ = "the query returns more than one row for one role";
      }
      return failed_ ? LookupStep::failed : LookupStep::done;
    default:
      return broken("unexpected message of the server");
  }
}

bool VerifierLookup::row(wire::Bytes payload) {
  wire::ByteReader reader(payload);
  std::string_view verifier;
  std::string_view valid;
  bool no_verifier = false;
  bool valid_for_ever = false;
  bool complete = reader.uint16() == 2 && take_column(reader, verifier, no_verifier) &&
                  take_column(reader, valid, valid_for_ever) && reader.finished();
  if (!complete) return false;
  rows_++;
  result_.has_role = true;
  result_.verifier = verifier;
  result_.valid_for = kNever;
  if (valid_for_ever) return true;
  std::int64_t milliseconds = 0;
  auto [end, problem] = std::from_chars(valid.data(), valid.data() + valid.size(), milliseconds);
  if (problem != std::errc() || end != valid.data() + valid.size()) return false;
  if (milliseconds < kMaxMilliseconds) result_.valid_for = milliseconds < 0 ? 0 : milliseconds * kMillisecond;
  return true;
}

LookupStep VerifierLookup::broken(std::string_view message) {
  message_ = message;
  return LookupStep::broken;
}

}  // namespace sluice::proxy
