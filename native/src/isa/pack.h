// Activations into the tiles that products read.

HW_INLINE void pack_f32(const float* row, size_t columns, uint8_t* tile, int r) {
  float* out = (float*)tile + r;
  for (size_t k = 0; k < columns; ++k) out[k * kRowTile] = row[k];
}

HW_INLINE void pack_bf16(const float* row, size_t columns, uint8_t* tile, int r) {
  uint32_t* out = (uint32_t*)tile + r;
  for (size_t k = 0; k < columns; k += kLanes) {
    uint32_t pairs[kLanes / 2];
    uint16_t narrow[kLanes];
    to_bf16(narrow, load(row + k));
    __builtin_memcpy(pairs, narrow, sizeof pairs);
    for (int i = 0; i < kLanes / 2; ++i) out[(k / 2 + i) * kRowTile] = pairs[i];
  }
}

// Round kLanes values of a row, and return the sum of their codes.
HW_INLINE int32_t put_codes(uint32_t* out, F x) {
  uint64_t eights[kLanes / 8];  // as quick to store as smaller pieces, and half as many to load
  const int32_t sum = to_int8((int8_t*)eights, x);
#pragma GCC unroll 2
  for (int i = 0; i < kLanes / 8; ++i) {
    out[2 * i * kRowTile] = (uint32_t)eights[i];
    out[(2 * i + 1) * kRowTile] = (uint32_t)(eights[i] >> 32);
  }
  return sum;
}

// The scale of values whose highest magnitude has these bits; returned is what they are multiplied by.
HW_INLINE F scale_of(uint32_t highest_bits, float& scale) {
  float highest;
  __builtin_memcpy(&highest, &highest_bits, 4);
  scale = highest / 127.0f;
  return splat(highest > 0.0f ? 127.0f / highest : 0.0f);
}

// One scale for each group of 32. Where a value is not finite, neither is the scale, and so nothing
// that is computed from the group: nothing is hidden by rounding it away.
HW_INLINE void pack_int8(const float* row, const TileLayout& layout, uint8_t* tile, int r) {
  const size_t size = layout.row_of_groups();
  float* scales = layout.scales(tile);
  int32_t* sums = (int32_t*)(scales + size);
  float* scaled_sums = (float*)(sums + size);
  int32_t* half_sums = (int32_t*)(scaled_sums + size);
  uint32_t* out = (uint32_t*)tile + r;
  for (size_t g = 0; g < layout.groups(); ++g, row += kGroup) {
    const F left = load(row), right = load(row + kLanes);
    float scale;
    const F inverse = scale_of(highest_magnitude_bits(left, right), scale);
    const int32_t first = put_codes(out, mul(left, inverse));
    const int32_t second = put_codes(out + kLanes / 4 * kRowTile, mul(right, inverse));
    out += kGroup / 4 * kRowTile;
    const size_t at = g * kRowTile + r;
    scales[at] = scale;
    scaled_sums[at] = scale * (float)(first + second);
    sums[at] = -(first + second);
    half_sums[2 * g * kRowTile + r] = -first;
    half_sums[(2 * g + 1) * kRowTile + r] = -second;
  }
}

// A number for each row of a tile.
typedef int32_t RowInts __attribute__((vector_size(kRowTile * 4)));
typedef float RowFloats __attribute__((vector_size(kRowTile * 4)));

// The sums of the codes of half a group, whose rows alternate.
HW_INLINE RowInts sum_codes(const int8_t* codes) {
  const int8_t one[4] = {1, 1, 1, 1};
  I total = splat_int(0);
  for (int i = 0; i < kLanes * kRowTile; i += 64) {
    total = dot_signed(total, load_codes((const uint8_t*)codes + i), load_quad(one));
  }
  RowInts parts[2];
  __builtin_memcpy(parts, &total, sizeof parts);
  return parts[0] + parts[1];
}

