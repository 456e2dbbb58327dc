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
#include "probe.h"
#include "program.h"
#include "sampling.h"

namespace nb = nanobind;
using namespace headway;
using namespace nb::literals;

namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;
using Matrix2d = nb::ndarray<nb::numpy, float, nb::ndim<2>>;
using LogitArray = nb::ndarray<const float, nb::ndim<2>, nb::device::cpu>;
using DrawTuple = std::tuple<double, int, double, double, double>;
using ChangeTuple = std::tuple<int, nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>,
                               nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>>;
using MoveList = std::vector<std::pair<int, int>>;

// Python's lock is given away only for work that is long enough to be worth the two switches: when
// other threads want it, getting it back can take milliseconds.
constexpr double kWorthRelease = 20000;  // nanoseconds

// The kernels' part of a call, which takes about `cost` nanoseconds: without Python's lock if that is
// long, and on the stopwatch of the operations if it runs.
class Work {
 public:
  Work(Ops& ops, double cost) : stopwatch_(ops.stopwatch()) {
    if (cost >= kWorthRelease) released_.emplace();
    if (stopwatch_.is_on) start_ = Clock::now();
  }
  ~Work() {  // before the lock is asked for again
    if (stopwatch_.is_on) {
      stopwatch_.seconds += std::chrono::duration<double>(Clock::now() - start_).count();
    }
  }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

 private:
  using Clock = std::chrono::steady_clock;

  std::optional<nb::gil_scoped_release> released_;
  Stopwatch& stopwatch_;
  Clock::time_point start_;
};

Kind kind_named(const std::string& name) {
  if (name == "rows") return Kind::rows;
  if (name == "F32") return Kind::f32;
  if (name == "BF16") return Kind::bf16;
  if (name == "INT8") return Kind::int8;
  if (name == "INT8_WIDE") return Kind::int8_wide;
  throw std::invalid_argument("unknown kind of activations " + name);
}

KvType kv_type_named(const std::string& name) {
  if (name == "float32") return KvType::f32;
  if (name == "bfloat16") return KvType::bf16;
  if (name == "int8") return KvType::int8;
  throw std::invalid_argument("unknown type of keys and values " + name);
}

