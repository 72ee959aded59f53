#include "wire/statement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace sluice::wire {
namespace {

using namespace std::string_literals;

struct Found {
  StatementKind kind;
  std::uint32_t flags;
  std::string source;
  std::string name;
  bool operator==(const Found&) const = default;
};

template <typename Cut>
std::vector<Found> split(const std::string& sql, Cut cut) {
  std::vector<Found> found;
  StatementSplitter splitter;
  Statement statement = {};
  auto keep = [&] {
    EXPECT_LT(statement.begin, statement.end);
    EXPECT_LE(statement.end, sql.size());
    found.push_back({statement.kind, statement.flags, sql.substr(statement.begin, statement.end - statement.begin),
                     std::string(statement.name)});
  };
  for (std::size_t at = 0; at < sql.size();) {
    std::string part = sql.substr(at, cut());
    at += part.size();
    std::string_view input = part;
    while (splitter.next(input, statement)) keep();
  }
  while (splitter.finish(statement)) keep();
  return found;
}

std::vector<Found> split(const std::string& sql) {
  return split(sql, [] { return std::size_t{1} << 20U; });
}

Found only(const std::string& sql) {
  std::vector<Found> found = split(sql);
  EXPECT_EQ(found.size(), 1U) << sql;
  return found.empty() ? Found{} : found[0];
}

StatementKind kind(const std::string& sql) { return only(sql).kind; }
std::string name(const std::string& sql) { return only(sql).name; }
std::uint32_t flags(const std::string& sql) { return only(sql).flags; }

std::vector<std::string> sources(const std::string& sql) {
  std::vector<std::string> all;
  for (const Found& found : split(sql)) all.push_back(found.source);
  return all;
}

using Strings = std::vector<std::string>;

TEST(WireStatement, SplitsAtSemicolonsOutsideOfEverything) {
  EXPECT_EQ(sources("select 1; select 2"), (Strings{"select 1", "select 2"}));
  EXPECT_EQ(sources(" ;; select 1 ;\n; -- x;\n"), (Strings{"select 1"}));
  EXPECT_EQ(sources("select ';' , $$;$$, \";\" /* ; */; x"), (Strings{"select ';' , $$;$$, \";\"", "x"}));
  EXPECT_EQ(sources("create rule r as on insert to t do also (delete from a; delete from b); set a = 1"),
            (Strings{"create rule r as on insert to t do also (delete from a; delete from b)", "set a = 1"}));
  EXPECT_TRUE(split("").empty());
  EXPECT_TRUE(split("/* nothing */ ;").empty());
  EXPECT_EQ(sources("a); b"), (Strings{"a)", "b"}));
}

TEST(WireStatement, ABodyOfAFunctionIsOneStatementAndSaysSo) {
  std::string function =
      "create or replace function f(begin int default 1) returns int begin atomic select 1; select case when true then "
      "2 "
      "end; end";
  std::vector<Found> found = split(function + "; set a = 1");
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].source, function);
  EXPECT_EQ(found[0].flags, kAtomicBody);
  EXPECT_EQ(found[1].kind, StatementKind::set);
  // A function of this name has no such body, so what follows it is seen.
  EXPECT_EQ(split("create function begin() returns int language sql as 'select 1'; set a = 1").size(), 2U);
}

TEST(WireStatement, Transactions) {
  for (const char* sql : {"BEGIN", "begin work", "Begin Transaction Isolation Level Serializable",
                          "start transaction read only", "/* x */ begin -- y"}) {
    EXPECT_EQ(kind(sql), StatementKind::begin) << sql;
  }
  for (const char* sql : {"COMMIT", "end", "commit work", "end transaction and no chain"}) {
    EXPECT_EQ(kind(sql), StatementKind::commit) << sql;
    EXPECT_EQ(flags(sql), 0U) << sql;
  }
  for (const char* sql : {"rollback", "ABORT", "rollback transaction", "abort work and no chain"}) {
    EXPECT_EQ(kind(sql), StatementKind::rollback) << sql;
  }
  EXPECT_EQ(flags("commit and chain"), kChain);
  EXPECT_EQ(flags("rollback work and chain"), kChain);
  EXPECT_EQ(kind("commit prepared 'x'"), StatementKind::commit_prepared);
  EXPECT_EQ(kind("rollback prepared 'x'"), StatementKind::rollback_prepared);
  EXPECT_EQ(kind("prepare transaction 'x'"), StatementKind::prepare_transaction);
  EXPECT_EQ(only("savepoint S1"), (Found{StatementKind::savepoint, 0, "savepoint S1", "s1"}));
  EXPECT_EQ(name("release savepoint \"S 1\""), "S 1");
  EXPECT_EQ(name("release s"), "s");
  EXPECT_EQ(name("release savepoint"), "savepoint");
  for (const char* sql :
       {"rollback to x", "rollback to savepoint x", "rollback work to x", "rollback transaction to savepoint x"}) {
    EXPECT_EQ(kind(sql), StatementKind::rollback_to_savepoint) << sql;
    EXPECT_EQ(name(sql), "x") << sql;
  }
}

