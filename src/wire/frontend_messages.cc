#include "wire/frontend_messages.h"

namespace sluice::wire {
namespace {

// A message whose payload goes on behind what is written here.
void write_head(ByteWriter& out, char type, std::size_t names, std::uint32_t rest) noexcept {
  out.byte(static_cast<std::uint8_t>(type)).uint32(static_cast<std::uint32_t>(4 + names) + rest);
}

void write_named(ByteWriter& out, char type, const Named& named) noexcept {
  out.begin(type).byte(static_cast<std::uint8_t>(named.target)).text(named.name).end();
}

Reading unfinished(bool whole) noexcept { return whole ? Reading::invalid : Reading::need_more; }

}  // namespace

Reading read_parse_head(Bytes payload, bool whole, ParseHead& head) noexcept {
  ByteReader reader(payload);
  head.statement = reader.text();
  if (reader.failed()) return unfinished(whole);
  head.size = head.statement.size() + 1;
  return Reading::complete;
}

Reading read_bind_head(Bytes payload, bool whole, BindHead& head) noexcept {
  ByteReader reader(payload);
  head.portal = reader.text();
  head.statement = reader.text();
  if (reader.failed()) return unfinished(whole);
  head.size = head.portal.size() + head.statement.size() + 2;
  return Reading::complete;
}

void write_parse_head(ByteWriter& out, std::string_view statement, std::uint32_t rest) noexcept {
  write_head(out, 'P', statement.size() + 1, rest);
  out.text(statement);
}

void write_bind_head(ByteWriter& out, std::string_view portal, std::string_view statement,
                     std::uint32_t rest) noexcept {
  write_head(out, 'B', portal.size() + statement.size() + 2, rest);
  out.text(portal).text(statement);
}

bool read_parse(Bytes payload, Parse& parse) noexcept {
  ByteReader reader(payload);
  parse.statement = reader.text();
  parse.query = reader.text();
  std::size_t types = reader.uint16();
  parse.types = reader.bytes(4 * types);
  return reader.finished();
}

void write_parse(ByteWriter& out, const Parse& parse) noexcept {
  out.begin('P').text(parse.statement).text(parse.query);
  out.uint16(static_cast<std::uint16_t>(parse.types.size() / 4)).bytes(parse.types).end();
}

bool read_named(Bytes payload, Named& named) noexcept {
  ByteReader reader(payload);
  std::uint8_t target = reader.byte();
  named.name = reader.text();
  if (!reader.finished() || (target != 'S' && target != 'P')) return false;
  named.target = static_cast<Target>(target);
  return true;
}

void write_describe(ByteWriter& out, const Named& named) noexcept { write_named(out, 'D', named); }
void write_close(ByteWriter& out, const Named& named) noexcept { write_named(out, 'C', named); }

bool read_execute(Bytes payload, Execute& execute) noexcept {
  ByteReader reader(payload);
  execute.portal = reader.text();
  execute.max_rows = reader.uint32();
  return reader.finished();
}

void write_execute(ByteWriter& out, const Execute& execute) noexcept {
  out.begin('E').text(execute.portal).uint32(execute.max_rows).end();
}

bool read_query(Bytes payload, std::string_view& query) noexcept {
  ByteReader reader(payload);
  query = reader.text();
  return reader.finished();
}

void write_query(ByteWriter& out, std::string_view query) noexcept { out.begin('Q').text(query).end(); }
void write_sync(ByteWriter& out) noexcept { out.begin('S').end(); }
void write_flush(ByteWriter& out) noexcept { out.begin('H').end(); }
void write_terminate(ByteWriter& out) noexcept { out.begin('X').end(); }

bool read_password(Bytes payload, std::string_view& password) noexcept {
  ByteReader reader(payload);
  password = reader.text();
  return reader.finished();
}

void write_password(ByteWriter& out, std::string_view password) noexcept { out.begin('p').text(password).end(); }

bool read_sasl_initial_response(Bytes payload, SaslInitialResponse& response) noexcept {
  ByteReader reader(payload);
  response.mechanism = reader.text();
  std::uint32_t length = reader.uint32();
  response.data = {};
  constexpr std::uint32_t kNone = 0xFFFFFFFF;
  if (length != kNone) response.data = reader.bytes(length);
  return reader.finished() && !response.mechanism.empty();
}

void write_sasl_initial_response(ByteWriter& out, const SaslInitialResponse& response) noexcept {
  out.begin('p').text(response.mechanism).uint32(static_cast<std::uint32_t>(response.data.size()));
  out.bytes(response.data).end();
}

void write_sasl_response(ByteWriter& out, Bytes data) noexcept { out.begin('p').bytes(data).end(); }

}  // namespace sluice::wire
