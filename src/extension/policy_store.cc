#include "extension/policy_store.h"

#include <atomic>
#include <cstring>

#include "extension/settings.h"
#include "extension/shared.h"
#include "ledger/journal.h"
#include "ledger/policy_change.h"
#include "policy/text.h"

namespace sluice::extension {
namespace {

using ledger::Mode;
using policy::Document;
using policy::Findings;
using policy::Policy;
using policy::Status;

constexpr char kReadRole[] = "/read";
constexpr std::size_t kMaxNumberBytes = 64;

// The row that decides on this server. $1: this server is a standby.
constexpr char kDecidingRow[] =
    "SELECT generation, state, document FROM sluice.policies"
    " WHERE state IN ('active', 'shadow') AND ($1 OR coalesce(document->>'database', '') NOT LIKE '%/read')"
    " ORDER BY coalesce(document->>'database', '') LIKE '%/read' DESC, state = 'active' DESC, generation DESC LIMIT 1";

// What this transaction will put into force, newest first: one entry per change, so that a rollback to a savepoint
// finds the one before. Lives in TopTransactionContext.
struct Pending {
  Pending* previous;
  SubTransactionId subtransaction;
  Mode mode;
  Policy policy;
};

Pending* pending = nullptr;

// What a document cannot hold, whoever wrote it.
enum class Unreadable : std::uint8_t { no, too_large, long_number };

Unreadable add_number(Document& document, Numeric number) {
  const char* digits = DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(number)));
  const std::size_t length = std::strlen(digits);
  if (length > kMaxNumberBytes) return Unreadable::long_number;
  return document.add_number(digits, length) == Status::ok ? Unreadable::no : Unreadable::too_large;
}

Unreadable add_scalar(Document& document, const JsonbValue& value) {
  Status status = Status::ok;
  switch (value.type) {
    case jbvNull:
      status = document.add_null();
      break;
    case jbvBool:
      status = document.add_boolean(value.val.boolean);
      break;
    case jbvString:
      status = document.add_string(value.val.string.val, static_cast<std::size_t>(value.val.string.len));
      break;
    case jbvNumeric:
      return add_number(document, value.val.numeric);
    default:
      elog(ERROR, "unexpected jsonb value of type %d", static_cast<int>(value.type));
  }
  return status == Status::ok ? Unreadable::no : Unreadable::too_large;
}

Unreadable add_item(Document& document, JsonbIteratorToken token, const JsonbValue& item) {
  Status status = Status::ok;
  switch (token) {
    case WJB_BEGIN_OBJECT:
      status = document.begin_object();
      break;
    case WJB_BEGIN_ARRAY:
      if (!item.val.array.rawScalar) status = document.begin_array();
      break;
    case WJB_END_OBJECT:
      status = document.end();
      break;
    case WJB_END_ARRAY:
      if (!item.val.array.rawScalar) status = document.end();
      break;
    case WJB_KEY:
      status = document.key(item.val.string.val, static_cast<std::size_t>(item.val.string.len));
      break;
    default:
      return add_scalar(document, item);
  }
  return status == Status::ok ? Unreadable::no : Unreadable::too_large;
}

Unreadable copy_document(Jsonb* value, Document& document) {
  document.clear();
  JsonbIterator* iterator = JsonbIteratorInit(&value->root);
  JsonbValue item;
  JsonbIteratorToken token;
  Unreadable problem = Unreadable::no;
  while (problem == Unreadable::no && (token = JsonbIteratorNext(&iterator, &item, false)) != WJB_DONE) {
    problem = add_item(document, token, item);
  }
  return problem;
}

// Wakes whom the change has granted a permit, in rounds of the lock: the waiters of every class by their limits, or all
// of them where nothing is enforced any more.
void grant_rest(ledger::Wakes& wakes, Mode mode) noexcept {
  bool more = wakes.more;
  wakes.more = false;
  wake(wakes);
  while (more && mode != Mode::enforce) {
    wakes = ledger::Wakes{};
    {
      ExclusiveLedger lock;
      (void)ledger::admit_waiters(the_ledger, lock.token(), now_us(), wakes);
    }
    more = wakes.more;
    wakes.more = false;
    wake(wakes);
  }
  wakes = ledger::Wakes{};
  wakes.more = more;
  wake(wakes);
}

