#include "matrix.h"

#include <cmath>
#include <memory>
#include <stdexcept>

#include "half.h"

namespace headway {

namespace {

struct Source {
  Stored format;
  const uint8_t* data;
  size_t row_bytes;
  int rows, columns;
};

void pack_integer_row(const Source& from, bool converts, Segment& to, size_t groups, int row) {
  const PackedTraits& t = kPacked[static_cast<int>(to.format)];
  const uint8_t* source = from.data + static_cast<size_t>(row) * from.row_bytes;
  std::vector<float> values;
  if (converts) {
    values.assign(groups * kGroup, 0.0f);
    dequantise_row(from.format, source, from.columns, values.data());
  }
  const bool is_by_channel = t.per_group == 0;
  const float channel_scale = is_by_channel ? highest_magnitude(values.data(), values.size()) / 127 : 0;
  if (is_by_channel) to.column_scales[row] = channel_scale;
  const int lane = row % kLanes;
  for (size_t g = 0; g < groups; ++g) {
    const IntegerGroup group = is_by_channel ? quantise_group(&values[g * kGroup], channel_scale)
                               : converts    ? quantise_group(&values[g * kGroup])
                                             : integer_group(from.format, source, g);
    const size_t piece = piece_index(row / kLanes, groups, g);
    uint8_t* codes = to.codes.data() + piece * t.group_code_bytes() + lane * 4;
    for (int i = 0; i < kGroup; ++i) {
      uint8_t& place = codes[i / 4 % (kGroup / 4 * t.code_bits / 8) * 64 + i % 4];
      place = t.code_bits == 4 && i >= kGroup / 2 ? place | group.codes[i] << 4 : group.codes[i];
    }
    uint8_t* scales = to.scales.data() + piece * t.group_scale_bytes();
    for (int part = 0; part < t.per_group; ++part) {
      uint8_t* place = scales + (part * kLanes + lane) * t.scale_bytes;
      const bool is_min = part == 1 && t.zero_shift < 0;
      if (t.scale_bytes == 2) {
        std::memcpy(place, is_min ? &group.minimum_bits : &group.scale_bits, 2);
      } else {
        std::memcpy(place, is_min ? &group.minimum[0] : &group.scale[part], 4);
      }
    }
  }
}

void pack_float_row(const Source& from, const Segment& to, size_t padded, int row) {
  std::vector<float> values(padded, 0.0f);
  dequantise_row(from.format, from.data + static_cast<size_t>(row) * from.row_bytes, from.columns,
                 values.data());
  const size_t bytes = kPacked[static_cast<int>(to.format)].group_code_bytes();
  const size_t lane = row % kLanes;
  for (size_t k = 0; k < padded; ++k) {
    const size_t piece = piece_index(row / kLanes, padded / kGroup, k / kGroup), i = k % kGroup;
    uint8_t* codes = to.codes.data() + piece * bytes;
    switch (to.format) {
      case Packed::f32: std::memcpy(codes + (i * kLanes + lane) * 4, &values[k], 4); break;
      case Packed::f16: {
        const uint16_t bits = half_from_float(values[k]);
        std::memcpy(codes + (i * kLanes + lane) * 2, &bits, 2);
        break;
      }
      default: {
        const uint16_t bits = bf16_from_float(values[k]);
        std::memcpy(codes + ((i / 2 * kLanes + lane) * 2 + i % 2) * 2, &bits, 2);
      }
    }
  }
}

Packed conversion_target(const std::string& name) {
  for (const Packed packed : {Packed::f32, Packed::bf16, Packed::q8_half, Packed::q8_channel}) {
    if (name == kPacked[static_cast<int>(packed)].name) return packed;
  }
  throw std::invalid_argument("weights are not converted to " + name);
}

}  // namespace

void Matrix::add(const std::string& format, const std::string& target, const uint8_t* data, int rows,
                 const float* bias, ThreadPool& pool) {
  const Stored stored = stored_format(format);
  const bool converts = !target.empty() && target != format;
  const Packed packed = converts ? conversion_target(target) : packed_format(stored);
  const Source from{stored, data, stored_row_bytes(stored, inputs_), rows, inputs_};
  const PackedTraits& t = kPacked[static_cast<int>(packed)];
  Segment to;
  to.format = packed;
  to.num_columns = rows;
  to.num_blocks = static_cast<int>(round_up(rows, kGroup) / kLanes);
  const size_t groups = padded_inputs() / kGroup;
  const size_t pieces = round_up(to.num_blocks, kPanel) * groups;
  to.codes = Pages(pieces * t.group_code_bytes());
  if (t.per_group) to.scales = Pages(pieces * t.group_scale_bytes());
  if (packed == Packed::q8_channel) to.column_scales.assign(static_cast<size_t>(to.num_blocks) * kLanes, 0.0f);
  if (bias) {
    to.bias.assign(static_cast<size_t>(to.num_blocks) * kLanes, 0.0f);
    std::memcpy(to.bias.data(), bias, static_cast<size_t>(rows) * 4);
  }
  // Whole blocks a thread, so that no two write to one line.
  pool.parallel(to.num_blocks, 1, [&](int begin, int end, int) {
    for (int row = begin * kLanes; row < end * kLanes && row < rows; ++row) {
      if (t.is_integer()) pack_integer_row(from, converts, to, groups, row);
      else pack_float_row(from, to, padded_inputs(), row);
    }
  });
  segments_.push_back(std::move(to));
}

int Matrix::outputs() const {
  int total = 0;
  for (const Segment& s : segments_) total += s.num_columns;
  return total;
}

size_t Matrix::padded_outputs() const {
  size_t total = 0;
  for (const Segment& s : segments_) total += static_cast<size_t>(s.num_blocks) * kLanes;
  return total;
}

size_t Matrix::num_bytes() const {
  size_t total = 0;
  for (const Segment& s : segments_) total += s.codes.size() + s.scales.size();
  return total;
}

std::string Matrix::format() const {
  std::string names;
  for (const Segment& s : segments_) {
    const std::string name = kPacked[static_cast<int>(s.format)].name;
    if (names.find(name) == std::string::npos) names += (names.empty() ? "" : "+") + name;
  }
  return names;
}

Kind Matrix::activations() const {
  const Kind first = kPacked[static_cast<int>(segments_.front().format)].activations();
  for (const Segment& s : segments_) {
    if (kPacked[static_cast<int>(s.format)].activations() != first) return Kind::rows;
  }
  return first;
}

}  // namespace headway
