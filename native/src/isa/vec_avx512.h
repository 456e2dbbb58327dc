// The vector layer on AVX-512 with VNNI and BF16. Every instruction set offers the same names, for
// vectors of 16 logical lanes, so that memory layouts do not depend on it.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#define HW_INLINE static inline __attribute__((always_inline))
#define HW_LAMBDA __attribute__((always_inline))

namespace headway::avx512 {

// The largest tiles of accumulators that stay in registers: rows by vectors.
constexpr int kLinearRows = 8, kLinearVectors = 3;
constexpr int kAttentionRows = 6, kAttentionVectors = 4;

struct F { __m512 v; };       // 16 float32
struct I { __m512i v; };      // 16 int32
struct Codes { __m512i v; };  // 16 lanes of 4 unsigned bytes
struct Quad { __m512i v; };   // 4 signed bytes in all lanes
struct Pairs { __m512i v; }; // 16 lanes of 2 bfloat16
struct Pair { __m512i v; };  // 2 bfloat16 in all lanes

HW_INLINE F zero() { return {_mm512_setzero_ps()}; }
HW_INLINE F splat(float x) { return {_mm512_set1_ps(x)}; }
HW_INLINE F load(const float* p) { return {_mm512_loadu_ps(p)}; }
HW_INLINE void store(float* p, F x) { _mm512_storeu_ps(p, x.v); }
HW_INLINE F add(F a, F b) { return {_mm512_add_ps(a.v, b.v)}; }
HW_INLINE F sub(F a, F b) { return {_mm512_sub_ps(a.v, b.v)}; }
HW_INLINE F mul(F a, F b) { return {_mm512_mul_ps(a.v, b.v)}; }
HW_INLINE F div(F a, F b) { return {_mm512_div_ps(a.v, b.v)}; }
HW_INLINE F fma(F a, F b, F c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }   // a * b + c
HW_INLINE F fnma(F a, F b, F c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; } // c - a * b
// If either is not a number, these give b.
HW_INLINE F max(F a, F b) { return {_mm512_max_ps(a.v, b.v)}; }
HW_INLINE F min(F a, F b) { return {_mm512_min_ps(a.v, b.v)}; }
HW_INLINE F where_less(F a, F b, F yes, F no) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), no.v, yes.v)};
}
HW_INLINE F round_even(F x) {
  return {_mm512_roundscale_ps(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
// 2^n for whole n in [-126, 127].
HW_INLINE F power_of_two(F n) {
  const __m512i exponent = _mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23))};
}

// x - floor(x), and p * 2^floor(x).
HW_INLINE F fraction(F x) {
  return {_mm512_reduce_ps(x.v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)};
}
HW_INLINE F times_power(F p, F x) { return {_mm512_scalef_ps(p.v, x.v)}; }
// In each pair of lanes that are `Far` apart, their sum and their difference.
template <int Far> HW_INLINE F butterfly(F x) {
  __m512 other;
  if constexpr (Far == 1) other = _mm512_permute_ps(x.v, 0xb1);
  else if constexpr (Far == 2) other = _mm512_permute_ps(x.v, 0x4e);
  else if constexpr (Far == 4) other = _mm512_shuffle_f32x4(x.v, x.v, 0xb1);
  else other = _mm512_shuffle_f32x4(x.v, x.v, 0x4e);
  constexpr __mmask16 upper = Far == 1 ? 0xaaaa : Far == 2 ? 0xcccc : Far == 4 ? 0xf0f0 : 0xff00;
  return {_mm512_mask_sub_ps(_mm512_add_ps(x.v, other), upper, other, x.v)};
}

HW_INLINE float sum(F x) {
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
  const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  const __m128 pair = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
}
HW_INLINE float highest(F x) { return _mm512_reduce_max_ps(x.v); }
template <int Count> HW_INLINE F load_some(const float* p) {
  return {_mm512_maskz_loadu_ps((1 << Count) - 1, p)};
}
template <int Count> HW_INLINE void store_some(float* p, F x) {
  _mm512_mask_storeu_ps(p, (1 << Count) - 1, x.v);
}
// Reduce up to 8 vectors at once, to a lane each: 8 to 4, 2 and 1, by halves that are brought together.
template <int Count, class Reduce> HW_INLINE F reduce_each(const F (&x)[Count], const Reduce& reduce) {
  const auto at = [&](int i) HW_LAMBDA { return x[i < Count ? i : Count - 1].v; };
  const auto pairs = [&](int i) HW_LAMBDA {
    return reduce(_mm512_unpacklo_ps(at(i), at(i + 1)), _mm512_unpackhi_ps(at(i), at(i + 1)));
  };
  const auto fours = [&](int i) HW_LAMBDA {
    const __m512d a = _mm512_castps_pd(pairs(i)), b = _mm512_castps_pd(pairs(i + 2));
    return reduce(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
  };
  const __m512 left = fours(0), right = Count > 4 ? fours(4) : left;
  const __m512 halves = reduce(_mm512_shuffle_f32x4(left, right, 0x88), _mm512_shuffle_f32x4(left, right, 0xdd));
  const __m512 all = reduce(halves, _mm512_shuffle_f32x4(halves, halves, 0xb1));
  return {_mm512_shuffle_f32x4(all, all, 0x08)};
}
template <int Count> HW_INLINE F highest_of(const F (&x)[Count]) {
  return reduce_each(x, [](__m512 a, __m512 b) HW_LAMBDA { return _mm512_max_ps(a, b); });
}

HW_INLINE void to_bf16(uint16_t* p, F x) {
  const __m256bh narrow = _mm512_cvtneps_pbh(x.v);
  __builtin_memcpy(p, &narrow, 32);
}
HW_INLINE F from_f16(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p))};
}

