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

// The same, but exactly 0 from -87 down, as for keys that are not seen.
HW_INLINE F exp_or_zero(F x) { return where_less(x, splat(-87.0f), zero(), exp(x)); }
HW_INLINE float exp_or_zero(float x) {
  alignas(64) float lanes[kLanes];
  store(lanes, exp_or_zero(splat(x)));
  return lanes[0];
}