HW_INLINE void put_sums(const TileLayout& layout, uint8_t* tile) {
  const size_t size = layout.row_of_groups();
  float* scales = layout.scales(tile);
  int32_t* sums = (int32_t*)(scales + size);
  float* scaled_sums = (float*)(sums + size);
  int32_t* half_sums = (int32_t*)(scaled_sums + size);
  for (size_t g = 0; g < layout.groups(); ++g) {
    const int8_t* codes = (const int8_t*)tile + g * kGroup * kRowTile;
    const RowInts first = sum_codes(codes), second = sum_codes(codes + kLanes * kRowTile);
    RowFloats scale;
    __builtin_memcpy(&scale, scales + g * kRowTile, sizeof scale);
    const RowFloats scaled = scale * __builtin_convertvector(first + second, RowFloats);
    const RowInts negative = -(first + second), halves[2] = {-first, -second};
    __builtin_memcpy(scaled_sums + g * kRowTile, &scaled, sizeof scaled);
    __builtin_memcpy(sums + g * kRowTile, &negative, sizeof negative);
    __builtin_memcpy(half_sums + 2 * g * kRowTile, halves, sizeof halves);
  }
}

// The scales of all rows, and in `inverse` what their values are multiplied by.
HW_INLINE void put_scales(float* scales, const F (&tops)[kRowTile], float (&inverse)[kLanes]) {
  const F highest = highest_bits_of(tops);
  store_some<kRowTile>(scales, div(highest, splat(127.0f)));
  store(inverse, where_less(zero(), highest, div(splat(127.0f), highest), zero()));
}

// Round kLanes values of all rows.
template <class Values>
HW_INLINE void put_codes(int8_t* codes, const float (&inverse)[kLanes], const Values& values) {
#pragma GCC unroll 2
  for (int r = 0; r < kRowTile; r += 4) {
    const auto at = [&](int i) HW_LAMBDA { return mul(values(r + i), splat(inverse[r + i])); };
    to_int8(codes + r * 4, kRowTile * 4, at(0), at(1), at(2), at(3));
  }
}

// All rows of a tile: the same as one by one, in half the time.
HW_INLINE void pack_int8_tile(const float* const (&rows)[kRowTile], const TileLayout& layout, uint8_t* tile) {
  for (size_t g = 0; g < layout.groups(); ++g) {
    F x[2][kRowTile], tops[kRowTile];
#pragma GCC unroll 8
    for (int r = 0; r < kRowTile; ++r) {
      x[0][r] = load(rows[r] + g * kGroup), x[1][r] = load(rows[r] + g * kGroup + kLanes);
      tops[r] = max_bits(magnitude(x[0][r]), magnitude(x[1][r]));
    }
    alignas(64) float inverse[kLanes];
    put_scales(layout.scales(tile) + g * kRowTile, tops, inverse);
    int8_t* codes = (int8_t*)tile + g * kGroup * kRowTile;
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      put_codes(codes + half * kLanes * kRowTile, inverse, [&](int r) HW_LAMBDA { return x[half][r]; });
    }
  }
  put_sums(layout, tile);  // by now the codes are in the cache, where they can be read in longer pieces
}

// ------------------------------------------------------------------ wide groups

HW_INLINE size_t wide_end(size_t begin, const TileLayout& layout) {
  const size_t end = begin + kWideGroup;
  return end < layout.columns ? end : layout.columns;
}

// A turned row. Not finite values spoil a group as above.
HW_INLINE void pack_wide(const float* row, const TileLayout& layout, uint8_t* tile, int r) {
  float* scales = layout.scales(tile) + r;
  int32_t* sums = (int32_t*)(scales + layout.row_of_groups());
  uint32_t* out = (uint32_t*)tile + r;
  for (size_t begin = 0; begin < layout.columns; begin += kWideGroup) {
    const size_t end = wide_end(begin, layout);
    F top = zero();
    for (size_t i = begin; i < end; i += kLanes) top = max_bits(top, magnitude(load(row + i)));
    const F inverse = scale_of(highest_magnitude_bits(top, top), *scales);
    int32_t sum = 0;
    for (size_t i = begin; i < end; i += kLanes, out += kLanes / 4 * kRowTile) {
      sum += put_codes(out, mul(load(row + i), inverse));
    }
    *sums = -sum;
    scales += kRowTile, sums += kRowTile;
  }
}

