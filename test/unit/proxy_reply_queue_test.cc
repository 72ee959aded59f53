#include "proxy/reply_queue.h"

#include <gtest/gtest.h>

#include <vector>

namespace sluice::proxy {
namespace {

ReplyQueue queue_of(const std::vector<Owed>& owed) {
  ReplyQueue queue;
  for (Owed kind : owed) queue.push({kind, 0, Reply::kNoSubject, 0});
  return queue;
}

TEST(ReplyQueue, KeepsTheOrderWhileItGrowsAndTurns) {
  ReplyQueue queue;
  std::uint32_t next = 0;
  std::uint32_t first = 0;
  for (int round = 0; round < 200; round++) {
    for (int i = 0; i < 3; i++) queue.push({Owed::bind, 0, next++, 0});
    for (int i = 0; i < 2; i++) {
      ASSERT_EQ(queue.front().subject, first++);
      queue.pop();
    }
  }
  EXPECT_EQ(queue.size(), 200U);
  for (std::size_t i = 0; i < queue.size(); i++) EXPECT_EQ(queue.at(i).subject, first + i);
}

TEST(ReplyQueue, KnowsWhetherAnythingMakesTheServerFlush) {
  EXPECT_TRUE(queue_of({}).awaits_sync());
  EXPECT_TRUE(queue_of({Owed::parse, Owed::local_close}).awaits_sync());
  for (Owed owed : {Owed::query, Owed::sync, Owed::function_call, Owed::hidden_sync}) {
    ReplyQueue queue = queue_of({Owed::parse, owed});
    EXPECT_FALSE(queue.awaits_sync());
    queue.drop_front(2);
    EXPECT_TRUE(queue.awaits_sync());
  }
}

TEST(ReplyQueue, AnErrorTakesEverythingBeforeTheNextSync) {
  EXPECT_EQ(queue_of({Owed::bind, Owed::query, Owed::local_close, Owed::sync, Owed::parse}).before_sync(), 3U);
  EXPECT_EQ(queue_of({Owed::bind, Owed::hidden_sync}).before_sync(), 1U);
  EXPECT_EQ(queue_of({Owed::bind, Owed::execute}).before_sync(), 2U);
}

TEST(ReplyQueue, ACopyPassesOverSyncsUntilItsEnd) {
  ReplyQueue queue = queue_of({Owed::execute, Owed::sync, Owed::sync, Owed::copy_end, Owed::sync});
  ReplyQueue::CopyIn copy = queue.enter_copy_in();
  EXPECT_EQ(copy.syncs, 2U);
  EXPECT_TRUE(copy.ended);
  EXPECT_EQ(queue.size(), 3U);
  EXPECT_EQ(queue.at(2).owed, Owed::sync);
}

TEST(ReplyQueue, ACopyWhoseEndWasNotSentGoesOn) {
  ReplyQueue queue = queue_of({Owed::execute, Owed::local_close, Owed::sync});
  ReplyQueue::CopyIn copy = queue.enter_copy_in();
  EXPECT_EQ(copy.syncs, 1U);
  EXPECT_FALSE(copy.ended);
  EXPECT_TRUE(queue.awaits_sync());
}

TEST(ReplyQueue, AnotherMessageEndsACopyToo) {
  ReplyQueue queue = queue_of({Owed::query, Owed::sync, Owed::query});
  EXPECT_TRUE(queue.enter_copy_in().ended);
  EXPECT_EQ(queue.size(), 2U);
}

}  // namespace
}  // namespace sluice::proxy
