// What the SQL functions share: rows of a result, arguments, names. Everything here is trivially destructible, because
// any call into PostgreSQL may raise. The region is copied under the lock first; rows are made after it is released.
#pragma once

#include "extension/pg.h"
#include "ledger/region.h"
#include "policy/rule.h"

namespace sluice::extension {

// The rows of a set-returning function, written column by column.
class Rows {
 public:
  explicit Rows(FunctionCallInfo fcinfo);

  Rows& null();
  Rows& text(const char* value);  // nullptr: NULL
  Rows& number(std::int64_t value);
  Rows& count(std::uint64_t value);
  Rows& limit(std::uint32_t value);  // policy::kNoLimit: NULL
  Rows& boolean(bool value);
  Rows& real(double value);
  Rows& time(std::int64_t ledger_us);  // 0: NULL
  Rows& timestamp(TimestampTz value);  // 0: NULL
  Rows& uuid(const policy::Uuid& value);
  Rows& texts(const char* const* values, int count);
  Rows& numbers(const std::uint64_t* values, int count);

  // Ends the row. Columns that the SQL declaration does not know are dropped, missing ones are NULL, so that objects of
  // another version of the extension go on working.
  void end();

 private:
  void add(Datum value, bool is_null);

  static constexpr int kMaxColumns = 80;
  ReturnSetInfo* result_;
  int columns_;
  Datum values_[kMaxColumns];
  bool nulls_[kMaxColumns];
};

// Raises 22004 when argument `index` is NULL.
void require_argument(FunctionCallInfo fcinfo, int index, const char* name);

// The text of a text argument that is not NULL (palloc'd).
char* text_argument(FunctionCallInfo fcinfo, int index, const char* name);

// An estimate in microseconds as milliseconds; NULL where nothing is known (-1).
void write_expected_wait(Rows& rows, std::int64_t wait_us);

const char* mode_name(ledger::Mode mode);

// The path of a rule of the policy, palloc'd; nullptr for RuleField::none.
char* rule_text(const policy::Policy& policy, policy::Rule rule);

// A copy of the deciding policy and of the names of the ledger's class slots, for rendering. Takes the lock shared.
struct Names {
  policy::Policy policy;
  std::uint32_t class_count;
  char classes[policy::kMaxClasses][policy::kNameBytes];
};
const Names& copy_names();
const char* class_name(const Names& names, std::uint32_t slot);  // nullptr: none

// Memory for copies of the ledger's records, which are aligned to cache lines as palloc() is not. Lives as long as the
// current memory context.
void* allocate_records(std::size_t bytes);

// A palloc'd copy of the sessions and tickets of all PGPROC slots, made under the lock, shared.
struct Slots {
  std::uint32_t count;
  ledger::Session* sessions;
  ledger::Ticket* tickets;
};
Slots copy_slots();

// The name of a tenant slot, as of now (palloc'd); nullptr for kNil.
char* tenant_name(std::uint32_t tenant);

}  // namespace sluice::extension
