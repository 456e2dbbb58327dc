// The Python module headway.kernels._native.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <thread>
#include <tuple>

#include "cpu.h"
#include "ops.h"

namespace nb = nanobind;
using namespace headway;
using namespace nb::literals;

namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;
using Matrix2d = nb::ndarray<nb::numpy, float, nb::ndim<2>>;
using MoveList = std::vector<std::pair<int, int>>;

// Python's lock is given away only for work that is long enough to be worth the two switches: when
// other threads want it, getting it back can take milliseconds.
constexpr double kWorthRelease = 20000;  // nanoseconds

class Release {
 public:
  explicit Release(double cost) {
    if (cost >= kWorthRelease) released_.emplace();
  }

 private:
  std::optional<nb::gil_scoped_release> released_;
};

Kind kind_named(const std::string& name) {
  if (name == "rows") return Kind::rows;
  if (name == "F32") return Kind::f32;
  if (name == "BF16") return Kind::bf16;
  if (name == "INT8") return Kind::int8;
  throw std::invalid_argument("unknown kind of activations " + name);
}

KvType kv_type_named(const std::string& name) {
  if (name == "float32") return KvType::f32;
  if (name == "bfloat16") return KvType::bf16;
  if (name == "int8") return KvType::int8;
  throw std::invalid_argument("unknown type of keys and values " + name);
}

const char* name_of(Kind kind) {
  constexpr const char* names[] = {"rows", "F32", "BF16", "INT8"};
  return names[static_cast<int>(kind)];
}

Matrix2d view(const Tensor& x) {
  if (x.layout.kind != Kind::rows) throw std::invalid_argument("packed activations have no rows");
  auto* held = new std::shared_ptr<uint8_t>(x.data);
  const nb::capsule owner(held, [](void* p) noexcept { delete static_cast<std::shared_ptr<uint8_t>*>(p); });
  const size_t shape[] = {static_cast<size_t>(x.rows), static_cast<size_t>(x.columns)};
  const int64_t strides[] = {static_cast<int64_t>(x.stride()), 1};
  return Matrix2d(x.floats(), 2, shape, owner, strides);
}

std::vector<float> copy_of(const Floats& values) {
  return {values.data(), values.data() + values.size()};
}

Vector make_vector(const Floats& values) {
  std::vector<float> padded(row_stride(values.size()), 0.0f);
  std::copy(values.data(), values.data() + values.size(), padded.begin());
  return {std::move(padded), static_cast<int>(values.size())};
}

Table make_table(const std::string& format, int columns, const Bytes& data) {
  const Stored stored = stored_format(format);
  if (data.shape(1) != stored_row_bytes(stored, columns)) throw std::invalid_argument("a table's rows have another size");
  return {stored, static_cast<int>(data.shape(0)), columns, data.shape(1), data.data(),
          std::make_shared<Bytes>(data)};
}

void add_segment(Matrix& matrix, Ops& ops, const std::string& format, const std::string& target,
                 const Bytes& data, const std::optional<Floats>& bias) {
  if (data.shape(1) != stored_row_bytes(stored_format(format), matrix.inputs())) {
    throw std::invalid_argument("a matrix's rows have another size");
  }
  if (bias && bias->size() != data.shape(0)) throw std::invalid_argument("a bias has another size");
  const nb::gil_scoped_release release;
  matrix.add(format, target, data.data(), static_cast<int>(data.shape(0)), bias ? bias->data() : nullptr,
             ops.pool());
}

std::vector<Move> moves_of(const MoveList& moves, int sources, int targets) {
  std::vector<Move> found;
  for (const auto& [source, target] : moves) {
    if (source < 0 || source >= sources || target < 0 || target >= targets) {
      throw std::invalid_argument("no such block");
    }
    found.push_back({source, target});
  }
  return found;
}

// `rows` have token_ids, start and block_ids. Padding: how many rows there are of token 0 in each of
// its sequences, and how far all attend.
std::shared_ptr<Step> prepare(const Ops& ops, nb::sequence rows, int block_size,
                              const std::vector<int>& padding, int length) {
  std::vector<int32_t> token_ids, tables;
  std::vector<Part> parts;
  for (nb::handle row : rows) {
    Part part{};
    part.start = nb::cast<int32_t>(row.attr("start"));
    for (nb::handle id : row.attr("token_ids")) {
      token_ids.push_back(nb::cast<int32_t>(id));
      ++part.count;
    }
    const int needed = (part.start + part.count + block_size - 1) / block_size;
    for (nb::handle id : row.attr("block_ids")) {
      if (part.num_blocks == needed) break;
      tables.push_back(nb::cast<int32_t>(id));
      ++part.num_blocks;
    }
    parts.push_back(part);
  }
  for (const int count : padding) {
    parts.push_back({0, count, 0});
    token_ids.insert(token_ids.end(), count, 0);
  }
  return ops.prepare(std::move(token_ids), parts, std::move(tables), static_cast<int>(padding.size()),
                     length);
}

// The least time of a fork and a join in which every thread took part, in nanoseconds: the least of
// `repeats` averages over 100. Part of the cost of every operation that is shared out.
double fork_join_latency(Ops& ops, int repeats) {
  using Clock = std::chrono::steady_clock;
  const int size = ops.pool().num_threads();
  double best = 1e9;
  for (int i = 0; i < repeats; ++i) {
    const auto start = Clock::now();
    for (int j = 0; j < 100; ++j) {
      std::atomic<int> arrived{0};
      ops.pool().parallel(size, 1, [&](int, int, int) {
        arrived.fetch_add(1);
        while (arrived.load(std::memory_order_acquire) < size) std::this_thread::yield();
      });
    }
    const std::chrono::duration<double, std::nano> taken = Clock::now() - start;
    best = std::min(best, taken.count() / 100);
  }
  return best;
}

}  // namespace

