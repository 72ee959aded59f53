#include "wire/backend_messages.h"

#include "wire/startup.h"

namespace sluice::wire {

bool read_ready_for_query(Bytes payload, TransactionStatus& status) noexcept {
  if (payload.size() != 1 || (payload[0] != 'I' && payload[0] != 'T' && payload[0] != 'E')) return false;
  status = static_cast<TransactionStatus>(payload[0]);
  return true;
}

void write_ready_for_query(ByteWriter& out, TransactionStatus status) noexcept {
  out.begin('Z').byte(static_cast<std::uint8_t>(status)).end();
}

bool read_parameter_status(Bytes payload, ParameterStatus& parameter) noexcept {
  ByteReader reader(payload);
  parameter.name = reader.text();
  parameter.value = reader.text();
  return reader.finished() && !parameter.name.empty();
}

void write_parameter_status(ByteWriter& out, const ParameterStatus& parameter) noexcept {
  out.begin('S').text(parameter.name).text(parameter.value).end();
}

bool read_backend_key(Bytes payload, std::uint32_t version, BackendKey& key) noexcept {
  ByteReader reader(payload);
  key.process_id = reader.uint32();
  key.key = reader.rest();
  if (reader.failed() || key.key.size() < kMinCancelKeyBytes || key.key.size() > kMaxCancelKeyBytes) return false;
  return version >= kProtocol32 || key.key.size() == kMinCancelKeyBytes;
}

void write_backend_key(ByteWriter& out, const BackendKey& key) noexcept {
  out.begin('K').uint32(key.process_id).bytes(key.key).end();
}

bool read_command_complete(Bytes payload, std::string_view& tag) noexcept {
  ByteReader reader(payload);
  tag = reader.text();
  return reader.finished();
}

void write_command_complete(ByteWriter& out, std::string_view tag) noexcept { out.begin('C').text(tag).end(); }

void write_empty_message(ByteWriter& out, char type) noexcept { out.begin(type).end(); }

bool read_negotiated_version(Bytes payload, NegotiatedVersion& negotiated) noexcept {
  ByteReader reader(payload);
  negotiated.version = reader.uint32();
  negotiated.unknown_options = reader.uint32();
  // Each name takes at least one byte, so a count the payload cannot hold is refused before it is counted through.
  if (negotiated.unknown_options > reader.left()) return false;
  for (std::uint32_t i = 0; i < negotiated.unknown_options && !reader.failed(); i++) {
    if (reader.text().empty()) return false;
  }
  return reader.finished();
}

bool read_authentication(Bytes payload, Authentication& authentication) noexcept {
  ByteReader reader(payload);
  authentication.code = static_cast<AuthenticationCode>(reader.uint32());
  authentication.data = reader.rest();
  if (reader.failed()) return false;
  switch (authentication.code) {
    case AuthenticationCode::ok:
    case AuthenticationCode::cleartext_password:
    case AuthenticationCode::gss:
    case AuthenticationCode::sspi:
      return authentication.data.empty();
    case AuthenticationCode::md5_password:
      return authentication.data.size() == 4;
    default:
      return true;
  }
}

void write_authentication(ByteWriter& out, AuthenticationCode code, Bytes data) noexcept {
  out.begin('R').uint32(static_cast<std::uint32_t>(code)).bytes(data).end();
}

bool offers_mechanism(Bytes mechanisms, std::string_view mechanism) noexcept {
  ByteReader reader(mechanisms);
  bool found = false;
  while (reader.left() > 0) {
    std::string_view offered = reader.text();
    if (offered.empty()) return found && reader.finished();
    found = found || offered == mechanism;
  }
  return false;
}

void write_sasl_offer(ByteWriter& out, std::string_view first, std::string_view second) noexcept {
  out.begin('R').uint32(static_cast<std::uint32_t>(AuthenticationCode::sasl)).text(first);
  if (!second.empty()) out.text(second);
  out.byte(0).end();
}

}  // namespace sluice::wire
