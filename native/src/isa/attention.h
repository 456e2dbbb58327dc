// Attention over the KV pool.
//
// Positions are taken in units of kUnit at absolute positions. The softmax of a unit starts from
// nothing; units are then folded in order (Dao et al., 2022). So who computes a unit, and in which
// call, changes no bit. Keys that a query does not see have the weight 0, and their values are finite
// or not read at all. A few queries at a time go through a unit from scores to sums, while its keys and
// values are in the nearest cache. Scores are logarithms to the base 2.

constexpr float kLowest = -1e30f;  // finite, since infinity minus infinity is not a number

// ------------------------------------------------------------------ scratch

// Of one item: its queries, narrow, and the running state. Where these are integers, queries have a
// scale and a first term of their sums, and the scales of a unit's keys and values are brought together.
struct Scratch {
  uint8_t* queries;
  float* scales;
  int32_t* starts;
  float *key_scales, *value_scales;
  Partial state;
  uint8_t* gathered;
};

HW_INLINE uint8_t* take_bytes(uint8_t*& p, size_t bytes) {
  uint8_t* taken = p;
  p += round_up(bytes, 64);
  return taken;
}

static size_t cut_scratch(const AttendArgs& a, uint8_t* p, Scratch& s) {
  uint8_t* const start = p;
  const size_t width = a.kv.head_dim;
  const size_t queries = (size_t)kQueryRows * (a.num_heads / a.kv.num_heads);
  s.queries = take_bytes(p, queries * width * 4);
  s.scales = (float*)take_bytes(p, queries * 4);
  s.starts = (int32_t*)take_bytes(p, queries * 4);
  s.key_scales = (float*)take_bytes(p, kUnit * 4);
  s.value_scales = (float*)take_bytes(p, kUnit * 4);
  s.state.highest = (float*)take_bytes(p, queries * 4);
  s.state.sums = (float*)take_bytes(p, queries * partial_width(width) * 4);
  s.gathered = take_bytes(p, a.kv.is_tiled() ? 0 : 2 * kUnitTiles * a.kv.tile_bytes());
  return p - start;
}

static size_t attend_scratch(const AttendArgs& a) {
  Scratch s;
  return cut_scratch(a, nullptr, s);
}

// How many queries go through a unit together, from the first of them.
HW_INLINE int together(int count, int first) {
  return count - first < kAttentionRows ? count - first : kAttentionRows;
}

// Those that go together lie together: [d / step][query][d % step].
template <class K>
HW_INLINE void take_queries(const AttendArgs& a, const RowItem& item, int kv_head, const Scratch& s) {
  const int group = a.num_heads / a.kv.num_heads, width = a.kv.head_dim, words = width / K::step;
  const int count = item.count * group;
  alignas(64) typename K::Element narrow[kMaxHeadDim];
  for (int q = 0; q < count; ++q) {
    const float* from = a.queries + (size_t)(item.row + q / group) * a.query_stride +
                        (size_t)(kv_head * group + q % group) * width;
    if constexpr (K::is_integer) {
      s.starts[q] = -128 * quantise_head(from, width, (int8_t*)narrow, s.scales[q]);
    } else {
      for (int d = 0; d < width; d += kLanes) K::narrow(narrow + d, load(from + d));
    }
    const int first = q / kAttentionRows * kAttentionRows, stride = together(count, first);
    uint8_t* to = s.queries + ((size_t)first * words + (q - first)) * 4;
    for (int k = 0; k < words; ++k) __builtin_memcpy(to + k * stride * 4, narrow + k * K::step, 4);
  }
}

// ------------------------------------------------------------------ folding

// What the sums of some queries, and of a unit, are multiplied by.
struct Factors {
  alignas(64) float state[kLanes], unit[kLanes];
};

// Take the highest scores of a unit into the running ones.
template <int Queries> HW_INLINE Factors fold_highest(float* highest, F here) {
  const F before = load_some<Queries>(highest), top = max(here, before);
  store_some<Queries>(highest, top);
  Factors factors;
  store(factors.state, exp2<5>(sub(before, top)));
  store(factors.unit, exp2<5>(sub(here, top)));
  return factors;
}

HW_INLINE void fold_sums(float* into, F unit, F shrink, F grow) {
  store(into, fma(unit, grow, mul(load(into), shrink)));
}