NB_MODULE(_native, m) {
  nb::set_leak_warnings(false);
  m.def("isas", &available_isas);

  nb::class_<Tensor>(m, "Tensor")
      .def_prop_ro("shape", [](const Tensor& x) { return std::make_tuple(x.rows, x.columns); })
      .def_prop_ro("kind", [](const Tensor& x) { return name_of(x.layout.kind); })
      .def("numpy", &view);
  nb::class_<Vector>(m, "Vector").def("__init__", [](Vector* self, const Floats& values) {
    new (self) Vector(make_vector(values));
  });
  nb::class_<Table>(m, "Table")
      .def("__init__", [](Table* self, const std::string& format, int columns, const Bytes& data) {
        new (self) Table(make_table(format, columns, data));
      });
  nb::class_<Matrix>(m, "Matrix")
      .def(nb::init<int>())
      .def("add", &add_segment, "ops"_a, "format"_a, "target"_a, "data"_a, "bias"_a.none())
      .def_prop_ro("num_bytes", &Matrix::num_bytes)
      .def_prop_ro("format", &Matrix::format)
      .def_prop_ro("activations", [](const Matrix& x) { return name_of(x.activations()); });
  nb::class_<Step>(m, "Step").def_ro("num_rows", &Step::num_rows);

  nb::class_<Ops>(m, "Ops")
      .def("__init__",
           [](Ops* self, int num_layers, int num_heads, int num_kv_heads, int head_dim, int window,
              const std::string& kv_type, int num_blocks, int block_size, int num_swap_blocks,
              const Floats& cosines, const Floats& sines, int num_threads, const std::string& isa) {
             new (self) Ops({num_layers, num_heads, num_kv_heads, head_dim, window},
                            kv_type_named(kv_type), num_blocks, block_size, num_swap_blocks, copy_of(cosines), copy_of(sines), num_threads,
                            isa);
           },
           nb::kw_only(), "num_layers"_a, "num_heads"_a, "num_kv_heads"_a, "head_dim"_a, "window"_a,
           "kv_type"_a, "num_blocks"_a, "block_size"_a, "num_swap_blocks"_a, "cosines"_a, "sines"_a,
           "num_threads"_a, "isa"_a)
      .def_prop_ro("isa", &Ops::isa)
      .def_prop_rw("activations", [](const Ops& ops) { return name_of(ops.activations()); },
                   [](Ops& ops, const std::string& name) { ops.set_activations(kind_named(name)); })
      .def("prepare", &prepare)
      .def("embed", [](Ops& ops, const Table& table, const Step& step) { return ops.embed(table, step); })
      .def("rms_norm",
           [](Ops& ops, const Tensor& residual, const Tensor* delta, const Vector& weight, float eps) {
             const Release release(residual.rows * residual.columns * 0.5);
             return ops.norm(residual, delta, weight, eps, ops.activations());
           },
           "residual"_a, "delta"_a.none(), "weight"_a, "eps"_a)
      .def("final_norm",
           [](Ops& ops, const Tensor& residual, const Tensor* delta, const Vector& weight, float eps) {
             return ops.norm(residual, delta, weight, eps, Kind::rows);
           },
           "residual"_a, "delta"_a.none(), "weight"_a, "eps"_a)
      .def("linear",
           [](Ops& ops, const Tensor& x, const Matrix& matrix) {
             const Release release(Ops::linear_cost(x.rows, matrix));
             return ops.linear(x, matrix);
           })
      .def("norm_heads",
           [](Ops& ops, const Tensor& qkv, const Vector& q, const Vector& k, float eps) {
             ops.norm_heads(qkv, q, k, eps);
             return qkv;
           })
      .def("rotate_and_store",
           [](Ops& ops, const Tensor& qkv, int layer, const Step& step) {
             const Release release(qkv.rows * qkv.columns * 0.5);
             return ops.rotate_and_store(qkv, layer, step);
           })
      .def("attention",
           [](Ops& ops, const Tensor& queries, int layer, const Step& step) {
             const Release release(ops.attention_cost(step));
             return ops.attention(queries, layer, step);
           })
      .def("silu_mul",
           [](Ops& ops, const Tensor& gate_up) {
             const Release release(gate_up.rows * gate_up.columns * 0.5);
             return ops.silu_mul(gate_up);
           })
      .def("are_finite", &Ops::are_finite)
      .def("logits",
           [](Ops& ops, const Tensor& hidden, const std::vector<int32_t>& rows, const Matrix& head) {
             Tensor out;
             {
               const Release release(Ops::linear_cost(static_cast<int>(rows.size()), head));
               out = ops.logits(hidden, rows, head);
             }
             out.columns = head.outputs();
             return view(out);
           })
      .def("swap_out",
           [](Ops& ops, const MoveList& moves) {
             ops.swap_out(moves_of(moves, ops.num_blocks(), ops.num_swap_blocks()));
           })
      .def("copy_blocks",
           [](Ops& ops, const MoveList& moves) {
             ops.copy_blocks(moves_of(moves, ops.num_blocks(), ops.num_blocks()));
           })
      .def("swap_in",
           [](Ops& ops, const MoveList& moves) {
             ops.swap_in(moves_of(moves, ops.num_swap_blocks(), ops.num_blocks()));
           })
      .def("fork_join_latency", &fork_join_latency);
}