TEST(WireStatement, SettingsAndTheirNames) {
  struct Case {
    const char* sql;
    StatementKind kind;
    const char* name;
  };
  const Case cases[] = {
      {"set TimeZone = 'UTC'", StatementKind::set, "timezone"},
      {"SET extra_float_digits=3", StatementKind::set, "extra_float_digits"},
      {"set x=-1", StatementKind::set, "x"},
      {"set session work_mem to '4MB'", StatementKind::set, "work_mem"},
      {"set local work_mem to default", StatementKind::set_local, "work_mem"},
      {"set app.tenant to 'a'", StatementKind::set, "app.tenant"},
      {"set \"App\".\"Tenant\".x to 'a'", StatementKind::set, "app.tenant.x"},
      {"set local app.tenant from current", StatementKind::set_local, "app.tenant"},
      {"set time zone local", StatementKind::set, "timezone"},
      {"set local time zone 'UTC'", StatementKind::set_local, "timezone"},
      {"set names 'utf8'", StatementKind::set, "client_encoding"},
      {"set schema 'x'", StatementKind::set, "search_path"},
      {"set role x", StatementKind::set, "role"},
      {"set local role none", StatementKind::set_local, "role"},
      {"set session authorization x", StatementKind::set, "session_authorization"},
      {"set session session authorization x", StatementKind::set, "session_authorization"},
      {"set local session authorization default", StatementKind::set_local, "session_authorization"},
      {"set xml option document", StatementKind::set, "xmloption"},
      {"set transaction read only", StatementKind::set_transaction, ""},
      {"set local transaction read only", StatementKind::set_transaction, ""},
      {"set session characteristics as transaction read only", StatementKind::set_session_characteristics, ""},
      {"set session session characteristics as transaction read only", StatementKind::set_session_characteristics, ""},
      {"set constraints all deferred", StatementKind::set_constraints, ""},
      // Words of the grammar that are names here.
      {"set local = 1", StatementKind::set, "local"},
      {"set session to 1", StatementKind::set, "session"},
      {"set local.x = 1", StatementKind::set, "local.x"},
      {"set role.x = 1", StatementKind::set, "role.x"},
      {"set local local.x = 1", StatementKind::set_local, "local.x"},
      {"set transaction.x = 1", StatementKind::set, "transaction.x"},
      {"set constraints.x = 1", StatementKind::set, "constraints.x"},
      {"set role to x", StatementKind::set, "role"},
      {"set \"transaction\" = 1", StatementKind::set, "transaction"},
      {"set/**/local/**/a/**/=/**/1", StatementKind::set_local, "a"},
      {"reset timezone", StatementKind::reset, "timezone"},
      {"reset app.tenant", StatementKind::reset, "app.tenant"},
      {"reset time zone", StatementKind::reset, "timezone"},
      {"reset session authorization", StatementKind::reset, "session_authorization"},
      {"reset transaction isolation level", StatementKind::reset, "transaction_isolation"},
      {"reset all", StatementKind::reset_all, ""},
      {"show all", StatementKind::show, ""},
      {"discard all", StatementKind::discard_all, ""},
      {"discard temp", StatementKind::discard_temporary, ""},
      {"DISCARD TEMPORARY", StatementKind::discard_temporary, ""},
      {"discard plans", StatementKind::discard_other, ""},
  };
  for (const Case& c : cases) {
    Found found = only(c.sql);
    EXPECT_EQ(found.kind, c.kind) << c.sql;
    EXPECT_EQ(found.name, c.name) << c.sql;
    EXPECT_EQ(found.flags, 0U) << c.sql;
  }
  EXPECT_NE(kind("\"set\" a = 1"), StatementKind::set);
  EXPECT_NE(kind("update t set a = 1"), StatementKind::set);
}

