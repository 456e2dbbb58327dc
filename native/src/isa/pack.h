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

// One scale for each group of 32. Where a value is not finite, neither is the scale, and so nothing
// that is computed from the group: nothing is hidden by rounding it away.
HW_INLINE void pack_int8(const float* row, const TileLayout& layout, uint8_t* tile, int r) {
  const size_t size = layout.row_of_groups();
  float* scales = layout.scales(tile);
  float* scaled_sums = scales + size;
  int32_t* sums = (int32_t*)(scaled_sums + size);
  int32_t* half_sums = sums + size;
  uint32_t* out = (uint32_t*)tile + r;
  for (size_t g = 0; g < layout.groups(); ++g, row += kGroup) {
    const F left = load(row), right = load(row + kLanes);
    const uint32_t bits = highest_magnitude_bits(left, right);
    float highest;
    __builtin_memcpy(&highest, &bits, 4);
    const float scale = highest / 127.0f;
    const F inverse = splat(highest > 0.0f ? 127.0f / highest : 0.0f);
    // In 64-bit pieces: as quick to store, and half as many to load.
    uint64_t eights[kGroup / 8];
    const int32_t first = to_int8((int8_t*)eights, mul(left, inverse));
    const int32_t second = to_int8((int8_t*)(eights + 2), mul(right, inverse));
#pragma GCC unroll 8
    for (int i = 0; i < kGroup / 8; ++i) {
      out[2 * i * kRowTile] = (uint32_t)eights[i];
      out[(2 * i + 1) * kRowTile] = (uint32_t)(eights[i] >> 32);
    }
    out += kGroup / 4 * kRowTile;
    const size_t at = g * kRowTile + r;
    scales[at] = scale;
    scaled_sums[at] = scale * (float)(first + second);
    sums[at] = -(first + second);
    half_sums[2 * g * kRowTile + r] = -first;
    half_sums[(2 * g + 1) * kRowTile + r] = -second;
  }
}

// Row number `index` of the output.
HW_INLINE void pack_row(const float* row, const TileLayout& layout, uint8_t* out, int index) {
  uint8_t* tile = out + (size_t)(index / kRowTile) * layout.tile_bytes();
  const int r = index % kRowTile;
  switch (layout.kind) {
    case Kind::f32: return pack_f32(row, layout.columns, tile, r);
    case Kind::bf16: return pack_bf16(row, layout.columns, tile, r);
    case Kind::int8: return pack_int8(row, layout, tile, r);
    case Kind::rows: break;
  }
  __builtin_memcpy(out + index * layout.columns * 4, row, layout.columns * 4);
}

static void pack(const PackArgs& a, int begin, int end) {
  for (int i = begin; i < end; ++i) {
    const int row = a.chosen ? a.chosen[i] : i;
    pack_row(a.rows + row * a.stride, a.layout, a.out, i);
  }
}
