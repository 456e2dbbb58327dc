// Weight matrices, packed for products.
#pragma once

#include <string>
#include <vector>

#include "formats.h"
#include "memory.h"
#include "threads.h"

namespace headway {

// The rows of one stored matrix, which are columns of the output.
struct Segment {
  Packed format;
  int num_columns;   // without those that fill the last blocks
  int num_blocks;    // of kLanes columns, an even number
  size_t num_bytes;  // of the codes and scales
  std::shared_ptr<uint8_t> codes, scales;
  std::vector<float> bias;  // as many as there are padded columns, or none
};

// Stored matrices stacked: they share the input, and their outputs lie side by side, each in whole
// groups of columns.
class Matrix {
 public:
  explicit Matrix(int inputs) : inputs_(inputs) {}
  Matrix(const Matrix&) = delete;
  Matrix(Matrix&&) = default;

  // `target` is empty to keep the stored values, or F32, BF16 or INT8 to convert them.
  void add(const std::string& format, const std::string& target, const uint8_t* data, int rows,
           const float* bias, Arena& arena, ThreadPool& pool);

  int inputs() const { return inputs_; }
  size_t padded_inputs() const { return round_up(inputs_, kGroup); }
  int outputs() const;
  size_t padded_outputs() const;
  size_t num_bytes() const;
  std::string format() const;
  const std::vector<Segment>& segments() const { return segments_; }
  // What all segments read, or plain rows if they differ.
  Kind activations() const;

 private:
  int inputs_;
  std::vector<Segment> segments_;
};

}  // namespace headway
