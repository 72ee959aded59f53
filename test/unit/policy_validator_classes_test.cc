// executionClasses, defaultClass, borrowing, and bulkheads off.
#include <gtest/gtest.h>

#include "unit/policy_fixture.h"

namespace sluice::policy {
namespace {

using test::Checked;
using test::has_error;
using test::has_warning;
using test::minimal;
using test::with_classes;

TEST(PolicyClasses, ALimitLeftOutIsNoneAndZeroAdmitsNone) {
  Checked run(with_classes(R"("open": {}, "closed": {"permits": 0, "maxQueue": 0})", R"("defaultClass": "open",)"));
  ASSERT_TRUE(run.valid) << run.all();
  EXPECT_EQ(run.policy->classes[0].permits, kNoLimit);
  EXPECT_EQ(run.policy->classes[0].max_queue, kNoLimit);
  EXPECT_EQ(run.policy->classes[1].permits, 0U);
  EXPECT_EQ(run.policy->classes[1].max_queue, 0U);
  EXPECT_NE(run.warning("executionClasses.closed.permits"), nullptr);
}

TEST(PolicyClasses, WithoutClassesTransactionsAreCountedAndNotLimited) {
  Checked none(R"({"schema": "dbAdmissionPolicy.v1", "database": "a/write", "serverSessionPermits": 9})");
  Checked empty(with_classes(""));
  for (const Checked* run : {&none, &empty}) {
    EXPECT_TRUE(has_warning(*run, "executionClasses", "not limited"));
    ASSERT_EQ(run->policy->class_count, 1);
    EXPECT_STREQ(run->policy->classes[0].name, "default");
    EXPECT_EQ(run->policy->classes[0].permits, kNoLimit);
  }
}

TEST(PolicyClasses, AtMostSixteen) {
  std::string classes;
  for (int i = 0; i < 16; i++) classes += "\"c" + std::to_string(i) + "\": {},";
  EXPECT_TRUE(Checked(with_classes(classes, R"("defaultClass": "c0",)")).valid);
  EXPECT_TRUE(has_error(Checked(with_classes(classes + "\"extra\": {}", R"("defaultClass": "c0",)")),
                        "executionClasses.extra", "at most 16"));
}

TEST(PolicyClasses, ATimeLimitOfZeroIsRefusedBecauseItCouldMeanEither) {
  EXPECT_TRUE(has_error(Checked(with_classes(R"("a": {"transactionTimeLimitMs": 0})")),
                        "executionClasses.a.transactionTimeLimitMs", "from 1 to 604800000 (milliseconds)"));
}

TEST(PolicyClasses, AQueueDeadlineOfZeroMeansNeverQueue) {
  Checked run(with_classes(R"("a": {"queueDeadlineMs": 0})"));
  ASSERT_TRUE(run.valid) << run.all();
  EXPECT_EQ(run.policy->classes[0].queue_deadline_ms, 0U);
}

TEST(PolicyClasses, DefaultClassIsInteractiveOrTheOnlyOneOrMustBeGiven) {
  Checked only(with_classes(R"("x": {})"));
  ASSERT_TRUE(only.valid) << only.all();
  EXPECT_EQ(only.policy->default_class, 0);
  Checked named(with_classes(R"("x": {}, "interactive": {})"));
  ASSERT_TRUE(named.valid) << named.all();
  EXPECT_EQ(named.policy->default_class, 1);
  EXPECT_TRUE(has_error(Checked(with_classes(R"("x": {}, "y": {})")), "defaultClass", "must be given: there are 2"));
  Checked given(with_classes(R"("x": {}, "y": {})", R"("defaultClass": "y",)"));
  EXPECT_EQ(given.policy->default_class, 1);
  EXPECT_TRUE(has_error(Checked(with_classes(R"("batch": {}, "y": {})", R"("defaultClass": "bacth",)")), "defaultClass",
                        "there is no execution class \"bacth\" (did you mean batch?)"));
}

TEST(PolicyClasses, UnknownClassesAreRefusedWhereverTheyAreNamed) {
  EXPECT_TRUE(has_error(Checked(with_classes(R"("a": {"mayEnter": ["nope"]})")), "executionClasses.a.mayEnter[0]",
                        "there is no execution class \"nope\""));
  EXPECT_TRUE(has_error(
      Checked(with_classes(R"("a": {"borrow": {"from": ["a2", "nope"]}}, "a2": {})", R"("defaultClass": "a",)")),
      "executionClasses.a.borrow.from[1]", "there is no execution class \"nope\""));
  EXPECT_TRUE(has_error(Checked(with_classes(R"("a": {})", R"("assign": [{"role": "x", "class": "nope"}],)")),
                        "assign[0].class", "there is no execution class \"nope\""));
}

TEST(PolicyClasses, AClassDeclaredFurtherDownMayBeNamed) {
  Checked run(
      with_classes(R"("interactive": {"mayEnter": ["later"]}, "later": {"borrow": {"from": ["interactive"]}})"));
  ASSERT_TRUE(run.valid) << run.all();
  EXPECT_EQ(run.policy->classes[0].may_enter, 2U);
  EXPECT_EQ(run.policy->classes[1].borrow.from_classes, 1U);
  EXPECT_EQ(run.policy->classes[1].borrow.max, kNoLimit);
  EXPECT_EQ(run.policy->classes[1].borrow.ttl_ms, 5000U);
  EXPECT_EQ(run.policy->classes[1].borrow.on_expiry, BorrowExpiry::mark);
}

TEST(PolicyClasses, BorrowingFromItselfOrFromNobodyIsRefused) {
  EXPECT_TRUE(has_error(Checked(with_classes(R"("a": {"borrow": {"from": ["a"]}})")), "executionClasses.a.borrow.from",
                        "class a cannot borrow from itself"));
  EXPECT_TRUE(has_error(Checked(with_classes(R"("a": {"borrow": {"max": 3}})")), "executionClasses.a.borrow.from",
                        "is missing"));
  EXPECT_TRUE(has_error(Checked(with_classes(R"("a": {"borrow": {"from": "b"}}, "b": {})")),
                        "executionClasses.a.borrow.from", "must be a list, found the text \"b\""));
  EXPECT_TRUE(has_error(Checked(with_classes(R"("a": {"borrow": {"from": ["b"], "onExpiry": "kill"}}, "b": {})")),
                        "executionClasses.a.borrow.onExpiry", "mark or cancel"));
  EXPECT_TRUE(
      has_error(Checked(with_classes(R"("a": {"borrow": {"from": ["b", "b"]}}, "b": {})", R"("defaultClass": "a",)")),
                "executionClasses.a.borrow.from[1]", "listed twice"));
}

TEST(PolicyClasses, NamesAreCheckedLikeNames) {
  EXPECT_TRUE(has_error(Checked(with_classes("\"" + std::string(64, 'x') + "\": {}")),
                        "executionClasses." + std::string(64, 'x'), "64 bytes long, at most 63"));
  EXPECT_TRUE(Checked(with_classes("\"" + std::string(63, 'x') + "\": {}")).valid);
  EXPECT_TRUE(
      has_error(Checked(with_classes(R"("a\u0007b": {})")), "executionClasses.\"a?b\"", "control character at byte 2"));
  EXPECT_TRUE(has_error(Checked(with_classes(R"("a\u0000b": {})")), "executionClasses.\"a?b\"", "control character"));
  EXPECT_TRUE(has_error(Checked(with_classes(R"("": {})")), "executionClasses.\"\"", "must not be empty"));
  EXPECT_TRUE(has_error(Checked(with_classes(R"("a": {}, "a": {})")), "executionClasses.a", "is given twice"));
  EXPECT_TRUE(
      has_error(Checked(with_classes(R"("a": 5)")), "executionClasses.a", "must be a group of fields, found 5"));
  EXPECT_TRUE(has_error(Checked(with_classes(R"("a": null)")), "executionClasses.a", "found nothing"));
}

TEST(PolicyBulkheadsOff, MakesOneClassOfTheSums) {
  Checked run(with_classes(R"("interactive": {"permits": 60, "maxQueue": 800, "queueDeadlineMs": 2000, "agingMs": 500,
                            "transactionTimeLimitMs": 30000, "mayEnter": ["batch"], "borrow": {"from": ["batch"]}},
                          "batch": {"permits": 20, "maxQueue": 100, "queueDeadlineMs": 60000, "agingMs": 5000})",
                           R"("bulkheads": "off", "assign": [{"role": "b*", "class": "batch"}],)"));
  ASSERT_TRUE(run.valid) << run.all();
  ASSERT_EQ(run.policy->class_count, 1);
  const ExecutionClass& one = run.policy->classes[0];
  EXPECT_STREQ(one.name, "interactive");
  EXPECT_EQ(one.permits, 80U);
  EXPECT_EQ(one.max_queue, 900U);
  EXPECT_EQ(one.queue_deadline_ms, 60000U) << "the longest";
  EXPECT_EQ(one.transaction_time_limit_ms, kNoTimeLimit) << "batch has none, so nobody has one";
  EXPECT_EQ(one.aging_ms, 500U) << "the shortest";
  EXPECT_EQ(one.may_enter, 0U);
  EXPECT_EQ(one.borrow.from_classes, 0U);
  EXPECT_EQ(run.policy->assign_count, 0);
  EXPECT_EQ(run.policy->default_class, 0);
  EXPECT_EQ(run.policy->classes[1].name[0], '\0');
}

TEST(PolicyBulkheadsOff, AnUnlimitedClassMakesTheSumUnlimited) {
  Checked run(with_classes(R"("b": {"permits": 4, "maxQueue": 3}, "a": {})", R"("bulkheads": false,)"));
  ASSERT_TRUE(run.valid) << run.all();
  EXPECT_STREQ(run.policy->classes[0].name, "b") << "the first, where none is the default";
  EXPECT_EQ(run.policy->classes[0].permits, kNoLimit);
  EXPECT_EQ(run.policy->classes[0].max_queue, kNoLimit);
}

TEST(PolicyBulkheadsOff, WhatIsIgnoredIsStillChecked) {
  EXPECT_TRUE(has_error(Checked(with_classes(R"("a": {"mayEnter": ["nope"]})", R"("bulkheads": false,)")),
                        "executionClasses.a.mayEnter[0]", "there is no execution class"));
}

}  // namespace
}  // namespace sluice::policy
