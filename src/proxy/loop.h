// The event loop of one worker: readiness of descriptors, deadlines, wake-ups from other threads, signals, and what is
// to run once at the end of each turn. Owns the libuv loop and every handle of it; nothing else in the proxy sees
// libuv.
//
// A turn is: descriptors that are ready, then deadlines that are due, then the tasks of at_turn_end(), then the changes
// of interest, then the wait. Time is read once a turn. Everything here belongs to the loop's own thread but
// Wakeup::send(). Any of these objects may be destroyed inside its own callback. A loop outlives everything that was
// made on it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "proxy/time.h"

namespace sluice::proxy {

// How often tasks that queue tasks are run within one turn before the rest is left to the next one.
inline constexpr int kMaxTaskRounds = 4;

// What a descriptor is watched for, and what was found. `failed` is never asked for: errors and full hang-ups are
// always told, also while nothing is wanted, so that a reset is noticed although nobody reads.
struct Interest {
  bool readable = false;
  bool writable = false;
  bool failed = false;

  bool operator==(const Interest&) const = default;
};

class Loop;
struct LoopState;

// Watches one descriptor, which stays its owner's: destroy the Poll first, then close the descriptor.
//
// want() costs nothing by itself. What was added is told to the kernel once, at the end of the turn; what was dropped
// stays registered until it fires in vain, because most interest that is dropped is wanted again within the same
// exchange.
class Poll {
 public:
  using Ready = std::function<void(Interest found)>;

  Poll(Loop& loop, int descriptor, Ready ready);
  ~Poll();
  Poll(const Poll&) = delete;
  Poll& operator=(const Poll&) = delete;

  void want(bool readable, bool writable) noexcept;
  [[nodiscard]] Interest wanted() const noexcept;

  struct Handle;  // what libuv keeps until the handle's close has been confirmed

 private:
  Handle* handle_;
};

// One deadline. Setting it later again and again, as an idle limit is with every message, costs no more than a store.
class Timer {
 public:
  using Due = std::function<void()>;

  Timer(Loop& loop, Due due);
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  // Calls `due` once at `when` or shortly after, never before; kNever is cancel(). A time in the past is due in the
  // next turn.
  void set(Time when);
  void cancel() noexcept { due_at_ = kNever; }
  [[nodiscard]] Time due_at() const noexcept { return due_at_; }

 private:
  friend struct LoopState;

  LoopState* loop_;
  Due due_;
  Time due_at_ = kNever;
  Time queued_at_ = kNever;   // where the heap has it: due_at_ or earlier
  std::size_t position_ = 0;  // in the heap, counted from 1; 0: not there
};

// A task's place in the one list it may be in.
struct TaskLink {
  TaskLink* previous = this;
  TaskLink* next = this;

  [[nodiscard]] bool alone() const noexcept { return next == this; }
  void unlink() noexcept {
    previous->next = next;
    next->previous = previous;
    previous = next = this;
  }
  void link_before(TaskLink& other) noexcept {
    unlink();
    previous = other.previous;
    next = &other;
    previous->next = next->previous = this;
  }
};

// Something to be done once at the end of this turn, however often it was asked for: sending what a turn's messages
// produced, or going on with a connection whose budget was used up.
class Task : private TaskLink {
 public:
  using Run = std::function<void()>;

  Task(Loop& loop, Run run);
  ~Task() { unlink(); }
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  // Before the loop waits again. Asked for by a task that runs at the end of a turn it still is this turn, up to
  // kMaxTaskRounds times.
  void at_turn_end() noexcept;
  // After the descriptors were looked at once more; the loop does not sleep meanwhile. For work that must leave others
  // a turn. Nothing changes if it was asked for already.
  void next_turn() noexcept;

 private:
  friend struct LoopState;

  LoopState* loop_;
  Run run_;
};

// Lets another thread wake this loop. Several sends before the loop gets to it are one call.
class Wakeup {
 public:
  Wakeup(Loop& loop, std::function<void()> woken);
  ~Wakeup();
  Wakeup(const Wakeup&) = delete;
  Wakeup& operator=(const Wakeup&) = delete;

  // From any thread, as long as this object exists.
  void send() noexcept;

  struct Handle;

 private:
  Handle* handle_;
};

// Calls back in the loop's thread when the process gets this signal.
class SignalWatcher {
 public:
  SignalWatcher(Loop& loop, int signal_number, std::function<void()> received);
  ~SignalWatcher();
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;

  struct Handle;

 private:
  Handle* handle_;
};

class Loop {
 public:
  // Throws std::runtime_error where the system gives no loop. Also ignores SIGPIPE, for OpenSSL writes to descriptors.
  Loop();
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Microseconds of the monotonic clock; the same for the whole turn.
  [[nodiscard]] Time now() const noexcept;

  // Turns until stop() was called, or until no descriptor, deadline or task is left to wait for. Wake-ups and signals
  // do not keep it going.
  void run();
  // One turn, which waits for something to happen only if `may_wait`.
  void run_once(bool may_wait);
  void stop() noexcept;

  [[nodiscard]] LoopState& state() noexcept { return *state_; }

 private:
  std::unique_ptr<LoopState> state_;
};

}  // namespace sluice::proxy
