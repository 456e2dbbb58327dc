// The most that this instruction set can do here, to hold against what the operations reach: the
// products of a tile that stays in registers, and reading.

HW_INLINE float fold_tile(F (&sums)[kLinearRows][kLinearVectors]) {
  F total = zero();
  for (auto& row : sums)
    for (const F& x : row) total = add(total, x);
  return sum(total);
}

static float probe_int8(const uint8_t* data, int64_t steps) {
  I acc[kLinearRows][kLinearVectors];
  for (auto& row : acc)
    for (I& x : row) x = splat_int(0);
  for (int64_t i = 0; i < steps; ++i) {
    asm volatile("" : "+r"(data));  // or what is read once is kept, and sums have too few registers
    Codes w[kLinearVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kLinearVectors; ++v) w[v] = load_codes(data + v * 64);
#pragma GCC unroll 8
    for (int r = 0; r < kLinearRows; ++r) {
      const Quad q = load_quad((const int8_t*)data + r * 4);
#pragma GCC unroll 8
      for (int v = 0; v < kLinearVectors; ++v) acc[r][v] = dot<4>(acc[r][v], w[v], q);
    }
  }
  F sums[kLinearRows][kLinearVectors];
  for (int r = 0; r < kLinearRows; ++r)
    for (int v = 0; v < kLinearVectors; ++v) sums[r][v] = to_float(acc[r][v]);
  return fold_tile(sums);
}

static float probe_bf16(const uint8_t* data, int64_t steps) {
  F sums[kLinearRows][kLinearVectors];
  for (auto& row : sums)
    for (F& x : row) x = zero();
  for (int64_t i = 0; i < steps; ++i) {
    asm volatile("" : "+r"(data));  // or what is read once is kept, and sums have too few registers
    Pairs w[kLinearVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kLinearVectors; ++v) w[v] = load_pairs((const uint16_t*)data + v * 32);
#pragma GCC unroll 8
    for (int r = 0; r < kLinearRows; ++r) {
      const Pair x = load_pair((const uint16_t*)data + r * 2);
#pragma GCC unroll 8
      for (int v = 0; v < kLinearVectors; ++v) sums[r][v] = dot(sums[r][v], w[v], x);
    }
  }
  return fold_tile(sums);
}

static float probe_read(const uint8_t* data, size_t bytes) {
  F a = zero(), b = zero(), c = zero(), d = zero();
  const float* p = (const float*)data;
  for (size_t i = 0; i < bytes / 4; i += 4 * kLanes) {
    a = max(a, load(p + i));
    b = max(b, load(p + i + kLanes));
    c = max(c, load(p + i + 2 * kLanes));
    d = max(d, load(p + i + 3 * kLanes));
  }
  return sum(add(add(a, b), add(c, d)));
}

// Operations (two to a product and its sum) in one step of either probe.
constexpr int kProbeInt8 = 2 * 4 * kLanes * kLinearRows * kLinearVectors;
constexpr int kProbeBf16 = 2 * 2 * kLanes * kLinearRows * kLinearVectors;
