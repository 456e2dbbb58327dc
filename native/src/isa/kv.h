// The KV pool: the types of keys and values, rotation, writing, and finding what attention reads.

constexpr int kMaxHeadDim = 512;

// `step` elements lie side by side in a lane; `degree` is that of the polynomial for weights, no more
// than their type can tell apart.
template <KvType Type> struct Kv;
template <> struct Kv<KvType::f32> {
  using Element = float;
  using Sum = F;
  static constexpr int step = 1, degree = 5;
  static constexpr bool is_integer = false;
  HW_INLINE F operand(const uint8_t* p) { return load((const float*)p); }
  HW_INLINE F factor(const uint8_t* p) { return splat(*(const float*)p); }
  HW_INLINE F take_key(F acc, F w, F x) { return fma(w, x, acc); }
  HW_INLINE F take_value(F acc, F w, F x) { return fma(w, x, acc); }
  HW_INLINE void narrow(float* out, F x) { store(out, x); }
};
template <> struct Kv<KvType::bf16> {
  using Element = uint16_t;
  using Sum = F;
  static constexpr int step = 2, degree = 3;
  static constexpr bool is_integer = false;
  HW_INLINE Pairs operand(const uint8_t* p) { return load_pairs((const uint16_t*)p); }
  HW_INLINE Pair factor(const uint8_t* p) { return load_pair((const uint16_t*)p); }
  HW_INLINE F take_key(F acc, Pairs w, Pair x) { return dot(acc, w, x); }
  HW_INLINE F take_value(F acc, Pairs w, Pair x) { return dot(acc, w, x); }
  HW_INLINE void narrow(uint16_t* out, F x) { to_bf16(out, x); }
};
// One side of a product of bytes has to be unsigned: keys are stored 128 higher, and of weights and
// values it is the weights that are.
template <> struct Kv<KvType::int8> {
  using Element = uint8_t;
  using Sum = I;
  static constexpr int step = 4, degree = 3;
  static constexpr bool is_integer = true;
  HW_INLINE Codes operand(const uint8_t* p) { return load_codes(p); }
  HW_INLINE Quad factor(const uint8_t* p) { return load_quad((const int8_t*)p); }
  HW_INLINE I take_key(I acc, Codes w, Quad x) { return dot<8>(acc, w, x); }
  HW_INLINE I take_value(I acc, Codes w, Quad x) { return dot_signed(acc, w, x); }
};

// ------------------------------------------------------------------ 8 bits

// Round one head to 8 bits with one scale. Where a value is not finite, neither is the scale, and so
// nothing that is computed from it. Returns the sum of the codes.
HW_INLINE int32_t quantise_head(const float* x, int width, int8_t* codes, float& scale) {
  uint32_t bits = 0;
  for (int d = 0; d < width; d += kLanes) {
    const F v = load(x + d);
    const uint32_t here = highest_magnitude_bits(v, v);
    bits = here > bits ? here : bits;
  }
  const F inverse = scale_of(bits, scale);
  int32_t total = 0;
  for (int d = 0; d < width; d += kLanes) total += to_int8(codes + d, mul(load(x + d), inverse));
  return total;
}

// ------------------------------------------------------------------ writing

// One head's key and value of a position as they are stored.
template <class K> struct Narrow {
  alignas(64) typename K::Element key[kMaxHeadDim], value[kMaxHeadDim];
  float key_scale, value_scale;
};

template <class K>
HW_INLINE void narrow(float* key, const float* value, int width, Narrow<K>& out) {
  if constexpr (K::is_integer) {
    hadamard(key, width);
    quantise_head(key, width, (int8_t*)out.key, out.key_scale);
    quantise_head(value, width, (int8_t*)out.value, out.value_scale);
    for (int d = 0; d < width; ++d) out.key[d] ^= 0x80;
  } else {
    for (int d = 0; d < width; d += kLanes) {
      K::narrow(out.key + d, load(key + d));
      K::narrow(out.value + d, load(value + d));
    }
  }
}

