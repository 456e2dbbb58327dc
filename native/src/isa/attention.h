// Rotation, the KV pool, and attention over it.
//
// Positions are taken in units of kUnit at absolute positions. The softmax of a unit starts from
// nothing; units are then folded in order (Dao et al., 2022). So who computes a unit, and in which
// call, changes no bit. Keys that a query does not see have the weight 0, and their values are finite
// or not read at all.

constexpr float kLowest = -1e30f;  // finite, since infinity minus infinity is not a number

template <KvType Type> struct Kv;
template <> struct Kv<KvType::f32> {
  using Element = float;
  static constexpr int step = 1;
  HW_INLINE F operand(const uint8_t* p) { return load((const float*)p); }
  HW_INLINE F query(const uint8_t* p) { return splat(*(const float*)p); }
  HW_INLINE F take(F acc, F w, F x) { return fma(w, x, acc); }
  HW_INLINE void narrow(float* out, F x) { store(out, x); }
};
template <> struct Kv<KvType::bf16> {
  using Element = uint16_t;
  static constexpr int step = 2;
  HW_INLINE Pairs operand(const uint8_t* p) { return load_pairs((const uint16_t*)p); }
  HW_INLINE Pair query(const uint8_t* p) { return load_pair((const uint16_t*)p); }
  HW_INLINE F take(F acc, Pairs w, Pair x) { return dot(acc, w, x); }
  HW_INLINE void narrow(uint16_t* out, F x) { to_bf16(out, x); }
};

// ------------------------------------------------------------------ writing

// Where one head's key and value of a position lie in its block.
template <class Element> struct Place {
  Element *keys, *values;
  int slot;  // in the tile, or in the block where there are no tiles
};

template <KvType Type>
HW_INLINE Place<typename Kv<Type>::Element> place(const RotateArgs& a, const RowItem& item,
                                                  int position, int head) {
  using Element = typename Kv<Type>::Element;
  const int size = a.kv.block_size, slot = position % size;
  uint8_t* keys =
      a.layer + (size_t)item.table[position / size] * a.kv.block_bytes() + head * a.kv.head_bytes();
  uint8_t* values = keys + a.kv.half_bytes();
  if (!a.kv.is_tiled()) return {(Element*)keys, (Element*)values, slot};
  const size_t tile = slot / kLanes * a.kv.tile_bytes();
  return {(Element*)(keys + tile), (Element*)(values + tile), slot % kLanes};
}

