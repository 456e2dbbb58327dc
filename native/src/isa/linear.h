// Products of activation tiles and packed weights.
//
// A row's result is the same in every variant: no split over k; integer sums, which are exact, for
// each group; and float sums group by group, or k by k, in one order.

// Unrolled, or the sums would be written to memory and read again first.
template <int Rows, int Vectors>
HW_INLINE void store_tile(const LinearArgs& a, F (&sums)[Rows][Vectors], int block, int row) {
  const size_t column = (size_t)block * kLanes, stride = a.out_stride;
  const float* bias = a.bias;
  float* out = a.out + (size_t)row * stride + column;
#pragma GCC unroll 8
  for (int v = 0; v < Vectors; ++v) {
    const size_t at = column + v * kLanes;
    if (bias) {
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) sums[r][v] = add(sums[r][v], load(bias + at));
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r, out += stride) {
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) store(out + v * kLanes, sums[r][v]);
  }
}

template <Packed Format> struct Weights {
  static constexpr PackedTraits traits = kPacked[(int)Format];
};

// The scale or minimum number `index` of a group.
template <int Bytes> HW_INLINE F load_scale(const uint8_t* group, int index) {
  const uint8_t* p = group + (size_t)index * kLanes * Bytes;
  if constexpr (Bytes == 2) return from_f16((const uint16_t*)p);
  else return load((const float*)p);
}

// Fetch what a panel has of a group some groups ahead; behind its last group lies the next panel.
template <size_t Bytes> HW_INLINE void fetch(const uint8_t* group, size_t ahead) {
  group += ahead * Bytes;
#pragma GCC unroll 64
  for (size_t i = 0; i < Bytes; i += 64) __builtin_prefetch(group + i);
}
// How many groups ahead. One or two rows do nothing but wait for memory: they ask for a line whenever
// they read one, in the order in which lines lie, and so far ahead in bytes, whatever the format, since
// memory's latency is one of bytes. With less, lines come late; with more, requests that the core has no
// room for are in the way of those that it waits for.
constexpr bool is_few(int rows) { return rows <= 2; }
template <Packed Format, int Rows> constexpr size_t groups_ahead() {
  constexpr size_t bytes = Rows == 1 ? 4608 : 6144;
  constexpr size_t groups = bytes / (kPanel * Weights<Format>::traits.group_code_bytes());
  return !is_few(Rows) ? 8 : groups ? groups : 1;
}

// Products of bytes of a group, or of either half of it.
// Few rows read one line after the other as they lie, and with each ask for one `ahead` bytes on.
template <int Bits, int Loads, int Rows, int Vectors>
HW_INLINE void add_products(I (&acc)[Rows][Vectors], const uint8_t* codes, const int8_t* quads, size_t ahead) {
  constexpr size_t code_stride = (size_t)kLanes * kGroup * Bits / 8;
  constexpr int together = is_few(Rows) ? 1 : Vectors;
#pragma GCC unroll 8
  for (int begin = 0; begin < Vectors; begin += together)
#pragma GCC unroll 8
    for (int j = 0; j < Loads; ++j) {
      const int8_t* quad = quads + j * (kRowTile * 4);
      Codes w[together];
#pragma GCC unroll 8
      for (int v = 0; v < together; ++v) {
        const uint8_t* line = codes + (begin + v) * code_stride + j * 64;
        if constexpr (is_few(Rows)) __builtin_prefetch(line + ahead);
        w[v] = load_codes(line);
      }
      if constexpr (Bits == 4) {
        Codes low[together];
#pragma GCC unroll 8
        for (int v = 0; v < together; ++v) low[v] = low_nibbles(w[v]);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
          const Quad q = load_quad(quad + r * 4);
#pragma GCC unroll 8
          for (int v = 0; v < together; ++v) acc[r][begin + v] = dot<4>(acc[r][begin + v], low[v], q);
        }
#pragma GCC unroll 8
        for (int v = 0; v < together; ++v) w[v] = high_nibbles(w[v]);
        quad += 4 * (kRowTile * 4);
      }
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) {
        const Quad q = load_quad(quad + r * 4);
#pragma GCC unroll 8
        for (int v = 0; v < together; ++v) acc[r][begin + v] = dot<Bits>(acc[r][begin + v], w[v], q);
      }
    }
}