// The largest magnitude as bits, which order as numbers do; not-a-number is above all.
HW_INLINE uint32_t highest_magnitude_bits(F a, F b) {
  const __m512i mask = _mm512_set1_epi32(0x7fffffff);
  const __m512i x = _mm512_and_si512(_mm512_castps_si512(a.v), mask);
  const __m512i y = _mm512_and_si512(_mm512_castps_si512(b.v), mask);
  return _mm512_reduce_max_epu32(_mm512_max_epu32(x, y));
}
HW_INLINE F magnitude(F x) {
  return {_mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(x.v), _mm512_set1_epi32(0x7fffffff)))};
}
// The larger one as bits, lane by lane.
HW_INLINE F max_bits(F a, F b) {
  return {_mm512_castsi512_ps(_mm512_max_epu32(_mm512_castps_si512(a.v), _mm512_castps_si512(b.v)))};
}
template <int Count> HW_INLINE F highest_bits_of(const F (&x)[Count]) {
  return reduce_each(x, [](__m512 a, __m512 b) HW_LAMBDA { return max_bits({a}, {b}).v; });
}
// 16 bytes, rounded to the nearest, the even one of two; returns their sum.
HW_INLINE int32_t to_int8(int8_t* p, F x) {
  const __m128i codes = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(x.v));
  _mm_storeu_si128((__m128i*)p, codes);
  // Sums of absolute differences are of unsigned bytes, so each code is 128 too high.
  const __m128i sums = _mm_sad_epu8(_mm_xor_si128(codes, _mm_set1_epi8(-128)), _mm_setzero_si128());
  return _mm_cvtsi128_si32(sums) + _mm_extract_epi16(sums, 4) - 128 * 16;
}

// Four vectors, without their sums: 16 bytes are the first 4 of each, those `stride` on the next 4.
HW_INLINE void to_int8(int8_t* p, size_t stride, F a, F b, F c, F d) {
  const __m512i left = _mm512_packs_epi32(_mm512_cvtps_epi32(a.v), _mm512_cvtps_epi32(b.v));
  const __m512i right = _mm512_packs_epi32(_mm512_cvtps_epi32(c.v), _mm512_cvtps_epi32(d.v));
  const __m512i codes = _mm512_packs_epi16(left, right);
  _mm_storeu_si128((__m128i*)p, _mm512_castsi512_si128(codes));
  _mm_storeu_si128((__m128i*)(p + stride), _mm512_extracti32x4_epi32(codes, 1));
  _mm_storeu_si128((__m128i*)(p + 2 * stride), _mm512_extracti32x4_epi32(codes, 2));
  _mm_storeu_si128((__m128i*)(p + 3 * stride), _mm512_extracti32x4_epi32(codes, 3));
}

// The same for what is from 0 to 255, without gaps.
HW_INLINE void to_uint8(uint8_t* p, F a, F b, F c, F d) {
  const __m512i left = _mm512_packs_epi32(_mm512_cvtps_epi32(a.v), _mm512_cvtps_epi32(b.v));
  const __m512i right = _mm512_packs_epi32(_mm512_cvtps_epi32(c.v), _mm512_cvtps_epi32(d.v));
  _mm512_storeu_si512(p, _mm512_packus_epi16(left, right));
}

HW_INLINE I splat_int(int32_t x) { return {_mm512_set1_epi32(x)}; }
template <int Bits> HW_INLINE I shift_left(I x) { return {_mm512_slli_epi32(x.v, Bits)}; }
HW_INLINE F to_float(I x) { return {_mm512_cvtepi32_ps(x.v)}; }

HW_INLINE Codes load_codes(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
HW_INLINE Codes low_nibbles(Codes x) {
  return {_mm512_and_si512(x.v, _mm512_set1_epi8(15))};
}
HW_INLINE Codes high_nibbles(Codes x) {
  return {_mm512_and_si512(_mm512_srli_epi16(x.v, 4), _mm512_set1_epi8(15))};
}
HW_INLINE Quad load_quad(const int8_t* p) {
  int32_t bytes;
  __builtin_memcpy(&bytes, p, 4);
  return {_mm512_set1_epi32(bytes)};
}
// acc + the sum of 4 products in each lane. In assembly, since gcc 12 spills the accumulators of the
// intrinsic; and by value, or it would keep them in memory.
template <int Bits> HW_INLINE I dot(I acc, Codes w, Quad a) {
  __m512i sum = acc.v;
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w.v), "v"(a.v));
  return {sum};
}

// The same with `w` signed, and `a` not.
HW_INLINE I dot_signed(I acc, Codes w, Quad a) {
  __m512i sum = acc.v;
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a.v), "v"(w.v));
  return {sum};
}

HW_INLINE Pairs load_pairs(const uint16_t* p) { return {_mm512_loadu_si512(p)}; }
HW_INLINE Pair load_pair(const uint16_t* p) {
  int32_t bits;
  __builtin_memcpy(&bits, p, 4);
  return {_mm512_set1_epi32(bits)};
}
HW_INLINE F dot(F acc, Pairs w, Pair a) {
  __m512 sum = acc.v;
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(w.v), "v"(a.v));
  return {sum};
}

}  // namespace headway::avx512
