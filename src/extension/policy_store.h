// The policies in the database (table sluice.policies) and their way into the ledger: jsonb -> Document -> compiled policy ->
// apply_policy at COMMIT (by the session that changed it) or by the publisher (at start, on a standby, as a safety net).
#pragma once

#include "extension/pg.h"
#include "ledger/region.h"
#include "policy/validator.h"

namespace sluice::extension {

// What the tables say should be in force.
struct StoredPolicy {
  bool present;
  ledger::Mode mode;
  policy::Policy policy;
};

// Copies a jsonb value into a Document (palloc'd by the caller). Raises ERROR for what a document cannot hold.
void read_document(Jsonb* value, policy::Document& document);

policy::ServerFacts server_facts();

// Reads and compiles the deciding policy through SPI (connected, snapshot set). Raises on SQL errors; a row that no longer
// validates is reported through `note` and leaves present = false.
void load_policy(StoredPolicy& stored, char* note, std::size_t note_bytes);

// Puts a compiled policy into force now (takes the lock, wakes who was granted). Cannot raise: safe in a COMMIT callback.
policy::Status put_in_force(const policy::Policy& policy, ledger::Mode mode) noexcept;

// Remembers that this transaction changed the store; put_in_force() runs when it commits, and the publisher is woken.
void apply_at_commit(const policy::Policy& policy, ledger::Mode mode);

// Transaction callback, called from transaction.cc at COMMIT and ABORT.
void policy_store_transaction_end(bool committed);

}  // namespace sluice::extension
