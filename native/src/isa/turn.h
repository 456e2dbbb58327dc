// Hadamard transforms. Some channels of keys, and of what enters products, are far above the rest. Turned
// like this, on both sides of a product, they give the same product, and lose little to one scale for
// many (Ashkboos et al., 2024).

// Over the numbers of the vectors, lane by lane.
template <int Count> HW_INLINE void turn_vectors(F (&v)[Count]) {
#pragma GCC unroll 4
  for (int far = 1; far < Count; far *= 2)
#pragma GCC unroll 8
    for (int i = 0; i < Count; ++i) {
      if (i & far) continue;
      const F a = v[i], b = v[i + far];
      v[i] = add(a, b), v[i + far] = sub(a, b);
    }
}

// Over `Count` values that lie `far` apart; first over those of each vector, the first time.
template <int Count, bool IsFirst> HW_INLINE int turn_apart(float* x, int width, int far) {
  for (int begin = 0; begin < width; begin += Count * far)
    for (int i = begin; i < begin + far; i += kLanes) {
      F v[Count];
#pragma GCC unroll 8
      for (int k = 0; k < Count; ++k) {
        v[k] = load(x + i + k * far);
        if constexpr (IsFirst) v[k] = butterfly<8>(butterfly<4>(butterfly<2>(butterfly<1>(v[k]))));
      }
      turn_vectors(v);
#pragma GCC unroll 8
      for (int k = 0; k < Count; ++k) store(x + i + k * far, v[k]);
    }
  return Count * far;
}

// As many as registers hold, of `size / far` that are left. Returns how far apart the next ones lie.
template <bool IsFirst> HW_INLINE int turn_some(float* x, int width, int far, int size) {
  if (size / far >= 8) return turn_apart<8, IsFirst>(x, width, far);
  if (size / far == 4) return turn_apart<4, IsFirst>(x, width, far);
  if (size / far == 2) return turn_apart<2, IsFirst>(x, width, far);
  return turn_apart<1, IsFirst>(x, width, far);
}

// In place, unscaled, over the largest power of 2 that divides the width, which is returned.
static int hadamard(float* x, int width) {
  const int size = width & -width;
  int far = turn_some<true>(x, width, kLanes, size);
  while (far < size) far = turn_some<false>(x, width, far, size);
  return size;
}