TEST(WireStatement, NamesThatCannotBeKnownAreMarked) {
  EXPECT_EQ(flags("deallocate " + std::string(63, 'n')), 0U);
  EXPECT_EQ(flags("deallocate " + std::string(64, 'n')), kNameCut);
  EXPECT_EQ(flags("deallocate u&\"\\0061\""), kNameCut | kEscapedName);
  EXPECT_EQ(flags("set a.b.c.d.e.f.g.h.i.j.k = 1"), kNameCut);
  std::string part(60, 'x');
  EXPECT_EQ(flags("set " + part + "." + part + "." + part + " = 1"), 0U);
  EXPECT_EQ(flags("set " + part + "." + part + "." + part + "." + part + " = 1"), kNameCut);
}

TEST(WireStatement, NamedStatementsAndCursors) {
  EXPECT_EQ(only("prepare P1 (int) as select $1"),
            (Found{StatementKind::prepare, 0, "prepare P1 (int) as select $1", "p1"}));
  EXPECT_EQ(kind("prepare transaction as select 1"), StatementKind::prepare);
  EXPECT_EQ(name("prepare transaction as select 1"), "transaction");
  EXPECT_EQ(name("execute \"P 1\" (1)"), "P 1");
  EXPECT_EQ(kind("execute p"), StatementKind::execute);
  EXPECT_EQ(name("deallocate _pg3_0"), "_pg3_0");
  EXPECT_EQ(name("deallocate prepare s"), "s");
  EXPECT_EQ(name("deallocate prepare"), "prepare");
  EXPECT_EQ(kind("DEALLOCATE ALL"), StatementKind::deallocate_all);
  EXPECT_EQ(kind("deallocate prepare all"), StatementKind::deallocate_all);
  EXPECT_EQ(kind("deallocate \"all\""), StatementKind::deallocate);
  EXPECT_EQ(only("declare c cursor for select 1").flags, 0U);
  EXPECT_EQ(name("declare c cursor for select 1"), "c");
  EXPECT_EQ(flags("declare c binary insensitive no scroll cursor with hold for select 1"), kHoldsCursor);
  EXPECT_EQ(flags("declare c cursor /* x */ with -- y\n hold for select 1"), kHoldsCursor);
  EXPECT_EQ(flags("declare cursor cursor with hold for select 1"), kHoldsCursor);
  EXPECT_EQ(flags("declare c cursor without hold for select 1"), 0U);
  EXPECT_EQ(kind("fetch all from c"), StatementKind::fetch);
  EXPECT_EQ(name("close c"), "c");
  EXPECT_EQ(name("listen Q"), "q");
  EXPECT_EQ(kind("unlisten *"), StatementKind::unlisten);
  EXPECT_EQ(kind("notify q, 'x'"), StatementKind::notify);
}

TEST(WireStatement, CopyByWhereTheDataGoes) {
  EXPECT_EQ(kind("copy t from stdin"), StatementKind::copy_from_client);
  EXPECT_EQ(kind("COPY t (a, b) FROM STDOUT WITH (FORMAT csv)"), StatementKind::copy_from_client);
  EXPECT_EQ(kind("copy binary t to stdout"), StatementKind::copy_to_client);
  EXPECT_EQ(kind("copy (select a from b) to stdout"), StatementKind::copy_to_client);
  EXPECT_EQ(kind("copy (select 1 from stdin) to '/tmp/x'"), StatementKind::copy_on_server);
  EXPECT_EQ(kind("copy t from '/tmp/x'"), StatementKind::copy_on_server);
  EXPECT_EQ(kind("copy t from program 'stdin'"), StatementKind::copy_on_server);
  EXPECT_EQ(kind("copy \"from\" from stdin"), StatementKind::copy_from_client);
}

