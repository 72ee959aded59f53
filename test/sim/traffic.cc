#include "sim/traffic.h"

#include <algorithm>
#include <cmath>

#include "ledger/class_use.h"

namespace sluice::sim {

using ledger::TicketState;
using policy::Outcome;
using policy::Status;

namespace {

constexpr std::int64_t kTickUs = 100 * kMs;
constexpr std::int64_t kRetryBaseUs = 100 * kMs;
constexpr std::int64_t kPeakScale = 256;  // of ClassState::lending_peak

std::uint32_t count_clients(const Plan& plan) {
  std::uint32_t count = 0;
  for (const TenantPlan& tenant : plan.tenants) count += tenant.clients;
  return count;
}

std::string rule_name(const TenantPlan& tenant) {
  return std::string("w") + std::to_string(tenant.weight) + "l" + std::to_string(tenant.limit) + "_";
}

}  // namespace

double percentile(std::vector<float> values, double part) {
  if (values.empty()) return 0;
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(part * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return static_cast<double>(*at);
}

Traffic::Traffic(const Plan& plan)
    : plan_(plan),
      random_(plan.seed),
      t_({count_clients(plan), 0, static_cast<std::uint32_t>(plan.tenants.size()) + 1,
          static_cast<std::uint32_t>(plan.classes.size()), 4096, 16, 16}),
      clients_(count_clients(plan)) {
  t_.now_us = kStartUs;
  make_policy();
  make_books();
  std::uint32_t client = 0;
  for (std::uint32_t i = 0; i < tenants_.size(); i++) {
    Tenant& tenant = tenants_[i];
    for (std::uint32_t k = 0; k < tenant.plan.clients; k++, client++) {
      clients_[client].tenant = i;
      if (tenant.plan.arrivals_per_s > 0) {
        tenant.idle.push_back(client);
      } else {
        const std::int64_t spread =
            tenant.plan.think_us > 0 ? exponential(static_cast<double>(tenant.plan.think_us)) : 0;
        plan_at(when_awake(tenant, kStartUs + tenant.plan.start_us + spread), Kind::ask, client);
      }
    }
    if (tenant.plan.arrivals_per_s > 0) plan_at(kStartUs + tenant.plan.start_us, Kind::arrive, i);
  }
  plan_at(kStartUs + kTickUs, Kind::tick, 0);
}

void Traffic::make_policy() {
  policy::Policy policy = ledger::test::empty_policy();
  for (std::size_t i = 0; i < plan_.classes.size(); i++) {
    const ClassPlan& one = plan_.classes[i];
    ledger::test::add_class(policy, ("class" + std::to_string(i)).c_str(), one.permits, one.max_queue);
    policy.classes[i].aging_ms = one.aging_ms;
    policy.classes[i].borrow = {one.borrow_from, one.borrow_max, one.borrow_ttl_ms,
                                one.cancels_borrowed ? policy::BorrowExpiry::cancel : policy::BorrowExpiry::mark};
  }
  policy.lease_ms = 60'000;
  std::vector<std::string> known;
  for (const TenantPlan& tenant : plan_.tenants) {
    const std::string name = rule_name(tenant);
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    known.push_back(name);
    ledger::test::add_tenant(policy, (name + "*").c_str(), tenant.weight, tenant.limit);
  }
  if (t_.apply(policy) != Status::ok) fail("the policy was not applied");
}

void Traffic::make_books() {
  for (const ClassPlan& one : plan_.classes) {
    classes_.push_back({one, ClassBook(one.permits, std::int64_t{one.aging_ms} * kMs, plan_.compare_pairs)});
  }
  std::vector<std::vector<std::uint32_t>> members(classes_.size());
  for (std::size_t i = 0; i < plan_.tenants.size(); i++) {
    const TenantPlan& plan = plan_.tenants[i];
    Tenant tenant;
    tenant.plan = plan;
    tenant.index = t_.tenant((rule_name(plan) + std::to_string(i)).c_str());
    if (tenant.index == ledger::kOverflowTenant) fail("a tenant has no entry of its own");
    const ClassPlan& klass = plan_.classes[plan.klass];
    tenant.row = classes_[plan.klass].book.add_row(plan.weight, plan.limit, klass.permits + klass.borrow_max);
    members[plan.klass].push_back(tenant.index);
    tenants_.push_back(std::move(tenant));
  }
  for (std::uint32_t klass = 0; klass < classes_.size(); klass++) {
    classes_[klass].book.complete([this, klass, rows = members[klass]](std::uint32_t row) {
      return static_cast<double>(ledger::row_at(t_.ledger, rows[row], klass).forgiven);
    });
  }
}

void Traffic::plan_at(std::int64_t at_us, Kind kind, std::uint32_t index, std::uint32_t use) {
  agenda_.push({at_us, order_++, kind, index, use});
}

std::int64_t Traffic::exponential(double mean_us) {
  return static_cast<std::int64_t>(-std::log(1 - uniform()) * mean_us);
}

std::int64_t Traffic::hold_of(Tenant& tenant) {
  const Hold& hold = tenant.plan.hold;
  std::int64_t us = hold.first_us;
  if (hold.kind == Hold::Kind::exponential) us = exponential(static_cast<double>(hold.first_us));
  if (hold.kind == Hold::Kind::pareto) {
    us = static_cast<std::int64_t>(static_cast<double>(hold.first_us) * std::pow(1 - uniform(), -1 / 1.1));
    if (hold.second_us > 0) us = std::min(us, hold.second_us);
  }
  if (hold.kind == Hold::Kind::alternating) {
    us = tenant.second_turn ? hold.second_us : hold.first_us;
    tenant.second_turn = !tenant.second_turn;
  }
  return std::max<std::int64_t>(us, 1);
}

// The first moment from at_us on at which the tenant asks for anything.
std::int64_t Traffic::when_awake(const Tenant& tenant, std::int64_t at_us) const {
  if (tenant.plan.off_us == 0) return at_us;
  const std::int64_t since = at_us - kStartUs - tenant.plan.start_us;
  const std::int64_t period = tenant.plan.on_us + tenant.plan.off_us;
  const std::int64_t within = since < 0 ? 0 : since % period;
  return within < tenant.plan.on_us ? at_us : at_us + (period - within);
}

bool Traffic::run_until(std::int64_t until_us) {
  const std::int64_t end_us = kStartUs + until_us;
  while (failure_.empty() && events_ < plan_.most_events && agenda_.top().at_us <= end_us) {
    const Event event = agenda_.top();
    agenda_.pop();
    t_.now_us = event.at_us;
    events_++;
    handle(event);
    check();
  }
  if (events_ < plan_.most_events && failure_.empty()) t_.now_us = end_us;
  return failure_.empty();
}

bool Traffic::run() {
  (void)run_until(plan_.duration_us);
  const std::string report = t_.audit_report();
  audits_++;
  if (!report.empty()) fail("audit: " + report);
  std::vector<std::vector<std::vector<std::int64_t>>> open(classes_.size());
  for (std::size_t klass = 0; klass < classes_.size(); klass++) open[klass].resize(classes_[klass].book.rows().size());
  for (const Client& client : clients_) {
    const Tenant& tenant = tenants_[client.tenant];
    if (client.at == At::holding) open[tenant.plan.klass][tenant.row].push_back(client.granted_us);
  }
  for (std::size_t klass = 0; klass < classes_.size(); klass++) classes_[klass].book.finish(t_.now_us, open[klass]);
  return failure_.empty();
}

void Traffic::handle(const Event& event) {
  if (event.kind == Kind::tick) return tick();
  if (event.kind == Kind::arrive) return arrive(event.index);
  Client& client = clients_[event.index];
  if (client.use != event.use) return;
  switch (event.kind) {
    case Kind::ask:
      return ask(event.index);
    case Kind::release:
      if (client.at == At::holding) release(event.index);
      return;
    case Kind::deadline:
      if (client.at == At::waiting) end_wait(event.index, Status::queue_deadline);
      return;
    case Kind::give_up:
      if (client.at == At::waiting) end_wait(event.index, Status::cancelled);
      return;
    case Kind::arrive:
    case Kind::tick:
      return;
  }
}

void Traffic::arrive(std::uint32_t index) {
  Tenant& tenant = tenants_[index];
  const std::int64_t next = t_.now_us + exponential(1e6 / tenant.plan.arrivals_per_s);
  plan_at(when_awake(tenant, next), Kind::arrive, index);
  if (tenant.idle.empty()) return fail("a tenant of the plan has too few clients for its arrivals");
  const std::uint32_t client = tenant.idle.back();
  tenant.idle.pop_back();
  ask(client);
}

void Traffic::ask(std::uint32_t index) {
  Client& client = clients_[index];
  Tenant& tenant = tenants_[client.tenant];
  if (!client.is_retry) {
    client.id = next_id_++;
    client.asked_us = t_.now_us;
  }
  // Only who named his ticket is known when he comes again.
  if (!client.is_retry || tenant.plan.owner == 0) client.age_us = tenant.plan.owner == 0 ? 0 : t_.now_us;
  tenant.fate.asked++;
  client.deadline_us = t_.now_us + tenant.plan.deadline_us;
  ledger::TicketRequest request = t_.request(tenant.index, tenant.plan.klass);
  std::memcpy(request.id.bytes, &client.id, sizeof(client.id));
  request.deadline_us = client.deadline_us;
  request.owner = tenant.plan.owner;
  const Status status = ledger::take(t_.ledger, index, request);
  ledger::Wakes wakes = {};
  Outcome outcome = policy::outcome(status);
  if (status == Status::contended) outcome = ledger::take_or_queue(t_.ledger, t_.lock, index, request, wakes);
  note(std::uint64_t{index} << 8 | static_cast<std::uint64_t>(outcome.status));
  if (outcome.status == Status::ok) {
    was_granted(index, false);
  } else if (outcome.status == Status::queued) {
    entered_line(index);
    plan_at(client.deadline_us, Kind::deadline, index, client.use);
    if (tenant.plan.cancelled > 0 && uniform() < tenant.plan.cancelled) {
      const double after = uniform() * static_cast<double>(tenant.plan.cancelled_within_us);
      plan_at(t_.now_us + static_cast<std::int64_t>(after), Kind::give_up, index, client.use);
    }
  } else {
    was_refused(index, outcome.status);
  }
  settle(wakes);
}

void Traffic::was_granted(std::uint32_t index, bool waited) {
  Client& client = clients_[index];
  Tenant& tenant = tenants_[client.tenant];
  client.at = At::holding;
  client.granted_us = t_.now_us;
  client.recalled = false;
  tenant.fate.granted++;
  if (!waited) tenant.fate.at_once++;
  tenant.fate.waits_ms.push_back(static_cast<float>(t_.now_us - client.asked_us) / 1000);
  if (t_.ledger.tickets[index].source == ledger::PermitSource::borrowed) borrowed_grants_++;
  if (!waited) classes_[tenant.plan.klass].book.granted(tenant.row, false, t_.now_us);
  plan_at(t_.now_us + hold_of(tenant), Kind::release, index, client.use);
}

void Traffic::plan_next_ask(std::uint32_t index, bool refused) {
  Client& client = clients_[index];
  Tenant& tenant = tenants_[client.tenant];
  client.at = At::idle;
  client.use++;
  client.is_retry = refused && tenant.plan.retries;
  // What the refusal asks for: to come again after the base, with jitter up to twice of it.
  const std::int64_t pause = refused ? kRetryBaseUs + static_cast<std::int64_t>(uniform() * kRetryBaseUs) : 0;
  if (!client.is_retry && tenant.plan.arrivals_per_s > 0) {
    tenant.idle.push_back(index);
    return;
  }
  std::int64_t think = 0;
  if (!client.is_retry && tenant.plan.think_us > 0) think = exponential(static_cast<double>(tenant.plan.think_us));
  const std::int64_t next_us = t_.now_us + std::max(think, pause);
  plan_at(client.is_retry ? next_us : when_awake(tenant, next_us), Kind::ask, index, client.use);
}

void Traffic::was_refused(std::uint32_t index, Status why) {
  Fate& fate = tenants_[clients_[index].tenant].fate;
  if (why == Status::queue_full) {
    fate.full++;
  } else if (why == Status::deadline_unreachable) {
    fate.unreachable++;
  } else if (why == Status::pushed_out) {
    fate.pushed_out++;
  } else if (why == Status::duplicate_ticket) {
    fate.duplicates++;
  } else {
    fail("a request was answered with status " + std::to_string(static_cast<int>(why)));
  }
  plan_next_ask(index, true);
}

// The line of a tenant: in the order of age, a retry by the age it kept.
void Traffic::entered_line(std::uint32_t index) {
  Client& client = clients_[index];
  Tenant& tenant = tenants_[client.tenant];
  client.at = At::waiting;
  if (client.age_us == 0) client.age_us = t_.now_us;
  if (t_.ledger.tickets[index].queued_us != client.age_us) fail("a ticket's age is not the one it came with");
  auto at = tenant.line.end();
  while (at != tenant.line.begin() && clients_[*(at - 1)].age_us > client.age_us) --at;
  tenant.line.insert(at, index);
  classes_[tenant.plan.klass].book.queued(tenant.row, t_.now_us);
}

void Traffic::left_line(std::uint32_t index, bool granted) {
  Tenant& tenant = tenants_[clients_[index].tenant];
  const auto at = std::find(tenant.line.begin(), tenant.line.end(), index);
  if (at == tenant.line.end()) return fail("a ticket left a line in which it did not stand");
  // A row with an in-flight limit may have younger tickets that hold its slots already.
  for (auto older = tenant.line.begin(); granted && tenant.plan.limit == policy::kNoLimit && older != at; ++older) {
    if (clients_[*older].age_us < clients_[index].age_us && t_.state(*older) == TicketState::queued) {
      fail("a ticket overtook an older one of its tenant");
    }
  }
  tenant.line.erase(at);
  ClassBook& book = classes_[tenant.plan.klass].book;
  granted ? book.granted(tenant.row, true, t_.now_us) : book.left(tenant.row, t_.now_us);
}

void Traffic::release(std::uint32_t index) {
  Client& client = clients_[index];
  Tenant& tenant = tenants_[client.tenant];
  if (!client.recalled && ledger::begin_commit(t_.ledger, index) != Status::ok) fail("a commit did not begin");
  classes_[tenant.plan.klass].book.released(tenant.row, client.granted_us, t_.now_us);
  Status status = ledger::release(t_.ledger, index, t_.now_us);
  ledger::Wakes wakes = {};
  if (status == Status::contended) status = ledger::release_locked(t_.ledger, t_.lock, index, t_.now_us, wakes);
  if (status != Status::ok) fail("a release failed");
  note(std::uint64_t{index} << 8 | 0xF0U);
  plan_next_ask(index, false);
  settle(wakes);
}

void Traffic::end_wait(std::uint32_t index, Status why) {
  Tenant& tenant = tenants_[clients_[index].tenant];
  ledger::Wakes wakes = {};
  const Outcome outcome = ledger::end_wait(t_.ledger, t_.lock, index, why, t_.now_us, wakes);
  note(std::uint64_t{index} << 8 | static_cast<std::uint64_t>(outcome.status));
  if (outcome.status != why) fail("a wait was not ended by its owner");
  left_line(index, false);
  (why == Status::cancelled ? tenant.fate.cancelled : tenant.fate.expired)++;
  plan_next_ask(index, why == Status::queue_deadline);
  settle(wakes);
}

void Traffic::wake(const ledger::Wakes& wakes) {
  for (std::uint32_t i = 0; i < wakes.count; i++) {
    const std::uint32_t index = wakes.tickets[i];
    if (clients_[index].at != At::waiting) {
      fail("somebody was woken who did not wait");
      continue;
    }
    const Outcome outcome = ledger::poll_wait(t_.ledger, t_.lock, index, t_.now_us);
    note(std::uint64_t{index} << 8 | static_cast<std::uint64_t>(outcome.status) | 0x80U);
    left_line(index, outcome.status == Status::ok);
    if (outcome.status == Status::ok) {
      was_granted(index, true);
    } else {
      was_refused(index, outcome.status);
    }
  }
}

void Traffic::settle(ledger::Wakes wakes) {
  wake(wakes);
  while (wakes.more) {
    wakes = {};
    ledger::tick(t_.ledger, t_.lock, t_.now_us, wakes);
    wake(wakes);
  }
}

void Traffic::tick() {
  plan_at(t_.now_us + kTickUs, Kind::tick, 0);
  ledger::Wakes wakes;
  do {
    wakes = {};
    ledger::tick(t_.ledger, t_.lock, t_.now_us, wakes);
    wake(wakes);
  } while (wakes.more);
  check_lending();
  recall_borrowed();
}

// Nobody waits while a permit could be borrowed for him: each rule that forbids it is named here.
void Traffic::check_lending() {
  for (std::uint32_t klass = 0; klass < classes_.size(); klass++) {
    const ledger::ClassState& state = t_.ledger.classes[klass];
    const ledger::ClassWord word = ledger::unpack_class(state.word);
    if (word.waiters == 0 || word.owed >= state.borrow_max) continue;
    for (std::uint32_t from = 0; from < classes_.size(); from++) {
      const ledger::ClassState& lender = t_.ledger.classes[from];
      const ledger::ClassWord its = ledger::unpack_class(lender.word);
      const bool queues_or_owes = its.waiters > 0 || its.owed > 0 || its.free < 1;
      if ((classes_[klass].plan.borrow_from >> from & 1U) == 0 || queues_or_owes) continue;
      const std::int64_t unused = std::int64_t{lender.permits} - lender.lent;
      if (unused * kPeakScale - lender.lending_peak >= kPeakScale) fail("somebody waits while a permit could be lent");
    }
  }
}

void Traffic::recall_borrowed() {
  for (std::uint32_t index = 0; index < clients_.size(); index++) {
    Client& client = clients_[index];
    if (client.at != At::holding || client.recalled ||
        t_.ledger.tickets[index].source != ledger::PermitSource::borrowed) {
      continue;
    }
    if (ledger::expire_borrowed(t_.ledger, t_.lock, index, t_.now_us) != Status::ok) continue;
    const Tenant& tenant = tenants_[client.tenant];
    const ClassPlan& klass = plan_.classes[tenant.plan.klass];
    if (!klass.cancels_borrowed) fail("a borrowed permit that may only be marked was cancelled");
    if (t_.now_us - client.granted_us < std::int64_t{klass.borrow_ttl_ms} * kMs) {
      fail("a borrowed permit was recalled before its time");
    }
    client.recalled = true;
    tenants_[client.tenant].fate.recalled++;
    plan_at(t_.now_us + plan_.cancel_latency_us, Kind::release, index, client.use);
  }
}

double Traffic::service_us(std::uint32_t tenant) const {
  const Tenant& one = tenants_[tenant];
  return classes_[one.plan.klass].book.rows()[one.row].service_us(t_.now_us);
}

std::uint32_t Traffic::held(std::uint32_t tenant) const {
  const Tenant& one = tenants_[tenant];
  return classes_[one.plan.klass].book.rows()[one.row].held;
}

const ledger::Row& Traffic::row(std::uint32_t tenant) const {
  return ledger::row_at(t_.ledger, tenants_[tenant].index, tenants_[tenant].plan.klass);
}

void Traffic::note(std::uint64_t what) {
  for (const std::uint64_t word : {static_cast<std::uint64_t>(t_.now_us), what}) {
    digest_ = (digest_ ^ word) * 0x100000001B3;
  }
}

void Traffic::fail(const std::string& what) {
  if (failure_.empty()) failure_ = what + " (" + std::to_string(t_.now_us - kStartUs) + " us after the start)";
}

void Traffic::check() {
  for (std::uint32_t klass = 0; klass < classes_.size(); klass++) check_class(klass);
  const ledger::Header& header = *t_.ledger.header;
  if (header.faults != 0) fail("a fault was counted");
  if (header.over_limit_grants != 0) fail("a grant went over a limit");
  if (plan_.audit_every == 0 || events_ % plan_.audit_every != 0) return;
  audits_++;
  const std::string report = t_.audit_report();
  if (!report.empty()) fail("audit: " + report);
}

void Traffic::check_class(std::uint32_t klass) {
  const ledger::ClassState& state = t_.ledger.classes[klass];
  const ledger::ClassWord word = ledger::unpack_class(state.word);
  Class& one = classes_[klass];
  const std::int64_t permits = std::int64_t{one.plan.permits} + ledger::permits_owed(state) - state.lent;
  if (permits - one.book.held() != word.free) fail("the permits of a class do not add up to what was granted");
  if (state.queued != one.book.waiting()) fail("the queue of a class is not as long as its line");
  if (state.queued > one.plan.max_queue) fail("a queue is longer than maxQueue");
  if (word.free > 0 && word.waiters > 0) fail("somebody waits while a permit is free");
  if (ledger::permits_owed(state) > one.plan.borrow_max) fail("more is borrowed than borrow.max");
  if (word.waiters > 0 && one.waiters_before > 0 && state.lent > one.lent_before) {
    fail("a class that queues has lent another permit");
  }
  one.waiters_before = word.waiters;
  one.lent_before = state.lent;
  if (word.waiters > 0 && state.lent > 0) {
    if (one.recall_since_us < 0) one.recall_since_us = t_.now_us;
    one.recall_us = std::max(one.recall_us, t_.now_us - one.recall_since_us);
  } else {
    if (one.recall_since_us >= 0) one.recall_us = std::max(one.recall_us, t_.now_us - one.recall_since_us);
    one.recall_since_us = -1;
  }
}

}  // namespace sluice::sim