template <Packed Format, int Rows, int Vectors>
HW_INLINE void integer_tile(const LinearArgs& a, int block, int row, bool is_first) {
  constexpr PackedTraits t = Weights<Format>::traits;
  constexpr bool has_min = t.zero_shift < 0, has_halves = Format == Packed::q8_float_16;
  constexpr int parts = has_halves ? 2 : 1;
  constexpr int num_loads = t.code_bits == 4 ? 4 : 8 / parts;
  constexpr size_t pieces_of_group = t.group / kGroup;
  const TileLayout& layout = a.layout;
  const size_t groups = layout.groups(), size = layout.row_of_groups(), pieces = layout.columns / kGroup;
  const uint8_t* tile = a.tiles + (size_t)(row / kRowTile) * layout.tile_bytes();
  const int first = row % kRowTile;
  const int8_t* quads = (const int8_t*)tile + first * 4;
  const float* scales = layout.scales(tile) + first;
  const int32_t* negative = (const int32_t*)(scales + size);
  const float* scaled_sums = (const float*)(negative + size);
  const int32_t* negative_halves = (const int32_t*)(scaled_sums + size);
  constexpr size_t code_stride = t.group_code_bytes(), factor_stride = t.group_scale_bytes();
  const uint8_t* codes = a.codes + piece_index(block, pieces, 0) * code_stride;
  const uint8_t* factors = a.scales + piece_index(block, groups, 0) * factor_stride;

  F sums[Rows][Vectors];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) sums[r][v] = zero();
  // Products of few rows wait for the weights. Later tiles of rows find them in the cache.
  const size_t ahead = is_first ? groups_ahead<Format, Rows>() : 0;
  for (size_t g = 0; g < groups; ++g) {
    if (is_first) fetch<kPanel * factor_stride>(factors, ahead);
#pragma GCC unroll 2
    for (int part = 0; part < parts; ++part) {
      I acc[Rows][Vectors];
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) {
        I start = splat_int(0);
        if constexpr (!has_min) {
          const int32_t sum = has_halves ? negative_halves[(2 * g + part) * kRowTile + r]
                                         : negative[g * kRowTile + r];
          start = shift_left<(has_min ? 0 : t.zero_shift)>(splat_int(sum));
        }
#pragma GCC unroll 8
        for (int v = 0; v < Vectors; ++v) acc[r][v] = start;
      }
      const size_t left = pieces - g * pieces_of_group;
      const size_t count = t.group == kGroup || left > pieces_of_group ? pieces_of_group : left;
      for (size_t i = 0; i < count; ++i) {
        if (!is_few(Rows) && is_first && part == 0) fetch<kPanel * code_stride>(codes, ahead);
        add_products<t.code_bits, num_loads>(acc, codes + part * num_loads * 64,
                                             quads + part * num_loads * (kRowTile * 4),
                                             ahead * (kPanel * code_stride));
        if (part + 1 == parts) quads += kGroup * kRowTile, codes += kPanel * code_stride;
      }
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) {
        const uint8_t* group = factors + v * factor_stride;
        const F scale = load_scale<t.scale_bytes>(group, part);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
          const F scaled = mul(to_float(acc[r][v]), splat(scales[g * kRowTile + r]));
          sums[r][v] = fma(scaled, scale, sums[r][v]);
        }
        if constexpr (has_min) {
          const F minimum = load_scale<t.scale_bytes>(group, 1);
#pragma GCC unroll 8
          for (int r = 0; r < Rows; ++r) {
            sums[r][v] = fma(minimum, splat(scaled_sums[g * kRowTile + r]), sums[r][v]);
          }
        }
      }
    }
    factors += kPanel * factor_stride;
  }
  store_tile<Rows, Vectors>(a, sums, block, row);
}

