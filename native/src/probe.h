// What this machine can do at most, measured.
#pragma once

#include <string>

namespace headway {

struct Limits {
  double read_bytes_per_s;    // from memory, far beyond the caches
  double int8_ops_per_s;      // of products of bytes, two operations each
  double bf16_ops_per_s;      // of products of bfloat16
};

// The best of some short tries with all threads at once; takes less than a second.
Limits machine_limits(const std::string& isa, int num_threads);

}  // namespace headway