TEST(WireStatement, StateThatOutlivesATransaction) {
  for (const char* sql :
       {"create temp table t ()", "create temporary view v as select 1", "create local temp table t ()",
        "create or replace temp view v as select 1", "create global temporary sequence s", "select 1 into temp t",
        "select 1 into local temporary table t", "create table pg_temp.t ()", "create table \"pg_temp\".t ()",
        "drop table pg_temp_3.t", "explain analyze create temp table t as select 1"}) {
    EXPECT_EQ(flags(sql), kTemporary) << sql;
  }
  for (const char* sql : {"create table temp ()", "insert into temp values (1)", "select temp from t",
                          "create schema temp", "select 'create temp table'", "select replace('a', 'b', 'c')"}) {
    EXPECT_EQ(flags(sql), 0U) << sql;
  }
  EXPECT_EQ(flags("select pg_catalog.SET_CONFIG('a', 'b', false)"), kMentionsSetConfig);
  EXPECT_EQ(flags("select \"set_config\"('a', 'b', false)"), kMentionsSetConfig);
  EXPECT_EQ(flags("select u&\"set\\005fconfig\"('a', 'b', false)"), kEscapedName);
  EXPECT_EQ(flags("select 'set_config'"), 0U);
  EXPECT_EQ(flags("select pg_advisory_lock(7)"), kAdvisoryLock);
  EXPECT_EQ(flags("select pg_try_advisory_lock_shared(7)"), kAdvisoryLock);
  EXPECT_EQ(flags("select pg_advisory_xact_lock(7)"), 0U);
  EXPECT_EQ(flags("select date 'today'"), kCalendarLiteral);
  EXPECT_EQ(flags("select '01/02/2024'::date"), 0U);
  EXPECT_EQ(flags("select 'a"), kUnterminated);
  EXPECT_EQ(flags("select 1 /* a"), kUnterminated);
}

TEST(WireStatement, TheRestByItsFirstWord) {
  EXPECT_EQ(kind("((select 1))"), StatementKind::query);
  EXPECT_EQ(kind("with x as (select 1) select 1"), StatementKind::query);
  EXPECT_EQ(kind("table t"), StatementKind::query);
  EXPECT_EQ(kind("merge into t using s on true when matched then do nothing"), StatementKind::modify);
  EXPECT_EQ(kind("do $$ begin perform 1; end $$"), StatementKind::do_block);
  EXPECT_EQ(kind("call p()"), StatementKind::call);
  EXPECT_EQ(kind("lock table t in share mode"), StatementKind::lock);
  EXPECT_EQ(kind("load 'x'"), StatementKind::load);
  EXPECT_EQ(kind("create table t ()"), StatementKind::create);
  EXPECT_EQ(kind("alter role x set a = 1"), StatementKind::change_schema);
  EXPECT_EQ(kind("vacuum"), StatementKind::maintain);
  EXPECT_EQ(kind("explain analyze select 1"), StatementKind::explain);
  EXPECT_EQ(kind("nonsense"), StatementKind::other);
  EXPECT_EQ(kind("'text'"), StatementKind::other);
}

TEST(WireStatement, NothingOfOneStatementReachesTheNext) {
  std::vector<Found> found =
      split("declare c cursor with; hold; select 1 into; temp; copy t from; stdin; set a = ('x; 1");
  for (const Found& statement : found) EXPECT_EQ(statement.flags & ~kUnterminated, 0U) << statement.source;
  ASSERT_EQ(split("create temp table t (); select 1").size(), 2U);
  EXPECT_EQ(split("create temp table t (); select 1")[1].flags, 0U);
  EXPECT_EQ(split("set a = 1; reset all")[1].name, "");
}

TEST(WireStatement, CuttingTheTextChangesNothing) {
  const std::string words[] = {
      "set",     "local",      "session",  "begin",  "atomic", "end",        "case", "create",  "function",
      "temp",    "into",       "declare",  "cursor", "with",   "hold",       "copy", "from",    "stdin",
      "to",      ";",          ";",        "(",      ")",      "=",          ".",    "'now'",   "'",
      "$$",      "\"a\"",      "-- x\n",   "/*",     "*/",     "deallocate", "all",  "prepare", "transaction",
      "U&\"x\"", "set_config", "rollback", "and",    "chain",  "\xFF",       "\0"s,  "1.5e3"};
  std::uint32_t state = 11;
  auto random = [&state](std::size_t below) { return state = state * 1664525U + 1013904223U, (state >> 8U) % below; };
  for (int round = 0; round < 6000; round++) {
    std::string sql;
    for (std::size_t i = random(24); i > 0; i--) sql += words[random(std::size(words))] + (random(4) == 0 ? "" : " ");
    std::vector<Found> whole = split(sql);
    EXPECT_EQ(split(sql, [] { return std::size_t{1}; }), whole) << sql;
    EXPECT_EQ(split(sql, [&] { return 1 + random(6); }), whole) << sql;
    static_cast<void>(split(sql.substr(0, random(sql.size() + 1))));
  }
}

}  // namespace
}  // namespace sluice::wire
