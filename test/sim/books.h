// What one class of a simulation served to whom, kept from the answers of each call alone: the ledger's own sums are
// not read. From these books the bounds of the fair queue are judged: the difference of two rows' service while both
// wait (inequality 1), the wait of a row that holds nothing (inequality 2), and Jain's index.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace sluice::sim {

inline constexpr std::uint32_t kNobody = 0xFFFFFFFFU;

struct RowBook {
  double weight = 1;
  std::uint32_t limit = 0;      // in flight
  std::uint32_t most_held = 0;  // the smaller of the limit and what the class can grant
  std::uint32_t held = 0, queued = 0;
  std::int64_t ended_us = 0;        // permit-time of holds that have ended
  std::int64_t granted_sum_us = 0;  // of holds that have not
  std::int64_t longest_us = 0;      // hold, those that go on included by finish()
  std::int64_t hungry_since_us = -1;
  std::int64_t hungry_us = 0;  // longest time that it waited and held nothing

  [[nodiscard]] double service_us(std::int64_t now_us) const {
    return static_cast<double>(ended_us + std::int64_t{held} * now_us - granted_sum_us);
  }
  [[nodiscard]] bool is_eligible() const { return queued > 0 && held < limit; }
};

// One comparison with a bound: the worst of all that were made.
struct Verdict {
  double ratio = 0;  // value / bound
  double value = 0, bound = 0;
  std::string where;

  void judge(double value, double bound, const std::string& where);
};

class ClassBook {
 public:
  ClassBook(std::uint32_t permits, std::int64_t aging_us, bool compare_pairs)
      : permits_(permits), aging_us_(aging_us), compare_pairs_(compare_pairs) {}

  std::uint32_t add_row(double weight, std::uint32_t limit, std::uint32_t can_be_granted);
  void complete(std::function<double(std::uint32_t)> forgiven_us);  // after the last row; per weight, of a row

  void queued(std::uint32_t row, std::int64_t now_us);
  void left(std::uint32_t row, std::int64_t now_us);
  void granted(std::uint32_t row, bool had_queued, std::int64_t now_us);
  void released(std::uint32_t row, std::int64_t granted_us, std::int64_t now_us);
  // Ends the run: what is still held and who still waits counts as well.
  void finish(std::int64_t now_us, const std::vector<std::vector<std::int64_t>>& open_grants_us);

  [[nodiscard]] Verdict service_difference() const;  // inequality 1, in us of permit-time per weight
  [[nodiscard]] Verdict longest_hunger() const;      // inequality 2, in us
  [[nodiscard]] double spread_us() const;            // the largest difference that two rows reached while both waited
  [[nodiscard]] double jain(std::int64_t now_us) const;  // over service per weight of rows that were ever queued
  [[nodiscard]] const std::vector<RowBook>& rows() const { return rows_; }
  [[nodiscard]] std::uint32_t held() const { return held_; }
  [[nodiscard]] std::uint32_t waiting() const { return waiting_; }
  [[nodiscard]] double look_ahead_us() const;
  [[nodiscard]] double total_weight() const;

 private:
  // Two rows that both wait: the lowest and highest difference of their service since both do.
  struct Pair {
    bool open = false;
    double lowest = 0, highest = 0;
    double forgiven_first = 0, forgiven_second = 0;           // when it opened
    double worst = -std::numeric_limits<double>::infinity();  // spread less what was forgiven meanwhile
    double widest = 0;
  };

  Pair& pair_of(std::uint32_t low, std::uint32_t high) { return pairs_[std::size_t{low} * rows_.size() + high]; }
  [[nodiscard]] double difference(std::uint32_t low, std::uint32_t high, std::int64_t now_us) const;
  void advance(std::int64_t now_us);
  void reconsider(std::uint32_t row, bool was_eligible, std::int64_t now_us);
  void close(std::uint32_t low, std::uint32_t high);

  std::uint32_t permits_;
  std::int64_t aging_us_;
  bool compare_pairs_;
  std::uint32_t held_ = 0, waiting_ = 0;
  std::int64_t last_us_ = 0;
  std::vector<RowBook> rows_;
  std::vector<bool> ever_queued_;
  std::vector<std::uint32_t> eligible_;
  std::vector<Pair> pairs_;
  std::function<double(std::uint32_t)> forgiven_us_;
};

// Jain's index of fairness: 1 when all are equal, 1/n when one has everything.
[[nodiscard]] double jain_index(const std::vector<double>& shares);

}  // namespace sluice::sim
