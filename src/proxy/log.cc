#include "proxy/log.h"

#include <spdlog/async.h>
#include <spdlog/async_logger.h>
#include <spdlog/details/thread_pool.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <chrono>

namespace sluice::proxy {
namespace {

constexpr std::array kLevelNames{"debug", "info", "warning", "error"};

const char* level_name(LogLevel level) { return kLevelNames[static_cast<std::size_t>(level)]; }

// Lines are whole when they come here. Standard error has no buffer, so one write a line keeps them whole in a pipe
// too.
class LineSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit LineSink(std::FILE* out) : out_(out) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    line_.assign(message.payload.data(), message.payload.size());
    line_ += '\n';
    std::fwrite(line_.data(), 1, line_.size(), out_);
  }
  void flush_() override { std::fflush(out_); }

 private:
  std::FILE* out_;
  std::string line_;
};

// The length of the UTF-8 sequence at the front, or 0 when it is none (Table 3-7 of the Unicode standard).
std::size_t sequence_length(std::string_view text) {
  auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (at(0) < 0x80) return 1;
  std::size_t length = at(0) >= 0xF0 ? 4 : at(0) >= 0xE0 ? 3 : 2;
  if (at(0) < 0xC2 || at(0) > 0xF4 || length > text.size()) return 0;
  unsigned char low = at(0) == 0xE0 ? 0xA0 : at(0) == 0xF0 ? 0x90 : 0x80;
  unsigned char high = at(0) == 0xED ? 0x9F : at(0) == 0xF4 ? 0x8F : 0xBF;
  if (at(1) < low || at(1) > high) return 0;
  for (std::size_t i = 2; i < length; i++) {
    if ((at(i) & 0xC0U) != 0x80U) return 0;
  }
  return length;
}

// Whoever names a field so has made a mistake, and the value must not be the price of it.
bool is_secret(std::string_view name) {
  for (std::string_view word : {"password", "secret", "token", "proof", "client_key", "server_key", "stored_key"}) {
    if (name.find(word) != std::string_view::npos) return true;
  }
  return false;
}

std::string time_text(std::int64_t time) {
  std::time_t seconds = time / kSecond;
  tm parts{};
  gmtime_r(&seconds, &parts);
  char text[40];
  std::size_t length = strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text + length, sizeof(text) - length, ".%03dZ", static_cast<int>(time % kSecond / kMillisecond));
  return text;
}

std::int64_t wall_clock() {
  auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

}  // namespace

std::string json_text(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string result;
  bool cut = text.size() > kMaxLogValueBytes;
  if (cut) {
    std::size_t length = kMaxLogValueBytes;
    while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xC0U) == 0x80U) length--;
    text = text.substr(0, length);
  }
  while (!text.empty()) {
    auto byte = static_cast<unsigned char>(text.front());
    std::size_t length = sequence_length(text);
    if (length == 0) {
      result += "\xEF\xBF\xBD";
      length = 1;
    } else if (byte == '"' || byte == '\\') {
      result += {'\\', text.front()};
    } else if (byte < 0x20 || byte == 0x7F) {
      result += "\\u00";
      result += {kHex[byte >> 4U], kHex[byte & 15U]};
    } else {
      result += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  return cut ? result + "…" : result;
}

std::string log_line(LogFormat format, std::int64_t time, LogLevel level, std::string_view topic,
                     std::string_view message, LogFields fields) {
  bool json = format == LogFormat::json;
  std::string result;
  if (json) {
    result = R"({"time":")" + time_text(time) + R"(","level":")" + level_name(level) + R"(","topic":")" +
             json_text(topic) + R"(","message":")" + json_text(message) + '"';
  } else {
    result = time_text(time) + " " + level_name(level) + " " + json_text(topic) + ": " + json_text(message);
  }
  for (const LogField& field : fields) {
    std::string value = is_secret(field.name) ? "\"(hidden)\""
                        : field.is_number     ? std::to_string(field.number)
                                              : '"' + json_text(field.text) + '"';
    result += json ? ",\"" + json_text(field.name) + "\":" + value : " " + json_text(field.name) + "=" + value;
  }
  return json ? result + '}' : result;
}

