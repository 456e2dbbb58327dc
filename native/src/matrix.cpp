#include "matrix.h"

#include <algorithm>
#include <cstring>
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

// Up to kLanes rows that become the columns of one block. All loops go group by group, and there
// lane by lane, so that the lines of a piece are written while they are in the cache.
struct Rows {
  const Source& from;
  int first, count;
  size_t padded;  // columns

  const uint8_t* stored(int lane) const {
    return from.data + static_cast<size_t>(first + lane) * from.row_bytes;
  }
  std::vector<float> values() const {
    std::vector<float> found(count * padded, 0.0f);
    for (int lane = 0; lane < count; ++lane) {
      dequantise_row(from.format, stored(lane), from.columns, &found[lane * padded]);
    }
    return found;
  }
};

void put_codes(const IntegerGroup& group, const PackedTraits& t, int lane, uint8_t* codes) {
  if (t.code_bits == 4) {  // the first half in the low nibbles, the second in the high ones
    for (int i = 0; i < kGroup / 2; ++i) {
      codes[i / 4 * 64 + lane * 4 + i % 4] =
          static_cast<uint8_t>(group.codes[i] | group.codes[i + kGroup / 2] << 4);
    }
  } else {
    for (int i = 0; i < kGroup; i += 4) std::memcpy(codes + i / 4 * 64 + lane * 4, group.codes + i, 4);
  }
}

void put_group(const IntegerGroup& group, const PackedTraits& t, int lane, uint8_t* codes,
               uint8_t* scales) {
  put_codes(group, t, lane, codes);
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

void pack_integers(const Rows& rows, Segment& to) {
  const PackedTraits& t = kPacked[static_cast<int>(to.format)];
  const size_t groups = rows.padded / kGroup;
  for (size_t g = 0; g < groups; ++g) {
    const size_t piece = piece_index(rows.first / kLanes, groups, g);
    uint8_t* codes = to.codes.get() + piece * t.group_code_bytes();
    uint8_t* scales = to.scales.get() + piece * t.group_scale_bytes();
    for (int lane = 0; lane < rows.count; ++lane) {
      put_group(integer_group(rows.from.format, rows.stored(lane), g), t, lane, codes, scales);
    }
  }
}

// A Hadamard transform as in isa/turn.h.
int turn(float* x, int width) {
  const int size = width & -width;
  for (int far = 1; far < size; far *= 2)
    for (int begin = 0; begin < width; begin += 2 * far)
      for (int i = begin; i < begin + far; ++i) {
        const float a = x[i], b = x[i + far];
        x[i] = a + b, x[i + far] = a - b;
      }
  return size;
}

// Turn and round to int8.
void pack_wide(const Rows& rows, std::vector<float> values, Segment& to) {
  const PackedTraits& t = kPacked[static_cast<int>(to.format)];
  const int width = static_cast<int>(rows.padded);
  const size_t pieces = rows.padded / kGroup, groups = num_groups(rows.padded, kWideGroup);
  int size = 1;
  for (int lane = 0; lane < rows.count; ++lane) size = turn(&values[lane * rows.padded], width);
  for (size_t g = 0; g < groups; ++g) {
    const size_t first = g * kWideGroup, last = std::min(first + kWideGroup, rows.padded);
    uint8_t* scales = to.scales.get() + piece_index(rows.first / kLanes, groups, g) * t.group_scale_bytes();
    for (int lane = 0; lane < rows.count; ++lane) {
      const float* x = &values[lane * rows.padded];
      const float scale = highest_magnitude(x + first, last - first) / 127;
      for (size_t i = first; i < last; i += kGroup) {
        const size_t piece = piece_index(rows.first / kLanes, pieces, i / kGroup);
        put_codes(quantise_group(x + i, scale), t, lane, to.codes.get() + piece * t.group_code_bytes());
      }
      const float unturned = scale / static_cast<float>(size);  // both sides of a product are turned
      std::memcpy(scales + lane * t.scale_bytes, &unturned, sizeof unturned);
    }
  }
}

void pack_floats(const Rows& rows, const std::vector<float>& values, Segment& to) {
  const size_t bytes = kPacked[static_cast<int>(to.format)].group_code_bytes();
  for (size_t g = 0; g < rows.padded / kGroup; ++g) {
    uint8_t* codes = to.codes.get() + piece_index(rows.first / kLanes, rows.padded / kGroup, g) * bytes;
    auto* halves = reinterpret_cast<uint16_t*>(codes);
    for (int lane = 0; lane < rows.count; ++lane) {
      const float* x = &values[lane * rows.padded + g * kGroup];
      for (int i = 0; i < kGroup; ++i) {
        if (to.format == Packed::f32) reinterpret_cast<float*>(codes)[i * kLanes + lane] = x[i];
        else if (to.format == Packed::f16) halves[i * kLanes + lane] = half_from_float(x[i]);
        else halves[(i / 2 * kLanes + lane) * 2 + i % 2] = bf16_from_float(x[i]);
      }
    }
  }
}

Packed conversion_target(const std::string& name) {
  for (const Packed packed : {Packed::f32, Packed::bf16, Packed::int8_wide}) {
    if (name == kPacked[static_cast<int>(packed)].name) return packed;
  }
  throw std::invalid_argument("weights are not converted to " + name);
}

}  // namespace

void Matrix::add(const std::string& format, const std::string& target, const uint8_t* data, int rows,
                 const float* bias, Arena& arena, ThreadPool& pool) {
  const Stored stored = stored_format(format);
  const bool converts = !target.empty() && target != format;
  const Packed packed = converts ? conversion_target(target) : packed_format(stored);
  const Source from{stored, data, stored_row_bytes(stored, inputs_), rows, inputs_};
  const PackedTraits& t = kPacked[static_cast<int>(packed)];
  Segment to;
  to.format = packed;
  to.num_columns = rows;
  to.num_blocks = static_cast<int>(round_up(rows, kGroup) / kLanes);
  const size_t blocks = round_up(to.num_blocks, kPanel);
  const size_t code_bytes = blocks * (padded_inputs() / kGroup) * t.group_code_bytes();
  const size_t scale_bytes = blocks * num_groups(padded_inputs(), t.group) * t.group_scale_bytes();
  to.codes = arena.take(code_bytes);
  if (scale_bytes) to.scales = arena.take(scale_bytes);
  to.num_bytes = code_bytes + scale_bytes;
  if (bias) {
    to.bias.assign(static_cast<size_t>(to.num_blocks) * kLanes, 0.0f);
    std::memcpy(to.bias.data(), bias, static_cast<size_t>(rows) * 4);
  }
  // Whole blocks a thread, so that no two write to one line.
  pool.parallel(to.num_blocks, 1, [&](int begin, int end, int) {
    for (int first = begin * kLanes; first < end * kLanes && first < rows; first += kLanes) {
      const Rows some{from, first, std::min(kLanes, rows - first), padded_inputs()};
      if (packed == Packed::int8_wide) pack_wide(some, some.values(), to);
      else if (t.is_integer()) pack_integers(some, to);
      else pack_floats(some, some.values(), to);
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
  for (const Segment& s : segments_) total += s.num_bytes;
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
