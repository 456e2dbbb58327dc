#include "formats.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "half.h"

namespace headway {

namespace {

struct Block {
  const char* name;
  size_t elements, bytes;
  Packed packed;
};

constexpr Block kBlocks[] = {
    {"F32", 1, 4, Packed::f32},           {"F16", 1, 2, Packed::f16},
    {"BF16", 1, 2, Packed::bf16},         {"Q4_0", 32, 18, Packed::q4_half},
    {"Q4_1", 32, 20, Packed::q4_half_min}, {"Q5_0", 32, 22, Packed::q8_half_16},
    {"Q5_1", 32, 24, Packed::q8_half_min}, {"Q8_0", 32, 34, Packed::q8_half},
    {"Q4_K", 256, 144, Packed::q4_float_min}, {"Q5_K", 256, 176, Packed::q8_float_min},
    {"Q6_K", 256, 210, Packed::q8_float_16},
};

const Block& block_of(Stored format) { return kBlocks[static_cast<int>(format)]; }

uint16_t u16(const uint8_t* p) {
  uint16_t x;
  std::memcpy(&x, p, 2);
  return x;
}

float half(const uint8_t* p) { return float_from_half(u16(p)); }

void set_nibbles(IntegerGroup& g, const uint8_t* qs) {
  for (int i = 0; i < 16; ++i) {
    g.codes[i] = qs[i] & 15;
    g.codes[i + 16] = qs[i] >> 4;
  }
}

void set_fifth_bits(IntegerGroup& g, const uint8_t* p) {
  uint32_t bits;
  std::memcpy(&bits, p, 4);
  for (int i = 0; i < kGroup; ++i) g.codes[i] |= static_cast<uint8_t>((bits >> i & 1) << 4);
}

// A float16 scale, and either a float16 minimum or a fixed zero.
void set_scale(IntegerGroup& g, const uint8_t* scale, const uint8_t* minimum, float zero) {
  g.scale_bits = u16(scale);
  g.scale[0] = g.scale[1] = float_from_half(g.scale_bits);
  g.minimum_bits = minimum ? u16(minimum) : 0;
  g.minimum[0] = g.minimum[1] = minimum ? float_from_half(g.minimum_bits) : -zero * g.scale[0];
}

// The 6-bit scale and minimum of sub-block j of a K block, from its 12 bytes.
void k_scale(const uint8_t* s, int j, uint8_t& scale, uint8_t& minimum) {
  if (j < 4) {
    scale = s[j] & 63, minimum = s[j + 4] & 63;
  } else {
    scale = static_cast<uint8_t>((s[j + 4] & 15) | (s[j - 4] >> 6 << 4));
    minimum = static_cast<uint8_t>((s[j + 4] >> 4) | (s[j] >> 6 << 4));
  }
}

void set_k_scale(IntegerGroup& g, const uint8_t* block, int j) {
  uint8_t scale, minimum;
  k_scale(block + 4, j, scale, minimum);
  g.scale[0] = g.scale[1] = half(block) * static_cast<float>(scale);
  g.minimum[0] = g.minimum[1] = -(half(block + 2) * static_cast<float>(minimum));
}

IntegerGroup q4_k(const uint8_t* block, int j) {
  IntegerGroup g{};
  set_k_scale(g, block, j);
  const uint8_t* qs = block + 16 + j / 2 * 32;
  for (int i = 0; i < kGroup; ++i) g.codes[i] = j % 2 ? qs[i] >> 4 : qs[i] & 15;
  return g;
}

IntegerGroup q5_k(const uint8_t* block, int j) {
  IntegerGroup g{};
  set_k_scale(g, block, j);
  const uint8_t *high = block + 16, *qs = block + 48 + j / 2 * 32;
  for (int i = 0; i < kGroup; ++i) {
    const uint8_t low = j % 2 ? qs[i] >> 4 : qs[i] & 15;
    g.codes[i] = static_cast<uint8_t>(low | (high[i] >> j & 1) << 4);
  }
  return g;
}

IntegerGroup q6_k(const uint8_t* block, int j) {
  IntegerGroup g{};
  const uint8_t* low = block + j / 4 * 64 + j % 2 * 32;
  const uint8_t* high = block + 128 + j / 4 * 32;
  const int shift = j % 4 * 2;
  for (int i = 0; i < kGroup; ++i) {
    const uint8_t nibble = j % 4 < 2 ? low[i] & 15 : low[i] >> 4;
    g.codes[i] = static_cast<uint8_t>(nibble | (high[i] >> shift & 3) << 4);
  }
  for (int h = 0; h < 2; ++h) {
    const auto scale = static_cast<int8_t>(block[192 + 2 * j + h]);
    g.scale[h] = half(block + 208) * static_cast<float>(scale);
    g.minimum[h] = -32.0f * g.scale[h];
  }
  return g;
}

}  // namespace

Stored stored_format(const std::string& name) {
  for (size_t i = 0; i < sizeof kBlocks / sizeof *kBlocks; ++i) {
    if (name == kBlocks[i].name) return static_cast<Stored>(i);
  }
  throw std::invalid_argument("unknown storage format " + name);
}

size_t stored_row_bytes(Stored format, size_t columns) {
  const Block& block = block_of(format);
  if (columns % block.elements) throw std::invalid_argument("a block would cross a row");
  return columns / block.elements * block.bytes;
}

Packed packed_format(Stored format) { return block_of(format).packed; }

IntegerGroup integer_group(Stored format, const uint8_t* row, size_t group) {
  const Block& block = block_of(format);
  const size_t per_block = block.elements / kGroup;
  const uint8_t* p = row + group / per_block * block.bytes;
  const int j = static_cast<int>(group % per_block);
  IntegerGroup g{};
  switch (format) {
    case Stored::q4_0: set_scale(g, p, nullptr, 8), set_nibbles(g, p + 2); break;
    case Stored::q4_1: set_scale(g, p, p + 2, 0), set_nibbles(g, p + 4); break;
    case Stored::q5_0:
      set_scale(g, p, nullptr, 16), set_nibbles(g, p + 6), set_fifth_bits(g, p + 2);
      break;
    case Stored::q5_1:
      set_scale(g, p, p + 2, 0), set_nibbles(g, p + 8), set_fifth_bits(g, p + 4);
      break;
    case Stored::q8_0:
      set_scale(g, p, nullptr, 128);
      for (int i = 0; i < kGroup; ++i) g.codes[i] = p[2 + i] ^ 0x80;
      break;
    case Stored::q4_k: return q4_k(p, j);
    case Stored::q5_k: return q5_k(p, j);
    case Stored::q6_k: return q6_k(p, j);
    default: throw std::invalid_argument("no integer format");
  }
  return g;
}

void dequantise_row(Stored format, const uint8_t* row, size_t columns, float* out) {
  switch (format) {
    case Stored::f32: std::memcpy(out, row, columns * 4); return;
    case Stored::f16:
      for (size_t i = 0; i < columns; ++i) out[i] = half(row + 2 * i);
      return;
    case Stored::bf16:
      for (size_t i = 0; i < columns; ++i) out[i] = float_from_bf16(u16(row + 2 * i));
      return;
    default: break;
  }
  const int shift = kPacked[static_cast<int>(packed_format(format))].zero_shift;
  const int zero = shift < 0 ? 0 : 1 << shift;
  for (size_t g = 0; g < columns / kGroup; ++g) {
    const IntegerGroup group = integer_group(format, row, g);
    for (int i = 0; i < kGroup; ++i) {
      const float value = static_cast<float>(group.codes[i] - zero) * group.scale[i / 16];
      out[g * kGroup + i] = shift < 0 ? value + group.minimum[i / 16] : value;
    }
  }
}

float highest_magnitude(const float* values, size_t count) {
  float highest = 0;
  for (size_t i = 0; i < count; ++i) {
    if (!std::isfinite(values[i])) return std::numeric_limits<float>::quiet_NaN();
    highest = std::fmax(highest, std::fabs(values[i]));
  }
  return highest;
}

IntegerGroup quantise_group(const float* values, float scale) {
  IntegerGroup g{};
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: what is added to it is rounded to a whole number
  // Beyond all values where there is no sound scale: then all codes are 0.
  const float divisor = scale > 0 ? scale : std::numeric_limits<float>::infinity();
  for (int i = 0; i < kGroup; ++i) {
    const float code = (values[i] / divisor + kRound) - kRound;
    g.codes[i] = static_cast<uint8_t>(static_cast<int>(std::min(127.0f, std::max(-127.0f, code))) + 128);
  }
  return g;
}

}  // namespace headway