// One step along k: weights of kLanes columns, and one row's activations in all lanes.
template <Packed Format> struct Step;
template <> struct Step<Packed::f32> {
  static constexpr int width = 1, bytes = 4;
  HW_INLINE F weights(const uint8_t* p) { return load((const float*)p); }
  HW_INLINE F row(const uint8_t* p) { return splat(*(const float*)p); }
  HW_INLINE F take(F acc, F w, F x) { return fma(w, x, acc); }
};
template <> struct Step<Packed::f16> : Step<Packed::f32> {
  static constexpr int bytes = 2;
  HW_INLINE F weights(const uint8_t* p) { return from_f16((const uint16_t*)p); }
};
template <> struct Step<Packed::bf16> {
  static constexpr int width = 2, bytes = 4;
  HW_INLINE Pairs weights(const uint8_t* p) { return load_pairs((const uint16_t*)p); }
  HW_INLINE Pair row(const uint8_t* p) { return load_pair((const uint16_t*)p); }
  HW_INLINE F take(F acc, Pairs w, Pair x) { return dot(acc, w, x); }
};

template <Packed Format, int Rows, int Vectors>
HW_INLINE void float_tile(const LinearArgs& a, int block, int row, bool is_first) {
  using S = Step<Format>;
  constexpr int steps = kGroup / S::width;  // in a group
  constexpr size_t stride = Weights<Format>::traits.group_code_bytes();
  const size_t groups = a.layout.groups();
  const uint8_t* x = a.tiles + (size_t)(row / kRowTile) * a.layout.tile_bytes() + row % kRowTile * 4;
  const uint8_t* codes = a.codes + piece_index(block, groups, 0) * stride;
  F sums[Rows][Vectors];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) sums[r][v] = zero();
  for (size_t g = 0; g < groups; ++g) {
    if (is_first) fetch<kPanel * stride>(codes, groups_ahead<Format, Rows>());
#pragma GCC unroll 2
    for (int k = 0; k < steps; ++k) {
      decltype(S::weights(codes)) w[Vectors];
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) {
        w[v] = S::weights(codes + v * stride + k * (kLanes * S::bytes));
      }
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) {
        const auto q = S::row(x + k * (kRowTile * 4) + r * 4);
#pragma GCC unroll 8
        for (int v = 0; v < Vectors; ++v) sums[r][v] = S::take(sums[r][v], w[v], q);
      }
    }
    x += steps * kRowTile * 4;
    codes += kPanel * stride;
  }
  store_tile<Rows, Vectors>(a, sums, block, row);
}

template <Packed Format, int Rows, int Vectors>
static __attribute__((noinline)) void tile(const LinearArgs& a, int block, int row, bool is_first) {
  if constexpr (Weights<Format>::traits.is_integer()) {
    integer_tile<Format, Rows, Vectors>(a, block, row, is_first);
  } else {
    float_tile<Format, Rows, Vectors>(a, block, row, is_first);
  }
}

// A variant for each number of rows: one that computes more than there are takes as long as if they were.
template <Packed Format, int Vectors, int Rows = kLinearRows - 1>
HW_INLINE void last_rows(const LinearArgs& a, int block, int row, int count, bool is_first) {
  if constexpr (Rows > 0) {
    if (count == Rows) tile<Format, Rows, Vectors>(a, block, row, is_first);
    else last_rows<Format, Vectors, Rows - 1>(a, block, row, count, is_first);
  }
}

template <Packed Format, int Vectors>
HW_INLINE void rows_of_panel(const LinearArgs& a, int block, int row_begin, int row_end) {
  int row = row_begin;
  for (; row + kLinearRows <= row_end; row += kLinearRows) {
    tile<Format, kLinearRows, Vectors>(a, block, row, row == row_begin);
  }
  last_rows<Format, Vectors>(a, block, row, row_end - row, row == row_begin);
}

template <Packed Format>
static void linear(const LinearArgs& a, int block, int num_blocks, int row_begin, int row_end) {
  static_assert(kPanel % kLinearVectors == 0, "a tile must not cross panels");
  int done = 0;
  for (; done + kLinearVectors <= num_blocks; done += kLinearVectors) {
    rows_of_panel<Format, kLinearVectors>(a, block + done, row_begin, row_end);
  }
  for (; done < num_blocks; ++done) rows_of_panel<Format, 1>(a, block + done, row_begin, row_end);
}
