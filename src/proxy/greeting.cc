#include "proxy/greeting.h"

#include <array>

#include "wire/backend_messages.h"
#include "wire/frontend_messages.h"

namespace sluice::proxy {
namespace {

const Setting* find(const std::vector<Setting>& list, std::string_view name) {
  for (const Setting& setting : list) {
    if (same_setting(setting.name, name)) return &setting;
  }
  return nullptr;
}

void put(std::vector<Setting>& list, std::string_view name, std::string_view value) {
  for (Setting& setting : list) {
    if (!same_setting(setting.name, name)) continue;
    setting.value = value;
    return;
  }
  list.push_back({std::string(name), std::string(value)});
}

// It only borrows the connection.
SessionOptions without_pins(SessionOptions options) {
  options.keeps_server = false;
  options.pins = nullptr;
  return options;
}

}  // namespace

Settings to_settings(const std::vector<Setting>& list) {
  Settings settings;
  for (const Setting& setting : list) settings.set(setting.name, setting.value);
  return settings;
}

std::vector<Setting> overlaid(const std::vector<Setting>& snapshot, const std::vector<Setting>& startup) {
  std::vector<Setting> result = snapshot;
  if (const Setting* name = find(startup, "application_name")) put(result, name->name, name->value);
  return result;
}

bool needs_no_server(const std::vector<Setting>& snapshot, const std::vector<Setting>& startup) {
  for (const Setting& setting : startup) {
    if (same_setting(setting.name, "application_name")) continue;
    const Setting* reported = find(snapshot, setting.name);
    if (reported == nullptr || reported->value != setting.value) return false;
  }
  return true;
}

Greeting::Greeting(const SessionOptions& options, std::uint64_t id, const std::vector<Setting>& startup,
                   const std::vector<Setting>& snapshot)
    : options_(without_pins(options)),
      parameters_(overlaid(snapshot, startup)),
      session_(options_, id, to_settings(startup), to_settings(snapshot)) {}

void Greeting::assign(ServerState& server, Time now, Output& out) {
  server_ = &out;
  std::array<std::uint8_t, 5> sync;
  wire::ByteWriter writer(sync);
  wire::write_sync(writer);
  (void)session_.take_client(sync, now, *this);  // only now does it want a server
  session_.assign(server, now, *this);
  go_on(now);
  server_ = nullptr;
}

void Greeting::take_server(wire::Bytes bytes, Time now, Output& out) {
  server_ = &out;
  session_.take_server(bytes, now, *this);
  go_on(now);
  server_ = nullptr;
}

void Greeting::server_lost(Time now, Output& out) {
  server_ = &out;
  session_.server_lost(now, *this);
  discard_ = Discard::server_fatal;
  finished_ = true;
  server_ = nullptr;
}

void Greeting::tick(Time now, Output& out) {
  server_ = &out;
  session_.tick(now, *this);
  go_on(now);
  server_ = nullptr;
}

void Greeting::go_on(Time now) {
  if (!asked_) {
    std::array<std::uint8_t, 5> sync;
    wire::ByteWriter writer(sync);
    wire::write_sync(writer);
    asked_ = session_.take_client(sync, now, *this) == sync.size();
  }
  const Wants& wants = session_.wants();
  if (!wants.release && wants.discard == Discard::none) return;
  discard_ = wants.discard;
  (void)session_.release();
  finished_ = true;
}

void Greeting::to_server(wire::Bytes bytes) {
  if (server_ != nullptr) server_->to_server(bytes);
}

void Greeting::to_client(wire::Bytes bytes) {
  while (!bytes.empty()) {
    wire::Piece piece = walker_.next(bytes);
    if (piece.kind == wire::PieceKind::unknown_type || piece.kind == wire::PieceKind::invalid_length) return;
    if (piece.kind != wire::PieceKind::message) continue;
    if (piece.first) payload_.clear();
    payload_.insert(payload_.end(), piece.payload.begin(), piece.payload.end());
    if (!piece.last) continue;
    wire::ParameterStatus parameter;
    if (piece.type == 'S' && wire::read_parameter_status(payload_, parameter)) {
      put(parameters_, parameter.name, parameter.value);
    } else if (piece.type == 'E' && error_.empty()) {
      error_ = payload_;
    }
  }
}

}  // namespace sluice::proxy
