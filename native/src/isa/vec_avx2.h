// The vector layer on AVX2 with FMA and F16C: a logical vector is two registers.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#define HW_INLINE static inline __attribute__((always_inline))
#define HW_LAMBDA __attribute__((always_inline))

namespace headway::avx2 {

constexpr int kLinearRows = 4, kLinearVectors = 1;
constexpr int kAttentionRows = 4, kAttentionVectors = 1;

struct F { __m256 a, b; };
struct I { __m256i a, b; };
struct Codes { __m256i a, b; };
struct Quad { __m256i v; };
struct Pairs { __m256i a, b; };
struct Pair { __m256 even, odd; };

HW_INLINE F zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
HW_INLINE F splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
HW_INLINE F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
HW_INLINE void store(float* p, F x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
HW_INLINE F add(F x, F y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
HW_INLINE F sub(F x, F y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
HW_INLINE F mul(F x, F y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
HW_INLINE F div(F x, F y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
HW_INLINE F fma(F x, F y, F z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
HW_INLINE F fnma(F x, F y, F z) {
  return {_mm256_fnmadd_ps(x.a, y.a, z.a), _mm256_fnmadd_ps(x.b, y.b, z.b)};
}
HW_INLINE F max(F x, F y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
HW_INLINE F min(F x, F y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
HW_INLINE F where_less(F x, F y, F yes, F no) {
  return {_mm256_blendv_ps(no.a, yes.a, _mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ)),
          _mm256_blendv_ps(no.b, yes.b, _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ))};
}
HW_INLINE F round_even(F x) {
  constexpr int how = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(x.a, how), _mm256_round_ps(x.b, how)};
}
HW_INLINE __m256 power_of_two_half(__m256 n) {
  const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
}
HW_INLINE F power_of_two(F n) { return {power_of_two_half(n.a), power_of_two_half(n.b)}; }

HW_INLINE __m256 fraction_half(__m256 x) {
  const __m256 bounded = _mm256_max_ps(_mm256_set1_ps(-200.0f), x);  // not-a-number passes
  return _mm256_sub_ps(bounded, _mm256_floor_ps(bounded));
}
HW_INLINE F fraction(F x) { return {fraction_half(x.a), fraction_half(x.b)}; }
// The power is 0 from 2^-127 down.
HW_INLINE F times_power(F p, F x) {
  const F n = max(splat(-127.0f), {_mm256_floor_ps(x.a), _mm256_floor_ps(x.b)});
  return mul(p, power_of_two(n));
}
template <int Far> HW_INLINE F butterfly(F x) {
  if constexpr (Far == 8) {
    return {_mm256_add_ps(x.a, x.b), _mm256_sub_ps(x.a, x.b)};
  } else {
    constexpr int upper = Far == 1 ? 0xaa : Far == 2 ? 0xcc : 0xf0;
    const auto half = [](__m256 v) __attribute__((always_inline)) {
      __m256 other;
      if constexpr (Far == 1) other = _mm256_permute_ps(v, 0xb1);
      else if constexpr (Far == 2) other = _mm256_permute_ps(v, 0x4e);
      else other = _mm256_permute2f128_ps(v, v, 1);
      return _mm256_blend_ps(_mm256_add_ps(v, other), _mm256_sub_ps(other, v), upper);
    };
    return {half(x.a), half(x.b)};
  }
}

HW_INLINE float sum(F x) {
  const __m256 half = _mm256_add_ps(x.a, x.b);
  const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  const __m128 pair = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
}
HW_INLINE float highest(F x) {
  const __m256 half = _mm256_max_ps(x.a, x.b);
  const __m128 quarter = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  const __m128 pair = _mm_max_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)));
}

template <int Count> HW_INLINE F load_some(const float* p) {
  alignas(64) float lanes[16] = {};
  __builtin_memcpy(lanes, p, Count * 4);
  return load(lanes);
}
template <int Count> HW_INLINE void store_some(float* p, F x) {
  alignas(64) float lanes[16];
  store(lanes, x);
  __builtin_memcpy(p, lanes, Count * 4);
}
template <int Count> HW_INLINE F highest_of(const F (&x)[Count]) {
  alignas(64) float lanes[16] = {};
  for (int i = 0; i < Count; ++i) lanes[i] = highest(x[i]);
  return load(lanes);
}

HW_INLINE __m128i to_bf16_half(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded =
      _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256 is_nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
  const __m256i chosen = _mm256_castps_si256(_mm256_blendv_ps(
      _mm256_castsi256_ps(rounded), _mm256_castsi256_ps(quiet), is_nan));
  const __m256i high = _mm256_srli_epi32(chosen, 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
}
HW_INLINE void to_bf16(uint16_t* p, F x) {
  _mm_storeu_si128((__m128i*)p, to_bf16_half(x.a));
  _mm_storeu_si128((__m128i*)(p + 8), to_bf16_half(x.b));
}
HW_INLINE F from_f16(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)),
          _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(p + 8)))};
}

