#include "sim/books.h"

#include <algorithm>
#include <cmath>

namespace sluice::sim {

namespace {

constexpr double kTickUs = 100'000;

std::string pair_name(std::uint32_t low, std::uint32_t high) {
  return "rows " + std::to_string(low) + " and " + std::to_string(high);
}

}  // namespace

void Verdict::judge(double of, double against, const std::string& at) {
  const double found = against > 0 ? of / against : of > 0 ? std::numeric_limits<double>::infinity() : 0;
  if (found < ratio) return;
  ratio = found;
  value = of;
  bound = against;
  where = at;
}

double jain_index(const std::vector<double>& shares) {
  double sum = 0, squares = 0;
  for (const double share : shares) {
    sum += share;
    squares += share * share;
  }
  return squares > 0 ? sum * sum / (static_cast<double>(shares.size()) * squares) : 1;
}

std::uint32_t ClassBook::add_row(double weight, std::uint32_t limit, std::uint32_t can_be_granted) {
  RowBook row;
  row.weight = weight;
  row.limit = limit;
  row.most_held = std::min(limit, can_be_granted);
  rows_.push_back(row);
  return static_cast<std::uint32_t>(rows_.size() - 1);
}

void ClassBook::complete(std::function<double(std::uint32_t)> forgiven_us) {
  forgiven_us_ = std::move(forgiven_us);
  ever_queued_.resize(rows_.size());
  if (compare_pairs_) pairs_.resize(rows_.size() * rows_.size());
}

double ClassBook::difference(std::uint32_t low, std::uint32_t high, std::int64_t now_us) const {
  return rows_[low].service_us(now_us) / rows_[low].weight - rows_[high].service_us(now_us) / rows_[high].weight;
}

// Between two events service grows in straight lines, so a difference is widest at an event.
void ClassBook::advance(std::int64_t now_us) {
  if (!compare_pairs_ || now_us == last_us_) return;
  last_us_ = now_us;
  for (std::size_t i = 0; i < eligible_.size(); i++) {
    for (std::size_t k = i + 1; k < eligible_.size(); k++) {
      const std::uint32_t low = std::min(eligible_[i], eligible_[k]), high = std::max(eligible_[i], eligible_[k]);
      Pair& pair = pair_of(low, high);
      const double at = difference(low, high, now_us);
      pair.lowest = std::min(pair.lowest, at);
      pair.highest = std::max(pair.highest, at);
    }
  }
}

void ClassBook::close(std::uint32_t low, std::uint32_t high) {
  Pair& pair = pair_of(low, high);
  pair.open = false;
  const double forgiven = (forgiven_us_(low) - pair.forgiven_first) + (forgiven_us_(high) - pair.forgiven_second);
  pair.widest = std::max(pair.widest, pair.highest - pair.lowest);
  pair.worst = std::max(pair.worst, pair.highest - pair.lowest - forgiven);
}

void ClassBook::reconsider(std::uint32_t row, bool was_eligible, std::int64_t now_us) {
  RowBook& book = rows_[row];
  if (book.queued > 0 && book.held == 0) {
    if (book.hungry_since_us < 0) book.hungry_since_us = now_us;
  } else if (book.hungry_since_us >= 0) {
    book.hungry_us = std::max(book.hungry_us, now_us - book.hungry_since_us);
    book.hungry_since_us = -1;
  }
  if (!compare_pairs_ || was_eligible == book.is_eligible()) return;
  if (was_eligible) eligible_.erase(std::find(eligible_.begin(), eligible_.end(), row));
  for (const std::uint32_t other : eligible_) {
    const std::uint32_t low = std::min(row, other), high = std::max(row, other);
    if (was_eligible) {
      close(low, high);
      continue;
    }
    Pair& pair = pair_of(low, high);
    pair.open = true;
    pair.lowest = pair.highest = difference(low, high, now_us);
    pair.forgiven_first = forgiven_us_(low);
    pair.forgiven_second = forgiven_us_(high);
  }
  if (!was_eligible) eligible_.push_back(row);
}

void ClassBook::queued(std::uint32_t row, std::int64_t now_us) {
  advance(now_us);
  const bool was = rows_[row].is_eligible();
  rows_[row].queued++;
  waiting_++;
  ever_queued_[row] = true;
  reconsider(row, was, now_us);
}

void ClassBook::left(std::uint32_t row, std::int64_t now_us) {
  advance(now_us);
  const bool was = rows_[row].is_eligible();
  rows_[row].queued--;
  waiting_--;
  reconsider(row, was, now_us);
}

void ClassBook::granted(std::uint32_t row, bool had_queued, std::int64_t now_us) {
  advance(now_us);
  RowBook& book = rows_[row];
  const bool was = book.is_eligible();
  if (had_queued) {
    book.queued--;
    waiting_--;
  }
  book.held++;
  held_++;
  book.granted_sum_us += now_us;
  reconsider(row, was, now_us);
}

void ClassBook::released(std::uint32_t row, std::int64_t granted_us, std::int64_t now_us) {
  advance(now_us);
  RowBook& book = rows_[row];
  const bool was = book.is_eligible();
  book.held--;
  held_--;
  book.granted_sum_us -= granted_us;
  book.ended_us += now_us - granted_us;
  book.longest_us = std::max(book.longest_us, now_us - granted_us);
  reconsider(row, was, now_us);
}

void ClassBook::finish(std::int64_t now_us, const std::vector<std::vector<std::int64_t>>& open_grants_us) {
  advance(now_us);
  for (std::size_t i = 0; i < eligible_.size(); i++) {
    for (std::size_t k = i + 1; k < eligible_.size(); k++) {
      close(std::min(eligible_[i], eligible_[k]), std::max(eligible_[i], eligible_[k]));
    }
  }
  for (std::size_t row = 0; row < rows_.size(); row++) {
    RowBook& book = rows_[row];
    for (const std::int64_t granted_us : open_grants_us[row]) {
      book.longest_us = std::max(book.longest_us, now_us - granted_us);
    }
    if (book.hungry_since_us >= 0) book.hungry_us = std::max(book.hungry_us, now_us - book.hungry_since_us);
  }
}

double ClassBook::look_ahead_us() const {
  return std::clamp(static_cast<double>(aging_us_) / 10, 1'000.0, 1'000'000.0);
}

double ClassBook::total_weight() const {
  double sum = 0;
  for (const RowBook& row : rows_) sum += row.weight;
  return sum;
}

Verdict ClassBook::service_difference() const {
  Verdict verdict;
  const double look_ahead = look_ahead_us();
  const auto part = [look_ahead](const RowBook& row) {
    const double hold = static_cast<double>(row.longest_us);
    return (hold + look_ahead + row.most_held * std::max(hold, look_ahead)) / row.weight;
  };
  for (std::uint32_t low = 0; low < rows_.size(); low++) {
    for (std::uint32_t high = low + 1; high < rows_.size(); high++) {
      const Pair& pair = pairs_[std::size_t{low} * rows_.size() + high];
      if (!std::isfinite(pair.worst)) continue;
      verdict.judge(std::max(pair.worst, 0.0), part(rows_[low]) + part(rows_[high]), pair_name(low, high));
    }
  }
  return verdict;
}

// Once its debt is forgiven the row's key is at most (H + L) / w above the virtual time. Until every other row's key
// has passed that, each gets its weight's part of it, and what it then still has running takes its time as well: with
// few permits these follow one after the other, so that two longest holds are not enough.
Verdict ClassBook::longest_hunger() const {
  Verdict verdict;
  const double look_ahead = look_ahead_us();
  double weights = 0, longest = 0, running = 0;
  const auto runs_on = [look_ahead](const RowBook& row) {
    return row.most_held * std::max(static_cast<double>(row.longest_us), look_ahead);
  };
  for (const RowBook& row : rows_) {
    weights += row.weight;
    longest = std::max(longest, static_cast<double>(row.longest_us));
    running += runs_on(row);
  }
  const double looked_ahead = static_cast<double>(rows_.size()) * look_ahead * (2 + 1.0 / permits_);
  for (std::uint32_t row = 0; row < rows_.size(); row++) {
    const double own = (static_cast<double>(rows_[row].longest_us) + look_ahead) / rows_[row].weight;
    const double bound = static_cast<double>(aging_us_) + kTickUs + 2 * weights / permits_ * own + looked_ahead +
                         (running - runs_on(rows_[row])) / permits_ + longest;
    verdict.judge(static_cast<double>(rows_[row].hungry_us), bound, "row " + std::to_string(row));
  }
  return verdict;
}

double ClassBook::spread_us() const {
  double widest = 0;
  for (const Pair& pair : pairs_) widest = std::max(widest, pair.widest);
  return widest;
}

double ClassBook::jain(std::int64_t now_us) const {
  std::vector<double> shares;
  for (std::size_t row = 0; row < rows_.size(); row++) {
    if (ever_queued_[row]) shares.push_back(rows_[row].service_us(now_us) / rows_[row].weight);
  }
  return jain_index(shares);
}

}  // namespace sluice::sim
