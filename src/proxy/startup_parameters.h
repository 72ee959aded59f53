// What a client asks for in its StartupMessage, judged by the pool's profile: taken as a setting, or refused by name.
// Nothing is dropped silently. Names that a setting could have and no server knows are refused by the server, when the
// settings are applied.
//
// strict: user, database, application_name, client_encoding (UTF8) and three time limits in whole milliseconds; every
// other name is refused with 0A000.
// compatible: every setting of the session, also those in `options`. Refused by name with 0A000: what PostgreSQL fixes
// when a process starts and a shared connection has fixed already, what a transaction has and a session has not,
// session_authorization, and `replication` where the pool cannot pass it through.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proxy/profile.h"
#include "wire/bytes.h"
#include "wire/startup.h"

namespace sluice::proxy {

struct Setting {
  std::string name;  // as the client wrote it; PostgreSQL compares names without case
  std::string value;

  bool operator==(const Setting&) const = default;
};

// How many settings one client may bring. pg_settings has about 350, drivers send up to ten.
inline constexpr std::size_t kMaxStartupSettings = 64;

struct StartupParameters {
  std::string user;
  std::string database;  // the user's name where the client named none
  // To be applied on each server connection this client gets, in this order. Without user, database, options and
  // replication; with application_name and client_encoding. Each name once: the last of several values counts, and
  // what has a parameter of its own counts more than the same in `options`, as in the server.
  std::vector<Setting> settings;
  wire::Replication replication = wire::Replication::no;

  [[nodiscard]] std::string_view application_name() const noexcept;
};

// Why a StartupMessage is refused. Without a problem sqlstate is empty.
struct StartupRefusal {
  std::string_view sqlstate;
  std::string message;
  std::string hint;
};

// `parameters` is well-formed, as read_startup() has it. Names that begin with "_pq_." are not looked at: they are
// answered with NegotiateProtocolVersion.
[[nodiscard]] StartupRefusal read_startup_parameters(wire::Bytes parameters, Profile profile, bool allow_replication,
                                                     StartupParameters& result);

// Whether two names mean the same setting.
[[nodiscard]] bool same_setting(std::string_view left, std::string_view right) noexcept;

}  // namespace sluice::proxy
