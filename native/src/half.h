// Conversions of single 16-bit floating-point numbers, for code that no instruction set is chosen for.
#pragma once

#include <cstdint>
#include <cstring>

namespace headway {

static inline uint32_t bits_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}

static inline float float_of(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}

static inline float float_from_bf16(uint16_t x) { return float_of((uint32_t)x << 16); }

static inline uint16_t bf16_from_float(float x) {
  const uint32_t bits = bits_of(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x40u);
  return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

static inline float float_from_half(uint16_t x) {
  const uint32_t sign = (uint32_t)(x & 0x8000u) << 16;
  const uint32_t rest = x & 0x7fffu;
  if (rest >= 0x7c00u) return float_of(sign | 0x7f800000u | (rest << 13));
  if (rest >= 0x0400u) return float_of(sign | ((rest << 13) + (112u << 23)));
  const float tiny = (float)rest * 5.9604644775390625e-8f;  // 2^-24
  return float_of(sign | bits_of(tiny));
}

// Round to the nearest half, the even one of two.
static inline uint16_t half_from_float(float x) {
  const uint32_t bits = bits_of(x), sign = (bits >> 16) & 0x8000u, rest = bits & 0x7fffffffu;
  if (rest > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
  if (rest >= 0x47800000u) return (uint16_t)(sign | 0x7c00u);
  if (rest < 0x38800000u) {  // no normal half: let the addition round
    const float shifted = float_of(rest) + 0.5f;
    return (uint16_t)(sign | (bits_of(shifted) - bits_of(0.5f)));
  }
  const uint32_t rounded = rest + 0x0fffu + ((rest >> 13) & 1u);
  return (uint16_t)(sign | ((rounded - (112u << 23)) >> 13));
}

}  // namespace headway
