#include "proxy/text_effects.h"

#include <gtest/gtest.h>

namespace sluice::proxy {
namespace {

TEST(TextEffects, WhatApplicationsSendIsPlain) {
  for (std::string_view text :
       {"", "  ", "select 1", "SELECT * FROM t WHERE name = $1;", "insert into items values (1)  ; ", "(select 1)",
        "with x as (select 1) select * from x", "BEGIN", "commit", "update t set a = 1",
        "select t_m, m_t from items where a & b > 0"}) {
    EXPECT_TRUE(is_plain(text)) << text;
    EXPECT_TRUE(read_effects(text).none()) << text;
  }
}

TEST(TextEffects, NothingWithAnEffectIsPlain) {
  for (std::string_view text : {"set a = 1",
                                "/* x */ set a = 1",
                                "select 1; set a = 1",
                                "select SET_CONFIG('a', 'b', false)",
                                "select pg_advisory_lock(1)",
                                "select pg_try_advisory_lock(1)",
                                "select 1 into temp t",
                                "select 1 INTO TEMPORARY t",
                                "insert into pg_temp.t values (1)",
                                "select U&\"set\\005fconfig\"('a', 'b', true)",
                                "listen x",
                                "discard all",
                                "deallocate s",
                                "deallocate all",
                                "do $$ begin end $$",
                                "call p()",
                                "execute x",
                                "create table t(a int)",
                                "declare c cursor with hold for select 1",
                                "prepare x as select 1",
                                "load 'x'",
                                "explain analyze create temp table t as select 1"}) {
    EXPECT_FALSE(is_plain(text)) << text;
    EXPECT_FALSE(read_effects(text).none()) << text;
  }
}

TEST(TextEffects, SettingsByTheirReach) {
  EXPECT_TRUE(read_effects("set work_mem = 1").has(kTouchesSettings));
  EXPECT_FALSE(read_effects("set local work_mem = 1").has(kTouchesSettings));
  EXPECT_TRUE(read_effects("set local work_mem = 1").has(kTouchesThisTransaction));
  EXPECT_TRUE(read_effects("set transaction read only").none());
  EXPECT_TRUE(read_effects("reset work_mem").has(kResets));
  EXPECT_TRUE(read_effects("discard all").has(kResets | kDeallocatesAll));
  EXPECT_TRUE(read_effects("set session authorization bob").has(kChangesIdentity));
  EXPECT_FALSE(read_effects("reset session authorization").has(kChangesIdentity));
}

TEST(TextEffects, NamesOfCustomParameters) {
  auto names = [](std::string_view text) { return read_effects(text).placeholders; };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names("set App.Tenant = 1"), Names{"app.tenant"});
  EXPECT_EQ(names("set local app.tenant = 1"), Names{"app.tenant"});
  EXPECT_EQ(names("select set_config('App.Tenant', $1, true)"), Names{"app.tenant"});
  EXPECT_EQ(names("select set_config('work_mem', '1', true)"), Names{});
  EXPECT_EQ(names("do $$ begin set local app.x = 1; perform set_config('app.y', '', false); end $$"),
            (Names{"app.y", "app.x"}));
}

TEST(TextEffects, ACallWhoseNameIsNoPlainLiteralIsUnknown) {
  for (std::string_view text : {"select set_config($1, '1', true)", "select set_config('a' || 'b', '1', true)",
                                "select set_config('it''s', '1', true)", "select set_config/**/('app.x', '1', true)",
                                "select U&\"set\\005fconfig\"('app.x', '1', true)"}) {
    EXPECT_TRUE(read_effects(text).has(kUnknownNames)) << text;
  }
  EXPECT_FALSE(read_effects("select \"set_config\" ( 'app.x' , '1', true)").has(kUnknownNames));
}

TEST(TextEffects, DeallocateIsTheProtocolsCloseOnlyAlone) {
  EXPECT_TRUE(read_effects("deallocate prepare \"S\";").has(kDeallocates));
  EXPECT_EQ(read_effects("deallocate prepare \"S\"").name, "S");
  EXPECT_FALSE(read_effects("deallocate s; select 1").has(kDeallocates));
}

TEST(TextEffects, TheSameInWhateverPiecesALongTextComes) {
  std::string_view text = "select 1; set app.x = 'now'; listen y";
  for (std::size_t cut = 0; cut <= text.size(); cut++) {
    EffectsReader reader;
    reader.add(text.substr(0, cut));
    reader.add(text.substr(cut));
    reader.finish();
    EXPECT_TRUE(reader.effects().has(kTouchesSettings));
    EXPECT_TRUE(reader.effects().has(kCalendar));
    EXPECT_EQ(reader.effects().untracked, UntrackedKind::listen);
  }
}

}  // namespace
}  // namespace sluice::proxy
