// The formats that files store rows of weights in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "layout.h"

namespace headway {

enum class Stored { f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k };

Stored stored_format(const std::string& name);  // throws std::invalid_argument
size_t stored_row_bytes(Stored format, size_t columns);

// A group of kGroup weights as integers. Weight i is codes[i] * scale - minimum, where the minimum of
// a format with a fixed zero is code zero times the scale; `scale` and `minimum` have one entry for
// each half. For those that a file keeps in float16, `scale_bits` and `minimum_bits` are their bits.
struct IntegerGroup {
  uint8_t codes[kGroup];
  float scale[2], minimum[2];
  uint16_t scale_bits, minimum_bits;
};

Packed packed_format(Stored format);  // without a change of value
IntegerGroup integer_group(Stored format, const uint8_t* row, size_t group);

// The values of one row, as the format's reference computes them.
void dequantise_row(Stored format, const uint8_t* row, size_t columns, float* out);

// Not a number if one of the values is not finite: then a scale made of it spoils what is computed.
float highest_magnitude(const float* values, size_t count);

// Round to int8 with a given scale: the codes alone.
IntegerGroup quantise_group(const float* values, float scale);

}  // namespace headway
