// A transaction allocates nothing once the pools have seen as much traffic before.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "proxy/pools.h"

namespace {

std::size_t allocations = 0;

}  // namespace

void* operator new(std::size_t size) {
  allocations++;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  std::abort();
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  allocations++;
  const auto align = static_cast<std::size_t>(alignment);
  if (void* memory = std::aligned_alloc(align, (size + align - 1) / align * align)) return memory;
  std::abort();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace sluice::proxy {
namespace {

class ProxyPoolsMemory : public ::testing::Test {
 protected:
  static constexpr WaiterId kClients = 64;

  ProxyPoolsMemory() : pools_({}, gate_, 3) {
    PoolOptions options;
    options.max_size = 4;
    pool_ = pools_.attach({"a", "app", ""}, options, now_).pool;
    drain();
  }

  void drain() {
    while (const std::optional<PoolAction> action = pools_.next_action()) {
      if (action->kind == PoolActionKind::open) opening_[openings_++] = action->server;
      if (action->kind == PoolActionKind::assign) held_[action->waiter] = action->server;
    }
  }

  void open_all() {
    for (std::size_t i = 0; i < openings_; i++) pools_.opened(opening_[i], now_);
    openings_ = 0;
    drain();
  }

  // Everybody asks, then all that hold a connection give it back, until everybody was served.
  void round() {
    for (WaiterId client = 0; client < kClients; client++) {
      pools_.acquire(pool_, client, now_);
      drain();
    }
    for (std::size_t served = 0; served < kClients;) {
      now_ += kMillisecond;
      open_all();
      for (WaiterId client = 0; client < kClients; client++) {
        if (held_[client] == 0) continue;
        const ServerId server = held_[client];
        held_[client] = 0;
        served++;
        pools_.released(server, true, now_);
        drain();
      }
      pools_.tick(now_);
      drain();
    }
  }

  OpenGate gate_;
  Time now_ = 100 * kSecond;
  Pools pools_;
  PoolId pool_ = 0;
  ServerId held_[kClients] = {};
  ServerId opening_[16] = {};
  std::size_t openings_ = 0;
};

TEST_F(ProxyPoolsMemory, AWarmPoolAllocatesNothing) {
  for (int i = 0; i < 5; i++) round();
  const std::size_t before = allocations;
  for (int i = 0; i < 1000; i++) round();
  EXPECT_EQ(allocations - before, 0U);
  EXPECT_GT(before, 0U) << "allocations are counted at all";
}

TEST_F(ProxyPoolsMemory, AnIdleConnectionIsHandedOutWithoutAllocating) {
  for (int i = 0; i < 5; i++) round();
  const std::size_t before = allocations;
  for (int i = 0; i < 100000; i++) {
    now_ += 20;
    pools_.acquire(pool_, 1, now_);
    drain();
    ASSERT_NE(held_[1], 0U);
    pools_.released(held_[1], true, now_ + 10);
    held_[1] = 0;
    drain();
  }
  EXPECT_EQ(allocations - before, 0U);
}

}  // namespace
}  // namespace sluice::proxy
