// The proxy's log: lines of JSON (or text) on standard error, written by a thread of its own, so that no client waits
// for a terminal or a pipe. Owns that thread, its bounded queue, and the throttle: of one message only so many lines
// are written within a window, the rest is counted and summed up in one line.
//
// A message is a constant sentence, what varies goes into fields: messages are what the throttle counts by, and what
// people search for. Values are escaped and cut; passwords, proofs and keys are never handed in, and fields that are
// called so are hidden all the same.
//
// Any thread may write.
#pragma once

#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "proxy/config.h"
#include "proxy/time.h"

namespace spdlog {
class logger;
namespace details {
class thread_pool;
}
}  // namespace spdlog

namespace sluice::proxy {

inline constexpr std::size_t kMaxLogValueBytes = 1024;
// Messages the throttle remembers. They are constants of the program, so there are far fewer.
inline constexpr std::size_t kMaxLogMessages = 1024;

struct LogField {
  LogField(std::string_view name, std::string_view text) : name(name), text(text) {}
  LogField(std::string_view name, const char* text) : name(name), text(text) {}
  LogField(std::string_view name, const std::string& text) : name(name), text(text) {}
  template <typename Integer>
  requires std::is_integral_v<Integer> LogField(std::string_view name, Integer number)
      : name(name), number(static_cast<std::int64_t>(number)), is_number(true) {}

  std::string_view name;
  std::string_view text;
  std::int64_t number = 0;
  bool is_number = false;
};

using LogFields = std::initializer_list<LogField>;

class Log {
 public:
  // `out` is not closed.
  explicit Log(const LogConfig& config, std::FILE* out = stderr);
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  // Levels, filter and throttle of a reloaded configuration; format and queue stay.
  void set_levels(const LogConfig& config);

  [[nodiscard]] bool writes(LogLevel level, std::string_view topic) const;
  void write(LogLevel level, std::string_view topic, std::string_view message, LogFields fields, Time now);

  void debug(std::string_view topic, std::string_view message, Time now, LogFields fields = {}) {
    write(LogLevel::debug, topic, message, fields, now);
  }
  void info(std::string_view topic, std::string_view message, Time now, LogFields fields = {}) {
    write(LogLevel::info, topic, message, fields, now);
  }
  void warning(std::string_view topic, std::string_view message, Time now, LogFields fields = {}) {
    write(LogLevel::warning, topic, message, fields, now);
  }
  void error(std::string_view topic, std::string_view message, Time now, LogFields fields = {}) {
    write(LogLevel::error, topic, message, fields, now);
  }

  // Sums up what was suppressed in windows that have ended, and what a full queue dropped. To be called every second or
  // so.
  void tick(Time now);
  // Waits until everything is written: before the process ends.
  void flush();

 private:
  struct Message {
    LogLevel level = LogLevel::info;
    std::string topic;
    Time window_end = 0;
    std::uint32_t written = 0;
    std::uint64_t suppressed = 0;
  };

  [[nodiscard]] bool passes_throttle(LogLevel level, std::string_view topic, std::string_view message, Time now);
  [[nodiscard]] LogLevel level_of(std::string_view topic) const;
  void sum_up(const std::string& text, Message& message);
  void put(LogLevel level, std::string_view topic, std::string_view message, LogFields fields);

  mutable std::mutex mutex_;
  LogFormat format_;
  LogLevel level_;
  std::map<std::string, LogLevel, std::less<>> topics_;
  std::uint32_t max_per_message_;
  Time window_;
  std::unordered_map<std::string, Message> messages_;
  std::shared_ptr<spdlog::details::thread_pool> writer_;
  std::shared_ptr<spdlog::logger> logger_;
  std::size_t dropped_ = 0;
};

// One line without its newline. `time` is microseconds of the wall clock.
[[nodiscard]] std::string log_line(LogFormat format, std::int64_t time, LogLevel level, std::string_view topic,
                                   std::string_view message, LogFields fields);

// The content of a JSON string: escaped, cut to kMaxLogValueBytes, and what is no UTF-8 replaced.
[[nodiscard]] std::string json_text(std::string_view text);

}  // namespace sluice::proxy
