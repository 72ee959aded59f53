#include "proxy/loop.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace sluice::proxy {
namespace {

// Two connected descriptors that go with the test.
struct Pair {
  Pair() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()), 0); }
  ~Pair() {
    for (int end : ends) {
      if (end >= 0) close(end);
    }
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  void close_end(int index) {
    close(ends[index]);
    ends[index] = -1;
  }
  void drain(int index) {
    std::array<char, 4096> bytes{};
    while (read(ends[index], bytes.data(), bytes.size()) > 0) {
    }
  }

  std::array<int, 2> ends{-1, -1};
};

TEST(ProxyLoop, TimeStandsStillWithinATurnAndGoesOnBetweenTurns) {
  Loop loop;
  Time first = 0;
  Time second = 0;
  Timer one(loop, [&] {
    first = loop.now();
    usleep(2000);
    EXPECT_EQ(loop.now(), first);
  });
  Timer two(loop, [&] { second = loop.now(); });
  one.set(loop.now());
  loop.run();
  two.set(loop.now());
  loop.run();
  EXPECT_GE(second, first + 2 * kMillisecond);
}

TEST(ProxyLoop, DeadlinesComeInOrderAndNeverEarly) {
  Loop loop;
  Time start = loop.now();
  std::vector<int> order;
  std::vector<std::unique_ptr<Timer>> timers;
  const std::array<int, 7> delays{9, 3, 7, 1, 5, 3, 20};
  for (int delay : delays) {
    Time due = start + delay * kMillisecond;
    timers.push_back(std::make_unique<Timer>(loop, [&loop, &order, due, delay] {
      EXPECT_GE(loop.now(), due);
      order.push_back(delay);
    }));
    timers.back()->set(due);
  }
  loop.run();
  EXPECT_EQ(order, (std::vector<int>{1, 3, 3, 5, 7, 9, 20}));
}

TEST(ProxyLoop, ADeadlineMovesLaterOrEarlierAndCanBeCancelled) {
  Loop loop;
  Time start = loop.now();
  std::vector<std::string> log;
  Timer later(loop, [&] { log.push_back("later"); });
  Timer earlier(loop, [&] { log.push_back("earlier"); });
  Timer cancelled(loop, [&] { log.push_back("cancelled"); });
  later.set(start + 2 * kMillisecond);
  for (int i = 3; i <= 30; i++) later.set(start + i * kMillisecond);
  earlier.set(start + 500 * kMillisecond);
  earlier.set(start + 10 * kMillisecond);
  cancelled.set(start + 5 * kMillisecond);
  cancelled.cancel();
  EXPECT_EQ(cancelled.due_at(), kNever);
  EXPECT_EQ(later.due_at(), start + 30 * kMillisecond);
  loop.run();
  EXPECT_EQ(log, (std::vector<std::string>{"earlier", "later"}));
  EXPECT_LT(loop.now(), start + 400 * kMillisecond);
}

TEST(ProxyLoop, ACancelledDeadlineKeepsNobodyWaiting) {
  Loop loop;
  Timer timer(loop, [] { FAIL(); });
  timer.set(loop.now() + 3600 * kSecond);
  timer.cancel();
  Time start = loop.now();
  loop.run();
  EXPECT_LT(loop.now(), start + 10 * kSecond);
}

TEST(ProxyLoop, ManyRandomDeadlinesAllComeOnceUnlessDestroyed) {
  Loop loop;
  Time start = loop.now();
  int fired = 0;
  std::vector<std::unique_ptr<Timer>> timers;
  unsigned random = 1;
  for (int i = 0; i < 2000; i++) {
    timers.push_back(std::make_unique<Timer>(loop, [&] { fired++; }));
    for (int again = 0; again < 3; again++) {
      random = random * 1664525U + 1013904223U;
      timers.back()->set(start + static_cast<Time>(random % 20000));
    }
  }
  for (std::size_t i = 0; i < timers.size(); i += 4) timers[i].reset();
  loop.run();
  EXPECT_EQ(fired, 1500);
}