// Where a value is the first of its pair and the last of the sequence, the second is cleared: it will
// be read, with weight 0, and might be infinite.
template <class K>
HW_INLINE void write(const RotateArgs& a, const RowItem& item, int position, int head,
                     const Narrow<K>& from) {
  using Element = typename K::Element;
  constexpr int step = K::step;
  const int width = a.kv.head_dim, size = a.kv.block_size;
  int slot = position % size;
  uint8_t* key_bytes =
      a.layer + (size_t)item.table[position / size] * a.kv.block_bytes() + head * a.kv.head_bytes();
  uint8_t* value_bytes = key_bytes + a.kv.half_bytes();
  int count = size;  // of positions that lie together
  if (a.kv.is_tiled()) {
    key_bytes += slot / kLanes * a.kv.tile_bytes();
    value_bytes += slot / kLanes * a.kv.tile_bytes();
    slot %= kLanes;
    count = kLanes;
  }
  auto *keys = (Element*)key_bytes, *values = (Element*)value_bytes;
  if constexpr (K::is_integer) {
    const size_t at = (size_t)count * width + slot * 4;
    __builtin_memcpy(key_bytes + at, &from.key_scale, 4);
    __builtin_memcpy(value_bytes + at, &from.value_scale, 4);
  }
  if (!a.kv.is_tiled()) {
    __builtin_memcpy(keys + (size_t)slot * width, from.key, width * sizeof(Element));
    __builtin_memcpy(values + (size_t)slot * width, from.value, width * sizeof(Element));
    return;
  }
  for (int d = 0; d < width; d += step) {
    __builtin_memcpy(keys + d * kLanes + slot * step, from.key + d, step * sizeof(Element));
  }
  values += (size_t)(slot / step * step) * width;
  const int part = slot % step;
  for (int d = 0; d < width; ++d) values[d * step + part] = from.value[d];
  if (step == 2 && part == 0 && position + 1 == item.end) {
    for (int d = 0; d < width; ++d) values[d * step + 1] = 0;
  }
}

HW_INLINE void rotate_head(const float* __restrict x, const float* __restrict cosines,
                           const float* __restrict sines, int width,
                           float scale, float* __restrict out) {
  const int half = width / 2;
  for (int i = 0; i < half; ++i) {
    const float left = x[i], right = x[half + i];
    out[i] = (left * cosines[i] - right * sines[i]) * scale;
    out[half + i] = (right * cosines[i] + left * sines[i]) * scale;
  }
}

// A decode touches a line for each few elements of its keys: to have them all on their way at once is
// much quicker than one after the other.
template <class K> HW_INLINE void fetch_places(const RotateArgs& a, const RowItem& item) {
  if (item.count > 1 || item.is_padding || !a.kv.is_tiled()) return;
  const int size = a.kv.block_size, slot = item.position % size;
  const uint8_t* tile = a.layer + (size_t)item.table[item.position / size] * a.kv.block_bytes() +
                        slot / kLanes * a.kv.tile_bytes();
  const size_t row = (size_t)K::step * a.kv.head_dim * sizeof(typename K::Element);
  const size_t at = slot % kLanes / K::step * row;
  for (int h = 0; h < a.kv.num_heads; ++h, tile += a.kv.head_bytes()) {
    const uint8_t* values = tile + a.kv.half_bytes() + at;
    for (size_t i = 0; i < a.kv.tile_bytes(); i += 64) __builtin_prefetch(tile + i, 1);
    for (size_t i = 0; i < row; i += 64) __builtin_prefetch(values + i, 1);
  }
}

template <class K>
static void rotate_as(const RotateArgs& a, const RowItem& item, const RowItem* after,
                      uint8_t* scratch) {
  if (after) fetch_places<K>(a, *after);
  const int width = a.kv.head_dim;
  const float scale = K::is_integer ? a.scale / (float)(width & -width) : a.scale;
  alignas(64) float turned[kMaxHeadDim];
  Narrow<K> stored;
  for (int i = 0; i < item.count; ++i) {
    const int position = item.position + i;
    const float* qkv = a.qkv + (size_t)(item.row + i) * a.stride;
    float* queries = a.queries + (size_t)(item.row + i) * a.query_stride;
    const float* cosines = a.cosines + (size_t)position * (width / 2);
    const float* sines = a.sines + (size_t)position * (width / 2);
    for (int h = 0; h < a.num_heads; ++h) {
      rotate_head(qkv + h * width, cosines, sines, width, scale, queries + h * width);
      if constexpr (K::is_integer) hadamard(queries + h * width, width);
    }
    const float* keys = qkv + row_stride(a.num_heads * width);
    const float* values = keys + row_stride(a.kv.num_heads * width);
    for (int h = 0; h < a.kv.num_heads; ++h) {
      rotate_head(keys + h * width, cosines, sines, width, 1.0f, turned);
      narrow<K>(turned, values + h * width, width, stored);
      if (item.is_padding) {  // the same work, to nobody's block
        __builtin_memcpy(scratch, stored.key, width * sizeof *stored.key);
        __builtin_memcpy(scratch, stored.value, width * sizeof *stored.value);
      } else {
        write<K>(a, item, position, h, stored);
      }
    }
  }
}

