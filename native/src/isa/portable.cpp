#include "kernels.h"

#include "isa/vec_portable.h"

namespace headway {
namespace portable {

#include "isa/kernels.inl"

}  // namespace portable

const Kernels kPortableKernels = portable::make_kernels("portable");

}  // namespace headway
