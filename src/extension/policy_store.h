// The policies in the database (table sluice.policies) and their way into the ledger: jsonb -> Document -> compiled
// policy -> apply_policy at COMMIT (by the session that changed it) or by the publisher (at start, on a standby, as a
// safety net).
//
// Which row decides: the enforced one (state 'active'), else the newest in state 'shadow', in shadow mode. A policy
// names the role it is for; on a primary only those for "write" count, on a standby those for "read" go before those
// for "write".
#pragma once

#include "extension/pg.h"
#include "ledger/region.h"
#include "policy/validator.h"

namespace sluice::extension {

// What the tables say should be in force.
struct StoredPolicy {
  bool present;
  bool unreadable;  // there is a deciding row, but it cannot be used: keep what is in force
  ledger::Mode mode;
  policy::Policy policy;
};

// Copies a jsonb value into a Document (palloc'd by the caller). Raises ERROR for what a document cannot hold.
void read_document(Jsonb* value, policy::Document& document);

// newest_generation stays 0: the caller knows it, where it matters.
policy::ServerFacts server_facts();

// Is the document for a standby ("database: label/read")? Its role is then not compared with what this server is now.
bool is_for_standby(const policy::Document& document);

// Compiles a stored row. false: it no longer validates, and `note` says why. A policy of another label comes back in
// shadow mode (a restored backup must not enforce), with a note.
bool compile_stored(std::int64_t generation, Jsonb* document, StoredPolicy& stored, char* note, std::size_t note_bytes);

// Reads and compiles the deciding policy through SPI (connected). Raises on SQL errors; a row that no longer validates
// is reported through `note` and leaves present = false, unreadable = true.
void load_policy(StoredPolicy& stored, char* note, std::size_t note_bytes);

// Puts a compiled policy into force now (takes the lock, wakes who was granted). Cannot raise: safe in a COMMIT
// callback.
policy::Status put_in_force(const policy::Policy& policy, ledger::Mode mode) noexcept;

// The same, unless the ledger's policy has changed since `policy_version` was read: then nothing is done, `contended`.
policy::Status put_in_force_since(std::uint64_t policy_version, const policy::Policy& policy,
                                  ledger::Mode mode) noexcept;

std::uint64_t policy_version_in_force() noexcept;

// Remembers that this transaction changed the store; put_in_force() runs when it commits, and the publisher is woken. A
// rollback, also of the savepoint it happened in, forgets it.
void apply_at_commit(const policy::Policy& policy, ledger::Mode mode);

// Transaction callback, called from transaction.cc at COMMIT and ABORT.
void policy_store_transaction_end(bool committed);

}  // namespace sluice::extension
