// The kernels of one instruction set. Included by the source file of each, inside its own namespace,
// behind its vector layer. Nothing inline from elsewhere may be called here: the linker could keep the
// copy that was made with this file's options for all.

#include "math.h"
#include "turn.h"
#include "pack.h"
#include "rows.h"
#include "linear.h"
#include "kv.h"
#include "attention.h"
#include "isa/probe.h"
#include "logits.h"

constexpr Kernels make_kernels(const char* name) {
  Kernels k{};
  k.name = name;
  k.norm = norm;
  k.gate = gate;
  k.pack = pack;
  k.linear[(int)Packed::f32] = linear<Packed::f32>;
  k.linear[(int)Packed::f16] = linear<Packed::f16>;
  k.linear[(int)Packed::bf16] = linear<Packed::bf16>;
  k.linear[(int)Packed::q4_half] = linear<Packed::q4_half>;
  k.linear[(int)Packed::q4_half_min] = linear<Packed::q4_half_min>;
  k.linear[(int)Packed::q4_float_min] = linear<Packed::q4_float_min>;
  k.linear[(int)Packed::q8_half_16] = linear<Packed::q8_half_16>;
  k.linear[(int)Packed::q8_half_min] = linear<Packed::q8_half_min>;
  k.linear[(int)Packed::q8_float_min] = linear<Packed::q8_float_min>;
  k.linear[(int)Packed::q8_half] = linear<Packed::q8_half>;
  k.linear[(int)Packed::q8_float_16] = linear<Packed::q8_float_16>;
  k.linear[(int)Packed::int8_wide] = linear<Packed::int8_wide>;
  k.norm_heads = norm_heads;
  k.rotate = rotate;
  k.attend_scratch = attend_scratch;
  k.attend = attend;
  k.fold = fold;
  k.probe_int8 = probe_int8;
  k.probe_bf16 = probe_bf16;
  k.probe_int8_ops = kProbeInt8;
  k.probe_bf16_ops = kProbeBf16;
  k.probe_read = probe_read;
  k.block_maxima = block_maxima;
  k.rough_total = rough_total;
  k.exact_total = exact_total;
  return k;
}
