// What a service manager is told about the process: systemd's protocol of one datagram, without its library.
#pragma once

#include <string_view>

namespace sluice::proxy {

// Sends e.g. "READY=1", "STOPPING=1" or "STATUS=…" to the socket that NOTIFY_SOCKET names. False where there is none,
// or where it could not be sent; nothing depends on it.
bool notify_supervisor(std::string_view state) noexcept;

// As a manager wants a reload announced (Type=notify-reload): RELOADING=1 with the monotonic time in microseconds.
bool notify_reloading(long long monotonic_microseconds) noexcept;

}  // namespace sluice::proxy
