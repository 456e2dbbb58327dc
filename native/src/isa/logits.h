// Passes over one row of logits.

#include "exp64.h"

// The highest of each block, the last of which may be shorter, and whether all are finite.
static bool block_maxima(const float* x, int size, float* maxima) {
  F spoilt = zero();
  const int whole = size / kLogitBlock;
  for (int b = 0; b < whole; ++b) {
    const float* p = x + b * kLogitBlock;
    F most = load(p);
    spoilt = fma(most, zero(), spoilt);  // infinity and not-a-number leave not-a-number
    for (int i = kLanes; i < kLogitBlock; i += kLanes) {
      const F next = load(p + i);
      spoilt = fma(next, zero(), spoilt);
      most = max(most, next);
    }
    maxima[b] = highest(most);
  }
  float bad = sum(spoilt);
  for (int i = whole * kLogitBlock; i < size; ++i) {
    float& most = maxima[whole];
    if (i == whole * kLogitBlock || x[i] > most) most = x[i];
    bad += x[i] * 0.0f;
  }
  return bad == 0.0f;
}

// The sum of exp((x - best) * factor), within kRoughError of it.
static double rough_total(const float* x, int size, float best, float factor) {
  const F high = splat(best), scale = splat(factor);
  double total = 0;
  alignas(64) float rest[kLanes];
  for (int begin = 0; begin < size;) {
    const int end = begin + kRoughRun < size ? begin + kRoughRun : size;
    F part = zero();
    for (; begin + kLanes <= end; begin += kLanes) {
      part = add(part, exp(mul(sub(load(x + begin), high), scale)));
    }
    if (begin < end) {
      store(rest, splat(-__builtin_inff()));  // weighs nothing
      for (int i = 0; begin < end; ++begin, ++i) rest[i] = x[begin];
      part = add(part, exp(mul(sub(load(rest), high), scale)));
    }
    total += (double)sum(part);
  }
  return total;
}

// As many float64 as a register holds; what is computed does not depend on it.
#ifdef __AVX512F__
constexpr int kDoubles = 8;
#else
constexpr int kDoubles = 4;
#endif
typedef float Floats __attribute__((vector_size(kDoubles * 4)));
typedef double Doubles __attribute__((vector_size(kDoubles * 8)));
typedef uint64_t DoubleBits __attribute__((vector_size(kDoubles * 8)));

// Eight sums, by id, of what the logits weigh.
struct WeightSums {
  double best, temperature;
  Doubles sums[8 / kDoubles] = {};

  __attribute__((always_inline)) void add(const float* x) {
    for (int j = 0; j < 8 / kDoubles; ++j) {
      Floats part;
      __builtin_memcpy(&part, x + j * kDoubles, sizeof part);
      const Doubles distance = __builtin_convertvector(part, Doubles) - best;
      sums[j] += exp64_of<Doubles, DoubleBits>(distance / temperature);
    }
  }
};

// The sum of exp((x - best) / temperature) in float64, in one order.
static double exact_total(const float* x, int size, double best, double temperature) {
  WeightSums weights{best, temperature};
  int i = 0;
  for (; i + 8 <= size; i += 8) weights.add(x + i);
  float rest[8];
  for (int j = 0; j < 8; ++j) rest[j] = i + j < size ? x[i + j] : -__builtin_inff();  // adds exactly 0
  weights.add(rest);
  double s[8];
  __builtin_memcpy(s, weights.sums, sizeof s);
  return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}
