#include "ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "cpu.h"
#include "half.h"

namespace headway {

namespace {

// What is shorter than this is done by the caller alone (nanoseconds).
constexpr double kWorthThreads = 3000;
// Rows of activations that a panel of weights meets before the next panel: they stay in the cache.
constexpr int kRowsAtOnce = 128;
// Panels that a thread takes at a time.
constexpr int kPanelGrain = 2;

bool has_several_units(const AttendPiece& piece) { return piece.end - piece.begin > 1; }

}  // namespace

Ops::Ops(const Shape& shape, KvType kv_type, int num_blocks, int block_size, int num_swap_blocks,
         std::vector<float> cosines, std::vector<float> sines, int num_threads,
         const std::string& isa)
    : shape_(shape),
      kv_{kv_type, block_size, shape.num_kv_heads, shape.head_dim},
      num_blocks_(num_blocks),
      num_swap_blocks_(num_swap_blocks),
      num_positions_(static_cast<int>(cosines.size() / (shape.head_dim / 2))),
      cosines_(std::move(cosines)),
      sines_(std::move(sines)),
      kernels_(choose_kernels(isa)),
      pool_(new ThreadPool(num_threads)),
      buffers_(std::make_shared<Recycler>()),
      layer_bytes_((static_cast<size_t>(num_blocks) + 1) * kv_.block_bytes()),  // the last block stays zero
      pool_pages_(std::make_shared<Pages>(layer_bytes_ * shape.num_layers)),
      residence_(pool_pages_, layer_bytes_, shape.num_layers),
      swap_pages_(num_swap_blocks * kv_.block_bytes() * shape.num_layers),
      scratch_(num_threads) {}

Tensor Ops::make(Kind kind, int rows, int columns) {
  Tensor x;
  x.rows = rows;
  x.columns = columns;
  x.layout = {kind, row_stride(columns)};
  const size_t tiles = (static_cast<size_t>(rows) + kRowTile - 1) / kRowTile;
  x.data = buffers_->take(kind == Kind::rows ? rows * x.layout.columns * 4
                                             : tiles * x.layout.tile_bytes());
  return x;
}

uint8_t* Ops::scratch(int thread, size_t bytes) {
  Pages& pages = scratch_[thread];
  if (pages.size() < bytes) pages = Pages(bytes);
  return pages.data();
}

float* Ops::tile_rows(int thread, const Tensor& x) {
  return reinterpret_cast<float*>(scratch(thread, kRowTile * row_stride(x.columns) * 4));
}

// Whole tiles a thread, so that no two write to one line.
template <class Body> void Ops::over_tiles(int rows, double cost_per_row, const Body& body) {
  const int tiles = (rows + kRowTile - 1) / kRowTile;
  if (rows * cost_per_row < kWorthThreads) return body(0, rows, 0);
  pool_->parallel(tiles, 1, [&](int begin, int end, int thread) {
    body(begin * kRowTile, std::min(end * kRowTile, rows), thread);
  });
}

// ------------------------------------------------------------------ layout of a step

std::shared_ptr<Step> Ops::prepare(std::vector<int32_t> token_ids, const std::vector<Part>& parts,
                                   std::vector<int32_t> tables, int num_padding, int length) {
  auto step = std::make_shared<Step>();
  step->num_rows = static_cast<int>(token_ids.size());
  step->token_ids = std::move(token_ids);
  step->tables = std::move(tables);
  int32_t furthest = 0;
  for (const int32_t block : step->tables) {
    if (block < 0 || block >= num_blocks_) throw std::invalid_argument("no such block");
    furthest = std::max(furthest, block);
  }
  residence_.reach((static_cast<size_t>(furthest) + 1) * kv_.block_bytes());
  const int num_real = static_cast<int>(parts.size()) - num_padding;
  int64_t row = 0, entry = 0;
  for (int i = 0; i < static_cast<int>(parts.size()); ++i) {
    const Part& part = parts[i];
    const bool is_padding = i >= num_real;
    const int64_t end = static_cast<int64_t>(part.start) + part.count;
    if (part.start < 0 || part.count < 1 || end > num_positions_) {
      throw std::invalid_argument("no such position");
    }
    if (!is_padding && static_cast<int64_t>(part.num_blocks) * kv_.block_size < end) {
      throw std::invalid_argument("a table is too short");
    }
    if (entry + part.num_blocks > static_cast<int64_t>(step->tables.size()) ||
        row + part.count > step->num_rows) {
      throw std::invalid_argument("rows or tables are missing");
    }
    for (int32_t at = part.start; at < end;) {
      const int32_t stop = std::min<int32_t>(static_cast<int32_t>(end), (at / kQueryRows + 1) * kQueryRows);
      step->items.push_back({static_cast<int32_t>(row), stop - at, at, static_cast<int32_t>(end),
                             length, part.num_blocks, step->tables.data() + entry, is_padding});
      row += stop - at;
      at = stop;
    }
    entry += part.num_blocks;
  }
  if (row != step->num_rows) throw std::invalid_argument("rows without a sequence");
  step->pieces.reserve(step->items.size() * shape_.num_kv_heads);
  for (const RowItem& item : step->items) {
    const auto [first, last] = units_of(item);
    for (int head = 0; head < shape_.num_kv_heads; ++head) step->pieces.push_back({&item, head, first, last});
  }
  return step;
}

// ------------------------------------------------------------------ rows

Tensor Ops::embed(const Table& table, const Step& step) {
  for (const int32_t id : step.token_ids) {
    if (id < 0 || id >= table.rows) throw std::invalid_argument("no such token");
  }
  Tensor out = make(Kind::rows, step.num_rows, table.columns);
  over_tiles(step.num_rows, table.columns, [&](int begin, int end, int) {
    for (int r = begin; r < end; ++r) {
      float* row = out.floats() + r * out.stride();
      dequantise_row(table.format, table.data + step.token_ids[r] * table.row_bytes, table.columns, row);
      std::fill(row + table.columns, row + out.stride(), 0.0f);
    }
  });
  return out;
}

Tensor Ops::norm(const Tensor& residual, const Tensor* delta, const Vector& weight, float eps,
                 Kind kind) {
  if (residual.layout.kind != Kind::rows || weight.size != residual.columns ||
      (delta && (delta->layout.kind != Kind::rows || delta->rows != residual.rows ||
                 delta->columns != residual.columns))) {
    throw std::invalid_argument("norm: shapes differ");
  }
  Tensor out = make(kind, residual.rows, residual.columns);
  const NormArgs args{residual.floats(), delta ? delta->floats() : nullptr, weight.values.data(), eps,
                      residual.columns,  residual.stride(), out.layout, out.data.get()};
  over_tiles(residual.rows, residual.columns * 0.5,
             [&](int begin, int end, int thread) { kernels_.norm(args, begin, end, tile_rows(thread, out)); });
  return out;
}

void Ops::norm_heads(const Tensor& qkv, const Vector& q, const Vector& k, float eps) {
  if (q.size != shape_.head_dim || k.size != shape_.head_dim) {
    throw std::invalid_argument("norm_heads: shapes differ");
  }
  const HeadNormArgs args{qkv.floats(), qkv.stride(), q.values.data(), k.values.data(), eps,
                          shape_.num_heads, shape_.num_kv_heads, shape_.head_dim};
  over_tiles(qkv.rows, qkv.columns * 0.5,
             [&](int begin, int end, int) { kernels_.norm_heads(args, begin, end); });
}

Tensor Ops::silu_mul(const Tensor& gate_up) {
  // Both halves are padded to whole groups by the product that made them.
  const size_t up = gate_up.stride() / 2;
  const int columns = gate_up.columns / 2;
  if (gate_up.layout.kind != Kind::rows || up != row_stride(columns)) {
    throw std::invalid_argument("silu_mul: not the output of a gate and an up projection");
  }
  Tensor out = make(activations_, gate_up.rows, columns);
  const GateArgs args{gate_up.floats(), gate_up.stride(), up, columns, out.layout, out.data.get()};
  over_tiles(gate_up.rows, columns * 1.0,
             [&](int begin, int end, int thread) { kernels_.gate(args, begin, end, tile_rows(thread, out)); });
  return out;
}

std::vector<bool> Ops::are_finite(const Tensor& hidden) const {
  std::vector<bool> found(hidden.rows);
  for (int r = 0; r < hidden.rows; ++r) {
    const float* row = hidden.floats() + r * hidden.stride();
    uint32_t any = 0;  // the exponent of infinity and of not-a-number is all ones
    for (int i = 0; i < hidden.columns; ++i) {
      any |= 0u - static_cast<uint32_t>((bits_of(row[i]) & 0x7f800000u) == 0x7f800000u);
    }
    found[r] = !any;
  }
  return found;
}

// ------------------------------------------------------------------ products

Tensor Ops::pack(const Tensor& x, const std::vector<int32_t>* rows, Kind kind) {
  const int count = rows ? static_cast<int>(rows->size()) : x.rows;
  Tensor out = make(kind, count, x.columns);
  const PackArgs args{x.floats(), x.stride(), rows ? rows->data() : nullptr, out.layout, out.data.get()};
  over_tiles(count, x.columns * 0.5,
             [&](int begin, int end, int thread) { kernels_.pack(args, begin, end, tile_rows(thread, out)); });
  return out;
}

double Ops::linear_cost(int rows, const Matrix& matrix) {
  const double bytes = static_cast<double>(matrix.num_bytes());
  const double products = static_cast<double>(matrix.inputs()) * matrix.outputs() * rows;
  return std::max(bytes / 15, products / 150);
}

Tensor Ops::multiply(const Tensor& x, const Matrix& matrix) {
  const size_t stride = matrix.padded_outputs();
  const Tensor out{x.rows, matrix.outputs(), {Kind::rows, stride}, buffers_->take(x.rows * stride * 4)};
  struct Piece {
    const Segment* segment;
    LinearArgs args;
    int first_panel;
  };
  std::vector<Piece> pieces;
  int panels = 0;
  size_t column = 0;
  Tensor packed[kNumKinds];
  for (const Segment& s : matrix.segments()) {
    const Kind kind = kPacked[static_cast<int>(s.format)].activations();
    Tensor& input = packed[static_cast<int>(kind)];
    if (!input.data) {
      if (x.layout.kind != kind && x.layout.kind != Kind::rows) {
        throw std::invalid_argument("linear: activations of another kind");
      }
      input = x.layout.kind == kind ? x : pack(x, nullptr, kind);
    }
    const LinearArgs args{input.data.get(), input.layout, x.rows, s.codes.get(), s.scales.get(),
                          s.bias.empty() ? nullptr : s.bias.data(), out.floats() + column, out.stride()};
    pieces.push_back({&s, args, panels});
    panels += (s.num_blocks + kPanel - 1) / kPanel;
    column += static_cast<size_t>(s.num_blocks) * kLanes;
  }
  const int chunks = (x.rows + kRowsAtOnce - 1) / kRowsAtOnce;
  const auto body = [&](int begin, int end, int) {
    for (int item = begin; item < end; ++item) {
      const int row = item / panels * kRowsAtOnce, panel = item % panels;
      size_t i = pieces.size() - 1;
      while (pieces[i].first_panel > panel) --i;
      const Piece& piece = pieces[i];
      const int block = (panel - piece.first_panel) * kPanel;
      const int count = std::min(kPanel, piece.segment->num_blocks - block);
      kernels_.linear[static_cast<int>(piece.segment->format)](
          piece.args, block, count, row, std::min(row + kRowsAtOnce, x.rows));
    }
  };
  if (linear_cost(x.rows, matrix) < kWorthThreads) body(0, chunks * panels, 0);
  else pool_->parallel(chunks * panels, kPanelGrain, body);
  return out;
}

Tensor Ops::linear(const Tensor& x, const Matrix& matrix) {
  if (x.columns != matrix.inputs()) throw std::invalid_argument("linear: shapes differ");
  return multiply(x, matrix);
}

Tensor Ops::logits(const Tensor& hidden, const std::vector<int32_t>& rows, const Matrix& head) {
  if (hidden.columns != head.inputs() || hidden.layout.kind != Kind::rows) {
    throw std::invalid_argument("logits: shapes differ");
  }
  for (const int32_t row : rows) {
    if (row < 0 || row >= hidden.rows) throw std::invalid_argument("logits: no such row");
  }
  return multiply(pack(hidden, &rows, head.activations()), head);
}

// ------------------------------------------------------------------ attention

Tensor Ops::rotate_and_store(const Tensor& qkv, int index, const Step& step) {
  const int width = shape_.num_heads * shape_.head_dim;
  if (qkv.layout.kind != Kind::rows || qkv.rows != step.num_rows || index < 0 ||
      index >= shape_.num_layers ||
      qkv.columns != width + 2 * shape_.num_kv_heads * shape_.head_dim) {
    throw std::invalid_argument("rotate_and_store: shapes differ");
  }
  Tensor queries = make(Kind::rows, qkv.rows, width);
  // Scores are logarithms to the base 2, for the sake of a shorter exponential.
  const float scale = static_cast<float>(1.4426950408889634 / std::sqrt(static_cast<double>(shape_.head_dim)));
  const RotateArgs args{qkv.floats(),    qkv.stride(),  queries.floats(),  queries.stride(),
                        cosines_.data(), sines_.data(), scale,             shape_.num_heads,
                        layer(index),    kv_};
  const int count = static_cast<int>(step.items.size());
  const size_t bytes = round_up(2 * static_cast<size_t>(shape_.head_dim) * 4, 64);
  const auto body = [&](int begin, int end, int thread) {
    for (int i = begin; i < end; ++i) {
      const RowItem* after = i + 1 < count ? &step.items[i + 1] : nullptr;
      kernels_.rotate(args, step.items[i], after, scratch(thread, bytes));
    }
  };
  if (0.5 * qkv.rows * qkv.columns < kWorthThreads) body(0, count, 0);
  else pool_->parallel(count, 4, body);
  return queries;
}

// The units that an item goes through: all that it sees, or all up to a padded length.
std::pair<int, int> Ops::units_of(const RowItem& item) const {
  const int last = item.position + item.count - 1;
  const int limit = std::max(item.length, last + 1);
  const int first = shape_.window && !item.length ? std::max(0, item.position - shape_.window + 1) : 0;
  return {first / kUnit, (limit + kUnit - 1) / kUnit};
}

double Ops::attention_cost(const Step& step) const {
  double total = 0;
  for (const RowItem& item : step.items) {
    const int last = std::max(item.length, item.position + item.count) - units_of(item).first * kUnit;
    total += static_cast<double>(item.count) * last * shape_.num_heads * shape_.head_dim * 0.01 +
             last * static_cast<double>(shape_.num_kv_heads * shape_.head_dim) * 0.03;
  }
  return total;
}

Tensor Ops::attention(const Tensor& queries, int index, const Step& step) {
  if (queries.rows != step.num_rows || queries.layout.kind != Kind::rows || index < 0 ||
      index >= shape_.num_layers || queries.columns != shape_.num_heads * shape_.head_dim) {
    throw std::invalid_argument("attention: shapes differ");
  }
  Tensor out = make(Kind::rows, queries.rows, queries.columns);
  for (int r = 0; r < out.rows && out.stride() > static_cast<size_t>(out.columns); ++r) {
    std::fill(out.floats() + r * out.stride() + out.columns, out.floats() + (r + 1) * out.stride(), 0.0f);
  }
  const AttendArgs args{queries.floats(), queries.stride(), out.floats(), out.stride(),
                        shape_.num_heads, shape_.window, num_blocks_, layer(index), kv_};
  const size_t bytes = kernels_.attend_scratch(args);
  const std::vector<AttendPiece>& pieces = step.pieces;
  const int count = static_cast<int>(pieces.size());
  const auto body = [&](int begin, int end, int thread) {
    for (int i = begin; i < end; ++i) {
      const AttendPiece* after = i + 1 < count ? &pieces[i + 1] : nullptr;
      kernels_.attend(args, pieces[i], after, nullptr, scratch(thread, bytes));
    }
  };
  if (attention_cost(step) < kWorthThreads) {
    body(0, count, 0);
  } else if (count < 4 * pool_->num_threads() && std::any_of(pieces.begin(), pieces.end(), has_several_units)) {
    attend_split(args, pieces);
  } else {
    pool_->parallel(count, 1, body);
  }
  return out;
}

// For few sequences: each unit is a piece of its own, and folded afterwards in the order in which one
// thread would have.
void Ops::attend_split(const AttendArgs& args, const std::vector<AttendPiece>& wholes) {
  const int group = shape_.num_heads / shape_.num_kv_heads;
  std::vector<AttendPiece> pieces;
  for (const AttendPiece& whole : wholes)
    for (int unit = whole.begin; unit < whole.end; ++unit) {
      pieces.push_back({whole.item, whole.head, unit, unit + 1});
    }
  const int count = static_cast<int>(pieces.size());
  std::vector<size_t> begins{0};  // of the partial results, in floats
  const auto num_queries = [&](int i) { return static_cast<size_t>(pieces[i].item->count) * group; };
  for (int i = 0; i < count; ++i) {
    const size_t queries = num_queries(i);
    begins.push_back(begins.back() + round_up(queries, 16) + queries * partial_width(shape_.head_dim));
  }
  const std::shared_ptr<uint8_t> memory = buffers_->take(begins.back() * 4);
  std::vector<Partial> parts(pieces.size());
  for (int i = 0; i < count; ++i) {
    float* p = reinterpret_cast<float*>(memory.get()) + begins[i];
    parts[i] = {p, p + round_up(num_queries(i), 16)};
  }
  const size_t bytes = kernels_.attend_scratch(args);
  pool_->parallel(count, 1, [&](int begin, int end, int thread) {
    for (int i = begin; i < end; ++i) {
      const AttendPiece* after = i + 1 < count ? &pieces[i + 1] : nullptr;
      kernels_.attend(args, pieces[i], after, &parts[i], scratch(thread, bytes));
    }
  });
  const Partial* part = parts.data();
  for (const AttendPiece& whole : wholes) {
    kernels_.fold(args, whole, part, scratch(0, bytes));
    part += whole.end - whole.begin;
  }
}

// ------------------------------------------------------------------ blocks

void Ops::swap_out(const std::vector<Move>& moves) {
  const size_t bytes = kv_.block_bytes(), swap_layer = num_swap_blocks_ * bytes;
  pool_->parallel(shape_.num_layers, 1, [&](int begin, int end, int) {
    for (int i = begin; i < end; ++i)
      for (const Move& move : moves) {
        std::memcpy(swap_pages_.data() + i * swap_layer + move.target * bytes,
                    layer(i) + move.source * bytes, bytes);
      }
  });
}

void Ops::swap_in(const std::vector<Move>& moves) {
  const size_t bytes = kv_.block_bytes(), swap_layer = num_swap_blocks_ * bytes;
  pool_->parallel(shape_.num_layers, 1, [&](int begin, int end, int) {
    for (int i = begin; i < end; ++i)
      for (const Move& move : moves) {
        std::memcpy(layer(i) + move.target * bytes,
                    swap_pages_.data() + i * swap_layer + move.source * bytes, bytes);
      }
  });
}

void Ops::copy_blocks(const std::vector<Move>& moves) {
  const size_t bytes = kv_.block_bytes();
  pool_->parallel(shape_.num_layers, 1, [&](int begin, int end, int) {
    for (int i = begin; i < end; ++i)
      for (const Move& move : moves) {  // one after the other
        std::memmove(layer(i) + move.target * bytes, layer(i) + move.source * bytes, bytes);
      }
  });
}

}  // namespace headway