// `key` and `value` are narrow already. Where a value is the first of its pair and the last of the
// sequence, the second is cleared: it will be read, with weight 0, and might be infinite.
template <KvType Type>
HW_INLINE void write(const KvLayout& kv, Place<typename Kv<Type>::Element> to,
                     const typename Kv<Type>::Element* key,
                     const typename Kv<Type>::Element* value, bool is_last) {
  constexpr int step = Kv<Type>::step;
  const int width = kv.head_dim;
  if (!kv.is_tiled()) {
    __builtin_memcpy(to.keys + (size_t)to.slot * width, key, width * sizeof *key);
    __builtin_memcpy(to.values + (size_t)to.slot * width, value, width * sizeof *value);
    return;
  }
  for (int d = 0; d < width; d += step) {
    __builtin_memcpy(to.keys + d * kLanes + to.slot * step, key + d, step * sizeof *key);
  }
  auto* values = to.values + (size_t)(to.slot / step * step) * width;
  const int half = to.slot % step;
  for (int d = 0; d < width; ++d) values[d * step + half] = value[d];
  if (step == 2 && half == 0 && is_last) {
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

constexpr int kMaxHeadDim = 512;

template <KvType Type>
static void rotate_as(const RotateArgs& a, const RowItem& item, uint8_t* scratch) {
  using Element = typename Kv<Type>::Element;
  const int width = a.kv.head_dim;
  alignas(64) float turned[kMaxHeadDim];
  alignas(64) Element key[kMaxHeadDim], value[kMaxHeadDim];
  for (int i = 0; i < item.count; ++i) {
    const int position = item.position + i;
    const float* qkv = a.qkv + (size_t)(item.row + i) * a.stride;
    float* queries = a.queries + (size_t)(item.row + i) * a.query_stride;
    const float* cosines = a.cosines + (size_t)position * (width / 2);
    const float* sines = a.sines + (size_t)position * (width / 2);
    for (int h = 0; h < a.num_heads; ++h) {
      rotate_head(qkv + h * width, cosines, sines, width, a.scale, queries + h * width);
    }
    const float* keys = qkv + row_stride(a.num_heads * width);
    const float* values = keys + row_stride(a.kv.num_heads * width);
    for (int h = 0; h < a.kv.num_heads; ++h) {
      rotate_head(keys + h * width, cosines, sines, width, 1.0f, turned);
      for (int d = 0; d < width; d += kLanes) {
        Kv<Type>::narrow(key + d, load(turned + d));
        Kv<Type>::narrow(value + d, load(values + h * width + d));
      }
      if (item.is_padding) {  // the same work, to nobody's block
        __builtin_memcpy(scratch, key, width * sizeof *key);
        __builtin_memcpy(scratch, value, width * sizeof *value);
      } else {
        write<Type>(a.kv, place<Type>(a, item, position, h), key, value, position + 1 == item.end);
      }
    }
  }
}

static void rotate(const RotateArgs& a, const RowItem& item, uint8_t* scratch) {
  return a.kv.type == KvType::bf16 ? rotate_as<KvType::bf16>(a, item, scratch)
                                   : rotate_as<KvType::f32>(a, item, scratch);
}

// ------------------------------------------------------------------ reading

// Those of one unit. Of the last that the sequence has begun only the first `rest` values are read:
// those behind may be an earlier owner's, and need not be finite.
struct Tiles {
  const uint8_t *keys[kUnitTiles], *values[kUnitTiles];
  int count, last, rest;
};

// Put a tile together from blocks that are not whole tiles; what the sequence has not written is 0.
template <KvType Type>
static void gather_tile(const AttendArgs& a, const RowItem& item, int kv_head, int start,
                        uint8_t* keys, uint8_t* values) {
  using Element = typename Kv<Type>::Element;
  constexpr int step = Kv<Type>::step;
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
  }
}

template <KvType Type>
HW_INLINE Tiles find_tiles(const AttendArgs& a, const RowItem& item, int kv_head, int unit,
                           uint8_t* gathered) {
  const int limit = item.length > item.end ? item.length : item.end;
  const int start = unit * kUnit;
  Tiles tiles;
  tiles.count = limit - start >= kUnit ? kUnitTiles : (limit - start + kLanes - 1) / kLanes;
  tiles.last = (item.end - 1 - start) / kLanes;
  tiles.rest = item.end - start - tiles.last * kLanes;
  for (int i = 0; i < tiles.count; ++i) {
    const int at = start + i * kLanes;
    if (a.kv.is_tiled()) {
      const bool is_written = at < item.end && !item.is_padding;
      const int32_t block = is_written ? item.table[at / a.kv.block_size] : a.zero_block;
      tiles.keys[i] = a.layer + (size_t)block * a.kv.block_bytes() + kv_head * a.kv.head_bytes() +
                      at % a.kv.block_size / kLanes * a.kv.tile_bytes();
      tiles.values[i] = tiles.keys[i] + a.kv.half_bytes();
    } else {
      uint8_t* keys = gathered + 2 * i * a.kv.tile_bytes();
      gather_tile<Type>(a, item, kv_head, at, keys, keys + a.kv.tile_bytes());
      tiles.keys[i] = keys;
      tiles.values[i] = keys + a.kv.tile_bytes();
    }
  }
  return tiles;
}

// ------------------------------------------------------------------ scratch

// Of one item: its queries, narrow; scores and weights of a unit; and the running state.
struct Scratch {
  uint8_t* queries;
  float* scores;
  uint8_t* weights;
  Partial part, state;
  uint8_t* gathered;
};

HW_INLINE uint8_t* take_bytes(uint8_t*& p, size_t bytes) {
  uint8_t* taken = p;
  p += round_up(bytes, 64);
  return taken;
}

HW_INLINE Partial cut_partial(uint8_t*& p, size_t queries, size_t width) {
  Partial part;
  part.highest = (float*)take_bytes(p, queries * 4);
  part.total = (float*)take_bytes(p, queries * 4);
  part.sums = (float*)take_bytes(p, queries * width * 4);
  return part;
}

static size_t cut_scratch(const AttendArgs& a, uint8_t* p, Scratch& s) {
  uint8_t* const start = p;
  const size_t width = a.kv.head_dim;
  const size_t queries = (size_t)kQueryRows * (a.num_heads / a.kv.num_heads);
  s.queries = take_bytes(p, queries * width * 4);
  s.scores = (float*)take_bytes(p, queries * kUnit * 4);
  s.weights = take_bytes(p, queries * kUnit * 4);
  s.part = cut_partial(p, queries, width);
  s.state = cut_partial(p, queries, width);
  s.gathered = take_bytes(p, a.kv.is_tiled() ? 0 : 2 * kUnitTiles * a.kv.tile_bytes());
  return p - start;
}

static size_t attend_scratch(const AttendArgs& a) {
  Scratch s;
  return cut_scratch(a, nullptr, s);
}

// ------------------------------------------------------------------ products

// sums[q][v] += over `steps` steps: operands of vector v, `stride` bytes apart, times query q's.
template <class K, int Queries, int Vectors>
HW_INLINE void multiply(F (&sums)[Queries][Vectors], const uint8_t* const (&operands)[Vectors],
                        size_t stride, const uint8_t* queries, size_t query_stride, int steps) {
  for (int k = 0; k < steps; ++k) {
    decltype(K::operand(queries)) w[Vectors];
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) w[v] = K::operand(operands[v] + k * stride);
#pragma GCC unroll 8
    for (int q = 0; q < Queries; ++q) {
      const auto x = K::query(queries + q * query_stride + k * 4);
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) sums[q][v] = K::take(sums[q][v], w[v], x);
    }
  }
}