HW_INLINE void pack_wide_tile(const float* const (&rows)[kRowTile], const TileLayout& layout, uint8_t* tile) {
  float* scales = layout.scales(tile);
  int32_t* sums = (int32_t*)(scales + layout.row_of_groups());
  for (size_t begin = 0; begin < layout.columns; begin += kWideGroup) {
    const size_t end = wide_end(begin, layout);
    F tops[kRowTile];
#pragma GCC unroll 8
    for (int r = 0; r < kRowTile; ++r) tops[r] = zero();
    for (size_t i = begin; i < end; i += kLanes)
#pragma GCC unroll 8
      for (int r = 0; r < kRowTile; ++r) tops[r] = max_bits(tops[r], magnitude(load(rows[r] + i)));
    alignas(64) float inverse[kLanes];
    put_scales(scales, tops, inverse);
    RowInts sum = {};
    for (size_t i = begin; i < end; i += kLanes) {
      put_codes((int8_t*)tile + i * kRowTile, inverse, [&](int r) HW_LAMBDA { return load(rows[r] + i); });
    }
    for (size_t i = begin; i < end; i += kLanes) sum += sum_codes((const int8_t*)tile + i * kRowTile);
    const RowInts negative = -sum;
    __builtin_memcpy(sums, &negative, sizeof negative);
    scales += kRowTile, sums += kRowTile;
  }
}

// What products with wide groups see of a row.
HW_INLINE const float* turned(float* row, const TileLayout& layout) {
  if (layout.kind == Kind::int8_wide) hadamard(row, (int)layout.columns);
  return row;
}

// ------------------------------------------------------------------ any kind

// Row number `index` of the output.
HW_INLINE void pack_row(const float* row, const TileLayout& layout, uint8_t* out, int index) {
  uint8_t* tile = out + (size_t)(index / kRowTile) * layout.tile_bytes();
  const int r = index % kRowTile;
  switch (layout.kind) {
    case Kind::f32: return pack_f32(row, layout.columns, tile, r);
    case Kind::bf16: return pack_bf16(row, layout.columns, tile, r);
    case Kind::int8: return pack_int8(row, layout, tile, r);
    case Kind::int8_wide: return pack_wide(row, layout, tile, r);
    case Kind::rows: break;
  }
  __builtin_memcpy(out + index * layout.columns * 4, row, layout.columns * 4);
}

// Rows [begin, end) of the output; `row` gives the values of each.
template <class Row>
HW_INLINE void pack_rows(const TileLayout& layout, uint8_t* out, int begin, int end, const Row& row) {
  for (int first = begin; first < end;) {
    const bool is_tile = layout.is_integer() && first % kRowTile == 0 && end - first >= kRowTile;
    const float* rows[kRowTile];
    const int count = is_tile ? kRowTile : 1;
    for (int i = 0; i < count; ++i) rows[i] = row(first + i);
    uint8_t* tile = out + (size_t)(first / kRowTile) * layout.tile_bytes();
    if (!is_tile) pack_row(rows[0], layout, out, first);
    else if (layout.kind == Kind::int8) pack_int8_tile(rows, layout, tile);
    else pack_wide_tile(rows, layout, tile);
    first += count;
  }
}

static void pack(const PackArgs& a, int begin, int end, float* rows) {
  pack_rows(a.layout, a.out, begin, end, [&](int i) HW_LAMBDA {
    const float* row = a.rows + (a.chosen ? a.chosen[i] : i) * a.stride;
    if (a.layout.kind != Kind::int8_wide) return row;
    float* copy = rows + i % kRowTile * a.layout.columns;
    __builtin_memcpy(copy, row, a.layout.columns * 4);
    return turned(copy, a.layout);
  });
}