const char* name_of(Kind kind) {
  constexpr const char* names[] = {"rows", "F32", "BF16", "INT8", "INT8_WIDE"};
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

Logits logits_of(const LogitArray& array) {
  if (array.stride(1) != 1 && array.shape(1) > 1) throw std::invalid_argument("a row has gaps");
  return {array.data(), static_cast<int>(array.shape(0)), static_cast<int>(array.shape(1)),
          static_cast<size_t>(array.stride(0))};
}

std::vector<int> pick(Ops& ops, const LogitArray& array, const std::vector<DrawTuple>& terms,
                      const std::vector<ChangeTuple>& others) {
  const Logits logits = logits_of(array);
  std::vector<Draw> draws;
  for (const auto& [temperature, top_k, top_p, min_p, number] : terms) {
    draws.push_back({temperature, top_k, top_p, min_p, number});
  }
  std::vector<Change> changes;
  for (const auto& [row, ids, values] : others) {
    if (ids.size() != values.size()) throw std::invalid_argument("a change of another length");
    changes.push_back({row, ids.data(), values.data(), ids.size()});
  }
  const Work work(ops, Ops::pick_cost(logits.rows, logits.columns));
  return pick_tokens(ops.kernels(), ops.pool(), logits, draws, changes);
}

// For each a pair of the token's log-probability and the best, or None where the row is not finite.
nb::list scores(Ops& ops, const LogitArray& array, const std::vector<std::tuple<int, int, int>>& which) {
  const Logits logits = logits_of(array);
  std::vector<Wanted> wanted;
  for (const auto& [row, token, num_top] : which) wanted.push_back({row, token, num_top});
  std::vector<Scores> found;
  {
    const Work work(ops, 10 * Ops::pick_cost(static_cast<int>(wanted.size()), logits.columns));
    found = score_tokens(ops.kernels(), ops.pool(), logits, wanted);
  }
  nb::list results;
  for (const Scores& each : found) {
    if (each.is_finite) results.append(nb::make_tuple(each.logprob, nb::tuple(nb::cast(each.top))));
    else results.append(nb::none());
  }
  return results;
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
             ops.weights(), ops.pool());
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
std::shared_ptr<Step> prepare(Ops& ops, nb::sequence rows, int block_size,
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
  nb::class_<Limits>(m, "Limits")
      .def_ro("read_bytes_per_s", &Limits::read_bytes_per_s)
      .def_ro("int8_ops_per_s", &Limits::int8_ops_per_s)
      .def_ro("bf16_ops_per_s", &Limits::bf16_ops_per_s);
  m.def("machine_limits", &machine_limits, "isa"_a, "num_threads"_a,
        nb::call_guard<nb::gil_scoped_release>());

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
      .def("embed",
           [](Ops& ops, const Table& table, const Step& step) {
             const Work work(ops, 0);
             return ops.embed(table, step);
           })
      .def("rms_norm",
           [](Ops& ops, const Tensor& residual, const Tensor* delta, const Vector& weight, float eps) {
             const Work work(ops, 0.5 * residual.rows * residual.columns);
             return ops.norm(residual, delta, weight, eps, ops.activations());
           },
           "residual"_a, "delta"_a.none(), "weight"_a, "eps"_a)
      .def("final_norm",
           [](Ops& ops, const Tensor& residual, const Tensor* delta, const Vector& weight, float eps) {
             const Work work(ops, 0.5 * residual.rows * residual.columns);
             return ops.norm(residual, delta, weight, eps, Kind::rows);
           },
           "residual"_a, "delta"_a.none(), "weight"_a, "eps"_a)
      .def("linear",
           [](Ops& ops, const Tensor& x, const Matrix& matrix) {
             const Work work(ops, Ops::linear_cost(x.rows, matrix));
             return ops.linear(x, matrix);
           })
      .def("norm_heads",
           [](Ops& ops, const Tensor& qkv, const Vector& q, const Vector& k, float eps) {
             const Work work(ops, 0.5 * qkv.rows * qkv.columns);
             ops.norm_heads(qkv, q, k, eps);
             return qkv;
           })
      .def("rotate_and_store",
           [](Ops& ops, const Tensor& qkv, int layer, const Step& step) {
             const Work work(ops, 0.5 * qkv.rows * qkv.columns);
             return ops.rotate_and_store(qkv, layer, step);
           })
      .def("attention",
           [](Ops& ops, const Tensor& queries, int layer, const Step& step) {
             const Work work(ops, ops.attention_cost(step));
             return ops.attention(queries, layer, step);
           })
      .def("silu_mul",
           [](Ops& ops, const Tensor& gate_up) {
             const Work work(ops, 0.5 * gate_up.rows * gate_up.columns);
             return ops.silu_mul(gate_up);
           })
      .def("are_finite",
           [](Ops& ops, const Tensor& hidden) {
             const Work work(ops, 0);
             return ops.are_finite(hidden);
           })
      .def("logits",
           [](Ops& ops, const Tensor& hidden, const std::vector<int32_t>& rows, const Matrix& head) {
             Tensor out;
             {
               const Work work(ops, Ops::linear_cost(static_cast<int>(rows.size()), head));
               out = ops.logits(hidden, rows, head);
             }
             out.columns = head.outputs();
             return view(out);
           })
      .def("pick", &pick, "logits"_a, "terms"_a, "changes"_a = std::vector<ChangeTuple>())
      .def("scores", &scores)
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
      .def("make_resident", &Ops::make_resident, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_rw("is_timed", [](Ops& ops) { return ops.stopwatch().is_on; },
                   [](Ops& ops, bool is_on) { ops.stopwatch() = {is_on, 0.0}; })
      .def_prop_ro("seconds", [](Ops& ops) { return ops.stopwatch().seconds; })
      .def("fork_join_latency", &fork_join_latency);

  // What is recorded is used by its address, so it lives as long as the program.
  nb::class_<Program>(m, "Program")
      .def(nb::init<Ops&>(), nb::keep_alive<1, 2>())
      .def("embed", [](Program& p, const Table& table, nb::handle) { return p.embed(table); },
           nb::keep_alive<1, 2>(), "table"_a, "step"_a.none())
      .def("rms_norm",
           [](Program& p, int residual, std::optional<int> delta, const Vector& weight, float eps) {
             return p.norm(residual, delta, weight, eps, false);
           },
           nb::keep_alive<1, 4>(), "residual"_a, "delta"_a.none(), "weight"_a, "eps"_a)
      .def("final_norm",
           [](Program& p, int residual, std::optional<int> delta, const Vector& weight, float eps) {
             return p.norm(residual, delta, weight, eps, true);
           },
           nb::keep_alive<1, 4>(), "residual"_a, "delta"_a.none(), "weight"_a, "eps"_a)
      .def("linear", &Program::linear, nb::keep_alive<1, 3>())
      .def("norm_heads", &Program::norm_heads, nb::keep_alive<1, 3>(), nb::keep_alive<1, 4>())
      .def("rotate_and_store",
           [](Program& p, int qkv, int layer, nb::handle) { return p.rotate_and_store(qkv, layer); },
           "qkv"_a, "layer"_a, "step"_a.none())
      .def("attention", [](Program& p, int queries, int layer, nb::handle) { return p.attention(queries, layer); },
           "queries"_a, "layer"_a, "step"_a.none())
      .def("silu_mul", &Program::silu_mul)
      .def("finish", &Program::finish)
      .def("run", [](const Program& p, const Step& step) {
        const Work work(p.ops(), kWorthRelease);
        return p.run(step);
      });
}
