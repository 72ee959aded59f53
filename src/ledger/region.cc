#include "ledger/region.h"

#include <cstring>

#include "ledger/atomics.h"
#include "ledger/tenants.h"

namespace sluice::ledger {

namespace {

constexpr std::uint32_t kMaxSessions = 262143;  // MAX_BACKENDS of PostgreSQL
constexpr std::uint32_t kMaxExternalTickets = 524288;
constexpr std::uint32_t kMaxTenants = 100000;
constexpr std::uint32_t kMaxRing = 1048576;  // receipts, events, refusal cells

// Waiters and parked tickets are counted in 20 bits.
static_assert(kMaxSessions + kMaxExternalTickets < (1U << 20));

struct Layout {
  std::size_t classes, rows, by_key, by_queue, tenants, tenant_buckets, sessions, tickets, id_buckets, receipts,
      receipt_buckets, events, refusals, end;
};

// Tables follow each other in the order of Ledger's pointers, each on a cache line of its own.
[[nodiscard]] std::size_t place(std::size_t& offset, std::size_t bytes) noexcept {
  const std::size_t start = (offset + 63) / 64 * 64;
  offset = start + bytes;
  return start;
}

[[nodiscard]] bool are_valid(const Sizes& sizes) noexcept {
  return sizes.sessions >= 1 && sizes.sessions <= kMaxSessions && sizes.external_tickets <= kMaxExternalTickets &&
         sizes.tenants >= 2 && sizes.tenants <= kMaxTenants && sizes.classes >= 1 &&
         sizes.classes <= policy::kMaxClasses && sizes.receipts <= kMaxRing && sizes.events <= kMaxRing &&
         sizes.refusal_cells <= kMaxRing;
}

[[nodiscard]] std::uint32_t bucket_count(std::uint32_t entries) noexcept {
  std::uint32_t count = 16;
  while (count < entries) count *= 2;
  return count;
}

[[nodiscard]] Layout lay_out(const Sizes& sizes) noexcept {
  Layout layout;
  std::size_t offset = sizeof(Header);
  layout.classes = place(offset, sizeof(ClassState) * sizes.classes);
  layout.rows = place(offset, sizeof(Row) * sizes.tenants * sizes.classes);
  layout.by_key = place(offset, sizeof(std::uint32_t) * sizes.tenants * sizes.classes);
  layout.by_queue = place(offset, sizeof(std::uint32_t) * sizes.tenants * sizes.classes);
  layout.tenants = place(offset, sizeof(Tenant) * sizes.tenants);
  layout.tenant_buckets = place(offset, sizeof(std::uint32_t) * tenant_bucket_count(sizes));
  layout.sessions = place(offset, sizeof(Session) * sizes.sessions);
  layout.tickets = place(offset, sizeof(Ticket) * (std::size_t{sizes.sessions} + sizes.external_tickets));
  layout.id_buckets = place(offset, sizeof(std::uint32_t) * id_bucket_count(sizes));
  layout.receipts = place(offset, sizeof(Receipt) * sizes.receipts);
  layout.receipt_buckets = place(offset, sizeof(std::uint32_t) * receipt_bucket_count(sizes));
  layout.events = place(offset, sizeof(Event) * sizes.events);
  layout.refusals = place(offset, sizeof(RefusalCell) * sizes.refusal_cells);
  layout.end = (offset + 63) / 64 * 64;
  return layout;
}

[[nodiscard]] Ledger view(void* memory, const Sizes& sizes) noexcept {
  const Layout layout = lay_out(sizes);
  char* base = static_cast<char*>(memory);
  return {reinterpret_cast<Header*>(base),
          reinterpret_cast<ClassState*>(base + layout.classes),
          reinterpret_cast<Row*>(base + layout.rows),
          reinterpret_cast<std::uint32_t*>(base + layout.by_key),
          reinterpret_cast<std::uint32_t*>(base + layout.by_queue),
          reinterpret_cast<Tenant*>(base + layout.tenants),
          reinterpret_cast<std::uint32_t*>(base + layout.tenant_buckets),
          reinterpret_cast<Session*>(base + layout.sessions),
          reinterpret_cast<Ticket*>(base + layout.tickets),
          reinterpret_cast<std::uint32_t*>(base + layout.id_buckets),
          reinterpret_cast<Receipt*>(base + layout.receipts),
          reinterpret_cast<std::uint32_t*>(base + layout.receipt_buckets),
          reinterpret_cast<Event*>(base + layout.events),
          reinterpret_cast<RefusalCell*>(base + layout.refusals),
          sizes.sessions,
          sizes.sessions + sizes.external_tickets,
          sizes.classes};
}

void set_stamp(Header& header, const char* build_stamp) noexcept {
  std::memcpy(header.build_stamp, build_stamp, strnlen(build_stamp, sizeof(header.build_stamp) - 1));
}

void format_classes(const Ledger& ledger) noexcept {
  Header& header = *ledger.header;
  for (std::uint32_t i = 0; i < header.sizes.classes; i++) {
    ClassState& state = ledger.classes[i];
    const bool in_policy = i < header.policy.class_count;
    state.permits = in_policy ? header.policy.classes[i].permits : policy::kNoLimit;
    state.capacity = static_cast<std::int32_t>(state.permits);
    state.max_queue = in_policy ? header.policy.classes[i].max_queue : policy::kNoLimit;
    state.policy_index = in_policy ? i : kNil;
    state.aging_us = in_policy ? std::int64_t{header.policy.classes[i].aging_ms} * 1000 : 0;
    state.borrowed_head = state.borrowed_tail = kNil;
    state.word = pack(ClassWord{static_cast<std::int32_t>(state.permits), 0, 0, false});
    if (in_policy) std::memcpy(state.name, header.policy.classes[i].name, policy::kNameBytes);
  }
}

void format_tables(const Ledger& ledger) noexcept {
  const Sizes& sizes = ledger.header->sizes;
  for (std::size_t i = 0; i < std::size_t{sizes.tenants} * sizes.classes; i++) {
    Row& row = ledger.rows[i];
    row.weight = 1;
    row.word = pack(RowWord{0, 0, policy::kNoLimit});
    row.eligible_head = row.eligible_tail = row.parked_head = row.parked_tail = kNil;
    row.key_at = row.flood_at = kNil;
  }
  for (std::uint32_t i = 0; i < sizes.tenants; i++) ledger.tenants[i].hash_next = kNil;
  for (std::uint32_t i = 0; i < tenant_bucket_count(sizes); i++) ledger.tenant_buckets[i] = kNil;
  for (std::uint32_t i = 0; i < id_bucket_count(sizes); i++) ledger.id_buckets[i] = kNil;
  for (std::uint32_t i = 0; i < receipt_bucket_count(sizes); i++) ledger.receipt_buckets[i] = kNil;
  for (std::uint32_t i = 0; i < sizes.receipts; i++) ledger.receipts[i].hash_next = kNil;
  for (std::uint32_t i = 0; i < ticket_count(ledger); i++) {
    Ticket& ticket = ledger.tickets[i];
    ticket.tenant = ticket.klass = ticket.next = ticket.previous = ticket.id_next = ticket.lender = kNil;
    ticket.source = PermitSource::own_class;
  }
  for (std::uint32_t i = 0; i < sizes.sessions; i++) ledger.sessions[i].tenant = kNil;
}

}  // namespace

std::uint32_t tenant_bucket_count(const Sizes& sizes) noexcept { return bucket_count(sizes.tenants); }

std::uint32_t id_bucket_count(const Sizes& sizes) noexcept {
  return bucket_count(sizes.sessions + sizes.external_tickets);
}

std::uint32_t receipt_bucket_count(const Sizes& sizes) noexcept { return bucket_count(sizes.receipts); }

std::size_t region_size(const Sizes& sizes) noexcept { return are_valid(sizes) ? lay_out(sizes).end : 0; }

Status format(void* memory, std::size_t bytes, const Sizes& sizes, const char* build_stamp, const Uuid& boot_id,
              std::uint64_t epoch, std::int64_t now_us, Ledger& ledger) noexcept {
  const std::size_t needed = region_size(sizes);
  if (needed == 0 || bytes < needed || reinterpret_cast<std::uintptr_t>(memory) % 64 != 0)
    return Status::layout_mismatch;
  std::memset(memory, 0, needed);
  ledger = view(memory, sizes);
  Header& header = *ledger.header;
  header.layout_version = kLayoutVersion;
  set_stamp(header, build_stamp);
  header.boot_id = boot_id;
  header.epoch = epoch;
  header.formatted_us = now_us;
  header.sizes = sizes;
  header.bytes = needed;
  header.mode = static_cast<std::uint32_t>(Mode::shadow);
  policy::make_unlimited_policy(header.policy);
  header.generation = static_cast<std::uint32_t>(header.policy.generation);
  format_tables(ledger);
  format_classes(ledger);

  // The overflow tenant goes by the catch-all pattern, so that the catch-all's rule is the one that limits it. It is in
  // no hash chain: nobody reaches it by name.
  Tenant& overflow = ledger.tenants[kOverflowTenant];
  overflow.name[0] = '*';
  overflow.used = true;
  header.tenant_count = 1;
  header.tenant_hand = 1;
  const Exclusive lock;
  adopt_rule(ledger, lock, kOverflowTenant, now_us);
  header.unclaimed_guarantees = guarantee_total(header.policy);

  // Last, so that nobody attaches to half a region.
  store(header.magic, kMagic);
  return Status::ok;
}

Status attach(void* memory, const char* build_stamp, Ledger& ledger) noexcept {
  const Header& header = *static_cast<const Header*>(memory);
  char stamp[sizeof(header.build_stamp)] = {};
  std::memcpy(stamp, build_stamp, strnlen(build_stamp, sizeof(stamp) - 1));
  if (load(header.magic) != kMagic || header.layout_version != kLayoutVersion ||
      std::memcmp(stamp, header.build_stamp, sizeof(stamp)) != 0) {
    return Status::layout_mismatch;
  }
  const Sizes sizes = header.sizes;
  if (region_size(sizes) == 0 || region_size(sizes) != header.bytes) return Status::layout_mismatch;
  ledger = view(memory, sizes);
  return Status::ok;
}

}  // namespace sluice::ledger
