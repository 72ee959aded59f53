#include "ledger/ticket_identity.h"

#include <cstring>

#include "ledger/atomics.h"

namespace sluice::ledger {

namespace {

// The two halves of a 64 × 64 bit product folded into one word: every input bit reaches every output bit.
[[nodiscard]] std::uint64_t fold(std::uint64_t a, std::uint64_t b) noexcept {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

// Ids come from callers, so the hash is keyed with the boot id: nobody can choose ids that share a bucket and make
// everybody walk a long chain under the lock.
[[nodiscard]] std::uint32_t hash_of(const Ledger& ledger, std::uint32_t owner, const Uuid& id) noexcept {
  std::uint64_t key[2];
  std::uint64_t word[2];
  std::memcpy(key, &ledger.header->boot_id, sizeof(key));
  std::memcpy(word, &id, sizeof(word));
  const std::uint64_t mixed = fold(word[0] ^ key[0] ^ 0x9E3779B97F4A7C15U, word[1] ^ key[1] ^ 0xD1B54A32D192ED03U);
  return static_cast<std::uint32_t>(fold(mixed ^ owner, 0xA24BAED4963EE407U ^ key[0]) >> 16);
}

[[nodiscard]] bool is_same(const Uuid& a, const Uuid& b) noexcept { return std::memcmp(&a, &b, sizeof(Uuid)) == 0; }

[[nodiscard]] std::uint32_t& live_bucket(const Ledger& ledger, std::uint32_t owner, const Uuid& id) noexcept {
  return ledger.id_buckets[hash_of(ledger, owner, id) & (id_bucket_count(ledger.header->sizes) - 1)];
}

[[nodiscard]] std::uint32_t& receipt_bucket(const Ledger& ledger, std::uint32_t owner, const Uuid& id) noexcept {
  return ledger.receipt_buckets[hash_of(ledger, owner, id) & (receipt_bucket_count(ledger.header->sizes) - 1)];
}

[[nodiscard]] bool is_live(const Ticket& entry) noexcept {
  const TicketState state = phase_state(load(entry.phase));
  return state == TicketState::queued || holds_permit(state);
}

// Another live ticket of the same owner and id, or kNil.
[[nodiscard]] std::uint32_t live_ticket(const Ledger& ledger, std::uint32_t ticket,
                                        const TicketRequest& request) noexcept {
  std::uint32_t at = live_bucket(ledger, request.owner, request.id);
  for (std::uint32_t steps = 0; at != kNil && steps < ticket_count(ledger); steps++) {
    const Ticket& entry = ledger.tickets[at];
    if (at != ticket && entry.owner == request.owner && is_same(entry.id, request.id) && is_live(entry)) return at;
    at = entry.id_next;
  }
  return kNil;
}

// A refusal that only repeated the news of an older request says nothing about that request.
[[nodiscard]] const Receipt* valid_receipt(const Ledger& ledger, const Shared& lock,
                                           const TicketRequest& request) noexcept {
  const Receipt* receipt = newest_receipt(ledger, lock, request.owner, request.id);
  if (receipt == nullptr) return nullptr;
  const std::int64_t lease_us = std::int64_t{ledger.header->policy.lease_ms} * 1000;
  return request.now_us - receipt->ended_us > lease_us ? nullptr : receipt;
}

}  // namespace

Known recognize(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket,
                const TicketRequest& request) noexcept {
  if (live_ticket(ledger, ticket, request) != kNil) return {Status::duplicate_ticket, 0};
  const Receipt* receipt = valid_receipt(ledger, lock, request);
  if (receipt == nullptr) return {Status::ok, 0};
  // It ran, and what came of it the ledger does not know.
  if (receipt->outcome == TicketState::request_released) return {Status::duplicate_ticket, 0};
  return {Status::ok, receipt->queued_us};
}

Original original_of(const Ledger& ledger, const Shared& lock, std::uint32_t ticket,
                     const TicketRequest& request) noexcept {
  const std::uint32_t live = live_ticket(ledger, ticket, request);
  if (live != kNil) return {phase_state(load(ledger.tickets[live].phase)), 0};
  const Receipt* receipt = valid_receipt(ledger, lock, request);
  if (receipt == nullptr) return {TicketState::none, 0};
  return {receipt->outcome, receipt->ended_us};
}

void remember_id(const Ledger& ledger, const Exclusive& lock, std::uint32_t ticket) noexcept {
  if (ticket >= ticket_count(ledger) || ledger.tickets[ticket].owner == 0) return;
  forget_id(ledger, lock, ticket);
  Ticket& entry = ledger.tickets[ticket];
  std::uint32_t& head = live_bucket(ledger, entry.owner, entry.id);
  entry.id_next = head;
  head = ticket;
}

void forget_id(const Ledger& ledger, const Exclusive&, std::uint32_t ticket) noexcept {
  if (ticket >= ticket_count(ledger) || ledger.tickets[ticket].owner == 0) return;
  Ticket& entry = ledger.tickets[ticket];
  std::uint32_t* link = &live_bucket(ledger, entry.owner, entry.id);
  for (std::uint32_t steps = 0; *link != kNil && steps < ticket_count(ledger); steps++) {
    if (*link == ticket) {
      *link = entry.id_next;
      entry.id_next = kNil;
      return;
    }
    link = &ledger.tickets[*link].id_next;
  }
}

void drop_receipt(const Ledger& ledger, const Exclusive&, std::uint32_t receipt) noexcept {
  Receipt& entry = ledger.receipts[receipt];
  if (entry.owner == 0) return;
  std::uint32_t* link = &receipt_bucket(ledger, entry.owner, entry.id);
  for (std::uint32_t steps = 0; *link != kNil && steps < ledger.header->sizes.receipts; steps++) {
    if (*link == receipt) {
      *link = entry.hash_next;
      entry.hash_next = kNil;
      return;
    }
    link = &ledger.receipts[*link].hash_next;
  }
}

void index_receipt(const Ledger& ledger, const Exclusive& lock, std::uint32_t receipt) noexcept {
  Receipt& entry = ledger.receipts[receipt];
  entry.hash_next = kNil;
  if (entry.owner == 0) return;
  // Only the newest of an id stays in the index, so that a caller who repeats one id makes no chain longer.
  const Receipt* older = newest_receipt(ledger, lock, entry.owner, entry.id);
  if (older != nullptr) drop_receipt(ledger, lock, static_cast<std::uint32_t>(older - ledger.receipts));
  std::uint32_t& head = receipt_bucket(ledger, entry.owner, entry.id);
  entry.hash_next = head;
  head = receipt;
}

const Receipt* newest_receipt(const Ledger& ledger, const Shared&, std::uint32_t owner, const Uuid& id) noexcept {
  if (owner == 0 || ledger.header->sizes.receipts == 0) return nullptr;
  std::uint32_t at = receipt_bucket(ledger, owner, id);
  for (std::uint32_t steps = 0; at != kNil && steps < ledger.header->sizes.receipts; steps++) {
    const Receipt& receipt = ledger.receipts[at];
    if (receipt.owner == owner && is_same(receipt.id, id)) return &receipt;
    at = receipt.hash_next;
  }
  return nullptr;
}

// In shadow, and where a record is used again without the lock, an owner may be left that nobody looks up.
bool is_named_request(const Ticket& ticket) noexcept {
  return is_live(ticket) && ticket.owner != 0 && load_relaxed(ticket.queued_us) != 0;
}

std::int64_t count_indexed_tickets(const Ledger& ledger, const Shared&) noexcept {
  std::int64_t count = 0;
  for (std::uint32_t bucket = 0; bucket < id_bucket_count(ledger.header->sizes); bucket++) {
    for (std::uint32_t at = ledger.id_buckets[bucket]; at != kNil; at = ledger.tickets[at].id_next) {
      if (at >= ticket_count(ledger) || count >= ticket_count(ledger)) return -1;
      const Ticket& entry = ledger.tickets[at];
      if (!is_named_request(entry)) return -1;
      if (&live_bucket(ledger, entry.owner, entry.id) != &ledger.id_buckets[bucket]) return -1;
      count++;
    }
  }
  return count;
}

std::int64_t count_indexed_receipts(const Ledger& ledger, const Shared& lock) noexcept {
  const std::uint32_t size = ledger.header->sizes.receipts;
  std::uint32_t steps = 0;
  for (std::uint32_t bucket = 0; size > 0 && bucket < receipt_bucket_count(ledger.header->sizes); bucket++) {
    for (std::uint32_t at = ledger.receipt_buckets[bucket]; at != kNil; at = ledger.receipts[at].hash_next) {
      if (at >= size || steps++ >= size) return -1;
      const Receipt& entry = ledger.receipts[at];
      if (entry.owner == 0) return -1;
      if (&receipt_bucket(ledger, entry.owner, entry.id) != &ledger.receipt_buckets[bucket]) return -1;
    }
  }
  // Receipts are written round a ring, so the smaller distance back from its end is the newer one.
  const auto age = [&](std::uint32_t at) noexcept { return (ledger.header->receipt_next + size - 1 - at) % size; };
  std::int64_t known = 0;
  for (std::uint32_t at = 0; at < size; at++) {
    const Receipt* newest = newest_receipt(ledger, lock, ledger.receipts[at].owner, ledger.receipts[at].id);
    if (newest == nullptr) continue;
    if (age(static_cast<std::uint32_t>(newest - ledger.receipts)) <= age(at)) known++;
  }
  return known;
}

}  // namespace sluice::ledger
