#include "proxy/loop.h"

#include <uv.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <utility>

namespace sluice::proxy {
namespace {

// While nothing is wanted a descriptor is watched for urgent data, which no peer of ours sends: the kernel then still
// tells errors and hang-ups.
constexpr int kOnlyFailures = UV_PRIORITIZED;

// libuv's handles must stay where they are until their close has been confirmed, which is later than their owners' end.
template <typename Handle>
void close_later(uv_handle_t* handle) {
  uv_close(handle, [](uv_handle_t* closed) { delete static_cast<Handle*>(closed->data); });
}

}  // namespace

struct Poll::Handle {
  uv_poll_t watcher{};
  LoopState* loop = nullptr;
  Ready ready;
  int wanted = 0;
  int registered = 0;
  bool changed = false;  // is in the loop's list of changes
  bool broken = false;   // the system does not let this descriptor be watched
  bool closed = false;
};

struct LoopState {
  uv_loop_t loop{};
  uv_prepare_t turn_end{};  // runs behind everything of a turn, before the wait
  uv_idle_t awake{};        // active while the next wait must not sleep
  uv_timer_t deadline{};    // the earliest of the heap
  Time now = 0;
  bool now_is_known = false;
  bool deadline_changed = false;
  std::vector<Timer*> heap;  // by queued_at_, earliest first
  TaskLink at_turn_end;
  TaskLink next_turn;
  std::vector<Poll::Handle*> changed;

  LoopState() {
    if (uv_loop_init(&loop) != 0) throw std::runtime_error("the system gives no event loop");
    uv_prepare_init(&loop, &turn_end);
    uv_idle_init(&loop, &awake);
    uv_timer_init(&loop, &deadline);
    turn_end.data = awake.data = deadline.data = this;
    uv_prepare_start(&turn_end, [](uv_prepare_t* handle) { static_cast<LoopState*>(handle->data)->end_turn(); });
    uv_unref(reinterpret_cast<uv_handle_t*>(&turn_end));
  }

  ~LoopState() {
    uv_close(reinterpret_cast<uv_handle_t*>(&turn_end), nullptr);
    uv_close(reinterpret_cast<uv_handle_t*>(&awake), nullptr);
    uv_close(reinterpret_cast<uv_handle_t*>(&deadline), nullptr);
    uv_run(&loop, UV_RUN_DEFAULT);
    if (uv_loop_close(&loop) != 0) std::abort();  // something made on this loop outlives it
  }

  LoopState(const LoopState&) = delete;
  LoopState& operator=(const LoopState&) = delete;

  Time read_now() {
    if (!now_is_known) now = static_cast<Time>(uv_hrtime() / 1000);
    now_is_known = true;
    return now;
  }

  void stay_awake() noexcept {
    uv_idle_start(&awake, [](uv_idle_t*) {});
  }

  // --- deadlines: a binary heap whose entries may be too early; those are put back when they come up ---

  void place(std::size_t position, Timer* timer) {
    heap[position - 1] = timer;
    timer->position_ = position;
  }

  void sift_up(std::size_t position) {
    Timer* timer = heap[position - 1];
    while (position > 1 && heap[position / 2 - 1]->queued_at_ > timer->queued_at_) {
      place(position, heap[position / 2 - 1]);
      position /= 2;
    }
    place(position, timer);
  }

  void sift_down(std::size_t position) {
    Timer* timer = heap[position - 1];
    for (std::size_t child = 2 * position; child <= heap.size(); child = 2 * position) {
      if (child < heap.size() && heap[child]->queued_at_ < heap[child - 1]->queued_at_) child++;
      if (heap[child - 1]->queued_at_ >= timer->queued_at_) break;
      place(position, heap[child - 1]);
      position = child;
    }
    place(position, timer);
  }

  void queue(Timer& timer) {
    timer.queued_at_ = timer.due_at_;
    if (timer.position_ == 0) {
      heap.push_back(&timer);
      timer.position_ = heap.size();
    }
    sift_up(timer.position_);
    sift_down(timer.position_);
    deadline_changed = true;
    stay_awake();
  }

  void remove(Timer& timer) {
    std::size_t position = std::exchange(timer.position_, 0);
    if (position == 0) return;
    Timer* last = heap.back();
    heap.pop_back();
    deadline_changed = true;
    if (last == &timer) return;
    place(position, last);
    sift_up(position);
    sift_down(last->position_);
  }