Status install(const std::uint64_t* expected_version, const Policy& policy, Mode mode) noexcept {
  ledger::Wakes wakes{};
  Status status;
  {
    ExclusiveLedger lock;
    if (expected_version != nullptr && the_ledger.header->policy_version != *expected_version) return Status::contended;
    status = ledger::apply_policy(the_ledger, lock.token(), policy, mode, now_us(), wakes);
  }
  grant_rest(wakes, mode);
  return status;
}

void forget_pending() { pending = nullptr; }

void on_subtransaction(SubXactEvent event, SubTransactionId self, SubTransactionId parent, void*) {
  if (event == SUBXACT_EVENT_COMMIT_SUB) {
    for (Pending* entry = pending; entry != nullptr && entry->subtransaction == self; entry = entry->previous) {
      entry->subtransaction = parent;
    }
  } else if (event == SUBXACT_EVENT_ABORT_SUB) {
    while (pending != nullptr && pending->subtransaction == self) pending = pending->previous;
  }
}

// COMMIT and ABORT come through policy_store_transaction_end(). A prepared transaction leaves this process: the
// publisher finds its change in the table once it is committed. Registered later than transaction.cc's callback, this
// one runs before it.
void on_transaction(XactEvent event, void*) {
  if (event == XACT_EVENT_PREPARE) forget_pending();
}

void copy_database_label(const Document& document, policy::ServerFacts& facts) {
  const std::uint32_t at =
      document.root() == policy::kNoNode ? policy::kNoNode : document.find(document.root(), "database");
  if (at == policy::kNoNode || document.node(at).kind != policy::NodeKind::string) return;
  const char* name = document.text(document.node(at).text);
  const char* slash = std::strrchr(name, '/');
  const std::size_t length = slash == nullptr ? std::strlen(name) : static_cast<std::size_t>(slash - name);
  policy::TextWriter(facts.label, sizeof(facts.label)).add(name, length);
}

void note_first_error(std::int64_t generation, const Findings& findings, char* note, std::size_t note_bytes) {
  policy::TextWriter text(note, note_bytes);
  text.add("generation ").add(static_cast<std::uint64_t>(generation)).add(" cannot be used: ");
  for (std::uint32_t i = 0; i < findings.count; i++) {
    if (findings.entries[i].severity != policy::Severity::error) continue;
    text.add(findings.entries[i].path).add(": ").add(findings.entries[i].message);
    return;
  }
}

}  // namespace

void read_document(Jsonb* value, Document& document) {
  switch (copy_document(value, document)) {
    case Unreadable::no:
      return;
    case Unreadable::too_large:
      ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED), errmsg("the policy document is too large"),
                      errdetail("A document holds at most %u values, %u levels and %u bytes of text.",
                                policy::kMaxNodes, policy::kMaxDepth, policy::kMaxTextBytes)));
      break;
    case Unreadable::long_number:
      ereport(ERROR, (errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
                      errmsg("a number in the policy document has more than %zu digits", kMaxNumberBytes),
                      errhint("No field takes a number beyond 4294967295.")));
  }
}

policy::ServerFacts server_facts() {
  policy::ServerFacts facts{};
  facts.known = true;
  facts.max_connections = static_cast<std::uint32_t>(MaxConnections);
  facts.superuser_reserved_connections = static_cast<std::uint32_t>(superuser_reserved_slots());
  facts.reserved_connections = static_cast<std::uint32_t>(role_reserved_slots());
  facts.max_wal_senders = static_cast<std::uint32_t>(max_wal_senders);
  policy::TextWriter(facts.label, sizeof(facts.label)).add(cluster_label());
  facts.in_recovery = RecoveryInProgress();
  return facts;
}

bool is_for_standby(const Document& document) {
  const std::uint32_t root = document.root();
  if (root == policy::kNoNode || document.node(root).kind != policy::NodeKind::object) return false;
  const std::uint32_t at = document.find(root, "database");
  if (at == policy::kNoNode || document.node(at).kind != policy::NodeKind::string) return false;
  const char* name = document.text(document.node(at).text);
  const std::size_t length = std::strlen(name);
  constexpr std::size_t kSuffix = sizeof(kReadRole) - 1;
  return length >= kSuffix && std::strcmp(name + length - kSuffix, kReadRole) == 0;
}