template <class K, int Queries, int Vectors>
static __attribute__((noinline)) void score(const AttendArgs& a, const Tiles& tiles, int tile,
                                            const uint8_t* queries, float* scores) {
  const size_t width = a.kv.head_dim;
  F sums[Queries][Vectors];
  const uint8_t* operands[Vectors];
#pragma GCC unroll 8
  for (int v = 0; v < Vectors; ++v) operands[v] = tiles.keys[tile + v];
#pragma GCC unroll 8
  for (int q = 0; q < Queries; ++q)
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) sums[q][v] = zero();
  multiply<K, Queries, Vectors>(sums, operands, 64, queries, width * 4 / K::step,
                                (int)width / K::step);
  for (int q = 0; q < Queries; ++q)
    for (int v = 0; v < Vectors; ++v) store(scores + q * kUnit + (tile + v) * kLanes, sums[q][v]);
}

template <class K, int Queries, int Vectors>
static __attribute__((noinline)) void weigh(const AttendArgs& a, const Tiles& tiles, int column,
                                            const uint8_t* weights, float* out) {
  const size_t width = a.kv.head_dim;
  F sums[Queries][Vectors];
#pragma GCC unroll 8
  for (int q = 0; q < Queries; ++q)
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) sums[q][v] = zero();
  for (int tile = 0; tile < tiles.count; ++tile) {
    const uint8_t* operands[Vectors];
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) operands[v] = tiles.values[tile] + (column + v) * 64;
    const uint8_t* part = weights + tile * kLanes / K::step * 4;
    constexpr size_t stride = kUnit * 4 / K::step;
    if (tile == tiles.last) {
      const int steps = (tiles.rest + K::step - 1) / K::step;
      multiply<K, Queries, Vectors>(sums, operands, width * 4, part, stride, steps);
    } else {
      multiply<K, Queries, Vectors>(sums, operands, width * 4, part, stride, kLanes / K::step);
    }
  }
  for (int q = 0; q < Queries; ++q)
    for (int v = 0; v < Vectors; ++v) {
      store(out + q * width + (column + v) * kLanes, sums[q][v]);
    }
}

