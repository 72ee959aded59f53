#include "policy/refusal.h"

#include "policy/text.h"

namespace sluice::policy {
namespace {

constexpr char kHexDigits[] = "0123456789abcdef";

void add_encoded(TextWriter& line, const char* value) noexcept {
  const char* start = value;
  for (const char* c = value; *c != '\0'; c++) {
    auto byte = static_cast<unsigned char>(*c);
    if (byte > 0x20 && byte != 0x7F && byte != '%') continue;
    const char escape[3] = {'%', kHexDigits[byte >> 4], kHexDigits[byte & 15U]};
    line.add(start, static_cast<std::size_t>(c - start)).add(escape, sizeof(escape));
    start = c + 1;
  }
  line.add(start);
}

void add_uuid(TextWriter& line, const Uuid& uuid) noexcept {
  char text[36];
  std::size_t at = 0;
  for (std::size_t i = 0; i < sizeof(uuid.bytes); i++) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text[at++] = '-';
    text[at++] = kHexDigits[uuid.bytes[i] >> 4];
    text[at++] = kHexDigits[uuid.bytes[i] & 15U];
  }
  line.add(text, at);
}

// -1: no hexadecimal digit.
int digit_value(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

const char* retry_name(Retry retry) noexcept {
  switch (retry) {
    case Retry::after:
      return "after";
    case Retry::now:
      return "now";
    case Retry::never:
      return "never";
  }
  return "never";
}

// Writes " key=value" as a whole or not at all, so that a line cut for lack of room still parses.
template <typename Value>
void add_pair(TextWriter& line, const char* key, const Value& write_value) noexcept {
  if (line.cut()) return;
  std::size_t before = line.length();
  line.add(" ").add(key).add("=");
  write_value();
  if (line.cut()) line.rewind(before);
}

}  // namespace

Retry retry_of(Status status) noexcept {
  switch (status) {
    case Status::session_limit:
    case Status::tenant_session_limit:
    case Status::role_session_limit:
    case Status::role_connect_rate:
    case Status::database_session_limit:
    case Status::admin_reserve:
    case Status::queue_full:
    case Status::deadline_unreachable:
    case Status::pushed_out:
    case Status::queue_deadline:
    case Status::overdraft_exhausted:
      return Retry::after;
    case Status::ok:
    case Status::queued:
    case Status::contended:
      return Retry::now;
    case Status::cancelled:         // the caller itself asked for the end
    case Status::time_limit:        // the same work would meet the same limit
    case Status::duplicate_ticket:  // the first request is alive: its receipt is to be read instead
      return Retry::never;
    case Status::illegal_transition:
    case Status::not_found:
    case Status::table_full:
    case Status::corrupt:
    case Status::layout_mismatch:
      return Retry::after;  // nothing was executed, and a fault that people repair must not meet a retry storm
  }
  return Retry::never;
}

bool parse_uuid(const char* text, Uuid& out) noexcept {
  if (text == nullptr) return false;
  const bool braced = *text == '{';
  if (braced) text++;
  Uuid read = {};
  bool nil = true;
  for (std::size_t i = 0; i < sizeof(read.bytes); i++) {
    const int high = digit_value(text[0]);
    const int low = high < 0 ? -1 : digit_value(text[1]);
    if (low < 0) return false;
    read.bytes[i] = static_cast<std::uint8_t>(high * 16 + low);
    nil = nil && read.bytes[i] == 0;
    text += 2;
    if (*text == '-' && i % 2 == 1 && i + 1 < sizeof(read.bytes)) text++;
  }
  if (braced && *text++ != '}') return false;
  if (*text != '\0' || nil) return false;
  out = read;
  return true;
}

std::uint32_t jittered_delay_ms(std::uint32_t base_ms, std::uint32_t random) noexcept {
  constexpr std::uint32_t kLargestBase = 0x7FFFFFFFU;  // twice this still fits
  std::uint32_t base = base_ms < kLargestBase ? base_ms : kLargestBase;
  std::uint64_t spread = (static_cast<std::uint64_t>(random) * (static_cast<std::uint64_t>(base) + 1)) >> 32;
  return base + static_cast<std::uint32_t>(spread);
}

std::size_t format_detail(const Policy& policy, const Refusal& refusal, char* out, std::size_t size) noexcept {
  TextWriter line(out, size);
  const Outcome& outcome = refusal.outcome;
  line.add("sluice");
  add_pair(line, "reason", [&] { line.add(status_name(outcome.status)); });
  add_pair(line, "retry", [&] { line.add(retry_name(refusal.retry)); });
  if (refusal.retry != Retry::never) {
    std::uint32_t delay_ms = refusal.retry == Retry::after ? refusal.retry_after_ms : 0;
    add_pair(line, "retry_after_ms", [&] { line.add(delay_ms); });
  }
  if (outcome.rule.field != RuleField::none) {
    char path[2 * kTenantBytes + 64];
    (void)rule_path(policy, outcome.rule, path, sizeof(path));
    add_pair(line, "rule", [&] { add_encoded(line, path); });
    add_pair(line, "used", [&] { line.add(outcome.used); });
    add_pair(line, "limit", [&] { line.add(outcome.limit); });
  }
  if (refusal.class_name != nullptr) add_pair(line, "class", [&] { add_encoded(line, refusal.class_name); });
  if (refusal.tenant_name != nullptr) add_pair(line, "tenant", [&] { add_encoded(line, refusal.tenant_name); });
  if (refusal.ticket != nullptr) add_pair(line, "ticket", [&] { add_uuid(line, *refusal.ticket); });
  if (refusal.first.state != nullptr) {
    add_pair(line, refusal.first.ended ? "outcome" : "state", [&] { line.add(refusal.first.state); });
    if (refusal.first.ended) add_pair(line, "ended_ms_ago", [&] { line.add(refusal.first.ended_ms_ago); });
  }
  add_pair(line, "generation", [&] { line.add(policy.generation); });
  return line.length();
}

}  // namespace sluice::policy