HW_INLINE __m256i magnitude_bits(F x) {
  const __m256i mask = _mm256_set1_epi32(0x7fffffff);
  return _mm256_max_epu32(_mm256_and_si256(_mm256_castps_si256(x.a), mask),
                          _mm256_and_si256(_mm256_castps_si256(x.b), mask));
}
HW_INLINE uint32_t highest_magnitude_bits(F x, F y) {
  const __m256i all = _mm256_max_epu32(magnitude_bits(x), magnitude_bits(y));
  const __m128i half =
      _mm_max_epu32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
  const __m128i pair = _mm_max_epu32(half, _mm_shuffle_epi32(half, 0x4e));
  return (uint32_t)_mm_cvtsi128_si32(_mm_max_epu32(pair, _mm_shuffle_epi32(pair, 0xb1)));
}
template <int Count> HW_INLINE F highest_bits_of(const F (&x)[Count]) {
  alignas(64) uint32_t lanes[16] = {};
  for (int i = 0; i < Count; ++i) lanes[i] = highest_magnitude_bits(x[i], x[i]);
  float values[16];
  __builtin_memcpy(values, lanes, 64);
  return load(values);
}
HW_INLINE F magnitude(F x) {
  const __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  return {_mm256_and_ps(x.a, mask), _mm256_and_ps(x.b, mask)};
}
HW_INLINE __m256 max_bits_half(__m256 a, __m256 b) {
  return _mm256_castsi256_ps(_mm256_max_epu32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
}
HW_INLINE F max_bits(F x, F y) { return {max_bits_half(x.a, y.a), max_bits_half(x.b, y.b)}; }
HW_INLINE __m128i to_int16_half(__m256 x) {
  const __m256i whole = _mm256_cvtps_epi32(x);
  return _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
}
HW_INLINE int32_t to_int8(int8_t* p, F x) {
  const __m128i codes = _mm_packs_epi16(to_int16_half(x.a), to_int16_half(x.b));
  _mm_storeu_si128((__m128i*)p, codes);
  const __m128i sums = _mm_sad_epu8(_mm_xor_si128(codes, _mm_set1_epi8(-128)), _mm_setzero_si128());
  return _mm_cvtsi128_si32(sums) + _mm_extract_epi16(sums, 4) - 128 * 16;
}

HW_INLINE void to_int8_half(int8_t* p, size_t stride, __m256 a, __m256 b, __m256 c, __m256 d) {
  const __m256i left = _mm256_packs_epi32(_mm256_cvtps_epi32(a), _mm256_cvtps_epi32(b));
  const __m256i right = _mm256_packs_epi32(_mm256_cvtps_epi32(c), _mm256_cvtps_epi32(d));
  const __m256i codes = _mm256_packs_epi16(left, right);
  _mm_storeu_si128((__m128i*)p, _mm256_castsi256_si128(codes));
  _mm_storeu_si128((__m128i*)(p + stride), _mm256_extracti128_si256(codes, 1));
}
HW_INLINE void to_int8(int8_t* p, size_t stride, F a, F b, F c, F d) {
  to_int8_half(p, stride, a.a, b.a, c.a, d.a);
  to_int8_half(p + 2 * stride, stride, a.b, b.b, c.b, d.b);
}

HW_INLINE void to_uint8_half(uint8_t* p, __m256 a, __m256 b, __m256 c, __m256 d) {
  const __m256i left = _mm256_packs_epi32(_mm256_cvtps_epi32(a), _mm256_cvtps_epi32(b));
  const __m256i right = _mm256_packs_epi32(_mm256_cvtps_epi32(c), _mm256_cvtps_epi32(d));
  _mm256_storeu_si256((__m256i*)p, _mm256_packus_epi16(left, right));
}
HW_INLINE void to_uint8(uint8_t* p, F a, F b, F c, F d) {
  to_uint8_half(p, a.a, b.a, c.a, d.a);
  to_uint8_half(p + 32, a.b, b.b, c.b, d.b);
}

HW_INLINE I splat_int(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
template <int Bits> HW_INLINE I shift_left(I x) {
  return {_mm256_slli_epi32(x.a, Bits), _mm256_slli_epi32(x.b, Bits)};
}
HW_INLINE F to_float(I x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }

HW_INLINE Codes load_codes(const uint8_t* p) {
  return {_mm256_loadu_si256((const __m256i*)p), _mm256_loadu_si256((const __m256i*)(p + 32))};
}
HW_INLINE Codes low_nibbles(Codes x) {
  const __m256i mask = _mm256_set1_epi8(15);
  return {_mm256_and_si256(x.a, mask), _mm256_and_si256(x.b, mask)};
}
HW_INLINE Codes high_nibbles(Codes x) {
  const __m256i mask = _mm256_set1_epi8(15);
  return {_mm256_and_si256(_mm256_srli_epi16(x.a, 4), mask),
          _mm256_and_si256(_mm256_srli_epi16(x.b, 4), mask)};
}
HW_INLINE Quad load_quad(const int8_t* p) {
  int32_t bytes;
  __builtin_memcpy(&bytes, p, 4);
  return {_mm256_set1_epi32(bytes)};
}
// The sum of two products must fit 16 bits, or it saturates: codes of at most 7 bits do.
HW_INLINE __m256i dot_half(__m256i acc, __m256i w, __m256i a) {
  const __m256i twos = _mm256_maddubs_epi16(w, a);
  return _mm256_add_epi32(acc, _mm256_madd_epi16(twos, _mm256_set1_epi16(1)));
}
template <int Bits> HW_INLINE I dot(I acc, Codes w, Quad a) {
  if constexpr (Bits <= 4) {
    acc.a = dot_half(acc.a, w.a, a.v);
    acc.b = dot_half(acc.b, w.b, a.v);
  } else {  // 16 * high + low, each of which is safe
    const Codes low = low_nibbles(w), high = high_nibbles(w);
    const __m256i none = _mm256_setzero_si256();
    acc.a = _mm256_add_epi32(acc.a, _mm256_slli_epi32(dot_half(none, high.a, a.v), 4));
    acc.b = _mm256_add_epi32(acc.b, _mm256_slli_epi32(dot_half(none, high.b, a.v), 4));
    acc.a = dot_half(acc.a, low.a, a.v);
    acc.b = dot_half(acc.b, low.b, a.v);
  }
  return acc;
}

HW_INLINE I dot_signed(I acc, Codes w, Quad a) {
  const __m256i mask = _mm256_set1_epi8(15), none = _mm256_setzero_si256();
  const __m256i low = _mm256_and_si256(a.v, mask);
  const __m256i high = _mm256_and_si256(_mm256_srli_epi16(a.v, 4), mask);
  acc.a = _mm256_add_epi32(acc.a, _mm256_slli_epi32(dot_half(none, high, w.a), 4));
  acc.b = _mm256_add_epi32(acc.b, _mm256_slli_epi32(dot_half(none, high, w.b), 4));
  acc.a = dot_half(acc.a, low, w.a);
  acc.b = dot_half(acc.b, low, w.b);
  return acc;
}

HW_INLINE Pairs load_pairs(const uint16_t* p) {
  return {_mm256_loadu_si256((const __m256i*)p), _mm256_loadu_si256((const __m256i*)(p + 16))};
}
HW_INLINE __m256 even_half(__m256i x) { return _mm256_castsi256_ps(_mm256_slli_epi32(x, 16)); }
HW_INLINE __m256 odd_half(__m256i x) {
  return _mm256_castsi256_ps(_mm256_and_si256(x, _mm256_set1_epi32((int)0xffff0000)));
}
HW_INLINE Pair load_pair(const uint16_t* p) {
  int32_t bits;
  __builtin_memcpy(&bits, p, 4);
  const __m256i both = _mm256_set1_epi32(bits);
  return {even_half(both), odd_half(both)};
}
HW_INLINE F dot(F acc, Pairs w, Pair a) {
  acc.a = _mm256_fmadd_ps(even_half(w.a), a.even, acc.a);
  acc.b = _mm256_fmadd_ps(even_half(w.b), a.even, acc.b);
  acc.a = _mm256_fmadd_ps(odd_half(w.a), a.odd, acc.a);
  acc.b = _mm256_fmadd_ps(odd_half(w.b), a.odd, acc.b);
  return acc;
}

}  // namespace headway::avx2
