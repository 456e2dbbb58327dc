// The operations of a model, cut into pieces for the threads.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels.h"
#include "matrix.h"
#include "memory.h"
#include "residence.h"
#include "threads.h"

namespace headway {

struct Shape {
  int num_layers, num_heads, num_kv_heads, head_dim;
  int window;  // 0: none
};

// Activations of some rows.
struct Tensor {
  int rows = 0, columns = 0;
  TileLayout layout{Kind::rows, 0};
  std::shared_ptr<uint8_t> data;

  float* floats() const { return reinterpret_cast<float*>(data.get()); }
  size_t stride() const { return layout.columns; }
};

struct Table {
  Stored format;
  int rows, columns;
  size_t row_bytes;
  const uint8_t* data;
  std::shared_ptr<void> owner;
};

// Weights of a norm, with zeros behind up to a whole group.
struct Vector {
  std::vector<float> values;
  int size;
};

struct Step {
  int num_rows = 0;
  std::vector<int32_t> token_ids, tables;
  std::vector<RowItem> items;
  std::vector<AttendPiece> pieces;  // of the items
};

// Where the slices of a step are in its arrays; a table is `num_blocks` entries.
struct Part {
  int32_t start, count, num_blocks;
};

struct Move {
  int32_t source, target;
};

// The time spent in operations, for measurements.
struct Stopwatch {
  bool is_on = false;
  double seconds = 0.0;
};

class Ops {
 public:
  Ops(const Shape& shape, KvType kv_type, int num_blocks, int block_size, int num_swap_blocks,
      std::vector<float> cosines, std::vector<float> sines, int num_threads, const std::string& isa);

  ThreadPool& pool() { return *pool_; }
  Stopwatch& stopwatch() { return stopwatch_; }
  Arena& weights() { return weights_; }  // where matrices lie
  int num_blocks() const { return num_blocks_; }
  int num_swap_blocks() const { return num_swap_blocks_; }
  const Kernels& kernels() const { return kernels_; }
  const char* isa() const { return kernels_.name; }
  // What products read, if all of a model's read the same; then it is written without a detour.
  void set_activations(Kind kind) { activations_ = kind; }
  Kind activations() const { return activations_; }

  std::shared_ptr<Step> prepare(std::vector<int32_t> token_ids, const std::vector<Part>& parts,
                                std::vector<int32_t> tables, int num_padding, int length);
  Tensor embed(const Table& table, const Step& step);
  Tensor norm(const Tensor& residual, const Tensor* delta, const Vector& weight, float eps, Kind kind);
  Tensor linear(const Tensor& x, const Matrix& matrix);
  void norm_heads(const Tensor& qkv, const Vector& q, const Vector& k, float eps);
  Tensor rotate_and_store(const Tensor& qkv, int layer, const Step& step);
  Tensor attention(const Tensor& queries, int layer, const Step& step);
  Tensor silu_mul(const Tensor& gate_up);
  std::vector<bool> are_finite(const Tensor& hidden) const;
  // Rows by the padded width of the head.
  Tensor logits(const Tensor& hidden, const std::vector<int32_t>& rows, const Matrix& head);

  void swap_out(const std::vector<Move>& moves);
  void copy_blocks(const std::vector<Move>& moves);
  void swap_in(const std::vector<Move>& moves);
  // Take the whole pool from the system, which otherwise happens step by step, a little ahead.
  void make_resident() { residence_.complete(); }

  // About how many nanoseconds these take, to decide what is worth a thread or the lock of Python.
  static double linear_cost(int rows, const Matrix& matrix);
  double attention_cost(const Step& step) const;
  static double pick_cost(int rows, int columns) { return rows * (columns * 0.2); }

 private:
  Tensor make(Kind kind, int rows, int columns);
  Tensor multiply(const Tensor& x, const Matrix& matrix);
  Tensor pack(const Tensor& x, const std::vector<int32_t>* rows, Kind kind);
  uint8_t* layer(int index) { return pool_pages_->data() + index * layer_bytes_; }
  uint8_t* scratch(int thread, size_t bytes);
  float* tile_rows(int thread, const Tensor& x);  // scratch for kRowTile rows of it
  template <class Body> void over_tiles(int rows, double cost_per_row, const Body& body);
  void attend_split(const AttendArgs& args, const std::vector<AttendPiece>& pieces);
  std::pair<int, int> units_of(const RowItem& item) const;

  Shape shape_;
  KvLayout kv_;
  int num_blocks_, num_swap_blocks_, num_positions_;
  std::vector<float> cosines_, sines_;
  const Kernels& kernels_;
  OwnedPool pool_;
  Stopwatch stopwatch_;
  std::shared_ptr<Recycler> buffers_;
  Arena weights_;
  Kind activations_ = Kind::rows;
  size_t layer_bytes_;
  std::shared_ptr<Pages> pool_pages_;
  Residence residence_;
  Pages swap_pages_;
  std::vector<Pages> scratch_;
};

}  // namespace headway
