// An indexed 4-ary heap of rows: a flat array of row indexes, and in each row its place in it, so that any row can be
// moved or removed without a search. 4-ary because it is half as deep as a binary one and its children share a line.
#pragma once

#include <cstdint>

#include "ledger/records.h"

namespace sluice::ledger {

// Order: bool operator()(const Row& a, std::uint32_t a_index, const Row& b, std::uint32_t b_index), a before b.
template <std::uint32_t Row::*Place, typename Order>
class RowHeap {
 public:
  RowHeap(Row* rows, std::uint32_t* slots, std::uint32_t& count) noexcept : rows_(rows), slots_(slots), count_(count) {}

  [[nodiscard]] std::uint32_t top() const noexcept { return count_ == 0 ? kNil : slots_[0]; }
  [[nodiscard]] bool has(std::uint32_t row) const noexcept { return rows_[row].*Place != kNil; }

  void push(std::uint32_t row) noexcept { sift_up(count_++, row); }

  void remove(std::uint32_t row) noexcept {
    const std::uint32_t at = rows_[row].*Place;
    rows_[row].*Place = kNil;
    const std::uint32_t last = slots_[--count_];
    if (last == row) return;
    put(at, last);
    moved(last);
  }

  // The row's order has changed.
  void moved(std::uint32_t row) noexcept {
    const std::uint32_t at = rows_[row].*Place;
    if (at > 0 && before(row, slots_[parent(at)])) {
      sift_up(at, row);
    } else {
      sift_down(at, row);
    }
  }

 private:
  static constexpr std::uint32_t kChildren = 4;

  [[nodiscard]] static std::uint32_t parent(std::uint32_t at) noexcept { return (at - 1) / kChildren; }
  [[nodiscard]] bool before(std::uint32_t a, std::uint32_t b) const noexcept {
    return Order{}(rows_[a], a, rows_[b], b);
  }

  void put(std::uint32_t at, std::uint32_t row) noexcept {
    slots_[at] = row;
    rows_[row].*Place = at;
  }

  void sift_up(std::uint32_t at, std::uint32_t row) noexcept {
    while (at > 0 && before(row, slots_[parent(at)])) {
      put(at, slots_[parent(at)]);
      at = parent(at);
    }
    put(at, row);
  }

  void sift_down(std::uint32_t at, std::uint32_t row) noexcept {
    for (;;) {
      const std::uint32_t first = at * kChildren + 1;
      if (first >= count_) break;
      std::uint32_t least = first;
      for (std::uint32_t child = first + 1; child < first + kChildren && child < count_; child++) {
        if (before(slots_[child], slots_[least])) least = child;
      }
      if (!before(slots_[least], row)) break;
      put(at, slots_[least]);
      at = least;
    }
    put(at, row);
  }

  Row* rows_;
  std::uint32_t* slots_;
  std::uint32_t& count_;
};

}  // namespace sluice::ledger