  void run_due() {
    Time at = read_now();
    while (!heap.empty() && heap.front()->queued_at_ <= at) {
      Timer& timer = *heap.front();
      if (timer.due_at_ > at) {
        settle(timer);
        continue;
      }
      remove(timer);
      timer.due_at_ = kNever;
      Timer::Due due = timer.due_;  // the timer may go while it runs
      due();
    }
    deadline_changed = true;
    stay_awake();  // the end of a turn is still to come, and arms the next deadline
  }

  // A deadline that was moved or cancelled since it was queued.
  void settle(Timer& timer) {
    if (timer.due_at_ == kNever) {
      remove(timer);
    } else {
      queue(timer);
    }
  }

  void arm_deadline() {
    while (!heap.empty() && heap.front()->due_at_ > heap.front()->queued_at_) settle(*heap.front());
    deadline_changed = false;
    if (heap.empty()) {
      uv_timer_stop(&deadline);
      return;
    }
    // libuv counts whole milliseconds of the same clock, rounded down: rounding the deadline up never fires early.
    auto wanted = static_cast<std::uint64_t>(std::max<Time>(heap.front()->queued_at_, 0) / kMillisecond + 1);
    std::uint64_t current = uv_now(&loop);
    uv_timer_start(
        &deadline, [](uv_timer_t* handle) { static_cast<LoopState*>(handle->data)->run_due(); },
        wanted > current ? wanted - current : 0, 0);
  }

  // --- tasks ---

  static void run_all(TaskLink& from) {
    TaskLink running;
    if (from.alone()) return;
    running.link_before(from);
    from.unlink();
    while (!running.alone()) {
      Task& task = static_cast<Task&>(*running.next);
      task.unlink();
      Task::Run run = task.run_;  // the task may go while it runs
      run();
    }
  }

  void end_turn() {
    uv_idle_stop(&awake);
    run_all(next_turn);
    for (int round = 0; round < kMaxTaskRounds && !at_turn_end.alone(); round++) run_all(at_turn_end);
    apply_interests();
    if (deadline_changed) arm_deadline();
    if (at_turn_end.alone() && next_turn.alone() && changed.empty()) {
      uv_idle_stop(&awake);
    } else {
      stay_awake();
    }
    now_is_known = false;
  }

  // --- descriptors ---

  void note_change(Poll::Handle& handle) {
    if (handle.changed) return;
    handle.changed = true;
    changed.push_back(&handle);
    stay_awake();
  }

  void apply_interests() {
    std::vector<Poll::Handle*> now_changed;
    now_changed.swap(changed);
    for (Poll::Handle* handle : now_changed) {
      if (handle == nullptr) continue;
      handle->changed = false;
      apply(*handle);
    }
    if (changed.empty()) {
      now_changed.clear();
      changed.swap(now_changed);  // keeps its memory
    }
  }

  void apply(Poll::Handle& handle) {
    int events = handle.wanted != 0 ? handle.wanted : kOnlyFailures;
    if (events == handle.registered) return;
    if (!handle.broken && uv_poll_start(&handle.watcher, events, &LoopState::on_ready) == 0) {
      handle.registered = events;
      return;
    }
    tell_failure(handle);
  }

  static void tell_failure(Poll::Handle& handle) {
    handle.registered = 0;
    handle.wanted = 0;
    handle.ready({true, true, true});
  }