Log::Log(const LogConfig& config, std::FILE* out)
    : format_(config.format), writer_(std::make_shared<spdlog::details::thread_pool>(config.queue_lines, 1)) {
  // When the queue is full the newest lines are worth more than the oldest.
  logger_ = std::make_shared<spdlog::async_logger>("sluice", std::make_shared<LineSink>(out), writer_,
                                                   spdlog::async_overflow_policy::overrun_oldest);
  logger_->set_level(spdlog::level::trace);
  set_levels(config);
}

Log::~Log() {
  writer_.reset();  // writes what is queued, then ends its thread: only then nobody uses the logger any more
  logger_.reset();
}

void Log::set_levels(const LogConfig& config) {
  std::lock_guard lock(mutex_);
  level_ = config.level;
  max_per_message_ = config.max_per_message;
  window_ = config.window;
  topics_.clear();
  for (const std::string& each : config.filter) {
    std::size_t equals = each.find('=');
    if (equals == std::string::npos) continue;
    const auto* found = std::ranges::find(kLevelNames, each.substr(equals + 1));
    if (found == kLevelNames.end()) continue;
    topics_[each.substr(0, equals)] = static_cast<LogLevel>(found - kLevelNames.begin());
  }
}

LogLevel Log::level_of(std::string_view topic) const {
  auto found = topics_.find(topic);
  return found == topics_.end() ? level_ : found->second;
}

bool Log::writes(LogLevel level, std::string_view topic) const {
  std::lock_guard lock(mutex_);
  return level >= level_of(topic);
}

bool Log::passes_throttle(LogLevel level, std::string_view topic, std::string_view message, Time now) {
  auto found = messages_.find(std::string(message));
  if (found == messages_.end()) {
    if (messages_.size() >= kMaxLogMessages) {
      std::erase_if(messages_,
                    [&](const auto& each) { return each.second.window_end <= now && each.second.suppressed == 0; });
    }
    if (messages_.size() >= kMaxLogMessages) return true;
    found = messages_.emplace(message, Message{}).first;
  }
  Message& entry = found->second;
  if (now >= entry.window_end) {
    sum_up(found->first, entry);
    entry = {level, std::string(topic), now + window_, 0, 0};
  }
  if (entry.written >= max_per_message_) {
    entry.suppressed++;
    return false;
  }
  entry.written++;
  return true;
}

void Log::sum_up(const std::string& text, Message& message) {
  if (message.suppressed == 0) return;
  put(message.level, message.topic, "more lines of the same message were suppressed",
      {{"suppressed_message", text}, {"suppressed", message.suppressed}});
  message.suppressed = 0;
}

void Log::put(LogLevel level, std::string_view topic, std::string_view message, LogFields fields) {
  logger_->log(spdlog::level::info, log_line(format_, wall_clock(), level, topic, message, fields));
}

void Log::write(LogLevel level, std::string_view topic, std::string_view message, LogFields fields, Time now) {
  std::lock_guard lock(mutex_);
  if (level < level_of(topic) || !passes_throttle(level, topic, message, now)) return;
  put(level, topic, message, fields);
}

void Log::tick(Time now) {
  std::lock_guard lock(mutex_);
  for (auto& [text, message] : messages_) {
    if (now >= message.window_end) sum_up(text, message);
  }
  std::size_t dropped = writer_->overrun_counter();
  if (dropped != dropped_) {
    std::size_t more = dropped - dropped_;
    dropped_ = dropped;
    put(LogLevel::warning, "log", "lines were dropped because they could not be written fast enough",
        {{"dropped", more}});
  }
}

void Log::flush() { logger_->flush(); }

}  // namespace sluice::proxy