bool compile_stored(std::int64_t generation, Jsonb* json, StoredPolicy& stored, char* note, std::size_t note_bytes) {
  auto* document = static_cast<Document*>(palloc(sizeof(Document)));
  auto* findings = static_cast<Findings*>(palloc0(sizeof(Findings)));
  if (copy_document(json, *document) != Unreadable::no) {
    policy::TextWriter(note, note_bytes)
        .add("the document of generation ")
        .add(static_cast<std::uint64_t>(generation))
        .add(" is too large or too deep to be a policy");
    return false;
  }
  policy::ServerFacts facts = server_facts();
  facts.newest_generation = static_cast<std::uint64_t>(generation) - 1;
  facts.in_recovery = is_for_standby(*document);
  std::memset(static_cast<void*>(&stored.policy), 0, sizeof(stored.policy));
  bool valid = policy::validate(*document, facts, stored.policy, *findings);
  if (!valid) {
    note_first_error(generation, *findings, note, note_bytes);
    copy_database_label(*document, facts);
    std::memset(static_cast<void*>(findings), 0, sizeof(*findings));
    valid = policy::validate(*document, facts, stored.policy, *findings);
    if (valid) stored.mode = Mode::shadow;
  }
  if (valid && stored.policy.generation != 0 && stored.policy.generation != static_cast<std::uint64_t>(generation)) {
    policy::TextWriter(note, note_bytes)
        .add("the document of generation ")
        .add(static_cast<std::uint64_t>(generation))
        .add(" says that it is generation ")
        .add(stored.policy.generation);
    valid = false;
  }
  if (valid) stored.policy.generation = static_cast<std::uint64_t>(generation);
  pfree(findings);
  pfree(document);
  return valid;
}

void load_policy(StoredPolicy& stored, char* note, std::size_t note_bytes) {
  note[0] = '\0';
  stored.present = false;
  stored.unreadable = false;
  stored.mode = Mode::shadow;  // nothing published: everything is admitted and counted
  policy::make_unlimited_policy(stored.policy);
  Oid types[1] = {BOOLOID};
  Datum values[1] = {BoolGetDatum(RecoveryInProgress())};
  if (SPI_execute_with_args(kDecidingRow, 1, types, values, nullptr, false, 1) != SPI_OK_SELECT) {
    elog(ERROR, "cannot read sluice.policies");
  }
  if (SPI_processed == 0) return;
  HeapTuple tuple = SPI_tuptable->vals[0];
  TupleDesc columns = SPI_tuptable->tupdesc;
  bool is_null = false;
  const std::int64_t generation = DatumGetInt64(SPI_getbinval(tuple, columns, 1, &is_null));
  char* state = SPI_getvalue(tuple, columns, 2);
  stored.mode = std::strcmp(state, "active") == 0 ? Mode::enforce : Mode::shadow;
  Datum document = SPI_getbinval(tuple, columns, 3, &is_null);
  stored.present = compile_stored(generation, DatumGetJsonbP(document), stored, note, note_bytes);
  stored.unreadable = !stored.present;
}

Status put_in_force(const Policy& policy, Mode mode) noexcept { return install(nullptr, policy, mode); }

Status put_in_force_since(std::uint64_t policy_version, const Policy& policy, Mode mode) noexcept {
  return install(&policy_version, policy, mode);
}

std::uint64_t policy_version_in_force() noexcept {
  return std::atomic_ref<std::uint64_t>(the_ledger.header->policy_version).load(std::memory_order_acquire);
}

void apply_at_commit(const Policy& policy, Mode mode) {
  static bool registered = false;
  if (!registered) {
    RegisterSubXactCallback(on_subtransaction, nullptr);
    RegisterXactCallback(on_transaction, nullptr);
    registered = true;
  }
  auto* entry = static_cast<Pending*>(MemoryContextAlloc(TopTransactionContext, sizeof(Pending)));
  entry->previous = pending;
  entry->subtransaction = GetCurrentSubTransactionId();
  entry->mode = mode;
  std::memcpy(static_cast<void*>(&entry->policy), &policy, sizeof(policy));
  pending = entry;
}

void policy_store_transaction_end(bool committed) {
  if (pending == nullptr) return;
  Pending* newest = pending;
  forget_pending();
  if (!committed) return;
  // A refusal (the classes of an older policy still drain) is repeated by the publisher until it succeeds.
  (void)put_in_force(newest->policy, newest->mode);
  wake_worker(shared_state->publisher);
}

}  // namespace sluice::extension
