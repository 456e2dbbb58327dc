// Operations on single rows: norms and the gate.

HW_INLINE float inverse_rms(const float* x, size_t stride, int columns, float eps) {
  F first = zero(), second = zero();
  for (size_t i = 0; i < stride; i += kGroup) {
    const F a = load(x + i), b = load(x + i + kLanes);
    first = fma(a, a, first);
    second = fma(b, b, second);
  }
  return 1.0f / __builtin_sqrtf(sum(add(first, second)) / (float)columns + eps);
}

static void norm(const NormArgs& a, int begin, int end, float* rows) {
  pack_rows(a.layout, a.out, begin, end, [&](int r) HW_LAMBDA {
    float* normed = rows + r % kRowTile * a.stride;
    float* x = a.residual + r * a.stride;
    if (a.delta) {
      const float* delta = a.delta + r * a.stride;
      for (size_t i = 0; i < a.stride; i += kLanes) store(x + i, add(load(x + i), load(delta + i)));
    }
    const F factor = splat(inverse_rms(x, a.stride, a.columns, a.eps));
    for (size_t i = 0; i < a.stride; i += kLanes) {
      store(normed + i, mul(mul(load(x + i), factor), load(a.weight + i)));
    }
    return turned(normed, a.layout);
  });
}

static void gate(const GateArgs& a, int begin, int end, float* rows) {
  const size_t stride = row_stride(a.columns);
  pack_rows(a.layout, a.out, begin, end, [&](int r) HW_LAMBDA {
    float* product = rows + r % kRowTile * stride;
    const float* left = a.gate_up + r * a.stride;
    const float* right = left + a.up;
    for (size_t i = 0; i < stride; i += kLanes) {
      const F x = load(left + i);
      const F silu = div(x, add(splat(1.0f), exp(sub(zero(), x))));
      store(product + i, mul(silu, load(right + i)));
    }
    return turned(product, a.layout);
  });
}

HW_INLINE void norm_head(float* x, const float* weight, int width, float eps) {
  F squares = zero();
  for (int i = 0; i < width; i += kLanes) squares = fma(load(x + i), load(x + i), squares);
  const F factor = splat(1.0f / __builtin_sqrtf(sum(squares) / (float)width + eps));
  for (int i = 0; i < width; i += kLanes) {
    store(x + i, mul(mul(load(x + i), factor), load(weight + i)));
  }
}

static void norm_heads(const HeadNormArgs& a, int begin, int end) {
  for (int r = begin; r < end; ++r) {
    float* x = a.qkv + r * a.stride;
    for (int h = 0; h < a.num_heads; ++h) {
      norm_head(x + h * a.head_dim, a.q_weight, a.head_dim, a.eps);
    }
    x += row_stride(a.num_heads * a.head_dim);
    for (int h = 0; h < a.num_kv_heads; ++h) {
      norm_head(x + h * a.head_dim, a.k_weight, a.head_dim, a.eps);
    }
  }
}
