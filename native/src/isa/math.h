// exp over the vector layer. Every element is computed alike, wherever it lies.

HW_INLINE F exp(F x) {
  // Not-a-number passes: max and min give their second operand then.
  const F bounded = max(splat(-87.0f), min(splat(88.0f), x));
  const F n = round_even(mul(bounded, splat(1.44269504088896341f)));
  // Cody and Waite: ln 2 in two parts.
  F r = fnma(n, splat(0.693145751953125f), bounded);
  r = fnma(n, splat(1.42860682030941723e-6f), r);
  // Minimax polynomial of Cephes' expf: 2 ulp.
  F p = splat(1.9875691500e-4f);
  p = fma(p, r, splat(1.3981999507e-3f));
  p = fma(p, r, splat(8.3334519073e-3f));
  p = fma(p, r, splat(4.1665795894e-2f));
  p = fma(p, r, splat(1.6666665459e-1f));
  p = fma(p, r, splat(5.0000001201e-1f));
  p = fma(mul(r, r), p, add(r, splat(1.0f)));
  return mul(p, power_of_two(n));
}

// 2^x for x <= 0, exactly 1 for 0, and exactly 0 from about -126 down, as for keys that are not seen.
// The polynomial is fitted to the least relative error on [0, 1): 9e-5 or 8e-8.
template <int Degree> HW_INLINE F exp2(F x) {
  static_assert(Degree == 3 || Degree == 5, "no such polynomial");
  const F r = fraction(x);
  F p;
  if constexpr (Degree == 3) {
    p = fma(splat(0.0770670548f), r, splat(0.2276449799f));
    p = fma(p, r, splat(0.695116818f));
  } else {
    p = fma(splat(0.00186713017f), r, splat(0.00901702978f));
    p = fma(p, r, splat(0.0557999127f));
    p = fma(p, r, splat(0.240164444f));
    p = fma(p, r, splat(0.693151295f));
  }
  return times_power(fma(p, r, splat(1.0f)), x);
}
