#include "proxy/cancel_keys.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace sluice::proxy {
namespace {

struct Key {
  std::uint32_t process_id;
  std::vector<std::uint8_t> bytes;

  [[nodiscard]] wire::CancelTarget target() const { return {process_id, bytes}; }
};

Key issue(CancelKeys& keys, WaiterId client, std::uint32_t version = wire::kProtocol30) {
  std::optional<wire::BackendKey> key = keys.issue(client, version);
  EXPECT_TRUE(key);
  return {key->process_id, {key->key.begin(), key->key.end()}};
}

TEST(ProxyCancelKeys, AKeyLeadsToItsClientUntilItIsForgotten) {
  CancelKeys keys(10);
  Key mine = issue(keys, 7);
  Key other = issue(keys, 8);
  EXPECT_EQ(keys.find(mine.target(), 0).kind, CancelLookup::found);
  EXPECT_EQ(keys.find(mine.target(), 0).client, 7U);
  EXPECT_EQ(keys.find(other.target(), 0).client, 8U);
  keys.forget(7);
  EXPECT_EQ(keys.find(mine.target(), 0).kind, CancelLookup::unknown);
  EXPECT_EQ(keys.find(other.target(), 0).client, 8U);
  keys.forget(8);
  keys.forget(8);
  EXPECT_EQ(keys.size(), 0U);
}

TEST(ProxyCancelKeys, KeysAreLongerInProtocol32) {
  CancelKeys keys(10);
  EXPECT_EQ(issue(keys, 1).bytes.size(), 4U);
  EXPECT_EQ(issue(keys, 2, wire::kProtocol32).bytes.size(), 32U);
}

TEST(ProxyCancelKeys, OnlyTheWholeKeyActs) {
  CancelKeys keys(1000);
  Key key = issue(keys, 1);
  for (std::size_t i = 0; i < key.bytes.size() * 8; i++) {
    Key wrong = key;
    wrong.bytes[i / 8] ^= static_cast<std::uint8_t>(1U << i % 8);
    EXPECT_EQ(keys.find(wrong.target(), 0).kind, CancelLookup::unknown);
  }
  Key longer = key;
  longer.bytes.push_back(0);
  EXPECT_EQ(keys.find(longer.target(), 0).kind, CancelLookup::unknown);
  Key shorter = key;
  shorter.bytes.pop_back();
  EXPECT_EQ(keys.find(shorter.target(), 0).kind, CancelLookup::unknown);
  EXPECT_EQ(keys.find(key.target(), 0).kind, CancelLookup::found);
}

TEST(ProxyCancelKeys, GuessingStopsAllLookupsForTheRestOfTheSecond) {
  CancelKeys keys(3);
  Key key = issue(keys, 1);
  const std::vector<std::uint8_t> guess = {1, 2, 3, 4};
  for (int i = 0; i < 3; i++) EXPECT_EQ(keys.find({0, guess}, kSecond).kind, CancelLookup::unknown);
  EXPECT_EQ(keys.find(key.target(), kSecond + 1).kind, CancelLookup::rate_limited);
  EXPECT_EQ(keys.find(key.target(), 2 * kSecond).kind, CancelLookup::found);
}

TEST(ProxyCancelKeys, NumbersArePositiveAndDifferent) {
  CancelKeys keys(10);
  std::set<std::uint32_t> numbers;
  for (WaiterId client = 1; client <= 2000; client++) {
    Key key = issue(keys, client);
    EXPECT_GT(key.process_id, 0U);
    EXPECT_LT(key.process_id, 1U << 31U);
    numbers.insert(key.process_id);
  }
  EXPECT_EQ(numbers.size(), 2000U);
}

}  // namespace
}  // namespace sluice::proxy
