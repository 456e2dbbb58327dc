#include "sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <stdexcept>

namespace headway {

namespace {

#include "isa/exp64.h"

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Entry {
  double logit;
  int id;

  bool operator<(const Entry& other) const {  // comes before
    return logit > other.logit || (logit == other.logit && id < other.id);
  }
};

// One row, and where its high logits are.
class Row {
 public:
  Row(const Kernels& kernels, const float* x, int size)
      : kernels_(kernels), x_(x), size_(size), maxima_((size + kLogitBlock - 1) / kLogitBlock) {
    is_finite_ = kernels.block_maxima(x, size, maxima_.data());
    best_ = *std::max_element(maxima_.begin(), maxima_.end());
  }

  // Put other logits in the place of some: those of the row become minus infinity, which weighs
  // nothing, and the others are kept apart.
  void apply(const Change& change) {
    copy_.assign(x_, x_ + size_);
    x_ = copy_.data();
    for (size_t i = 0; i < change.count; ++i) {
      const int id = static_cast<int>(change.ids[i]);
      copy_[id] = -std::numeric_limits<float>::infinity();
      // not-a-number is kept as what can't be drawn, and makes itself known as the best
      changed_.push_back({std::isnan(change.values[i]) ? kInfinity : change.values[i], id});
    }
    kernels_.block_maxima(x_, size_, maxima_.data());
    best_ = *std::max_element(maxima_.begin(), maxima_.end());
    for (const Entry& entry : changed_) best_ = std::max(best_, entry.logit);
  }

  bool is_finite() const { return is_finite_; }
  double best() const { return best_; }
  int size() const { return size_; }
  float operator[](int id) const { return x_[id]; }

  int first_best() const {
    int first = size_;
    for (const Entry& entry : changed_) {
      if (entry.logit == best_) first = std::min(first, entry.id);
    }
    for (size_t b = 0; b < maxima_.size(); ++b) {
      if (maxima_[b] != best_) continue;
      const float* found = std::find(x_ + b * kLogitBlock, x_ + size_, static_cast<float>(best_));
      return std::min(first, static_cast<int>(found - x_));
    }
    return first;
  }

  // Append all with low <= logit < high, but for minus infinity.
  void append_between(double low, double high, std::vector<Entry>& found) const {
    low = std::max(low, std::numeric_limits<double>::lowest());
    for (size_t b = 0; b < maxima_.size(); ++b) {
      if (maxima_[b] < low) continue;
      const int begin = static_cast<int>(b) * kLogitBlock, end = std::min(begin + kLogitBlock, size_);
      for (int id = begin; id < end; ++id) {
        if (x_[id] >= low && x_[id] < high) found.push_back({x_[id], id});
      }
    }
    for (const Entry& entry : changed_) {
      if (entry.logit >= low && entry.logit < high) found.push_back(entry);
    }
  }

  double weight(double logit, double temperature) const { return exp64((logit - best_) / temperature); }

  // The sum of all weights within kRoughError of it, if that is easy to have.
  std::optional<double> rough_total(double temperature) const {
    // The nearest float32 to the best is the reference; it is the best itself if that was not changed.
    const float near = static_cast<float>(best_);
    const double off = (near - best_) / temperature;
    if (temperature * kRoughFactor < 1 || temperature > kRoughFactor || !(std::abs(off) < 1)) {
      return std::nullopt;
    }
    const double rest = kernels_.rough_total(x_, size_, near, static_cast<float>(1 / temperature));
    return rest * std::exp(off) + changed_total(temperature);
  }
  double exact_total(double temperature) const {
    return kernels_.exact_total(x_, size_, best_, temperature) + changed_total(temperature);
  }

 private:
  double changed_total(double temperature) const {
    double total = 0;
    for (const Entry& entry : changed_) total += weight(entry.logit, temperature);
    return total;
  }

  const Kernels& kernels_;
  const float* x_;
  int size_;
  std::vector<float> maxima_, copy_;
  std::vector<Entry> changed_;
  double best_;
  bool is_finite_;
};

// The tokens of a row, the highest logit first, of equals the lowest id; as far as was asked for.
class Order {
 public:
  // `reach` is how far from the best logit the first are looked for.
  Order(const Row& row, double reach) : row_(row), reach_(reach) {}

  const std::vector<Entry>& entries() const { return entries_; }

  // Sort some more; false if there are none.
  bool more() {
    while (num_sorted_ == found_.size()) {
      if (low_ == -kInfinity) return false;
      look_further();
    }
    const auto begin = found_.begin() + num_sorted_;
    const size_t count = std::min(std::max(kFewest, num_sorted_), found_.size() - num_sorted_);
    if (begin + count != found_.end()) std::nth_element(begin, begin + count, found_.end());
    std::sort(begin, begin + count);
    num_sorted_ += count;
    entries_.insert(entries_.end(), begin, begin + count);
    return true;
  }

 private:
  static constexpr size_t kFewest = 64;
  static constexpr int kMostLooks = 5;  // then all that are left

  void look_further() {
    const double high = low_;
    low_ = num_looks_++ < kMostLooks ? row_.best() - reach_ : -kInfinity;
    reach_ *= 2;
    found_.clear(), num_sorted_ = 0;
    row_.append_between(low_, high, found_);
  }

  const Row& row_;
  double reach_, low_ = kInfinity;
  int num_looks_ = 0;
  std::vector<Entry> found_;  // by the last look
  size_t num_sorted_ = 0;     // of these
  std::vector<Entry> entries_;
};

// Draws from one row with a temperature.
class Draft {
 public:
  Draft(const Row& row, const Draw& draw)
      : row_(row), draw_(draw), order_(row, 1.5 * draw.temperature) {}

