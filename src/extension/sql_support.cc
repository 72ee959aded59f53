#include "extension/sql_support.h"

#include <cstring>

#include "extension/shared.h"

namespace sluice::extension {

Rows::Rows(FunctionCallInfo fcinfo) : columns_(0) {
  InitMaterializedSRF(fcinfo, 0);
  result_ = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
}

void Rows::add(Datum value, bool is_null) {
  if (columns_ >= kMaxColumns) return;
  values_[columns_] = value;
  nulls_[columns_] = is_null;
  columns_++;
}

Rows& Rows::null() {
  add(static_cast<Datum>(0), true);
  return *this;
}

Rows& Rows::text(const char* value) {
  if (value == nullptr) return null();
  add(CStringGetTextDatum(value), false);
  return *this;
}

Rows& Rows::number(std::int64_t value) {
  add(Int64GetDatum(value), false);
  return *this;
}

Rows& Rows::count(std::uint64_t value) { return number(static_cast<std::int64_t>(value)); }

Rows& Rows::limit(std::uint32_t value) { return value == policy::kNoLimit ? null() : number(value); }

Rows& Rows::boolean(bool value) {
  add(BoolGetDatum(value), false);
  return *this;
}

Rows& Rows::real(double value) {
  add(Float8GetDatum(value), false);
  return *this;
}

Rows& Rows::time(std::int64_t ledger_us) { return ledger_us == 0 ? null() : timestamp(to_timestamp(ledger_us)); }

Rows& Rows::timestamp(TimestampTz value) {
  if (value == 0) return null();
  add(TimestampTzGetDatum(value), false);
  return *this;
}

Rows& Rows::uuid(const policy::Uuid& value) {
  auto* copy = static_cast<pg_uuid_t*>(palloc(sizeof(pg_uuid_t)));
  std::memcpy(copy->data, value.bytes, sizeof(copy->data));
  add(UUIDPGetDatum(copy), false);
  return *this;
}

Rows& Rows::texts(const char* const* values, int count) {
  auto* elements = static_cast<Datum*>(palloc(sizeof(Datum) * static_cast<std::size_t>(count + 1)));
  for (int i = 0; i < count; i++) elements[i] = CStringGetTextDatum(values[i]);
  add(PointerGetDatum(construct_array(elements, count, TEXTOID, -1, false, TYPALIGN_INT)), false);
  return *this;
}

Rows& Rows::numbers(const std::uint64_t* values, int count) {
  auto* elements = static_cast<Datum*>(palloc(sizeof(Datum) * static_cast<std::size_t>(count + 1)));
  for (int i = 0; i < count; i++) elements[i] = Int64GetDatum(static_cast<std::int64_t>(values[i]));
  add(PointerGetDatum(construct_array(elements, count, INT8OID, sizeof(std::int64_t), true, TYPALIGN_DOUBLE)), false);
  return *this;
}

void Rows::end() {
  const int wanted = result_->setDesc->natts;
  while (columns_ < wanted && columns_ < kMaxColumns) null();
  tuplestore_putvalues(result_->setResult, result_->setDesc, values_, nulls_);
  columns_ = 0;
}

void require_argument(FunctionCallInfo fcinfo, int index, const char* name) {
  if (!PG_ARGISNULL(index)) return;
  ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("argument \"%s\" must not be null", name)));
}

char* text_argument(FunctionCallInfo fcinfo, int index, const char* name) {
  require_argument(fcinfo, index, name);
  return text_to_cstring(PG_GETARG_TEXT_PP(index));
}

void write_expected_wait(Rows& rows, std::int64_t wait_us) {
  if (wait_us < 0) {
    rows.null();
  } else {
    rows.real(static_cast<double>(wait_us) / 1e3);
  }
}

const char* mode_name(ledger::Mode mode) {
  switch (mode) {
    case ledger::Mode::off:
      return "off";
    case ledger::Mode::shadow:
      return "shadow";
    case ledger::Mode::enforce:
      return "enforce";
  }
  return "off";
}

char* rule_text(const policy::Policy& policy, policy::Rule rule) {
  if (rule.field == policy::RuleField::none) return nullptr;
  constexpr std::size_t kPathBytes = 2 * policy::kTenantBytes + 64;
  auto* path = static_cast<char*>(palloc(kPathBytes));
  (void)policy::rule_path(policy, rule, path, kPathBytes);
  return path;
}

const Names& copy_names() {
  auto* names = static_cast<Names*>(palloc0(sizeof(Names)));
  SharedLedger lock;
  names->policy = the_ledger.header->policy;
  names->class_count = the_ledger.header->sizes.classes;
  for (std::uint32_t i = 0; i < names->class_count && i < policy::kMaxClasses; i++) {
    std::memcpy(names->classes[i], the_ledger.classes[i].name, policy::kNameBytes);
  }
  return *names;
}

const char* class_name(const Names& names, std::uint32_t slot) {
  if (slot >= names.class_count || slot >= policy::kMaxClasses || names.classes[slot][0] == '\0') return nullptr;
  return names.classes[slot];
}

void* allocate_records(std::size_t bytes) {
  auto* memory = static_cast<char*>(MemoryContextAllocHuge(CurrentMemoryContext, bytes + PG_CACHE_LINE_SIZE));
  return reinterpret_cast<void*>(TYPEALIGN(PG_CACHE_LINE_SIZE, memory));
}

Slots copy_slots() {
  Slots slots{};
  slots.count = the_ledger.header->sizes.sessions;
  slots.sessions = static_cast<ledger::Session*>(allocate_records(sizeof(ledger::Session) * slots.count));
  slots.tickets = static_cast<ledger::Ticket*>(allocate_records(sizeof(ledger::Ticket) * slots.count));
  SharedLedger lock;
  std::memcpy(static_cast<void*>(slots.sessions), the_ledger.sessions, sizeof(ledger::Session) * slots.count);
  std::memcpy(static_cast<void*>(slots.tickets), the_ledger.tickets, sizeof(ledger::Ticket) * slots.count);
  return slots;
}

char* tenant_name(std::uint32_t tenant) {
  if (tenant >= the_ledger.header->sizes.tenants) return nullptr;
  auto* name = static_cast<char*>(palloc0(policy::kTenantBytes));
  SharedLedger lock;
  std::memcpy(name, the_ledger.tenants[tenant].name, policy::kTenantBytes);
  return name;
}

}  // namespace sluice::extension