template <class K, int Queries>
HW_INLINE void score_all(const AttendArgs& a, const Tiles& tiles, const uint8_t* queries,
                         float* scores) {
  int tile = 0;
  for (; tile + kAttentionVectors <= tiles.count; tile += kAttentionVectors) {
    score<K, Queries, kAttentionVectors>(a, tiles, tile, queries, scores);
  }
  for (; tile < tiles.count; ++tile) score<K, Queries, 1>(a, tiles, tile, queries, scores);
}

template <class K, int Queries>
HW_INLINE void weigh_all(const AttendArgs& a, const Tiles& tiles, const uint8_t* weights, float* out) {
  const int columns = a.kv.head_dim / kLanes;
  int column = 0;
  for (; column + kAttentionVectors <= columns; column += kAttentionVectors) {
    weigh<K, Queries, kAttentionVectors>(a, tiles, column, weights, out);
  }
  for (; column < columns; ++column) weigh<K, Queries, 1>(a, tiles, column, weights, out);
}

// Both products for some queries at once. Any number takes the same steps for each of them.
template <int N> struct Count {
  static constexpr int value = N;
};

template <class K, int Most, class Body> HW_INLINE void in_tiles(int count, const Body& body) {
  int q = 0;
  for (; q + Most <= count; q += Most) body(q, Count<Most>{});
  switch (count - q) {
    case 1: return body(q, Count<1>{});
    case 2: return body(q, Count<(Most > 2 ? 2 : 1)>{});
    case 3: return body(q, Count<(Most > 3 ? 3 : 1)>{});
    case 4: return body(q, Count<(Most > 4 ? 4 : 1)>{});
    case 5: return body(q, Count<(Most > 5 ? 5 : 1)>{});
    default: return;
  }
}

// ------------------------------------------------------------------ softmax

