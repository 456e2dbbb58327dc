// What each instruction set offers: functions over a part of the work, on one thread.
#pragma once

#include "layout.h"

namespace headway {

struct NormArgs {
  float* residual;     // (rows, stride), updated in place
  const float* delta;  // added first, or null
  const float* weight;
  float eps;
  int columns;
  size_t stride;
  TileLayout layout;  // of the output; plain rows for Kind::rows
  uint8_t* out;
};

struct GateArgs {
  const float* gate_up;  // (rows, stride); the right half begins at `up`
  size_t stride, up;
  int columns;
  TileLayout layout;
  uint8_t* out;
};

struct PackArgs {
  const float* rows;
  size_t stride;
  const int32_t* chosen;  // which rows, or null for all in order
  TileLayout layout;
  uint8_t* out;
};

struct LinearArgs {
  const uint8_t* tiles;  // of activations
  TileLayout layout;
  int num_rows;
  const uint8_t* codes;
  const uint8_t* scales;
  const float* bias;  // or null
  float* out;
  size_t out_stride;
};

struct HeadNormArgs {
  float* qkv;
  size_t stride;
  const float *q_weight, *k_weight;
  float eps;
  int num_heads, num_kv_heads, head_dim;
};

// Some rows of one sequence at consecutive positions that do not cross a multiple of kQueryRows.
struct RowItem {
  int32_t row, count;
  int32_t position;
  int32_t end;         // of all rows of the sequence in this step
  int32_t length;      // how far to attend, at least
  int32_t num_blocks;  // of the table
  const int32_t* table;
  bool is_padding;
};

// The rows of an item through the units [begin, end) of a KV head.
struct AttendPiece {
  const RowItem* item;
  int head, begin, end;
};

struct RotateArgs {
  const float* qkv;
  size_t stride;
  float* queries;  // (rows, heads * head_dim), scaled
  size_t query_stride;
  const float *cosines, *sines;  // (positions, head_dim / 2)
  float scale;
  int num_heads;
  uint8_t* layer;
  KvLayout kv;
};

struct AttendArgs {
  const float* queries;
  size_t query_stride;
  float* out;
  size_t out_stride;
  int num_heads;
  int window;  // 0: none
  int32_t zero_block;
  const uint8_t* layer;
  KvLayout kv;
};

// The softmax over one unit, or over several that were folded: for each query the highest score;
// and the weighted sum of the values, with that of the weights behind it, in kLanes parts.
struct Partial {
  float *highest, *sums;
};
HW_MEMBER inline size_t partial_width(size_t head_dim) { return head_dim + kLanes; }

// Logits are looked through in blocks, most of which hold no token of interest.
constexpr int kLogitBlock = 64;
// How far rough sums may be off, relatively: some ten times what rounding can add up to, with factors
// within kRoughFactor of 1 and so many logits a run.
constexpr double kRoughError = 1e-4;
constexpr double kRoughFactor = 1e3;
constexpr int kRoughRun = 1024;

struct Kernels {
  const char* name;

  // These have scratch memory for kRowTile rows of the output, with what fills their last groups.
  void (*norm)(const NormArgs&, int begin, int end, float* rows);
  void (*gate)(const GateArgs&, int begin, int end, float* rows);
  void (*pack)(const PackArgs&, int begin, int end, float* rows);
  // A panel: `num_blocks` blocks of columns from its first, for the rows of some tiles.
  void (*linear[(int)Packed::count])(const LinearArgs&, int block, int num_blocks, int row_begin,
                                     int row_end);
  void (*norm_heads)(const HeadNormArgs&, int begin, int end);
  // Soon `after` will be rotated, if it isn't null.
  void (*rotate)(const RotateArgs&, const RowItem&, const RowItem* after, uint8_t* scratch);
  size_t (*attend_scratch)(const AttendArgs&);
  // With `parts`, each unit goes to a partial result of its own. Soon there will be work on `after`,
  // if it isn't null.
  void (*attend)(const AttendArgs&, const AttendPiece&, const AttendPiece* after, const Partial* parts,
                 uint8_t* scratch);
  void (*fold)(const AttendArgs&, const AttendPiece&, const Partial* parts, uint8_t* scratch);

  // See probe.h.
  float (*probe_int8)(const uint8_t*, int64_t steps);
  float (*probe_bf16)(const uint8_t*, int64_t steps);
  int probe_int8_ops, probe_bf16_ops;  // a step
  float (*probe_read)(const uint8_t*, size_t bytes);
  // Over one row of logits: see isa/logits.h. The last has the same bits on all instruction sets.
  bool (*block_maxima)(const float* x, int size, float* maxima);
  double (*rough_total)(const float* x, int size, float best, float factor);
  double (*exact_total)(const float* x, int size, double best, double temperature);
};

extern const Kernels kPortableKernels;
#if defined(HEADWAY_X86)
extern const Kernels kAvx2Kernels, kAvx512Kernels;
#endif

}  // namespace headway
