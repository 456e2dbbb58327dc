#include "probe.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "cpu.h"
#include "memory.h"
#include "threads.h"

namespace headway {

namespace {

constexpr size_t kReadBytes = size_t{256} << 20;
constexpr int64_t kSteps = 500000;
constexpr int kTries = 8;

// Run on every thread at once; returns the least seconds of a try.
template <class Body> double fastest(ThreadPool& pool, int tries, const Body& body) {
  using Clock = std::chrono::steady_clock;
  const int size = pool.num_threads();
  double best = 1e9;
  for (int i = 0; i < tries; ++i) {
    const auto start = Clock::now();
    std::atomic<int> arrived{0};
    pool.parallel(size, 1, [&](int begin, int, int) {
      arrived.fetch_add(1);
      while (arrived.load(std::memory_order_acquire) < size) std::this_thread::yield();
      body(begin);
    });
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

}  // namespace

Limits machine_limits(const std::string& isa, int num_threads) {
  const Kernels& kernels = choose_kernels(isa);
  ThreadPool pool(num_threads);
  const size_t part = kReadBytes / num_threads / 4096 * 4096;
  const Pages pages(part * num_threads);
  std::fill(pages.data(), pages.data() + pages.size(), 1);  // or all would be one page of zeros
  std::atomic<float> sink{0};  // or the compiler leaves the work out
  const auto add = [&](float x) { sink.store(x, std::memory_order_relaxed); };
  Limits found;
  found.read_bytes_per_s = part * num_threads / fastest(pool, kTries, [&](int i) {
    add(kernels.probe_read(pages.data() + i * part, part));
  });
  const double steps = static_cast<double>(kSteps) * num_threads;
  found.int8_ops_per_s = steps * kernels.probe_int8_ops /
                         fastest(pool, kTries, [&](int) { add(kernels.probe_int8(pages.data(), kSteps)); });
  found.bf16_ops_per_s = steps * kernels.probe_bf16_ops /
                         fastest(pool, kTries, [&](int) { add(kernels.probe_bf16(pages.data(), kSteps)); });
  return found;
}

}  // namespace headway
