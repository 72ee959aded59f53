// executionClasses, defaultClass, and what `bulkheads: off` makes of them.

#include <cstring>
#include <iterator>

#include "policy/defaults.h"
#include "policy/validator_fields.h"

namespace sluice::policy {
namespace {

constexpr const char* kClassFields[] = {"permits",  "maxQueue", "queueDeadlineMs", "agingMs", "transactionTimeLimitMs",
                                        "mayEnter", "borrow"};
constexpr const char* kBorrowFields[] = {"from", "max", "ttlMs", "onExpiry"};
constexpr const char* kExpiryChoices[] = {"mark", "cancel"};

constexpr Range kPermits{0, kMostSessions, "permits"};
constexpr Range kQueue{0, kMostQueued, "tickets"};
constexpr Range kDeadline{0, kDayMs, "milliseconds"};
constexpr Range kAging{1, 3600000, "milliseconds"};
constexpr Range kTimeLimit{1, 7 * kDayMs, "milliseconds"};
constexpr Range kBorrowTtl{1, 3600000, "milliseconds"};

// A list of class names as a bit mask. Entries that name no class, or one twice, are findings.
std::uint32_t read_class_list(Validation& validation, std::uint32_t list, const Path& path) noexcept {
  if (!validation.expect_array(list, path)) return 0;
  std::uint32_t mask = 0;
  std::uint32_t position = 0;
  const Document& document = validation.document;
  for (std::uint32_t i = document.node(list).first_child; i != kNoNode; i = document.node(i).next) {
    const Path at = entry(path, position++);
    int index = validation.read_class(i, at);
    if (index < 0) continue;
    std::uint32_t bit = 1U << static_cast<unsigned>(index);
    if ((mask & bit) != 0) {
      validation.error(i, at).message.add("class ").add(validation.policy.classes[index].name).add(" is listed twice");
    }
    mask |= bit;
  }
  return mask;
}

void read_may_enter(Validation& validation, std::uint32_t object, const Path& path, std::uint32_t self) noexcept {
  std::uint32_t list = validation.document.find(object, "mayEnter");
  if (list == kNoNode) return;
  const Path at = child(path, "mayEnter");
  std::uint32_t mask = read_class_list(validation, list, at);
  if ((mask >> self & 1U) != 0) {
    validation.warning(list, at).message.add("lists the class itself, which a session may always declare");
  }
  validation.policy.classes[self].may_enter = mask & ~(1U << self);
}

void read_borrow(Validation& validation, std::uint32_t object, const Path& path, std::uint32_t self) noexcept {
  std::uint32_t borrow = validation.document.find(object, "borrow");
  if (borrow == kNoNode) return;
  const Path at = child(path, "borrow");
  if (!validation.expect_object(borrow, at)) return;
  validation.check_fields(borrow, at, kBorrowFields, std::size(kBorrowFields));
  BorrowRule& rule = validation.policy.classes[self].borrow;
  rule.max = kNoLimit;
  rule.ttl_ms = kDefaultBorrowTtlMs;
  std::uint32_t expiry = 0;
  validation.read_number(borrow, at, "max", kPermits, rule.max);
  validation.read_number(borrow, at, "ttlMs", kBorrowTtl, rule.ttl_ms);
  validation.read_choice(borrow, at, "onExpiry", kExpiryChoices, std::size(kExpiryChoices), expiry);
  rule.on_expiry = static_cast<BorrowExpiry>(expiry);

  std::uint32_t from = validation.document.find(borrow, "from");
  const Path from_path = child(at, "from");
  if (from == kNoNode) {
    FindingText finding = validation.error(borrow, from_path);
    finding.message.add("is missing: without it there is nobody to borrow from");
    finding.fix.add("name the lending classes, for example from: [batch]");
    return;
  }
  rule.from_classes = read_class_list(validation, from, from_path);
  if ((rule.from_classes >> self & 1U) != 0) {
    FindingText finding = validation.error(from, from_path);
    finding.message.add("class ").add(validation.policy.classes[self].name).add(" cannot borrow from itself");
    finding.fix.add("name another class, or raise permits");
  }
}

void read_class_body(Validation& validation, std::uint32_t object, const Path& path, std::uint32_t self) noexcept {
  if (!validation.expect_object(object, path)) return;
  validation.check_fields(object, path, kClassFields, std::size(kClassFields));
  ExecutionClass& execution_class = validation.policy.classes[self];
  validation.read_number(object, path, "permits", kPermits, execution_class.permits);
  validation.read_number(object, path, "maxQueue", kQueue, execution_class.max_queue);
  validation.read_number(object, path, "queueDeadlineMs", kDeadline, execution_class.queue_deadline_ms);
  validation.read_number(object, path, "agingMs", kAging, execution_class.aging_ms);
  validation.read_number(object, path, "transactionTimeLimitMs", kTimeLimit, execution_class.transaction_time_limit_ms);
  read_may_enter(validation, object, path, self);
  read_borrow(validation, object, path, self);
}

void add_default_class(Validation& validation, std::uint32_t node, const Path& path) noexcept {
  ExecutionClass& only = validation.policy.classes[0];
  TextWriter(only.name, sizeof(only.name)).add("default");
  validation.policy.class_count = 1;
  FindingText finding = validation.warning(node, path);
  finding.message.add("no execution class is declared: transactions are counted under \"default\" and not limited");
  finding.fix.add("declare at least one class with permits and maxQueue");
}

void set_class_defaults(Policy& policy) noexcept {
  for (ExecutionClass& execution_class : policy.classes) {
    execution_class.permits = kNoLimit;
    execution_class.max_queue = kNoLimit;
    execution_class.queue_deadline_ms = kDefaultQueueDeadlineMs;
    execution_class.aging_ms = kDefaultAgingMs;
    execution_class.transaction_time_limit_ms = kNoTimeLimit;
  }
}

}  // namespace

void read_classes(Validation& validation, std::uint32_t root, const Path& top) noexcept {
  Policy& policy = validation.policy;
  const Document& document = validation.document;
  set_class_defaults(policy);
  std::uint32_t classes = document.find(root, "executionClasses");
  const Path path = child(top, "executionClasses");
  if (classes == kNoNode) return add_default_class(validation, root, path);
  if (!validation.expect_object(classes, path)) return;
  if (document.node(classes).first_child == kNoNode) return add_default_class(validation, classes, path);
  validation.check_duplicates(classes, path);

  // Names first: mayEnter and borrow.from may name a class that is declared further down. A class with a bad name keeps
  // its place, so that the second pass meets the same indexes.
  for (std::uint32_t i = document.node(classes).first_child; i != kNoNode; i = document.node(i).next) {
    const Path at = child(path, document.text(document.node(i).key));
    if (policy.class_count == kMaxClasses) {
      FindingText finding = validation.error(i, at);
      finding.message.add("is one class too many, at most ").add(kMaxClasses).add(" are possible");
      finding.fix.add("merge classes; tenants are told apart by weights and limits, not by classes");
      break;
    }
    (void)validation.copy_key(i, at, kNameBytes, policy.classes[policy.class_count].name);
    policy.class_count++;
  }
  std::uint32_t self = 0;
  for (std::uint32_t i = document.node(classes).first_child; i != kNoNode && self < policy.class_count; self++) {
    read_class_body(validation, i, child(path, document.text(document.node(i).key)), self);
    i = document.node(i).next;
  }
}

void read_default_class(Validation& validation, std::uint32_t root, const Path& top) noexcept {
  Policy& policy = validation.policy;
  if (policy.class_count == 0) return;  // executionClasses itself was refused
  const Path path = child(top, "defaultClass");
  std::uint32_t node = validation.document.find(root, "defaultClass");
  if (node != kNoNode) {
    int index = validation.read_class(node, path);
    if (index >= 0) policy.default_class = static_cast<std::uint8_t>(index);
    return;
  }
  if (policy.class_count == 1) return;
  for (std::uint8_t i = 0; i < policy.class_count; i++) {
    if (std::strcmp(policy.classes[i].name, "interactive") != 0) continue;
    policy.default_class = i;
    return;
  }
  if (!policy.bulkheads) return;
  FindingText finding = validation.error(root, path);
  finding.message.add("must be given: there are ").add(static_cast<std::uint32_t>(policy.class_count));
  finding.message.add(" execution classes and none is named interactive");
  finding.fix.add("write defaultClass: ").add(policy.classes[0].name).add(", or the class that sessions belong to");
}

void merge_classes(Policy& policy) noexcept {
  ExecutionClass merged = policy.classes[policy.default_class];
  std::uint32_t permits = 0;
  std::uint32_t max_queue = 0;
  for (std::uint8_t i = 0; i < policy.class_count; i++) {
    const ExecutionClass& one = policy.classes[i];
    permits = one.permits >= kNoLimit - permits ? kNoLimit : permits + one.permits;
    max_queue = one.max_queue >= kNoLimit - max_queue ? kNoLimit : max_queue + one.max_queue;
    if (one.queue_deadline_ms > merged.queue_deadline_ms) merged.queue_deadline_ms = one.queue_deadline_ms;
    if (one.aging_ms < merged.aging_ms) merged.aging_ms = one.aging_ms;
    if (one.transaction_time_limit_ms > merged.transaction_time_limit_ms) {
      merged.transaction_time_limit_ms = one.transaction_time_limit_ms;
    }
  }
  merged.permits = permits;
  merged.max_queue = max_queue;
  merged.may_enter = 0;
  merged.borrow = BorrowRule{};
  std::memset(policy.classes, 0, sizeof(policy.classes));
  policy.classes[0] = merged;
  policy.class_count = 1;
  policy.default_class = 0;
  std::memset(policy.assign, 0, sizeof(policy.assign));
  policy.assign_count = 0;
}

}  // namespace sluice::policy