TEST(ProxyLoop, ATimerThatSetsItselfToThePastDoesNotHoldUpTheTurn) {
  Loop loop;
  int count = 0;
  std::unique_ptr<Timer> timer;
  timer = std::make_unique<Timer>(loop, [&] {
    if (++count < 5) timer->set(loop.now() - kSecond);
    if (count == 5) timer.reset();  // goes within its own call
  });
  timer->set(0);
  loop.run();
  EXPECT_EQ(count, 5);
}

TEST(ProxyLoop, ADescriptorIsToldOnlyWhatIsWanted) {
  Loop loop;
  Pair pair;
  std::vector<Interest> found;
  Poll poll(loop, pair.ends[0], [&](Interest ready) { found.push_back(ready); });
  EXPECT_EQ(write(pair.ends[1], "x", 1), 1);
  for (int i = 0; i < 5; i++) loop.run_once(false);
  EXPECT_TRUE(found.empty());
  poll.want(true, false);
  loop.run_once(true);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0], (Interest{true, false, false}));
  poll.want(true, true);
  EXPECT_EQ(poll.wanted(), (Interest{true, true, false}));
  for (int i = 0; i < 3; i++) loop.run_once(false);
  EXPECT_EQ(found.back(), (Interest{true, true, false}));
  poll.want(false, true);
  found.clear();
  for (int i = 0; i < 3; i++) loop.run_once(false);
  ASSERT_FALSE(found.empty());
  for (const Interest& each : found) EXPECT_EQ(each, (Interest{false, true, false}));
  poll.want(false, false);
  found.clear();
  for (int i = 0; i < 5; i++) loop.run_once(false);
  EXPECT_TRUE(found.empty());
}

TEST(ProxyLoop, InterestThatWasDroppedAndWantedAgainIsToldAgain) {
  Loop loop;
  Pair pair;
  int reads = 0;
  Poll poll(loop, pair.ends[0], [&](Interest ready) { reads += ready.readable ? 1 : 0; });
  for (int i = 0; i < 3; i++) {
    poll.want(true, false);
    EXPECT_EQ(write(pair.ends[1], "x", 1), 1);
    loop.run_once(false);
    loop.run_once(false);
    EXPECT_GT(reads, 0);
    poll.want(false, false);
    loop.run_once(false);
    loop.run_once(false);
    reads = 0;
    loop.run_once(false);
    EXPECT_EQ(reads, 0);
  }
}

TEST(ProxyLoop, AHangUpIsToldAlsoWhileNothingIsWanted) {
  Loop loop;
  Pair pair;
  int failures = 0;
  Poll poll(loop, pair.ends[0], [&](Interest ready) { failures += ready.failed ? 1 : 0; });
  for (int i = 0; i < 3; i++) loop.run_once(false);
  EXPECT_EQ(failures, 0);
  pair.close_end(1);
  for (int i = 0; i < 5; i++) loop.run_once(false);
  EXPECT_EQ(failures, 1) << "once, not in every turn";
  EXPECT_EQ(poll.wanted(), Interest{});
}

TEST(ProxyLoop, APollMayGoInItsOwnCallAndItsDescriptorBeUsedAgain) {
  Loop loop;
  for (int i = 0; i < 100; i++) {
    Pair pair;
    int calls = 0;
    std::unique_ptr<Poll> poll;
    poll = std::make_unique<Poll>(loop, pair.ends[0], [&](Interest) {
      calls++;
      poll.reset();
    });
    poll->want(true, false);
    EXPECT_EQ(write(pair.ends[1], "x", 1), 1);
    loop.run_once(false);
    loop.run_once(false);
    EXPECT_EQ(calls, 1);
  }
}

TEST(ProxyLoop, APollThatGoesBeforeItsInterestIsAppliedIsForgotten) {
  Loop loop;
  Pair pair;
  {
    Poll poll(loop, pair.ends[0], [](Interest) { FAIL(); });
    poll.want(true, true);
  }
  for (int i = 0; i < 3; i++) loop.run_once(false);
  Poll again(loop, pair.ends[0], [](Interest) {});
  again.want(true, false);
  loop.run_once(false);
}

