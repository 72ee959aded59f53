#include "ledger/journal.h"

#include <cstring>

#include "ledger/ticket_identity.h"

namespace sluice::ledger {

namespace {

// How far back a repeat is looked for. Further back it starts a new line; readers add the lines of one key up.
constexpr std::uint32_t kMaxEventLookback = 16;
constexpr std::uint32_t kMaxRefusalLookback = 64;
constexpr std::int64_t kMinuteUs = 60'000'000;

[[nodiscard]] bool is_same_rule(const Rule& a, const Rule& b) noexcept {
  return a.field == b.field && a.index == b.index;
}

[[nodiscard]] const char* tenant_name(const Ledger& ledger, std::uint32_t tenant) noexcept {
  return tenant < ledger.header->sizes.tenants ? ledger.tenants[tenant].name : "";
}

// The index `back` entries before `next` in a ring of `size`.
[[nodiscard]] std::uint32_t behind(std::uint32_t next, std::uint32_t back, std::uint32_t size) noexcept {
  return (next + size - back) % size;
}

[[nodiscard]] bool counts_as_refusal(const EventFacts& facts) noexcept {
  return facts.would || policy::is_refusal(facts.outcome.status);
}

void count_refusal(const Ledger& ledger, const EventFacts& facts, std::int64_t now_us) noexcept {
  Header& header = *ledger.header;
  const auto reason = static_cast<std::uint32_t>(facts.outcome.status);
  if (!facts.would && reason < kReasons) {
    const bool has_class = facts.klass < header.sizes.classes;
    (has_class ? ledger.classes[facts.klass].refusals : header.session_refusals)[reason]++;
  }
  const std::uint32_t size = header.sizes.refusal_cells;
  if (size == 0) return;
  const std::int64_t minute = now_us / kMinuteUs;
  const char* tenant = tenant_name(ledger, facts.tenant);
  for (std::uint32_t back = 1; back <= kMaxRefusalLookback && back <= size; back++) {
    RefusalCell& cell = ledger.refusals[behind(header.refusal_next, back, size)];
    if (cell.count == 0 || cell.minute != minute) break;
    if (cell.status == facts.outcome.status && cell.would == facts.would && cell.klass == facts.klass &&
        is_same_rule(cell.rule, facts.outcome.rule) && std::strncmp(cell.tenant, tenant, policy::kTenantBytes) == 0) {
      cell.count++;
      return;
    }
  }
  RefusalCell& cell = ledger.refusals[header.refusal_next];
  header.refusal_next = (header.refusal_next + 1) % size;
  std::memset(&cell, 0, sizeof(cell));
  cell.minute = minute;
  cell.status = facts.outcome.status;
  cell.would = facts.would;
  cell.rule = facts.outcome.rule;
  cell.klass = facts.klass;
  cell.count = 1;
  std::memcpy(cell.tenant, tenant, strnlen(tenant, policy::kTenantBytes - 1));
}

}  // namespace

void record_event(const Ledger& ledger, const Exclusive&, const EventFacts& facts, std::int64_t now_us) noexcept {
  Header& header = *ledger.header;
  if (counts_as_refusal(facts)) count_refusal(ledger, facts, now_us);
  const std::uint32_t size = header.sizes.events;
  if (size == 0) return;
  const char* tenant = tenant_name(ledger, facts.tenant);
  for (std::uint32_t back = 1; back <= kMaxEventLookback && back <= size; back++) {
    Event& event = ledger.events[behind(header.event_next, back, size)];
    if (event.count == 0) break;
    if (event.kind == facts.kind && event.status == facts.outcome.status && event.klass == facts.klass &&
        is_same_rule(event.rule, facts.outcome.rule) && std::strncmp(event.tenant, tenant, policy::kTenantBytes) == 0) {
      event.count++;
      event.last_us = now_us;
      if (facts.ticket != nullptr) event.ticket = *facts.ticket;
      return;
    }
  }
  Event& event = ledger.events[header.event_next];
  header.event_next = (header.event_next + 1) % size;
  std::memset(&event, 0, sizeof(event));
  event.kind = facts.kind;
  event.status = facts.outcome.status;
  event.rule = facts.outcome.rule;
  event.klass = facts.klass;
  event.generation = header.policy.generation;
  event.first_us = event.last_us = now_us;
  event.count = 1;
  if (facts.ticket != nullptr) event.ticket = *facts.ticket;
  std::memcpy(event.tenant, tenant, strnlen(tenant, policy::kTenantBytes - 1));
  if (facts.database != nullptr) {
    std::memcpy(event.database, facts.database, strnlen(facts.database, policy::kNameBytes - 1));
  }
}

void record_receipt(const Ledger& ledger, const Exclusive& lock, const Ticket& ticket, TicketState outcome,
                    std::int64_t now_us) noexcept {
  Header& header = *ledger.header;
  if (header.sizes.receipts == 0) return;
  // An executed ticket keeps the status of a wait that may have ended before it: only an end without execution has a
  // reason.
  const Status reason = outcome == TicketState::request_released ? Status::ok : ticket.wait_status;
  if (ticket.owner != 0 && reason == Status::duplicate_ticket) return;
  const std::uint32_t at = header.receipt_next;
  header.receipt_next = (at + 1) % header.sizes.receipts;
  drop_receipt(ledger, lock, at);
  Receipt& receipt = ledger.receipts[at];
  receipt = {};
  receipt.id = ticket.id;
  receipt.outcome = outcome;
  receipt.reason = reason;
  receipt.owner = ticket.owner;
  receipt.tenant = ticket.tenant;
  receipt.klass = ticket.klass;
  receipt.queued_us = ticket.queued_us;
  receipt.ended_us = now_us;
  index_receipt(ledger, lock, at);
}

const Receipt* find_receipt(const Ledger& ledger, const Shared&, const Uuid& id) noexcept {
  const Header& header = *ledger.header;
  for (std::uint32_t back = 1; back <= header.sizes.receipts; back++) {
    const Receipt& receipt = ledger.receipts[behind(header.receipt_next, back, header.sizes.receipts)];
    if (receipt.outcome == TicketState::none) return nullptr;
    if (std::memcmp(&receipt.id, &id, sizeof(Uuid)) == 0) return &receipt;
  }
  return nullptr;
}

}  // namespace sluice::ledger