HW_INLINE void clear(const Partial& state, int count, int width) {
  for (int q = 0; q < count; ++q) state.highest[q] = kLowest;
  for (size_t i = 0; i < count * partial_width(width); i += kLanes) store(state.sums + i, zero());
}

HW_INLINE void finish(const AttendArgs& a, const RowItem& item, int kv_head, const Partial& state) {
  const int group = a.num_heads / a.kv.num_heads, width = a.kv.head_dim;
  const float* sums = state.sums;
  for (int q = 0; q < item.count * group; ++q, sums += partial_width(width)) {
    float* out = a.out + (size_t)(item.row + q / group) * a.out_stride +
                 (size_t)(kv_head * group + q % group) * width;
    const F total = splat(sum(load(sums + width)));
    for (int d = 0; d < width; d += kLanes) store(out + d, div(load(sums + d), total));
  }
}

template <int Queries>
HW_INLINE void fold_some(const Partial& state, const Partial& unit, int first, size_t stride) {
  const Factors f = fold_highest<Queries>(state.highest + first, load_some<Queries>(unit.highest + first));
  for (int q = 0; q < Queries; ++q) {
    const F shrink = splat(f.state[q]), grow = splat(f.unit[q]);
    float *into = state.sums + (first + q) * stride, *from = unit.sums + (first + q) * stride;
    for (size_t d = 0; d < stride; d += kLanes) fold_sums(into + d, load(from + d), shrink, grow);
  }
}

static void fold(const AttendArgs& a, const AttendPiece& piece, const Partial* parts,
                 uint8_t* scratch) {
  const RowItem& item = *piece.item;
  const int width = a.kv.head_dim, count = item.count * (a.num_heads / a.kv.num_heads);
  Scratch s;
  cut_scratch(a, scratch, s);
  clear(s.state, count, width);
  for (int i = 0; i < piece.end - piece.begin; ++i) {
    int q = 0;
    for (; q + 8 <= count; q += 8) fold_some<8>(s.state, parts[i], q, partial_width(width));
    for (; q < count; ++q) fold_some<1>(s.state, parts[i], q, partial_width(width));
  }
  finish(a, item, piece.head, s.state);
}

// ------------------------------------------------------------------ products

struct Unit {
  const AttendArgs& args;
  const RowItem& item;
  int start;  // its first position
  const Tiles& tiles;
  const Tiles& next;  // what will be read after them
  Scratch scratch;
  Partial into;
  bool folds;  // into what is there, or begins there
};

// sums[q][v] += over `steps` steps: operands of vector v, `stride` bytes apart, times what query q has,
// `Query` bytes from the one before, in words that are `Step` bytes apart. Few queries wait for memory:
// for them, what is at the same places from `next` on is fetched meanwhile.
template <class K, bool IsValue, int Query, int Step, int Queries, int Vectors>
HW_INLINE void multiply(typename K::Sum (&sums)[Queries][Vectors],
                        const uint8_t* const (&operands)[Vectors], const uint8_t* const (&next)[Vectors],
                        size_t stride, const uint8_t* queries, int steps) {
  for (int k = 0; k < steps; ++k, queries += Step) {
    decltype(K::operand(queries)) w[Vectors];
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
      w[v] = K::operand(operands[v] + k * stride);
      if (Queries < kAttentionRows) __builtin_prefetch(next[v] + k * stride, 0, 2);
    }
#pragma GCC unroll 8
    for (int q = 0; q < Queries; ++q) {
      const auto x = K::factor(queries + q * Query);
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) {
        sums[q][v] = IsValue ? K::take_value(sums[q][v], w[v], x) : K::take_key(sums[q][v], w[v], x);
      }
    }
  }
}

HW_INLINE F start_of(F, const Scratch&, int) { return zero(); }
HW_INLINE I start_of(I, const Scratch& s, int query) { return splat_int(s.starts[query]); }
HW_INLINE F score_of(F sum, const Unit&, int, int) { return sum; }
HW_INLINE F score_of(I sum, const Unit& u, int tile, int query) {
  const F by_query = mul(to_float(sum), splat(u.scratch.scales[query]));
  return mul(by_query, load(u.scratch.key_scales + tile * kLanes));
}

