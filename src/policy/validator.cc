#include "policy/validator.h"

#include <cstring>
#include <iterator>

#include "policy/defaults.h"
#include "policy/validator_fields.h"

namespace sluice::policy {
namespace {

constexpr const char* kTopFields[] = {"schema",
                                      "database",
                                      "generation",
                                      "hardConnectionLimit",
                                      "serverSessionPermits",
                                      "adminReserve",
                                      "loginHeadroom",
                                      "replicationReserve",
                                      "adminRoles",
                                      "poolMode",
                                      "bulkheads",
                                      "executionClasses",
                                      "overdraft",
                                      "fairness",
                                      "tenantKey",
                                      "declare",
                                      "tenants",
                                      "defaultClass",
                                      "assign",
                                      "databaseCaps",
                                      "roleCaps",
                                      "eviction",
                                      "retry",
                                      "leaseMs",
                                      "leakAfterMs"};
constexpr const char* kSchemas[] = {"dbAdmissionPolicy.v1"};
constexpr const char* kFairness[] = {"weighted-deficit-v2"};
constexpr const char* kPoolModes[] = {"transaction", "session", "statement"};            // as PoolMode
constexpr const char* kTenantKeys[] = {"role", "database", "database+role", "setting"};  // as TenantKey
constexpr const char* kOverdraftFields[] = {"max"};
constexpr const char* kEvictionFields[] = {"direct", "proxied", "idleAfterMs"};
constexpr const char* kRetryFields[] = {"baseMs"};

constexpr Range kSessions{0, kMostSessions, "sessions"};
constexpr Range kConnections{1, kMostSessions, "connections"};
constexpr Range kOverdraft{0, 1000, "permits"};
constexpr Range kRetryBase{1, 60000, "milliseconds"};
constexpr Range kLease{100, 3600000, "milliseconds"};
constexpr Range kLeak{1000, 30U * kDayMs, "milliseconds"};
constexpr Range kWait{0, kDayMs, "milliseconds"};

void report_missing(Validation& validation, std::uint32_t root, const Path& path, const char* fix) noexcept {
  FindingText finding = validation.error(root, path);
  finding.message.add("is missing");
  finding.fix.add(fix);
}

void read_schema(Validation& validation, std::uint32_t root, const Path& top) noexcept {
  std::uint32_t choice = 0;
  if (validation.read_choice(root, top, "schema", kSchemas, std::size(kSchemas), choice) == Field::absent) {
    report_missing(validation, root, child(top, "schema"), "write schema: dbAdmissionPolicy.v1");
  }
  validation.read_choice(root, top, "fairness", kFairness, std::size(kFairness), choice);
}

void check_label(Validation& validation, std::uint32_t node, const Path& path, const char* label) noexcept {
  const ServerFacts& facts = validation.facts;
  if (!facts.known || std::strcmp(label, facts.label) == 0) return;
  FindingText finding = validation.error(node, path);
  if (facts.label[0] == '\0') {
    finding.message.add("is for ").add_quoted(label).add(", but this server has no label");
    finding.fix.add("set pg_sluice.label = '").add(label).add("' on the server it is meant for, and reload");
    return;
  }
  finding.message.add("is for ").add_quoted(label).add(", but this server's label is ").add_quoted(facts.label);
  finding.fix.add("publish it on the server it is meant for, or write ").add(facts.label).add("/");
  finding.fix.add(validation.policy.write_role ? "write" : "read");
}

void check_server_role(Validation& validation, std::uint32_t node, const Path& path) noexcept {
  const ServerFacts& facts = validation.facts;
  bool write = validation.policy.write_role;
  if (!facts.known || write != facts.in_recovery) return;
  FindingText finding = validation.error(node, path);
  finding.message.add(write ? "is for the primary (write), but this server is a standby"
                            : "is for a standby (read), but this server is a primary");
  finding.fix.add("publish it where it belongs, or write the role as ").add(write ? "read" : "write");
}

// "label/role": which server the policy is for, so that a document never takes effect on another one by mistake.
void read_database(Validation& validation, std::uint32_t root, const Path& top) noexcept {
  const Path path = child(top, "database");
  std::uint32_t node = validation.document.find(root, "database");
  if (node == kNoNode) {
    return report_missing(validation, root, path,
                          "write database: LABEL/write, LABEL being the server's pg_sluice.label");
  }
  char* text = validation.policy.database;
  if (!validation.copy_name(node, path, kTenantBytes, text)) return;
  const char* slash = nullptr;
  for (const char* c = text; *c != '\0'; c++) {
    if (*c == '/') slash = c;
  }
  bool write = slash != nullptr && std::strcmp(slash, "/write") == 0;
  bool read = slash != nullptr && std::strcmp(slash, "/read") == 0;
  std::size_t label_length = slash == nullptr ? 0 : static_cast<std::size_t>(slash - text);
  if (!(write || read) || label_length == 0 || label_length >= kNameBytes) {
    FindingText finding = validation.error(node, path);
    finding.message.add(
        "must be label/write (a primary) or label/read (a standby) with a label of 1 to 63 bytes, found ");
    finding.message.add_quoted(text);
    finding.fix.add("write for example orders-primary/write");
    return;
  }
  validation.policy.write_role = write;
  char label[kNameBytes];
  TextWriter(label, sizeof(label)).add(text, label_length);
  check_label(validation, node, path, label);
  check_server_role(validation, node, path);
}

void read_generation(Validation& validation, std::uint32_t root, const Path& top) noexcept {
  const Path path = child(top, "generation");
  std::uint32_t index = validation.document.find(root, "generation");
  if (index == kNoNode) return;
  const Node& node = validation.document.node(index);
  bool whole = node.kind == NodeKind::number && node.is_integer && node.integer > 0;
  if (!whole) {
    FindingText finding = validation.error(index, path);
    finding.message.add("must be a whole number from 1 to 9223372036854775807");
    finding.fix.add("leave it out to have the next one assigned");
    return;
  }
  validation.policy.generation = static_cast<std::uint64_t>(node.integer);
  std::uint64_t newest = validation.facts.known ? validation.facts.newest_generation : 0;
  if (validation.policy.generation > newest) return;
  FindingText finding = validation.error(index, path);
  finding.message.add("generation ").add(validation.policy.generation);
  finding.message.add(" is not newer than the newest published one, ").add(newest);
  finding.fix.add("write ").add(newest + 1).add(" or leave it out to have the next one assigned");
}

Budget read_budget(Validation& validation, std::uint32_t root, const Path& top) noexcept {
  Policy& policy = validation.policy;
  policy.admin_reserve = kDefaultAdminReserve;
  policy.login_headroom = kDefaultLoginHeadroom;
  Field hard = validation.read_number(root, top, "hardConnectionLimit", kConnections, policy.hard_connection_limit);
  Field permits = validation.read_number(root, top, "serverSessionPermits", kSessions, policy.server_session_permits);
  Field reserve = validation.read_number(root, top, "adminReserve", kSessions, policy.admin_reserve);
  Field headroom = validation.read_number(root, top, "loginHeadroom", kSessions, policy.login_headroom);
  validation.read_number(root, top, "replicationReserve", kSessions, policy.replication_reserve);
  if (permits == Field::absent) {
    report_missing(validation, root, child(top, "serverSessionPermits"),
                   "say how many sessions everyone who is not an administrator may have together");
  }
  bool sound =
      hard != Field::invalid && permits == Field::valid && reserve != Field::invalid && headroom != Field::invalid;
  return {sound, hard == Field::valid};
}

// The field's object, or kNoNode when it is left out or was refused.
std::uint32_t open_group(Validation& validation, std::uint32_t root, const Path& path, const char* const* known,
                         std::size_t count) noexcept {
  std::uint32_t group = validation.document.find(root, path.name);
  if (group == kNoNode || !validation.expect_object(group, path)) return kNoNode;
  validation.check_fields(group, path, known, count);
  return group;
}

void read_behaviour(Validation& validation, std::uint32_t root, const Path& top) noexcept {
  Policy& policy = validation.policy;
  policy.overdraft_max = kDefaultOverdraftMax;
  policy.retry_base_ms = kDefaultRetryBaseMs;
  policy.lease_ms = kDefaultLeaseMs;
  policy.leak_after_ms = kDefaultLeakAfterMs;
  policy.evict_idle_after_ms = kDefaultEvictIdleAfterMs;
  policy.evict_proxied = true;
  policy.bulkheads = true;

  const Path overdraft = child(top, "overdraft");
  std::uint32_t group = open_group(validation, root, overdraft, kOverdraftFields, std::size(kOverdraftFields));
  if (group != kNoNode) validation.read_number(group, overdraft, "max", kOverdraft, policy.overdraft_max);
  const Path retry = child(top, "retry");
  group = open_group(validation, root, retry, kRetryFields, std::size(kRetryFields));
  if (group != kNoNode) validation.read_number(group, retry, "baseMs", kRetryBase, policy.retry_base_ms);
  const Path eviction = child(top, "eviction");
  group = open_group(validation, root, eviction, kEvictionFields, std::size(kEvictionFields));
  if (group != kNoNode) {
    validation.read_switch(group, eviction, "direct", policy.evict_direct);
    validation.read_switch(group, eviction, "proxied", policy.evict_proxied);
    validation.read_number(group, eviction, "idleAfterMs", kWait, policy.evict_idle_after_ms);
  }
  validation.read_number(root, top, "leaseMs", kLease, policy.lease_ms);
  validation.read_number(root, top, "leakAfterMs", kLeak, policy.leak_after_ms);
  validation.read_switch(root, top, "bulkheads", policy.bulkheads);

  std::uint32_t choice = 0;
  validation.read_choice(root, top, "poolMode", kPoolModes, std::size(kPoolModes), choice);
  policy.pool_mode = static_cast<PoolMode>(choice);
  choice = 0;
  validation.read_choice(root, top, "tenantKey", kTenantKeys, std::size(kTenantKeys), choice);
  policy.tenant_key = static_cast<TenantKey>(choice);
}

}  // namespace

bool validate(const Document& document, const ServerFacts& facts, Policy& policy, Findings& findings) noexcept {
  std::memset(&policy, 0, sizeof(policy));
  std::memset(&findings, 0, sizeof(findings));
  Validation validation(document, facts, policy, findings);
  const Path top{nullptr, nullptr, 0};
  if (!document.complete()) {
    FindingText finding = validation.error(kNoNode, top);
    finding.message.add("the document is empty, incomplete, or too large: at most ").add(kMaxNodes).add(" values, ");
    finding.message.add(kMaxTextBytes).add(" bytes of text and ").add(kMaxDepth).add(" levels");
    return false;
  }
  std::uint32_t root = document.root();
  if (!validation.expect_object(root, top)) return false;

  validation.check_fields(root, top, kTopFields, std::size(kTopFields));
  read_schema(validation, root, top);
  read_database(validation, root, top);
  read_generation(validation, root, top);
  Budget budget = read_budget(validation, root, top);
  read_behaviour(validation, root, top);
  read_classes(validation, root, top);
  read_default_class(validation, root, top);
  read_assign(validation, root, top);
  read_admin_roles(validation, root, top);
  read_tenants(validation, root, top);
  read_declare(validation, root, top);
  read_caps(validation, root, top);
  check_sums(validation, root, top, budget);
  if (findings.errors > 0) return false;
  check_doubtful(validation, root, top);
  if (!policy.bulkheads) merge_classes(policy);
  return true;
}

}  // namespace sluice::policy
