#include "cpu.h"

#include <stdexcept>

namespace headway {

namespace {

std::vector<const Kernels*> available() {
  std::vector<const Kernels*> found;
#if defined(HEADWAY_X86)
  __builtin_cpu_init();
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                        __builtin_cpu_supports("f16c");
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16");
  if (has_avx512 && has_avx2) found.push_back(&kAvx512Kernels);
  if (has_avx2) found.push_back(&kAvx2Kernels);
#endif
  found.push_back(&kPortableKernels);
  return found;
}

}  // namespace

std::vector<std::string> available_isas() {
  std::vector<std::string> names;
  for (const Kernels* kernels : available()) names.emplace_back(kernels->name);
  return names;
}

const Kernels& choose_kernels(const std::string& isa) {
  const std::vector<const Kernels*> found = available();
  if (isa == "auto") return *found.front();
  for (const Kernels* kernels : found) {
    if (isa == kernels->name) return *kernels;
  }
  throw std::invalid_argument("this processor or build has no instruction set " + isa);
}

}  // namespace headway
