// How tokens are drawn from rows of logits: the definition is in headway/executors/sampling.py, and
// what is computed here is what NumPy computes there, faster. Sums of all weights are taken in another
// order than NumPy's, so where a number falls on the very border between two tokens, either may be drawn;
// scores agree to the last few bits. Depends on nothing but the row and the
// draw: neither on other rows nor on threads or the instruction set.
#pragma once

#include <utility>
#include <vector>

#include "kernels.h"
#include "threads.h"

namespace headway {

// Rows of logits, `stride` apart.
struct Logits {
  const float* data;
  int rows, columns;
  size_t stride;

  const float* row(int index) const { return data + index * stride; }
};

// How a row's token is drawn; greedily with temperature 0.
struct Draw {
  double temperature;
  int top_k;  // 0: all
  double top_p, min_p;
  double number;  // in [0, 1)
};

// Of which token a log-probability is wanted, and of how many of the best.
struct Wanted {
  int row, token, num_top;
};

struct Scores {
  bool is_finite = false;  // or else there are none
  double logprob = 0.0;
  std::vector<std::pair<int, double>> top;
};

// Other logits for some tokens of a row, each of which is named once.
struct Change {
  int row;
  const int64_t* ids;
  const double* values;
  size_t count;
};

// In place of a token: the logits are not all finite; or the highest is not, after a change.
constexpr int kNotFinite = -1, kNoToken = -2;

// One token for each row.
std::vector<int> pick_tokens(const Kernels& kernels, ThreadPool& pool, const Logits& logits,
                             const std::vector<Draw>& draws, const std::vector<Change>& changes);

// The log-softmax at tokens and at the best of their rows, best first, of equals the lowest id.
std::vector<Scores> score_tokens(const Kernels& kernels, ThreadPool& pool, const Logits& logits,
                                 const std::vector<Wanted>& wanted);

}  // namespace headway