template <class K, int Queries, int Vectors>
static __attribute__((noinline)) void score(const Unit& u, int tile, int first, float* scores) {
  const int words = u.args.kv.head_dim / K::step;
  typename K::Sum sums[Queries][Vectors];
  const uint8_t *operands[Vectors], *next[Vectors];
#pragma GCC unroll 8
  for (int v = 0; v < Vectors; ++v) operands[v] = u.tiles.keys[tile + v], next[v] = u.next.keys[tile + v];
#pragma GCC unroll 8
  for (int q = 0; q < Queries; ++q)
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
      sums[q][v] = start_of(typename K::Sum{}, u.scratch, first + q);
    }
  const uint8_t* queries = u.scratch.queries + (size_t)first * words * 4;
  multiply<K, false, 4, Queries * 4, Queries, Vectors>(sums, operands, next, 64, queries, words);
#pragma GCC unroll 8
  for (int q = 0; q < Queries; ++q)
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
      store(scores + q * kUnit + (tile + v) * kLanes, score_of(sums[q][v], u, tile + v, first + q));
    }
}

HW_INLINE F value_of(F sum, float) { return sum; }
HW_INLINE F value_of(I sum, float step) { return mul(to_float(sum), splat(step)); }

// Where a query's weights for a tile begin. Those of four tiles lie together where they are integers:
// the first 4 of each, and so on.
template <class K> HW_INLINE size_t weight_offset(int tile) {
  return K::is_integer ? tile / 4 * 4 * kLanes + tile % 4 * 4 : tile * kLanes / K::step * 4;
}

// `steps` holds what a weight of each query is a multiple of.
template <class K, int Queries, int Vectors>
static __attribute__((noinline)) void weigh(const Unit& u, int column, int first,
                                            const uint8_t* weights, const float* steps,
                                            const Factors& factors) {
  const size_t width = u.args.kv.head_dim, into_stride = partial_width(width);
  constexpr size_t stride = kUnit * 4 / K::step;
  typename K::Sum sums[Queries][Vectors];
#pragma GCC unroll 8
  for (int q = 0; q < Queries; ++q)
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) sums[q][v] = typename K::Sum{};
  for (int tile = 0; tile < u.tiles.count; ++tile) {
    const uint8_t *operands[Vectors], *next[Vectors];
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
      operands[v] = u.tiles.values[tile] + (column + v) * 64;
      next[v] = u.next.values[tile] + (column + v) * 64;
    }
    const bool is_last = !K::is_integer && tile == u.tiles.last;
    const int count = is_last ? (u.tiles.rest + K::step - 1) / K::step : kLanes / K::step;
    const uint8_t* part = weights + weight_offset<K>(tile);
    multiply<K, true, stride, K::is_integer ? 16 : 4, Queries, Vectors>(sums, operands, next, width * 4,
                                                                        part, count);
  }
#pragma GCC unroll 8
  for (int q = 0; q < Queries; ++q)
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
      float* into = u.into.sums + (first + q) * into_stride + (column + v) * kLanes;
      const F value = value_of(sums[q][v], steps[q]);
      if (u.folds) fold_sums(into, value, splat(factors.state[q]), splat(factors.unit[q]));
      else store(into, value);
    }
}

// ------------------------------------------------------------------ softmax

