#include "kernels.h"

#include "isa/vec_avx2.h"

namespace headway {
namespace avx2 {

#include "isa/kernels.inl"

}  // namespace avx2

const Kernels kAvx2Kernels = avx2::make_kernels("avx2");

}  // namespace headway
