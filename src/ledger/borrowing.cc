#include "ledger/borrowing.h"

#include "ledger/atomics.h"
#include "ledger/class_use.h"
#include "ledger/policy_change.h"
#include "ledger/scheduler.h"
#include "ledger/ticket_list.h"

namespace sluice::ledger {

namespace {

constexpr std::int64_t kPeakScale = 256;

// The decaying maximum at this moment. 1 / (1 + t / T) instead of exp(-t / T): the same for the short steps it is asked
// for, and the core needs no mathematics library.
[[nodiscard]] std::int64_t decayed_peak(const ClassState& state, std::int64_t now_us) noexcept {
  if (state.lending_memory_us <= 0) return 0;
  const std::int64_t passed = now_us - state.peaked_us;
  // Each step rounds down, so that the peak comes to nothing in the end. In whole ticks, or a borrower that asks often
  // would make the lender forget sooner.
  if (passed < kTickUs) return state.lending_peak;
  return state.lending_peak * state.lending_memory_us / (state.lending_memory_us + passed);
}

[[nodiscard]] bool may_lend(const Ledger& ledger, const Exclusive& lock, std::uint32_t klass,
                            std::int64_t now_us) noexcept {
  const ClassState& state = ledger.classes[klass];
  const ClassWord word = unpack_class(load(state.word));
  if (state.policy_index == kNil || word.waiters > 0 || word.free < 1 || word.owed > 0) return false;
  note_demand(ledger, lock, klass, now_us);
  const std::int64_t unused = (std::int64_t{state.permits} - state.lent) * kPeakScale - state.lending_peak;
  return unused >= kPeakScale;
}

void unlink_borrowed(const Ledger& ledger, ClassState& state, std::uint32_t ticket) noexcept {
  unlink_from(ledger, state.borrowed_head, state.borrowed_tail, ticket);
  ledger.tickets[ticket].source = PermitSource::own_class;
  ledger.tickets[ticket].lender = kNil;
}

// Who gets a permit back first: a lender that queues, then the ticket's own, then any.
[[nodiscard]] std::uint32_t choose_lender(const Ledger& ledger, const ClassState& state, std::uint32_t own) noexcept {
  std::uint32_t chosen = kNil;
  for (std::uint32_t lender = 0; lender < ledger.header->sizes.classes; lender++) {
    if (state.borrowed_from[lender] == 0) continue;
    if (unpack_class(load(ledger.classes[lender].word)).waiters > 0) return lender;
    if (chosen == kNil || lender == own) chosen = lender;
  }
  return chosen;
}

// As many tickets are marked for a lender as permits are owed to it. When another ticket's permit repays, the oldest
// marked one keeps what it has, and takes over that other one's mark if it bore one.
void move_mark(const Ledger& ledger, ClassState& state, std::uint32_t ticket, std::uint32_t lender) noexcept {
  const bool marked = ticket != kNil && ledger.tickets[ticket].source == PermitSource::borrowed;
  const std::uint32_t own = marked ? ledger.tickets[ticket].lender : kNil;
  if (marked) unlink_borrowed(ledger, state, ticket);
  if (own == lender) return;
  std::uint32_t at = state.borrowed_head;
  while (at != kNil && ledger.tickets[at].lender != lender) at = ledger.tickets[at].next;
  if (at == kNil) {
    (void)fault(ledger, Status::corrupt);
  } else if (own == kNil) {
    unlink_borrowed(ledger, state, at);
  } else {
    ledger.tickets[at].lender = own;
  }
}

}  // namespace

std::uint32_t borrow(const Ledger& ledger, const Exclusive& lock, std::uint32_t klass, std::int64_t now_us) noexcept {
  ClassState& state = ledger.classes[klass];
  if (state.borrow_from == 0 || permits_owed(state) >= state.borrow_max) return kNil;
  for (std::uint32_t slot = 0; slot < ledger.header->sizes.classes; slot++) {
    if ((state.borrow_from >> slot & 1U) == 0 || !may_lend(ledger, lock, slot, now_us)) continue;
    ClassState& lender = ledger.classes[slot];
    // The smaller capacity is seen before the word: see raise_peak().
    store(lender.capacity, lender.capacity - 1);
    bool lent = false;
    change_class(lender, [&lent](ClassWord& word) noexcept {
      lent = word.waiters == 0 && word.free >= 1;
      if (lent) word.free--;
      return lent;
    });
    if (!lent) {
      store(lender.capacity, lender.capacity + 1);
      continue;
    }
    change_class(state, [](ClassWord& word) noexcept {
      word.free++;
      word.owed++;
      return true;
    });
    store(state.capacity, state.capacity + 1);
    lender.lent++;
    state.borrowed_from[slot]++;
    state.borrows++;
    return slot;
  }
  return kNil;
}

std::uint32_t repay(const Ledger& ledger, const Exclusive&, std::uint32_t klass, std::uint32_t ticket) noexcept {
  ClassState& state = ledger.classes[klass];
  if (permits_owed(state) == 0) return kNil;
  const std::uint32_t own = ticket == kNil ? kNil : ledger.tickets[ticket].lender;
  const std::uint32_t slot = choose_lender(ledger, state, own);
  if (slot == kNil) {
    (void)fault(ledger, Status::corrupt);
    return kNil;
  }
  move_mark(ledger, state, ticket, slot);
  ClassState& lender = ledger.classes[slot];
  state.borrowed_from[slot]--;
  lender.lent--;
  if (unpack_class(load(lender.word)).waiters > 0) lender.recalls++;
  store(state.capacity, state.capacity - 1);
  // A permit in use that is given up leaves the borrower's `free` as it is: one less in use, one less to use.
  change_class(state, [ticket](ClassWord& word) noexcept {
    word.owed--;
    if (ticket == kNil) word.free--;
    return true;
  });
  change_class(lender, [](ClassWord& word) noexcept {
    word.free++;
    return true;
  });
  store(lender.capacity, lender.capacity + 1);
  return slot;
}

void mark_borrowed(const Ledger& ledger, const Exclusive&, std::uint32_t ticket, std::uint32_t lender) noexcept {
  Ticket& entry = ledger.tickets[ticket];
  ClassState& state = ledger.classes[entry.klass];
  entry.source = PermitSource::borrowed;
  entry.lender = lender;
  link_before(ledger, state.borrowed_head, state.borrowed_tail, ticket, kNil);
}

void note_demand(const Ledger& ledger, const Exclusive&, std::uint32_t klass, std::int64_t now_us) noexcept {
  ClassState& state = ledger.classes[klass];
  const ClassWord word = unpack_class(load(state.word));
  std::int64_t demand = (std::int64_t{permits_in_use(state)} + word.waiters) * kPeakScale;
  const std::uint32_t recent = end_peak(state);
  if (recent * kPeakScale > demand) demand = recent * kPeakScale;
  const std::int64_t before = decayed_peak(state, now_us);
  const bool counts_from_now = demand >= before || now_us - state.peaked_us >= kTickUs;
  state.lending_peak = demand > before ? demand : before;
  if (counts_from_now && now_us > state.peaked_us) state.peaked_us = now_us;
}

void adopt_borrowing(const Ledger& ledger, const Exclusive& lock) noexcept {
  const policy::Policy& policy = ledger.header->policy;
  const std::uint32_t classes = ledger.header->sizes.classes;
  for (std::uint32_t klass = 0; klass < classes; klass++) ledger.classes[klass].lending_memory_us = 0;
  for (std::uint32_t klass = 0; klass < classes; klass++) {
    ClassState& state = ledger.classes[klass];
    state.borrow_from = 0;
    state.borrow_max = 0;
    if (state.policy_index == kNil) continue;
    const policy::BorrowRule& rule = policy.classes[state.policy_index].borrow;
    state.borrow_max = rule.max;
    state.borrow_ttl_us = std::int64_t{rule.ttl_ms} * 1000;
    state.cancels_borrowed = rule.on_expiry == policy::BorrowExpiry::cancel;
    for (std::uint32_t index = 0; index < policy.class_count; index++) {
      const std::uint32_t slot = (rule.from_classes >> index & 1U) != 0 ? class_slot(ledger, lock, index) : kNil;
      if (slot == kNil || slot == klass) continue;
      state.borrow_from |= 1U << slot;
      ClassState& lender = ledger.classes[slot];
      if (state.borrow_ttl_us * 5 > lender.lending_memory_us) lender.lending_memory_us = state.borrow_ttl_us * 5;
    }
  }
}

bool is_overdue(const Ledger& ledger, const Shared&, std::uint32_t ticket, std::int64_t now_us) noexcept {
  const Ticket& entry = ledger.tickets[ticket];
  if (entry.source != PermitSource::borrowed || !holds_permit(phase_state(load(entry.phase)))) return false;
  return now_us - load_relaxed(entry.granted_us) >= ledger.classes[entry.klass].borrow_ttl_us &&
         unpack_class(load(ledger.classes[entry.lender].word)).waiters > 0;
}

}  // namespace sluice::ledger