static void rotate(const RotateArgs& a, const RowItem& item, const RowItem* after,
                   uint8_t* scratch) {
  switch (a.kv.type) {
    case KvType::f32: return rotate_as<Kv<KvType::f32>>(a, item, after, scratch);
    case KvType::bf16: return rotate_as<Kv<KvType::bf16>>(a, item, after, scratch);
    case KvType::int8: return rotate_as<Kv<KvType::int8>>(a, item, after, scratch);
  }
}

// ------------------------------------------------------------------ reading

// Those of one unit. Of the last that the sequence has begun only the first `rest` values are read:
// those behind may be an earlier owner's, and need not be finite.
struct Tiles {
  const uint8_t *keys[kUnitTiles], *values[kUnitTiles];
  int count, last, rest;
};

// Put a tile together from blocks that are not whole tiles; what the sequence has not written is 0.
template <class K>
static void gather_tile(const AttendArgs& a, const RowItem& item, int kv_head, int start,
                        uint8_t* keys, uint8_t* values) {
  using Element = typename K::Element;
  constexpr int step = K::step;
  const int width = a.kv.head_dim, size = a.kv.block_size;
  __builtin_memset(keys, 0, a.kv.tile_bytes());
  __builtin_memset(values, 0, a.kv.tile_bytes());
  const int end = item.is_padding ? 0 : item.end;
  for (int slot = 0; slot < kLanes && start + slot < end; ++slot) {
    const int position = start + slot;
    const uint8_t* block = a.layer + (size_t)item.table[position / size] * a.kv.block_bytes() +
                           kv_head * a.kv.head_bytes();
    const size_t offset = (size_t)(position % size) * width;
    const Element* key = (const Element*)block + offset;
    const Element* value = (const Element*)(block + a.kv.half_bytes()) + offset;
    for (int d = 0; d < width; ++d) {
      ((Element*)keys)[d / step * step * kLanes + slot * step + d % step] = key[d];
      ((Element*)values)[(slot / step * width + d) * step + slot % step] = value[d];
    }
    if constexpr (K::is_integer) {
      const size_t from = (size_t)size * width + position % size * 4;
      const size_t to = (size_t)kLanes * width + slot * 4;
      __builtin_memcpy(keys + to, block + from, 4);
      __builtin_memcpy(values + to, block + a.kv.half_bytes() + from, 4);
    }
  }
}

// How far the rows of an item look.
HW_INLINE int limit_of(const RowItem& item) {
  const int seen = item.position + item.count;
  return item.length > seen ? item.length : seen;
}

template <class K>
HW_INLINE Tiles find_tiles(const AttendArgs& a, const AttendPiece& piece, int unit,
                           uint8_t* gathered) {
  const RowItem& item = *piece.item;
  const int start = unit * kUnit, ahead = limit_of(item) - start;
  Tiles tiles;
  tiles.count = ahead >= kUnit ? kUnitTiles : (ahead + kLanes - 1) / kLanes;
  tiles.last = (item.end - 1 - start) / kLanes;
  tiles.rest = item.end - start - tiles.last * kLanes;
  for (int i = 0; i < tiles.count; ++i) {
    const int at = start + i * kLanes;
    if (a.kv.is_tiled()) {
      const bool is_written = at < item.end && !item.is_padding;
      const int32_t block = is_written ? item.table[at / a.kv.block_size] : a.zero_block;
      tiles.keys[i] = a.layer + (size_t)block * a.kv.block_bytes() + piece.head * a.kv.head_bytes() +
                      at % a.kv.block_size / kLanes * a.kv.tile_bytes();
      tiles.values[i] = tiles.keys[i] + a.kv.half_bytes();
    } else {
      uint8_t* keys = gathered + 2 * i * a.kv.tile_bytes();
      gather_tile<K>(a, item, piece.head, at, keys, keys + a.kv.tile_bytes());
      tiles.keys[i] = keys;
      tiles.values[i] = keys + a.kv.tile_bytes();
    }
  }
  for (int i = tiles.count; i < kUnitTiles; ++i) {
    tiles.keys[i] = tiles.keys[0];
    tiles.values[i] = tiles.values[0];
  }
  return tiles;
}

// Put those of another unit where there is none: who fetches in advance goes through all places.
HW_INLINE void fill_up(Tiles& tiles, const Tiles& other) {
  for (int i = tiles.count; i < kUnitTiles; ++i) {
    tiles.keys[i] = other.keys[i];
    tiles.values[i] = other.values[i];
  }
}
