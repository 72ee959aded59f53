#include "wire/startup.h"

namespace sluice::wire {
namespace {

constexpr std::uint8_t kTlsHandshakeRecord = 0x16;
constexpr std::string_view kProtocolOptionPrefix = "_pq_.";

// A list of pairs, then one NUL as the very last byte. The server walks it the same way.
bool is_well_formed(Bytes parameters) noexcept {
  ByteReader reader(parameters);
  while (reader.left() > 0) {
    if (reader.text().empty()) return reader.finished();
    static_cast<void>(reader.text());
  }
  return false;
}

Replication replication_of(std::string_view value) noexcept {
  constexpr std::string_view kTrue[] = {"true", "yes", "on", "1"};
  constexpr std::string_view kFalse[] = {"false", "no", "off", "0"};
  char lower[8] = {};
  if (value.empty() || value.size() > sizeof(lower)) return Replication::invalid;
  for (std::size_t i = 0; i < value.size(); i++) {
    char c = value[i];
    lower[i] = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  std::string_view word(lower, value.size());
  // "database" is compared exactly, Booleans may be shortened as far as they stay unique ("o" is not).
  if (value == "database") return Replication::logical;
  if (word == "o") return Replication::invalid;
  for (std::string_view full : kTrue) {
    if (full.starts_with(word)) return Replication::physical;
  }
  for (std::string_view full : kFalse) {
    if (full.starts_with(word)) return Replication::no;
  }
  return Replication::invalid;
}

StartupPacket read_cancel(StartupPacket packet, Bytes body) noexcept {
  if (body.size() < 4 + kMinCancelKeyBytes || body.size() > 4 + kMaxCancelKeyBytes) {
    packet.kind = StartupKind::invalid_length;
    return packet;
  }
  packet.kind = StartupKind::cancel_request;
  packet.cancel = {read_uint32(body.data()), body.subspan(4)};
  return packet;
}

}  // namespace

StartupPacket read_startup(Bytes input) noexcept {
  StartupPacket packet = {};
  packet.kind = StartupKind::need_more;
  // A length cannot begin with this byte: it would exceed the limit.
  if (!input.empty() && input[0] == kTlsHandshakeRecord) {
    packet.kind = StartupKind::direct_tls;
    return packet;
  }
  if (input.size() < 4) return packet;
  std::uint32_t length = read_uint32(input.data());
  if (length < kMinStartupBytes || length > kMaxStartupBytes) {
    packet.kind = StartupKind::invalid_length;
    return packet;
  }
  packet.size = length;
  if (input.size() < length) return packet;
  packet.version = read_uint32(input.data() + 4);
  Bytes body = input.subspan(8, length - 8);
  if (packet.version == kCancelRequestCode) return read_cancel(packet, body);
  if (packet.version == kSslRequestCode || packet.version == kGssencRequestCode) {
    packet.kind = packet.version == kSslRequestCode ? StartupKind::ssl_request : StartupKind::gssenc_request;
    if (!body.empty()) packet.kind = StartupKind::invalid_layout;
  } else if (packet.version >> 16U != 3) {
    packet.kind = StartupKind::unsupported_version;
  } else if (!is_well_formed(body)) {
    packet.kind = StartupKind::invalid_layout;
  } else {
    packet.kind = StartupKind::startup_message;
    packet.parameters = body;
  }
  return packet;
}

bool ParameterReader::next(std::string_view& name, std::string_view& value) noexcept {
  if (reader_.left() == 0) return false;
  name = reader_.text();
  if (name.empty()) return false;
  value = reader_.text();
  return !reader_.failed();
}

StartupSummary summarize_startup(Bytes parameters) noexcept {
  StartupSummary summary = {};
  ParameterReader reader(parameters);
  std::string_view name;
  std::string_view value;
  while (reader.next(name, value)) {
    if (name == "user") {
      summary.user = value;
    } else if (name == "database") {
      summary.database = value;
    } else if (name == "options") {
      summary.options = value;
    } else if (name == "application_name") {
      summary.application_name = value;
    } else if (name == "replication") {
      summary.replication = replication_of(value);
    } else if (name.starts_with(kProtocolOptionPrefix)) {
      summary.protocol_options++;
    }
  }
  if (summary.database.empty()) summary.database = summary.user;
  if (summary.replication == Replication::invalid) {
    summary.problem = StartupProblem::invalid_replication;
  } else if (summary.user.empty()) {
    summary.problem = StartupProblem::no_user;
  } else if (summary.user.size() > kMaxNameBytes || summary.database.size() > kMaxNameBytes) {
    summary.problem = StartupProblem::name_too_long;
  }
  return summary;
}

bool must_negotiate(std::uint32_t version, std::uint32_t newest, std::uint32_t protocol_options) noexcept {
  return version > newest || protocol_options > 0;
}

void write_negotiate_protocol_version(ByteWriter& out, std::uint32_t version, Bytes parameters) noexcept {
  out.begin('v').uint32(version).uint32(summarize_startup(parameters).protocol_options);
  ParameterReader reader(parameters);
  std::string_view name;
  std::string_view value;
  while (reader.next(name, value)) {
    if (name.starts_with(kProtocolOptionPrefix)) out.text(name);
  }
  out.end();
}

void write_ssl_request(ByteWriter& out) noexcept { out.begin(0).uint32(kSslRequestCode).end(); }

void write_cancel_request(ByteWriter& out, const CancelTarget& target) noexcept {
  out.begin(0).uint32(kCancelRequestCode).uint32(target.process_id).bytes(target.key).end();
}

void begin_startup_message(ByteWriter& out, std::uint32_t version) noexcept { out.begin(0).uint32(version); }

void add_startup_parameter(ByteWriter& out, std::string_view name, std::string_view value) noexcept {
  out.text(name).text(value);
}

void end_startup_message(ByteWriter& out) noexcept { out.byte(0).end(); }

bool equal_in_constant_time(Bytes left, Bytes right) noexcept {
  if (left.size() != right.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < left.size(); i++) difference |= static_cast<unsigned>(left[i] ^ right[i]);
  return difference == 0;
}

}  // namespace sluice::wire
