// Prints a digest of the bits that each operation gives on made-up values, so that builds for
// different processors can be compared: portable kernels must agree on all of them.
//
//   digest [isa]
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "formats.h"
#include "half.h"
#include "ops.h"

using namespace headway;

namespace {

constexpr int kHidden = 96, kRows = 21, kBlocks = 8;

// A linear congruential generator: the same numbers everywhere.
class Numbers {
 public:
  uint32_t bits() {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<uint32_t>(state_ >> 32);
  }
  float value() { return static_cast<float>(bits() >> 8) / 8388608.0f - 1.0f; }

 private:
  uint64_t state_ = 1;
};

void print(const std::string& name, const Tensor& x) {
  uint64_t hash = 14695981039346656037ull;  // FNV-1a over the bits of every value
  for (int r = 0; r < x.rows; ++r)
    for (int c = 0; c < x.columns; ++c) {
      hash = (hash ^ bits_of(x.floats()[r * x.stride() + c])) * 1099511628211ull;
    }
  std::printf("%s %016llx\n", name.c_str(), static_cast<unsigned long long>(hash));
}

std::vector<float> values(Numbers& numbers, size_t count) {
  std::vector<float> found(count);
  for (float& x : found) x = numbers.value();
  return found;
}

Vector vector_of(Numbers& numbers, int size) {
  std::vector<float> padded = values(numbers, row_stride(size));
  std::fill(padded.begin() + size, padded.end(), 0.0f);
  return {padded, size};
}

Table table_of(const std::vector<float>& rows, int columns) {
  const int count = static_cast<int>(rows.size()) / columns;
  return {Stored::f32, count, columns, columns * sizeof(float),
          reinterpret_cast<const uint8_t*>(rows.data()), nullptr};
}

void put_float(const std::string& format, float x, size_t index, std::vector<uint8_t>& data) {
  const uint16_t half = format == "F16" ? half_from_float(x) : bf16_from_float(x);
  if (format == "F32") std::memcpy(&data[index * 4], &x, 4);
  else std::memcpy(&data[index * 2], &half, 2);
}

// Rows of random codes, whose scales are sound.
std::vector<uint8_t> stored_rows(Numbers& numbers, const std::string& format, int rows, int columns) {
  std::vector<uint8_t> data(rows * stored_row_bytes(stored_format(format), columns));
  if (format == "F32" || format == "F16" || format == "BF16") {
    for (size_t i = 0; i < static_cast<size_t>(rows) * columns; ++i) put_float(format, numbers.value(), i, data);
    return data;
  }
  for (uint8_t& byte : data) byte = static_cast<uint8_t>(numbers.bits());
  const size_t block = stored_row_bytes(stored_format(format), format.back() == 'K' ? 256 : 32);
  const size_t at = format == "Q6_K" ? 208 : 0;
  const int halves = format == "Q6_K" || format.back() == '0' ? 1 : 2;
  for (size_t i = 0; i < data.size(); i += block)
    for (int h = 0; h < halves; ++h) {
      const uint16_t scale = half_from_float(0.1f * numbers.value());
      std::memcpy(&data[i + at + 2 * h], &scale, 2);
    }
  return data;
}

std::shared_ptr<Step> step_of(const Ops& ops, int rows, int start) {
  std::vector<int32_t> ids(rows), blocks(kBlocks);
  for (int i = 0; i < rows; ++i) ids[i] = i;
  for (int i = 0; i < kBlocks; ++i) blocks[i] = i;
  return ops.prepare(ids, {{start, rows, kBlocks}}, blocks, 0, 0);
}

std::unique_ptr<Ops> make_ops(const std::string& isa, KvType kv, int num_threads) {
  std::vector<float> cosines(128 * 16), sines(128 * 16);
  for (size_t i = 0; i < cosines.size(); ++i) {  // a rational point of the unit circle
    const float t = static_cast<float>(i % 97) / 97.0f;
    cosines[i] = (1 - t * t) / (1 + t * t), sines[i] = 2 * t / (1 + t * t);
  }
  return std::make_unique<Ops>(Shape{1, 3, 1, 32, 0}, kv, kBlocks, 16, 2, cosines, sines, num_threads, isa);
}

void products(const std::string& isa) {
  for (const char* name : {"F32", "F16", "BF16", "Q4_0", "Q4_1", "Q4_K", "Q5_0", "Q5_1", "Q5_K",
                           "Q8_0", "Q6_K"}) {
    Numbers numbers;
    const auto ops = make_ops(isa, KvType::f32, 2);
    const std::vector<float> rows = values(numbers, kRows * 256);
    const Tensor x = ops->embed(table_of(rows, 256), *step_of(*ops, kRows, 0));
    for (const char* target : {"", "F32", "BF16", "INT8"}) {
      Matrix matrix(256);
      const std::vector<uint8_t> data = stored_rows(numbers, name, 75, 256);
      matrix.add(name, target, data.data(), 75, nullptr, ops->weights(), ops->pool());
      print(std::string("linear ") + name + " " + target, ops->linear(x, matrix));
    }
  }
}

void attention(const std::string& isa, KvType kv, const std::string& name) {
  Numbers numbers;
  const auto ops = make_ops(isa, kv, 2);
  const std::vector<float> rows = values(numbers, kRows * 160);
  for (int start : {0, kRows, 2 * kRows}) {
    const auto step = step_of(*ops, kRows, start);
    const Tensor queries = ops->rotate_and_store(ops->embed(table_of(rows, 160), *step), 0, *step);
    print("rotate_and_store " + name, queries);
    print("attention " + name, ops->attention(queries, 0, *step));
  }
}

void rows(const std::string& isa) {
  Numbers numbers;
  const auto ops = make_ops(isa, KvType::f32, 1);
  const std::vector<float> data = values(numbers, kRows * 2 * kHidden);
  const auto step = step_of(*ops, kRows, 0);
  print("silu_mul", ops->silu_mul(ops->embed(table_of(data, 2 * kHidden), *step)));
  const Tensor narrow = ops->embed(table_of(data, kHidden), *step);
  print("norm", ops->norm(narrow, nullptr, vector_of(numbers, kHidden), 1e-5f, Kind::rows));
  const Tensor qkv = ops->embed(table_of(data, 160), *step);
  const Vector q = vector_of(numbers, 32), k = vector_of(numbers, 32);
  ops->norm_heads(qkv, q, k, 1e-5f);
  print("norm_heads", qkv);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string isa = argc > 1 ? argv[1] : "portable";
  products(isa);
  rows(isa);
  attention(isa, KvType::f32, "F32");
  attention(isa, KvType::bf16, "BF16");
  attention(isa, KvType::int8, "INT8");
  return 0;
}