alignas(64) static const float kIota[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// The positions [begin, end) of a unit.
struct Seen {
  int begin, end;
};

// `x` where a lane of the tile is seen, and `other` where it is not.
HW_INLINE F where_seen(const Seen& seen, int tile, F x, F other) {
  const int first = tile * kLanes;
  if (first >= seen.begin && first + kLanes <= seen.end) return x;
  const F at = add(load(kIota), splat((float)first));
  x = where_less(at, splat((float)seen.end), x, other);
  return where_less(at, splat((float)seen.begin), other, x);
}

// What a query sees of the tiles of a unit.
HW_INLINE Seen seen_by(const Unit& u, int query) {
  const int group = u.args.num_heads / u.args.kv.num_heads, window = u.args.window;
  const int position = u.item.position + query / group, bound = u.tiles.count * kLanes;
  const int first = window && position >= window ? position - window + 1 : 0;
  const int end = position + 1 - u.start;
  return {first > u.start ? first - u.start : 0, end < bound ? end : bound};
}

// What some queries have of a unit; weights are multiples of `step` where they are integers.
template <class K, int Queries> struct Softmax {
  alignas(64) float scores[Queries * kUnit];
  alignas(64) typename K::Element weights[Queries * kUnit];
  alignas(64) float step[kLanes];
  F total[Queries];
  F highest;  // one lane each
};

// The lanes that a query does not see get the lowest score, and lanes of no tile too.
HW_INLINE void hide(const Unit& u, const Seen& seen, float* scores) {
  for (int t = 0; t < kUnitTiles; ++t) {
    const F x = t < u.tiles.count ? load(scores + t * kLanes) : splat(kLowest);
    store(scores + t * kLanes, where_seen(seen, t, x, splat(kLowest)));
  }
}

// A weight times the scale of its value; what is not seen stays 0, and is not multiplied, since an
// earlier owner's scale need not be finite.
template <bool IsWhole> HW_INLINE F scaled(const Unit& u, const Seen& seen, int tile, F p) {
  const F x = mul(p, load(u.scratch.value_scales + tile * kLanes));
  return IsWhole ? x : where_seen(seen, tile, x, zero());
}

// Weights as multiples of a 255th of the highest.
template <class K, int Queries> HW_INLINE void to_integers(Softmax<K, Queries>& s, F highest) {
  alignas(64) float inverse[kLanes];
  store(inverse, where_less(zero(), highest, div(splat(255.0f), highest), zero()));
  store(s.step, mul(highest, splat(1.0f / 255.0f)));
  for (int q = 0; q < Queries; ++q) {
    const F factor = splat(inverse[q]);
#pragma GCC unroll 2
    for (int t = 0; t < kUnitTiles; t += 4) {
      const int at = q * kUnit + t * kLanes;
      F x[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) x[i] = mul(load(s.scores + at + i * kLanes), factor);
      to_uint8(s.weights + at, x[0], x[1], x[2], x[3]);
    }
  }
}

// Turn scores into weights. Each loop does little for one query, so that a processor can do several
// at once.
template <class K, int Queries, bool IsWhole>
HW_INLINE void softmax(const Unit& u, int first, Softmax<K, Queries>& s) {
  alignas(64) float lanes[kLanes];
  F tops[Queries];
  for (int q = 0; q < Queries; ++q) {
    float* x = s.scores + q * kUnit;
    if (!IsWhole) hide(u, seen_by(u, first + q), x);
    F top[2] = {load(x), load(x + kLanes)};
#pragma GCC unroll 8
    for (int t = 2; t < kUnitTiles; ++t) top[t % 2] = max(top[t % 2], load(x + t * kLanes));
    tops[q] = max(top[0], top[1]);
  }
  s.highest = max(splat(kLowest), highest_of(tops));
  store(lanes, s.highest);
  for (int q = 0; q < Queries; ++q) {
    const Seen seen = IsWhole ? Seen{0, kUnit} : seen_by(u, first + q);
    const F peak = splat(lanes[q]);
    F total[2] = {zero(), zero()}, top[2] = {zero(), zero()};
#pragma GCC unroll 8
    for (int t = 0; t < kUnitTiles; ++t) {
      const int at = q * kUnit + t * kLanes;
      const F p = exp2<K::degree>(sub(load(s.scores + at), peak));
      total[t % 2] = add(total[t % 2], p);
      if constexpr (K::is_integer) {
        const F x = scaled<IsWhole>(u, seen, t, p);
        top[t % 2] = max_bits(top[t % 2], x);
        store(s.scores + at, x);
      } else {
        K::narrow(s.weights + at, p);
      }
    }
    s.total[q] = add(total[0], total[1]);
    tops[q] = max_bits(top[0], top[1]);
  }
  if constexpr (K::is_integer) to_integers<K, Queries>(s, highest_bits_of(tops));
}

// ------------------------------------------------------------------ attention

// Some queries through one unit. Any number takes the same steps for each of them.
template <class K, int Queries>
static __attribute__((noinline)) void attend_some(const Unit& u, int first) {
  constexpr int vectors = kAttentionVectors;
  Softmax<K, Queries> s;
  int tile = 0;
  for (; tile + vectors <= u.tiles.count; tile += vectors) {
    score<K, Queries, vectors>(u, tile, first, s.scores);
  }
  for (; tile < u.tiles.count; ++tile) score<K, Queries, 1>(u, tile, first, s.scores);
  const bool sees_all = seen_by(u, first).end == kUnit && seen_by(u, first + Queries - 1).begin == 0;
  if (sees_all) softmax<K, Queries, true>(u, first, s);
  else softmax<K, Queries, false>(u, first, s);
  Factors factors;
  if (u.folds) factors = fold_highest<Queries>(u.into.highest + first, s.highest);
  else store_some<Queries>(u.into.highest + first, s.highest);
  const int width = u.args.kv.head_dim, columns = width / kLanes;
  for (int q = 0; q < Queries; ++q) {
    float* into = u.into.sums + (first + q) * partial_width(width) + width;
    if (u.folds) fold_sums(into, s.total[q], splat(factors.state[q]), splat(factors.unit[q]));
    else store(into, s.total[q]);
  }
  const auto* weights = (const uint8_t*)s.weights;
  int column = 0;
  for (; column + vectors <= columns; column += vectors) {
    weigh<K, Queries, vectors>(u, column, first, weights, s.step, factors);
  }
  for (; column < columns; ++column) weigh<K, Queries, 1>(u, column, first, weights, s.step, factors);
}

template <class K> HW_INLINE void attend_unit(const Unit& u, int count) {
  constexpr int most = kAttentionRows;
  int q = 0;
  for (; q + most <= count; q += most) attend_some<K, most>(u, q);
  switch (count - q) {
    case 1: return attend_some<K, 1>(u, q);
    case 2: return attend_some<K, (most > 2 ? 2 : 1)>(u, q);
    case 3: return attend_some<K, (most > 3 ? 3 : 1)>(u, q);
    case 4: return attend_some<K, (most > 4 ? 4 : 1)>(u, q);
    case 5: return attend_some<K, (most > 5 ? 5 : 1)>(u, q);
    default: return;
  }
}

HW_INLINE void gather_scales(const Tiles& tiles, int width, const Scratch& s) {
  for (int t = 0; t < kUnitTiles; ++t) {
    const bool is_there = t < tiles.count;
    const F keys = is_there ? load((const float*)(tiles.keys[t] + kLanes * width)) : zero();
    const F values = is_there ? load((const float*)(tiles.values[t] + kLanes * width)) : zero();
    store(s.key_scales + t * kLanes, keys);
    store(s.value_scales + t * kLanes, values);
  }
}

template <class K>
static void attend_as(const AttendArgs& a, const AttendPiece& piece, const AttendPiece* after,
                      const Partial* parts, uint8_t* scratch) {
  const RowItem& item = *piece.item;
  const int width = a.kv.head_dim, count = item.count * (a.num_heads / a.kv.num_heads);
  Scratch s;
  cut_scratch(a, scratch, s);
  take_queries<K>(a, item, piece.head, s);
  if (!parts) clear(s.state, count, width);
  Tiles tiles = find_tiles<K>(a, piece, piece.begin, s.gathered);
  const Tiles beyond = after && a.kv.is_tiled() ? find_tiles<K>(a, *after, after->begin, nullptr) : tiles;
  for (int unit = piece.begin; unit < piece.end; ++unit) {
    Tiles next = beyond;
    if (unit + 1 < piece.end && a.kv.is_tiled()) {
      next = find_tiles<K>(a, piece, unit + 1, nullptr);
      fill_up(next, beyond);
    }
    if constexpr (K::is_integer) gather_scales(tiles, width, s);
    const Partial& into = parts ? parts[unit - piece.begin] : s.state;
    attend_unit<K>({a, item, unit * kUnit, tiles, next, s, into, !parts}, count);
    if (unit + 1 < piece.end) tiles = a.kv.is_tiled() ? next : find_tiles<K>(a, piece, unit + 1, s.gathered);
  }
  if (!parts) finish(a, item, piece.head, s.state);
}

static void attend(const AttendArgs& a, const AttendPiece& piece, const AttendPiece* after,
                   const Partial* parts, uint8_t* scratch) {
  switch (a.kv.type) {
    case KvType::f32: return attend_as<Kv<KvType::f32>>(a, piece, after, parts, scratch);
    case KvType::bf16: return attend_as<Kv<KvType::bf16>>(a, piece, after, parts, scratch);
    case KvType::int8: return attend_as<Kv<KvType::int8>>(a, piece, after, parts, scratch);
  }
}
