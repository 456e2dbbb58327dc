#include "residence.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#ifdef __linux__
#include <sys/mman.h>
#include <sys/resource.h>
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#endif

#include "layout.h"

namespace headway {

namespace {

constexpr size_t kSlice = 2u << 20;    // of a part, taken at a time
constexpr size_t kAhead = 512u << 20;  // of all parts, that lie ready
constexpr size_t kPage = 4096;
constexpr size_t kWorthThread = 8 * kSlice;
constexpr int kLowest = 19;

// Whether the system took the wish; what it has given before stays as it is.
bool take(uint8_t* begin, size_t bytes) {
#ifdef __linux__
  const size_t before = reinterpret_cast<uintptr_t>(begin) % kPage;
  return madvise(begin - before, bytes + before, MADV_POPULATE_WRITE) == 0;
#else
  (void)begin, (void)bytes;
  return false;
#endif
}

// Of this thread alone.
void give_way() {
#ifdef __linux__
  setpriority(PRIO_PROCESS, 0, kLowest);
#endif
}

}  // namespace

struct Residence::State {
  State(std::shared_ptr<const Pages> memory, size_t bytes, int num_parts)
      : pages(std::move(memory)), part_bytes(bytes), parts(num_parts), ahead(kAhead / parts) {}

  // The next slice of every part, unless another has just taken the last. Returns what is taken now.
  size_t take_slice() {
    const std::lock_guard<std::mutex> turn(taking);
    const size_t size = std::min(kSlice, part_bytes - taken);
    bool is_given = true;
    for (size_t i = 0; i < parts && is_given; ++i) is_given = take(pages->data() + i * part_bytes + taken, size);
    return taken = is_given ? taken + size : part_bytes;  // what the system does not give in advance comes later
  }

  void serve() {
    give_way();
    for (size_t done = 0; done < part_bytes; done = take_slice()) {
      std::unique_lock<std::mutex> lock(mutex);
      changed.wait(lock, [&] { return is_left || done < wanted; });
      if (is_left) return;
    }
  }

  const std::shared_ptr<const Pages> pages;
  const size_t part_bytes, parts, ahead;
  std::mutex taking;
  size_t taken = 0;
  std::mutex mutex;  // never held for long
  std::condition_variable changed;
  std::atomic<size_t> wanted{0};
  bool is_left = false;
};

Residence::Residence(std::shared_ptr<const Pages> pages, size_t part_bytes, int num_parts)
    : state_(std::make_shared<State>(std::move(pages), part_bytes, num_parts)) {
  if (state_->pages->size() < kWorthThread) return;
  reach(0);
  std::thread([state = state_] { state->serve(); }).detach();
}

Residence::~Residence() {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->is_left = true;
  state_->changed.notify_one();
}

void Residence::reach(size_t offset) {
  State& state = *state_;
  const size_t wanted = state.wanted.load(std::memory_order_relaxed);
  // In strides, so that the thread is woken seldom.
  if (wanted == state.part_bytes || offset + state.ahead / 2 < wanted) return;
  const std::unique_lock<std::mutex> lock(state.mutex, std::try_to_lock);
  if (!lock) return;  // another step will say it again
  state.wanted.store(std::min(offset + state.ahead, state.part_bytes), std::memory_order_relaxed);
  state.changed.notify_one();
}

void Residence::complete() {
  while (state_->take_slice() < state_->part_bytes) {
  }
}

}  // namespace headway
