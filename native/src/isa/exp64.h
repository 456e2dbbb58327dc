// exp in float64 for arguments up to 0, within 2 ulp. Multiplications and additions only, none of them
// fused: the same bits on every instruction set. Included inside the namespace of whoever uses it.
//
// D is double, or a vector of them; U is as many uint64_t.

template <class D, class U> static inline __attribute__((always_inline)) D exp64_of(D x) {
  constexpr double magic = 6755399441055744.0;  // 1.5 * 2^52: rounds to a whole number, in the low bits
  const D bounded = x > -746.0 ? x : D{} - 746.0;
  const D n = (bounded * 1.4426950408889634074 + magic) - magic;
  // Cody and Waite: ln 2 in two parts, the first short enough for exact products.
  D r = bounded - n * 6.93147180369123816490e-01;
  r = r - n * 1.90821492927058770002e-10;
  // Taylor's series: on [-0.35, 0.35] the rest is below 4e-18.
  // Even and odd powers apart, which is two short chains in place of a long one.
  const D rr = r * r;
  D even = rr * (1.0 / 479001600.0) + 1.0 / 3628800.0, odd = rr * (1.0 / 6227020800.0) + 1.0 / 39916800.0;
  even = even * rr + 1.0 / 40320.0, odd = odd * rr + 1.0 / 362880.0;
  even = even * rr + 1.0 / 720.0, odd = odd * rr + 1.0 / 5040.0;
  even = even * rr + 1.0 / 24.0, odd = odd * rr + 1.0 / 120.0;
  even = even * rr + 0.5, odd = odd * rr + 1.0 / 6.0;
  const D p = 1.0 + (r + rr * (even + r * odd));
  // 2^n in two halves, since the result may be subnormal where 2^n has no number.
  const D half = n * 0.5 + magic, other = (n - (half - magic)) + magic;
  U low, high;
  __builtin_memcpy(&low, &half, sizeof low);
  __builtin_memcpy(&high, &other, sizeof high);
  low = (low + 1023) << 52;
  high = (high + 1023) << 52;
  D first, second;
  __builtin_memcpy(&first, &low, sizeof low);
  __builtin_memcpy(&second, &high, sizeof high);
  const D y = p * first * second;
  return x > -745.2 ? y : D{};
}

static inline __attribute__((always_inline)) double exp64(double x) {
  return exp64_of<double, uint64_t>(x);
}
