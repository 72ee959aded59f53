#include "policy/status.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>

namespace sluice::policy {
namespace {

constexpr int kStatusCount = static_cast<int>(Status::layout_mismatch) + 1;

TEST(PolicyStatus, EveryStatusHasItsOwnLowerCaseName) {
  std::set<std::string> names;
  for (int i = 0; i < kStatusCount; i++) {
    std::string name = status_name(static_cast<Status>(i));
    EXPECT_EQ(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_"), std::string::npos) << name;
    EXPECT_NE(name, "unknown") << i;
    names.insert(name);
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kStatusCount));
}

TEST(PolicyStatus, NamesOfTheContractAreStable) {
  EXPECT_STREQ(status_name(Status::queue_full), "queue_full");
  EXPECT_STREQ(status_name(Status::session_limit), "session_limit");
  EXPECT_STREQ(status_name(Status::queue_deadline), "queue_deadline");
}

TEST(PolicyStatus, AValueBeyondTheEnumHasANameToo) { EXPECT_STREQ(status_name(static_cast<Status>(250)), "unknown"); }

TEST(PolicyStatus, RefusalsAndFaultsAreDisjointAndLeaveTheOutcomesOut) {
  for (int i = 0; i < kStatusCount; i++) {
    auto status = static_cast<Status>(i);
    EXPECT_FALSE(is_refusal(status) && is_fault(status)) << status_name(status);
    bool outcome = status == Status::ok || status == Status::queued || status == Status::contended;
    EXPECT_NE(outcome, is_refusal(status) || is_fault(status)) << status_name(status);
  }
  EXPECT_TRUE(is_refusal(Status::duplicate_ticket));
  EXPECT_TRUE(is_fault(Status::corrupt));
}

}  // namespace
}  // namespace sluice::policy
