// The vector layer in plain C++ on the vector types of gcc and clang, for any processor.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "half.h"

#define HW_INLINE static inline __attribute__((always_inline))
#define HW_LAMBDA __attribute__((always_inline))

namespace headway::portable {

constexpr int kLinearRows = 2, kLinearVectors = 1;
constexpr int kAttentionRows = 2, kAttentionVectors = 1;

typedef float f32x16 __attribute__((vector_size(64)));
typedef int32_t i32x16 __attribute__((vector_size(64)));

struct F { f32x16 v; };
struct I { i32x16 v; };
struct Codes { uint8_t v[64]; };
struct Quad { int8_t v[4]; };
struct Pairs { i32x16 v; };
struct Pair { float even, odd; };

HW_INLINE F zero() { return {f32x16{}}; }
HW_INLINE F splat(float x) { return {f32x16{} + x}; }
HW_INLINE F load(const float* p) {
  F x;
  __builtin_memcpy(&x.v, p, 64);
  return x;
}
HW_INLINE void store(float* p, F x) { __builtin_memcpy(p, &x.v, 64); }
HW_INLINE F add(F a, F b) { return {a.v + b.v}; }
HW_INLINE F sub(F a, F b) { return {a.v - b.v}; }
HW_INLINE F mul(F a, F b) { return {a.v * b.v}; }
HW_INLINE F div(F a, F b) { return {a.v / b.v}; }
// Not fused where the processor has no such instruction: the library's is very slow.
HW_INLINE F fma(F a, F b, F c) {
#ifdef __FP_FAST_FMAF
  F x;
  for (int i = 0; i < 16; ++i) x.v[i] = __builtin_fmaf(a.v[i], b.v[i], c.v[i]);
  return x;
#else
  return {a.v * b.v + c.v};
#endif
}
HW_INLINE F fnma(F a, F b, F c) { return fma({-a.v}, b, c); }
HW_INLINE F choose(i32x16 mask, F yes, F no) {
  return {(f32x16)((mask & (i32x16)yes.v) | (~mask & (i32x16)no.v))};
}
HW_INLINE F max(F a, F b) { return choose(a.v > b.v, a, b); }
HW_INLINE F min(F a, F b) { return choose(a.v < b.v, a, b); }
HW_INLINE F where_less(F a, F b, F yes, F no) { return choose(a.v < b.v, yes, no); }
// Good for magnitudes below 2^22, which is all that is asked.
HW_INLINE F round_even(F x) {
  const float magic = 12582912.0f;  // 1.5 * 2^23
  return {(x.v + magic) - magic};
}
HW_INLINE I to_int(F x) { return {__builtin_convertvector(x.v, i32x16)}; }
HW_INLINE F power_of_two(F n) {
  // Not-a-number has no integer; what is multiplied by this stays not-a-number.
  const F sound = choose(n.v == n.v, n, zero());
  return {(f32x16)((to_int(sound).v + 127) << 23)};
}

HW_INLINE F floor(F x) {
  const F n = round_even(x);
  return choose(n.v > x.v, sub(n, splat(1.0f)), n);
}
HW_INLINE F fraction(F x) {
  const F bounded = max(splat(-200.0f), x);  // not-a-number passes
  return sub(bounded, floor(bounded));
}
// The power is 0 from 2^-127 down.
HW_INLINE F times_power(F p, F x) {
  return mul(p, power_of_two(max(splat(-127.0f), floor(max(splat(-200.0f), x)))));
}
template <int Far> HW_INLINE F butterfly(F x) {
  F y;
  for (int i = 0; i < 16; ++i) y.v[i] = i & Far ? x.v[i ^ Far] - x.v[i] : x.v[i] + x.v[i ^ Far];
  return y;
}

HW_INLINE float sum(F x) {
  float half[8], quarter[4];
  for (int i = 0; i < 8; ++i) half[i] = x.v[i] + x.v[i + 8];
  for (int i = 0; i < 4; ++i) quarter[i] = half[i] + half[i + 4];
  return (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);
}
HW_INLINE float highest(F x) {
  float found = x.v[0];
  for (int i = 1; i < 16; ++i) found = x.v[i] > found ? x.v[i] : found;
  return found;
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

HW_INLINE void to_bf16(uint16_t* p, F x) {
  for (int i = 0; i < 16; ++i) p[i] = bf16_from_float(x.v[i]);
}
HW_INLINE F from_f16(const uint16_t* p) {
  F x;
  for (int i = 0; i < 16; ++i) x.v[i] = float_from_half(p[i]);
  return x;
}

HW_INLINE uint32_t highest_magnitude_bits(F a, F b) {
  const i32x16 x = (i32x16)a.v & 0x7fffffff, y = (i32x16)b.v & 0x7fffffff;
  int32_t found = 0;
  for (int i = 0; i < 16; ++i) {
    found = x[i] > found ? x[i] : found;
    found = y[i] > found ? y[i] : found;
  }
  return (uint32_t)found;
}
template <int Count> HW_INLINE F highest_bits_of(const F (&x)[Count]) {
  alignas(64) uint32_t lanes[16] = {};
  for (int i = 0; i < Count; ++i) lanes[i] = highest_magnitude_bits(x[i], x[i]);
  float values[16];
  __builtin_memcpy(values, lanes, 64);
  return load(values);
}
HW_INLINE F magnitude(F x) { return {(f32x16)((i32x16)x.v & 0x7fffffff)}; }
HW_INLINE F max_bits(F a, F b) {
  typedef uint32_t u32x16 __attribute__((vector_size(64)));
  return choose((i32x16)((u32x16)a.v > (u32x16)b.v), a, b);
}
HW_INLINE int32_t to_int8(int8_t* p, F x) {
  // What is no number, or far out of range, has no integer either; its scale is not finite.
  const F sound = choose(x.v == x.v, x, zero());
  const I whole = to_int(round_even(max(splat(-128.0f), min(splat(127.0f), sound))));
  int32_t total = 0;
  for (int i = 0; i < 16; ++i) {
    p[i] = (int8_t)whole.v[i];
    total += whole.v[i];
  }
  return total;
}

HW_INLINE void to_int8_part(int8_t* p, size_t stride, F x) {
  int8_t codes[16];
  to_int8(codes, x);
  for (int i = 0; i < 4; ++i) __builtin_memcpy(p + i * stride, codes + 4 * i, 4);
}
HW_INLINE void to_int8(int8_t* p, size_t stride, F a, F b, F c, F d) {
  to_int8_part(p, stride, a);
  to_int8_part(p + 4, stride, b);
  to_int8_part(p + 8, stride, c);
  to_int8_part(p + 12, stride, d);
}

HW_INLINE void to_uint8_part(uint8_t* p, F x) {
  const F sound = choose(x.v == x.v, x, zero());
  const I whole = to_int(round_even(max(zero(), min(splat(255.0f), sound))));
  for (int i = 0; i < 16; ++i) p[i / 4 * 16 + i % 4] = (uint8_t)whole.v[i];
}
HW_INLINE void to_uint8(uint8_t* p, F a, F b, F c, F d) {
  to_uint8_part(p, a);
  to_uint8_part(p + 4, b);
  to_uint8_part(p + 8, c);
  to_uint8_part(p + 12, d);
}

HW_INLINE I splat_int(int32_t x) { return {i32x16{} + x}; }
template <int Bits> HW_INLINE I shift_left(I x) { return {x.v * (1 << Bits)}; }
HW_INLINE F to_float(I x) { return {__builtin_convertvector(x.v, f32x16)}; }

HW_INLINE Codes load_codes(const uint8_t* p) {
  Codes x;
  __builtin_memcpy(x.v, p, 64);
  return x;
}
HW_INLINE Codes low_nibbles(Codes x) {
  for (int i = 0; i < 64; ++i) x.v[i] &= 15;
  return x;
}
HW_INLINE Codes high_nibbles(Codes x) {
  for (int i = 0; i < 64; ++i) x.v[i] >>= 4;
  return x;
}
HW_INLINE Quad load_quad(const int8_t* p) { return {{p[0], p[1], p[2], p[3]}}; }
template <int Bits> HW_INLINE I dot(I acc, Codes w, Quad a) {
  for (int i = 0; i < 16; ++i) {
    acc.v[i] += w.v[4 * i] * a.v[0] + w.v[4 * i + 1] * a.v[1] + w.v[4 * i + 2] * a.v[2] +
                w.v[4 * i + 3] * a.v[3];
  }
  return acc;
}

HW_INLINE I dot_signed(I acc, Codes w, Quad a) {
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 4; ++j) acc.v[i] += (int8_t)w.v[4 * i + j] * (uint8_t)a.v[j];
  return acc;
}

HW_INLINE Pairs load_pairs(const uint16_t* p) {
  Pairs x;
  __builtin_memcpy(&x.v, p, 64);
  return x;
}
HW_INLINE Pair load_pair(const uint16_t* p) {
  return {float_from_bf16(p[0]), float_from_bf16(p[1])};
}
// Pairs lie in memory as uint16; which half of a word comes first depends on the byte order.
HW_INLINE F dot(F acc, Pairs w, Pair a) {
  F even, odd;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  even.v = (f32x16)(w.v << 16), odd.v = (f32x16)(w.v & (int32_t)0xffff0000);
#else
#error "the memory formats are little-endian"
#endif
  acc = fma(even, splat(a.even), acc);
  return fma(odd, splat(a.odd), acc);
}

}  // namespace headway::portable
