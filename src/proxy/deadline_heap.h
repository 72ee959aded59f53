// Which of many things is due next: a 4-ary heap of (time, index) that knows where each index stands, so that a
// deadline is moved or taken out without a search.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "proxy/index_list.h"
#include "proxy/time.h"

namespace sluice::proxy {

class DeadlineHeap {
 public:
  // Makes room for `count` indexes; must be called before one of them is set.
  void resize(std::size_t count) {
    if (count <= places_.size()) return;
    places_.resize(count, kNoIndex);
    entries_.reserve(count);
  }

  [[nodiscard]] Time next() const noexcept { return entries_.empty() ? kNever : entries_[0].time; }
  [[nodiscard]] std::uint32_t top() const noexcept { return entries_.empty() ? kNoIndex : entries_[0].index; }
  [[nodiscard]] Time time_of(std::uint32_t index) const noexcept {
    return places_[index] == kNoIndex ? kNever : entries_[places_[index]].time;
  }

  // kNever takes it out.
  void set(std::uint32_t index, Time time) noexcept {
    std::uint32_t at = places_[index];
    if (time == kNever) {
      if (at != kNoIndex) remove(at);
      return;
    }
    if (at == kNoIndex) {
      at = static_cast<std::uint32_t>(entries_.size());
      entries_.push_back({time, index});
    }
    entries_[at].time = time;
    settle(at, {time, index});
  }

  // Whether the order and the places hold; for audits.
  [[nodiscard]] bool consistent() const noexcept {
    std::size_t placed = 0;
    for (const std::uint32_t place : places_) placed += place == kNoIndex ? 0 : 1;
    if (placed != entries_.size()) return false;
    for (std::uint32_t at = 0; at < entries_.size(); at++) {
      if (places_[entries_[at].index] != at) return false;
      if (at > 0 && entries_[at].time < entries_[parent(at)].time) return false;
    }
    return true;
  }

 private:
  struct Entry {
    Time time;
    std::uint32_t index;
  };
  static constexpr std::uint32_t kChildren = 4;

  [[nodiscard]] static std::uint32_t parent(std::uint32_t at) noexcept { return (at - 1) / kChildren; }

  void put(std::uint32_t at, Entry entry) noexcept {
    entries_[at] = entry;
    places_[entry.index] = at;
  }

  void remove(std::uint32_t at) noexcept {
    places_[entries_[at].index] = kNoIndex;
    const Entry last = entries_.back();
    entries_.pop_back();
    if (at < entries_.size()) settle(at, last);
  }

  void settle(std::uint32_t at, Entry entry) noexcept {
    while (at > 0 && entry.time < entries_[parent(at)].time) {
      put(at, entries_[parent(at)]);
      at = parent(at);
    }
    for (;;) {
      const std::size_t first = std::size_t{at} * kChildren + 1;
      std::size_t least = first;
      for (std::size_t child = first + 1; child < first + kChildren && child < entries_.size(); child++) {
        if (entries_[child].time < entries_[least].time) least = child;
      }
      if (first >= entries_.size() || entries_[least].time >= entry.time) break;
      put(at, entries_[least]);
      at = static_cast<std::uint32_t>(least);
    }
    put(at, entry);
  }

  std::vector<Entry> entries_;
  std::vector<std::uint32_t> places_;
};

}  // namespace sluice::proxy
