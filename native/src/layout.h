// How activations, weights and keys and values lie in memory: the same for every instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

// Always inline, so that no copy made with the options of one instruction set is kept for all.
#define HW_MEMBER constexpr __attribute__((always_inline))

namespace headway {

constexpr int kLanes = 16;     // output columns of a block of weights; positions of a key tile
constexpr int kPanel = 3;      // blocks of weights that lie together, so that they are read as one stream
constexpr int kRowTile = 8;    // rows of a packed tile of activations
constexpr int kGroup = 32;     // values that share a scale
constexpr int kWideGroup = 256; // the same where weights were converted to int8
constexpr int kUnit = 128;     // positions whose softmax is taken at once, at absolute positions
constexpr int kQueryRows = 16; // rows of one sequence that attend together
constexpr int kUnitTiles = kUnit / kLanes;

HW_MEMBER inline size_t num_groups(size_t n, size_t size) { return (n + size - 1) / size; }
HW_MEMBER inline size_t round_up(size_t n, size_t to) { return num_groups(n, to) * to; }

// What activations are: plain rows, or tiles of kRowTile rows that a product reads.
enum class Kind : int { rows, f32, bf16, int8, int8_wide };
constexpr int kNumKinds = 5;

// Plain rows have zeros behind their last column, up to a whole number of groups.
HW_MEMBER inline size_t row_stride(size_t columns) { return round_up(columns, kGroup); }

// A packed tile: element k of row r lies at [k / step][r][k % step], with steps of 1 (f32), 2 (bf16)
// or 4 (int8). Behind int8 codes come, for each group: scales, negative sums of the codes, scales times
// sums, and negative sums of either half. Of int8_wide, whose rows are turned (isa/turn.h), groups are
// wide, and the last may be shorter; they have scales and negative sums.
struct TileLayout {
  Kind kind;
  size_t columns;  // a whole number of groups

  HW_MEMBER bool is_integer() const { return kind == Kind::int8 || kind == Kind::int8_wide; }
  HW_MEMBER int group() const { return kind == Kind::int8_wide ? kWideGroup : kGroup; }
  HW_MEMBER size_t groups() const { return num_groups(columns, group()); }
  HW_MEMBER size_t code_bytes() const {
    return columns * kRowTile * (is_integer() ? 1 : kind == Kind::bf16 ? 2 : 4);
  }
  HW_MEMBER size_t row_of_groups() const { return groups() * kRowTile; }
  HW_MEMBER size_t tile_bytes() const {
    const size_t numbers = kind == Kind::int8 ? 5 : kind == Kind::int8_wide ? 2 : 0;
    return code_bytes() + numbers * 4 * row_of_groups();
  }
  __attribute__((always_inline)) float* scales(uint8_t* tile) const { return reinterpret_cast<float*>(tile + code_bytes()); }
  __attribute__((always_inline)) const float* scales(const uint8_t* tile) const {
    return reinterpret_cast<const float*>(tile + code_bytes());
  }
};

// How weights are packed. Columns of the output come in blocks of kLanes, and these in panels of
// kPanel: [panel][group][block], with what a block has of a group of kGroup inputs in one piece. With
// floats, weight k of column c lies there at [k / step][c][k % step]; with integers the codes lie at
// [k / 4][c][k % 4], in 4 bits: the first half of the group in the low nibbles, the second in the
// high ones. Scales, in memory of their own: [scale, minimum if any][c], or for either half of it; those
// of wide groups as [panel][wide group][block].
enum class Packed : int {
  f32,
  f16,
  bf16,
  q4_half,       // Q4_0: code - 8, times a float16
  q4_half_min,   // Q4_1: code times a float16 plus another
  q4_float_min,  // Q4_K: the same with float32
  q8_half_16,    // Q5_0: code - 16, times a float16
  q8_half_min,   // Q5_1
  q8_float_min,  // Q5_K
  q8_half,       // Q8_0: code - 128, times a float16
  q8_float_16,   // Q6_K: code - 32, times a float32 for each half of a group
  int8_wide,     // code - 128, times a float32 for a wide group, of turned weights
  count
};

struct PackedTraits {
  const char* name;
  int code_bits;    // 32 and 16: floats
  int zero_shift;   // codes are above 2^zero_shift; -1: a minimum is stored
  int scale_bytes;  // of one scale
  int per_group;    // scales, and minima, of one column in a group
  int group = kGroup;  // inputs that share them

  HW_MEMBER bool is_integer() const { return code_bits <= 8; }
  HW_MEMBER Kind activations() const {
    if (is_integer()) return group == kGroup ? Kind::int8 : Kind::int8_wide;
    return name[0] == 'B' ? Kind::bf16 : Kind::f32;
  }
  HW_MEMBER size_t group_code_bytes() const { return (size_t)kLanes * kGroup * code_bits / 8; }
  HW_MEMBER size_t group_scale_bytes() const { return (size_t)kLanes * scale_bytes * per_group; }
};

// The piece of a group in a block, counted from the beginning.
HW_MEMBER inline size_t piece_index(size_t block, size_t groups, size_t group) {
  return (block / kPanel * groups + group) * kPanel + block % kPanel;
}

constexpr PackedTraits kPacked[(int)Packed::count] = {
    {"F32", 32, -1, 0, 0},   {"F16", 16, -1, 0, 0},  {"BF16", 16, -1, 0, 0}, {"Q4_0", 4, 3, 2, 1},
    {"Q4_1", 4, -1, 2, 2},   {"Q4_K", 4, -1, 4, 2},  {"Q5_0", 8, 4, 2, 1},   {"Q5_1", 8, -1, 2, 2},
    {"Q5_K", 8, -1, 4, 2},   {"Q8_0", 8, 7, 2, 1},   {"Q6_K", 8, 5, 4, 2},
    {"INT8", 8, 7, 4, 1, kWideGroup},
};

enum class KvType : int { f32, bf16, int8 };

// The KV pool of one layer: for each block and head the keys, then the values. Where blocks are
// whole tiles of kLanes positions, both are tiles: keys [d / step][position][d % step], values
// [position / step][d][position % step], with steps of 1 (f32), 2 (bf16) or 4 (int8). Otherwise both
// are [position][d], and tiles are put together when they are read. Behind the codes of int8, of a
// tile or of all of a block's keys or values, lie their scales, a float32 for each position.
struct KvLayout {
  KvType type;
  int block_size, num_heads, head_dim;

  HW_MEMBER size_t element_bytes() const {
    return type == KvType::int8 ? 1 : type == KvType::bf16 ? 2 : 4;
  }
  HW_MEMBER size_t scale_bytes() const { return type == KvType::int8 ? 4 : 0; }
  HW_MEMBER size_t position_bytes() const { return head_dim * element_bytes() + scale_bytes(); }
  HW_MEMBER bool is_tiled() const { return block_size % kLanes == 0; }
  HW_MEMBER size_t tile_bytes() const { return kLanes * position_bytes(); }
  HW_MEMBER size_t half_bytes() const { return block_size * position_bytes(); }
  HW_MEMBER size_t head_bytes() const { return 2 * half_bytes(); }
  HW_MEMBER size_t block_bytes() const { return num_heads * head_bytes(); }
};

}  // namespace headway
