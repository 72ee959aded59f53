#include "policy/policy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "policy/decisions.h"

namespace sluice::policy {
namespace {

std::unique_ptr<Policy> unlimited() {
  auto policy = std::make_unique<Policy>();
  make_unlimited_policy(*policy);
  return policy;
}

TEST(PolicyUnlimited, HasNoLimitAnywhere) {
  auto policy = unlimited();
  EXPECT_EQ(policy->generation, 0U);
  EXPECT_EQ(policy->hard_connection_limit, kNoLimit);
  EXPECT_EQ(policy->server_session_permits, kNoLimit);
  EXPECT_EQ(policy->guaranteed_total, 0U);
  ASSERT_EQ(policy->class_count, 1);
  EXPECT_STREQ(policy->classes[0].name, "default");
  EXPECT_EQ(policy->classes[0].permits, kNoLimit);
  EXPECT_EQ(policy->classes[0].max_queue, kNoLimit);
  EXPECT_EQ(policy->classes[0].transaction_time_limit_ms, kNoTimeLimit);
  EXPECT_FALSE(policy->evict_direct);
  EXPECT_FALSE(policy->evict_proxied);
}

TEST(PolicyUnlimited, EveryLoginIsAnOrdinaryTenantOfTheOneClassWithoutLimits) {
  auto policy = unlimited();
  Login login{"app", "shop", false, nullptr, {}};
  Identity identity;
  identify(*policy, login, identity);
  EXPECT_EQ(identity.standing, Standing::ordinary);
  EXPECT_EQ(identity.execution_class, 0);
  EXPECT_STREQ(identity.tenant, "app");
  std::uint16_t rule = tenant_rule(*policy, identity.tenant);
  ASSERT_NE(rule, kNone);
  EXPECT_EQ(policy->tenant_rules[rule].max_inflight, kNoLimit);
  EXPECT_EQ(policy->tenant_rules[rule].max_sessions, kNoLimit);
  EXPECT_EQ(policy->tenant_rules[rule].weight, 1U);
}

TEST(PolicyUnlimited, IsTheSameBytesWhateverTheMemoryHeldBefore) {
  auto one = std::make_unique<Policy>();
  auto other = std::make_unique<Policy>();
  std::memset(one.get(), 0x00, sizeof(Policy));
  std::memset(other.get(), 0xAA, sizeof(Policy));
  make_unlimited_policy(*one);
  make_unlimited_policy(*other);
  EXPECT_EQ(std::memcmp(one.get(), other.get(), sizeof(Policy)), 0);
}

}  // namespace
}  // namespace sluice::policy
