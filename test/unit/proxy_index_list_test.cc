#include "proxy/index_list.h"

#include <gtest/gtest.h>

namespace sluice::proxy {
namespace {

struct Item {
  Link link;
};
using Items = IndexList<Item, &Item::link>;

std::vector<std::uint32_t> in_order(const Items& list, const std::vector<Item>& items) {
  std::vector<std::uint32_t> order;
  for (std::uint32_t at = list.front(); at != kNoIndex; at = items[at].link.next) order.push_back(at);
  std::vector<std::uint32_t> backwards;
  for (std::uint32_t at = list.back(); at != kNoIndex; at = items[at].link.previous) backwards.push_back(at);
  EXPECT_EQ(std::vector<std::uint32_t>(backwards.rbegin(), backwards.rend()), order);
  EXPECT_EQ(list.count(), order.size());
  return order;
}

using Order = std::vector<std::uint32_t>;

TEST(ProxyIndexList, BothEndsTakeItemsAndAnyItemCanGo) {
  std::vector<Item> items(5);
  Items list;
  EXPECT_TRUE(list.empty());
  list.push_back(items, 2);
  list.push_back(items, 3);
  list.push_front(items, 1);
  EXPECT_EQ(in_order(list, items), (Order{1, 2, 3}));
  list.erase(items, 2);
  EXPECT_EQ(in_order(list, items), (Order{1, 3}));
  list.erase(items, 3);
  list.push_back(items, 4);
  list.erase(items, 1);
  EXPECT_EQ(in_order(list, items), (Order{4}));
  list.erase(items, 4);
  EXPECT_TRUE(list.empty());
  EXPECT_EQ(list.front(), kNoIndex);
  EXPECT_EQ(list.back(), kNoIndex);
}

TEST(ProxyIndexList, TheTableMayGrow) {
  std::vector<Item> items(1);
  Items list;
  list.push_back(items, 0);
  items.resize(1000);
  list.push_front(items, 999);
  EXPECT_EQ(in_order(list, items), (Order{999, 0}));
}

}  // namespace
}  // namespace sluice::proxy