TEST(ProxyLoop, ADescriptorThatCannotBeWatchedIsToldAsFailed) {
  Loop loop;
  int failures = 0;
  Poll poll(loop, 9999, [&](Interest ready) { failures += ready.failed ? 1 : 0; });
  for (int i = 0; i < 3; i++) loop.run_once(false);
  EXPECT_GE(failures, 1);
}

TEST(ProxyLoop, ATaskRunsOnceATurnHoweverOftenItIsAskedFor) {
  Loop loop;
  int runs = 0;
  Task task(loop, [&] { runs++; });
  task.at_turn_end();
  task.at_turn_end();
  task.next_turn();
  loop.run_once(false);
  EXPECT_EQ(runs, 1);
  loop.run_once(false);
  EXPECT_EQ(runs, 1);
}

TEST(ProxyLoop, TasksAskedForByTasksRunInTheSameTurnUpToALimit) {
  Loop loop;
  int runs = 0;
  Task task(loop, [&] {});
  Task chain(loop, [&] {
    runs++;
    if (runs < 100) chain.at_turn_end();
  });
  chain.at_turn_end();
  loop.run_once(false);
  EXPECT_EQ(runs, kMaxTaskRounds);
  loop.run_once(false);
  EXPECT_EQ(runs, 2 * kMaxTaskRounds);
}

TEST(ProxyLoop, ATaskOfTheNextTurnLeavesDescriptorsATurnAndDoesNotSleep) {
  Loop loop;
  Pair pair;
  std::string log;
  Task go_on(loop, [&] {
    log += 'T';
    if (log.size() < 6) go_on.next_turn();
  });
  Poll poll(loop, pair.ends[0], [&](Interest) {
    log += 'P';
    pair.drain(0);
  });
  poll.want(true, false);
  go_on.next_turn();
  EXPECT_EQ(write(pair.ends[1], "x", 1), 1);
  for (int i = 0; i < 10 && log.size() < 6; i++) loop.run_once(true);
  EXPECT_EQ(log.substr(0, 3), "TPT") << log;
}

TEST(ProxyLoop, TasksMayGoWhileOthersRun) {
  Loop loop;
  std::optional<Task> first;
  std::optional<Task> second;
  int runs = 0;
  first.emplace(loop, [&] {
    runs++;
    second.reset();
    first.reset();
  });
  second.emplace(loop, [&] { runs++; });
  first->at_turn_end();
  second->at_turn_end();
  loop.run_once(false);
  EXPECT_EQ(runs, 1);
}

TEST(ProxyLoop, AnotherThreadWakesTheLoop) {
  Loop loop;
  Timer guard(loop, [&] { loop.stop(); });
  guard.set(loop.now() + 20 * kSecond);
  int woken = 0;
  Wakeup wakeup(loop, [&] {
    woken++;
    loop.stop();
  });
  std::thread thread([&] {
    usleep(5000);
    wakeup.send();
  });
  loop.run();
  thread.join();
  EXPECT_EQ(woken, 1);
}

TEST(ProxyLoop, ASignalIsToldInTheLoop) {
  Loop loop;
  Timer guard(loop, [&] { loop.stop(); });
  guard.set(loop.now() + 20 * kSecond);
  int received = 0;
  SignalWatcher watcher(loop, SIGUSR1, [&] {
    received++;
    loop.stop();
  });
  raise(SIGUSR1);
  loop.run();
  EXPECT_EQ(received, 1);
}

TEST(ProxyLoop, WritingToAClosedPipeDoesNotEndTheProcess) {
  Loop loop;
  Pair pair;
  pair.close_end(1);
  EXPECT_EQ(write(pair.ends[0], "x", 1), -1);
  EXPECT_EQ(errno, EPIPE);
}

}  // namespace
}  // namespace sluice::proxy