alignas(64) static const float kIota[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// Turn the scores of one query into weights; keys outside [begin, end) of the unit are not seen.
template <KvType Type>
HW_INLINE void softmax(float* scores, int num_tiles, int begin, int end, uint8_t* weights,
                       float& highest_out, float& total_out) {
  using K = Kv<Type>;
  using Element = typename K::Element;
  const F lowest = splat(kLowest);
  F top = lowest;
  for (int t = 0; t < num_tiles; ++t) {
    const int first = t * kLanes;
    F x = load(scores + first);
    if (first < begin || first + kLanes > end) {
      const F at = add(load(kIota), splat((float)first));
      x = where_less(at, splat((float)end), x, lowest);
      x = where_less(at, splat((float)begin), lowest, x);
      store(scores + first, x);
    }
    top = max(top, x);
  }
  const float peak = highest(top);
  const int bound = end < num_tiles * kLanes ? end : num_tiles * kLanes;
  const bool sees_any = begin < bound;
  F total = zero();
  for (int t = 0; t < num_tiles; ++t) {
    const F p = sees_any ? exp_or_zero(sub(load(scores + t * kLanes), splat(peak))) : zero();
    total = add(total, p);
    K::narrow((Element*)weights + t * kLanes, p);
  }
  highest_out = peak;
  total_out = sum(total);
}

// Take a unit into the running state of some queries.
HW_INLINE void fold_into(const Partial& state, const Partial& unit, int count, int width) {
  for (int q = 0; q < count; ++q) {
    const float before = state.highest[q], here = unit.highest[q];
    const float top = before < here ? here : before;
    const float shrink = exp_or_zero(before - top), grow = exp_or_zero(here - top);
    state.highest[q] = top;
    state.total[q] = state.total[q] * shrink + unit.total[q] * grow;
    float *into = state.sums + q * width, *from = unit.sums + q * width;
    for (int d = 0; d < width; d += kLanes) {
      const F kept = mul(load(into + d), splat(shrink));
      store(into + d, fma(load(from + d), splat(grow), kept));
    }
  }
}

HW_INLINE void clear(const Partial& state, int count, int width) {
  for (int q = 0; q < count; ++q) state.highest[q] = kLowest, state.total[q] = 0.0f;
  for (int i = 0; i < count * width; i += kLanes) store(state.sums + i, zero());
}

HW_INLINE void finish(const AttendArgs& a, const RowItem& item, int kv_head, const Partial& state) {
  const int group = a.num_heads / a.kv.num_heads, width = a.kv.head_dim;
  for (int q = 0; q < item.count * group; ++q) {
    float* out = a.out + (size_t)(item.row + q / group) * a.out_stride +
                 (size_t)(kv_head * group + q % group) * width;
    const F total = splat(state.total[q]);
    for (int d = 0; d < width; d += kLanes) {
      store(out + d, div(load(state.sums + q * width + d), total));
    }
  }
}

// ------------------------------------------------------------------ attention

template <KvType Type>
HW_INLINE void take_queries(const AttendArgs& a, const RowItem& item, int kv_head, uint8_t* out) {
  using K = Kv<Type>;
  const int group = a.num_heads / a.kv.num_heads, width = a.kv.head_dim;
  auto* to = (typename K::Element*)out;
  for (int i = 0; i < item.count; ++i) {
    const float* from = a.queries + (size_t)(item.row + i) * a.query_stride + kv_head * group * width;
    for (int d = 0; d < group * width; d += kLanes) K::narrow(to + d, load(from + d));
    to += group * width;
  }
}

template <KvType Type>
HW_INLINE void attend_unit(const AttendArgs& a, const RowItem& item, int kv_head, int unit,
                           const Scratch& s, const Partial& part) {
  using K = Kv<Type>;
  const int group = a.num_heads / a.kv.num_heads, width = a.kv.head_dim;
  const int count = item.count * group, start = unit * kUnit;
  const Tiles tiles = find_tiles<Type>(a, item, kv_head, unit, s.gathered);
  const size_t query_bytes = (size_t)width * 4 / K::step, weight_bytes = kUnit * 4 / K::step;
  in_tiles<K, kAttentionRows>(count, [&](int q, auto size) HW_LAMBDA {
    score_all<K, decltype(size)::value>(a, tiles, s.queries + q * query_bytes, s.scores + q * kUnit);
  });
  for (int q = 0; q < count; ++q) {
    const int position = item.position + q / group;
    const int first = a.window && position >= a.window ? position - a.window + 1 : 0;
    const int begin = first > start ? first - start : 0;
    softmax<Type>(s.scores + q * kUnit, tiles.count, begin, position + 1 - start,
                  s.weights + q * weight_bytes, part.highest[q], part.total[q]);
  }
  in_tiles<K, kAttentionRows>(count, [&](int q, auto size) HW_LAMBDA {
    weigh_all<K, decltype(size)::value>(a, tiles, s.weights + q * weight_bytes,
                                        part.sums + q * width);
  });
}

template <KvType Type>
static void attend_as(const AttendArgs& a, const RowItem& item, int kv_head, int begin, int end,
                      const Partial* parts, uint8_t* scratch) {
  const int width = a.kv.head_dim, count = item.count * (a.num_heads / a.kv.num_heads);
  Scratch s;
  cut_scratch(a, scratch, s);
  take_queries<Type>(a, item, kv_head, s.queries);
  if (parts) {
    for (int unit = begin; unit < end; ++unit) {
      attend_unit<Type>(a, item, kv_head, unit, s, parts[unit - begin]);
    }
    return;
  }
  clear(s.state, count, width);
  for (int unit = begin; unit < end; ++unit) {
    attend_unit<Type>(a, item, kv_head, unit, s, s.part);
    fold_into(s.state, s.part, count, width);
  }
  finish(a, item, kv_head, s.state);
}

static void attend(const AttendArgs& a, const RowItem& item, int kv_head, int begin, int end,
                   const Partial* parts, uint8_t* scratch) {
  return a.kv.type == KvType::bf16
             ? attend_as<KvType::bf16>(a, item, kv_head, begin, end, parts, scratch)
             : attend_as<KvType::f32>(a, item, kv_head, begin, end, parts, scratch);
}

static void fold(const AttendArgs& a, const RowItem& item, int kv_head, int num_units,
                 const Partial* parts, uint8_t* scratch) {
  const int width = a.kv.head_dim, count = item.count * (a.num_heads / a.kv.num_heads);
  Scratch s;
  cut_scratch(a, scratch, s);
  clear(s.state, count, width);
  for (int i = 0; i < num_units; ++i) fold_into(s.state, parts[i], count, width);
  finish(a, item, kv_head, s.state);
}
