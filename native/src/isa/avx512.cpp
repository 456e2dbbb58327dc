#include "kernels.h"

#include "isa/vec_avx512.h"

namespace headway {
namespace avx512 {

#include "isa/kernels.inl"

}  // namespace avx512

const Kernels kAvx512Kernels = avx512::make_kernels("avx512");

}  // namespace headway
