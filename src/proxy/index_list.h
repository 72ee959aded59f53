// Doubly linked lists of records by index, on a Link inside the record: nothing is allocated, any record can be taken
// out without a search, and a table of records may grow while lists run through it.
#pragma once

#include <cstdint>
#include <vector>

namespace sluice::proxy {

inline constexpr std::uint32_t kNoIndex = 0xFFFFFFFF;

struct Link {
  std::uint32_t next = kNoIndex;
  std::uint32_t previous = kNoIndex;
};

template <typename Record, Link Record::*Member>
class IndexList {
 public:
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  [[nodiscard]] std::uint32_t count() const noexcept { return count_; }
  [[nodiscard]] std::uint32_t front() const noexcept { return front_; }
  [[nodiscard]] std::uint32_t back() const noexcept { return back_; }

  void push_front(std::vector<Record>& records, std::uint32_t index) noexcept {
    Link& link = records[index].*Member;
    link = {front_, kNoIndex};
    (front_ == kNoIndex ? back_ : (records[front_].*Member).previous) = index;
    front_ = index;
    count_++;
  }

  void push_back(std::vector<Record>& records, std::uint32_t index) noexcept {
    Link& link = records[index].*Member;
    link = {kNoIndex, back_};
    (back_ == kNoIndex ? front_ : (records[back_].*Member).next) = index;
    back_ = index;
    count_++;
  }

  void erase(std::vector<Record>& records, std::uint32_t index) noexcept {
    Link& link = records[index].*Member;
    (link.previous == kNoIndex ? front_ : (records[link.previous].*Member).next) = link.next;
    (link.next == kNoIndex ? back_ : (records[link.next].*Member).previous) = link.previous;
    link = {};
    count_--;
  }

 private:
  std::uint32_t front_ = kNoIndex;
  std::uint32_t back_ = kNoIndex;
  std::uint32_t count_ = 0;
};

}  // namespace sluice::proxy