  static void on_ready(uv_poll_t* watcher, int status, int events) {
    auto& handle = *static_cast<Poll::Handle*>(watcher->data);
    if (handle.closed) return;
    if (status < 0) {
      uv_poll_stop(watcher);
      tell_failure(handle);
      return;
    }
    if ((events & kOnlyFailures) != 0) {
      // A hang-up of both directions, as nobody sends urgent data. It would be told for ever.
      uv_poll_stop(watcher);
      tell_failure(handle);
      return;
    }
    int found = events & handle.wanted;
    // Fired in vain: only now it is worth telling the kernel that nobody waits for it.
    if (found != events) handle.loop->note_change(handle);
    if (found != 0) handle.ready({(found & UV_READABLE) != 0, (found & UV_WRITABLE) != 0, false});
  }
};

// --- Poll ---

Poll::Poll(Loop& loop, int descriptor, Ready ready) : handle_(new Handle) {
  handle_->loop = &loop.state();
  handle_->ready = std::move(ready);
  handle_->watcher.data = handle_;
  handle_->broken = uv_poll_init(&handle_->loop->loop, &handle_->watcher, descriptor) != 0;
  handle_->loop->note_change(*handle_);
}

Poll::~Poll() {
  handle_->closed = true;
  if (handle_->changed) {
    auto& changed = handle_->loop->changed;
    std::replace(changed.begin(), changed.end(), handle_, static_cast<Handle*>(nullptr));
  }
  if (handle_->broken) {
    delete handle_;
    return;
  }
  close_later<Handle>(reinterpret_cast<uv_handle_t*>(&handle_->watcher));
}

void Poll::want(bool readable, bool writable) noexcept {
  int wanted = (readable ? UV_READABLE : 0) | (writable ? UV_WRITABLE : 0);
  if (wanted == handle_->wanted) return;
  handle_->wanted = wanted;
  if ((wanted & ~handle_->registered) != 0 || handle_->registered == 0) handle_->loop->note_change(*handle_);
}

Interest Poll::wanted() const noexcept {
  return {(handle_->wanted & UV_READABLE) != 0, (handle_->wanted & UV_WRITABLE) != 0, false};
}

// --- Timer and Task ---

Timer::Timer(Loop& loop, Due due) : loop_(&loop.state()), due_(std::move(due)) {}

Timer::~Timer() { loop_->remove(*this); }

void Timer::set(Time when) {
  due_at_ = when == kNever ? kNever : std::max(when, loop_->read_now() + 1);
  if (due_at_ == kNever) return;
  if (position_ == 0 || queued_at_ > due_at_) loop_->queue(*this);
}

Task::Task(Loop& loop, Run run) : loop_(&loop.state()), run_(std::move(run)) {}

void Task::at_turn_end() noexcept {
  link_before(loop_->at_turn_end);
  loop_->stay_awake();
}

void Task::next_turn() noexcept {
  if (!alone()) return;
  link_before(loop_->next_turn);
  loop_->stay_awake();
}

// --- Wakeup and SignalWatcher ---

struct Wakeup::Handle {
  uv_async_t async{};
  std::function<void()> woken;
  bool closed = false;
};

Wakeup::Wakeup(Loop& loop, std::function<void()> woken) : handle_(new Handle) {
  handle_->woken = std::move(woken);
  int error = uv_async_init(&loop.state().loop, &handle_->async, [](uv_async_t* async) {
    auto& handle = *static_cast<Handle*>(async->data);
    if (!handle.closed) handle.woken();
  });
  if (error != 0) {
    delete handle_;
    throw std::runtime_error(std::string("no wake-up for the event loop: ") + uv_strerror(error));
  }
  handle_->async.data = handle_;
  uv_unref(reinterpret_cast<uv_handle_t*>(&handle_->async));
}

Wakeup::~Wakeup() {
  handle_->closed = true;
  close_later<Handle>(reinterpret_cast<uv_handle_t*>(&handle_->async));
}

void Wakeup::send() noexcept { uv_async_send(&handle_->async); }

struct SignalWatcher::Handle {
  uv_signal_t watcher{};
  std::function<void()> received;
  bool closed = false;
};

SignalWatcher::SignalWatcher(Loop& loop, int signal_number, std::function<void()> received) : handle_(new Handle) {
  handle_->received = std::move(received);
  handle_->watcher.data = handle_;
  uv_signal_init(&loop.state().loop, &handle_->watcher);
  int error = uv_signal_start(
      &handle_->watcher,
      [](uv_signal_t* watcher, int) {
        auto& handle = *static_cast<Handle*>(watcher->data);
        if (!handle.closed) handle.received();
      },
      signal_number);
  uv_unref(reinterpret_cast<uv_handle_t*>(&handle_->watcher));
  if (error != 0) {
    close_later<Handle>(reinterpret_cast<uv_handle_t*>(&handle_->watcher));
    throw std::runtime_error(std::string("cannot watch a signal: ") + uv_strerror(error));
  }
}

SignalWatcher::~SignalWatcher() {
  handle_->closed = true;
  close_later<Handle>(reinterpret_cast<uv_handle_t*>(&handle_->watcher));
}

// --- Loop ---

Loop::Loop() : state_(std::make_unique<LoopState>()) { std::signal(SIGPIPE, SIG_IGN); }

Loop::~Loop() = default;

Time Loop::now() const noexcept { return state_->read_now(); }

void Loop::run() {
  uv_run(&state_->loop, UV_RUN_DEFAULT);
  state_->now_is_known = false;
}

void Loop::run_once(bool may_wait) {
  uv_run(&state_->loop, may_wait ? UV_RUN_ONCE : UV_RUN_NOWAIT);
  state_->now_is_known = false;
}

void Loop::stop() noexcept { uv_stop(&state_->loop); }

}  // namespace sluice::proxy