  int token() {
    const bool has_top_k = draw_.top_k > 0 && draw_.top_k < row_.size();
    return has_top_k || draw_.min_p > 0 ? of_head(has_top_k ? draw_.top_k : row_.size()) : of_all();
  }

 private:
  // Unnormalised: that of the best is 1.
  double weight(const Entry& entry) const {
    return row_.weight(entry.logit, draw_.temperature);
  }

  // With the head of the order that top_k and min_p leave.
  int of_head(int most) {
    size_t kept = 0;
    while (true) {
      const size_t known = order_.entries().size();
      while (kept < known && kept < static_cast<size_t>(most) &&
             weight(order_.entries()[kept]) >= draw_.min_p) {
        ++kept;
      }
      if (kept < known || kept == static_cast<size_t>(most) || !more()) break;
    }
    cumulative_.resize(kept);
    return at(rank(cumulative_.back()).value_or(kept - 1));
  }

  // With all. A rough total is enough if the outcome is the same all over its error.
  int of_all() {
    const std::optional<double> rough = row_.rough_total(draw_.temperature);
    double low = rough ? *rough * (1 - kRoughError) : row_.exact_total(draw_.temperature);
    double high = rough ? *rough * (1 + kRoughError) : low;
    while (true) {
      const std::optional<size_t> first = rank(low), last = low == high ? first : rank(high);
      if (first && first == last) return at(*first);
      const bool is_undecided = first != last;
      if (!is_undecided && more()) continue;
      if (low == high) break;  // rounding put the number past the end
      low = high = row_.exact_total(draw_.temperature);
    }
    size_t last = order_.entries().size() - 1;
    while (weight(order_.entries()[last]) == 0) --last;
    return at(last);
  }

  bool more() {
    if (!order_.more()) return false;
    double sum = cumulative_.empty() ? 0.0 : cumulative_.back();
    for (size_t i = cumulative_.size(); i < order_.entries().size(); ++i) {
      cumulative_.push_back(sum += weight(order_.entries()[i]));
    }
    return true;
  }

  // The place that the number falls on, if it is among those found. `total` is of all that are kept
  // before top_p.
  std::optional<size_t> rank(double total) const {
    double mass = total;
    if (draw_.top_p < 1) {
      const auto last = std::lower_bound(cumulative_.begin(), cumulative_.end(), draw_.top_p * total);
      if (last == cumulative_.end()) return std::nullopt;
      mass = *last;
    }
    const auto found = std::upper_bound(cumulative_.begin(), cumulative_.end(), draw_.number * mass);
    if (found == cumulative_.end()) return std::nullopt;
    return found - cumulative_.begin();
  }

  int at(size_t rank) const { return order_.entries()[rank].id; }

  const Row& row_;
  const Draw& draw_;
  Order order_;
  std::vector<double> cumulative_;
};

int pick(Row&& row, const Draw& draw, const Change* change) {
  if (!row.is_finite()) return kNotFinite;
  if (change) row.apply(*change);
  if (!std::isfinite(row.best())) return kNoToken;
  if (draw.temperature == 0) return row.first_best();
  return Draft(row, draw).token();
}

Scores score(const Row& row, const Wanted& wanted) {
  if (!row.is_finite()) return {};
  const double best = row.best(), log_total = std::log(row.exact_total(1.0));
  const auto logprob = [&](int id) { return (row[id] - best) - log_total; };
  Order order(row, 1.5);
  const size_t count = std::min(wanted.num_top, row.size());
  while (order.entries().size() < count && order.more()) continue;
  Scores scores{true, logprob(wanted.token), {}};
  for (size_t i = 0; i < count; ++i) {
    scores.top.emplace_back(order.entries()[i].id, logprob(order.entries()[i].id));
  }
  return scores;
}

void check(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(what);
}

}  // namespace

std::vector<int> pick_tokens(const Kernels& kernels, ThreadPool& pool, const Logits& logits,
                             const std::vector<Draw>& draws, const std::vector<Change>& changes) {
  check(logits.columns > 0 && draws.size() == static_cast<size_t>(logits.rows), "a draw for each row");
  for (const Draw& d : draws) {
    check(d.temperature >= 0 && d.top_k >= 0 && d.top_p > 0 && d.min_p <= 1 && d.number >= 0 &&
              d.number < 1, "a draw with values out of range");
  }
  std::vector<const Change*> of_row(draws.size(), nullptr);
  for (const Change& change : changes) {
    check(change.row >= 0 && change.row < logits.rows, "a change of a row that does not exist");
    for (size_t i = 0; i < change.count; ++i) {
      check(change.ids[i] >= 0 && change.ids[i] < logits.columns, "a change of a token that does not exist");
    }
    of_row[change.row] = &change;
  }
  std::vector<int> tokens(draws.size());
  pool.parallel(logits.rows, 1, [&](int begin, int end, int) {
    for (int i = begin; i < end; ++i) {
      tokens[i] = pick(Row(kernels, logits.row(i), logits.columns), draws[i], of_row[i]);
    }
  });
  return tokens;
}

std::vector<Scores> score_tokens(const Kernels& kernels, ThreadPool& pool, const Logits& logits,
                                 const std::vector<Wanted>& wanted) {
  for (const Wanted& w : wanted) {
    check(w.row >= 0 && w.row < logits.rows && w.token >= 0 && w.token < logits.columns &&
              w.num_top >= 0, "a score of a row or token that does not exist");
  }
  std::vector<Scores> scores(wanted.size());
  pool.parallel(static_cast<int>(wanted.size()), 1, [&](int begin, int end, int) {
    for (int i = begin; i < end; ++i) {
      scores[i] = score(Row(kernels, logits.row(wanted[i].row), logits.columns), wanted[i]);
    }
  });
  return scores;
}

}  // namespace headway
