#include "threads.h"

#include <pthread.h>
#ifdef __linux__
#include <sched.h>
#endif

#include <chrono>
#include <utility>

namespace headway {

namespace {

using Clock = std::chrono::steady_clock;

// How long a thread spins before it sleeps: longer than what lies between two loops of a step, and
// short enough to be no burden beside other work.
constexpr auto kSpin = std::chrono::microseconds(60);
constexpr int kPausesPerLook = 64;

inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

#ifdef __linux__

int present_core() { return sched_getcpu(); }

// Where a thread might run when it began.
class Places {
 public:
  Places() {
    if (sched_getaffinity(0, sizeof all_, &all_) != 0) CPU_ZERO(&all_);
  }

  // Move the thread if it is on this core, and there is another.
  void avoid(int core) const {
    if (core != present_core() || core < 0 || core >= CPU_SETSIZE) return;
    cpu_set_t others = all_;
    CPU_CLR(core, &others);
    if (CPU_COUNT(&others) > 0) sched_setaffinity(0, sizeof others, &others);
  }

 private:
  cpu_set_t all_;
};

#else

int present_core() { return -1; }

struct Places {
  void avoid(int) const {}
};

#endif

std::atomic<int> forks{0};  // on the way from the first process that loaded this to the present one

int watch_forks() {
  static const int refused = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1); });
  (void)refused;  // without memory for a handler; then there is none for a process either
  return forks.load();
}

}  // namespace

ThreadPool::ThreadPool(int num_threads) : num_forks_(watch_forks()), ranges_(num_threads) {
  try {
    for (int i = 1; i < num_threads; ++i) threads_.emplace_back([this, i] { serve(i); });
  } catch (...) {
    stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { stop(); }

bool ThreadPool::is_orphaned() const { return forks.load(std::memory_order_relaxed) != num_forks_; }

void ThreadPool::stop() {
  is_stopping_ = true;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    wake_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::run(int count, int grain, Call call, const void* data) {
  const int size = num_threads();
  if (size == 1 || count <= grain || is_orphaned()) return call(data, 0, count, 0);
  const std::lock_guard<std::mutex> lock(one_caller_);
  call_ = call, data_ = data, grain_ = grain;
  for (int i = 0; i < size; ++i) {
    ranges_[i].next.store(static_cast<int>(static_cast<int64_t>(count) * i / size),
                          std::memory_order_relaxed);
    ranges_[i].end = static_cast<int>(static_cast<int64_t>(count) * (i + 1) / size);
  }
  caller_core_.store(present_core(), std::memory_order_relaxed);
  gate_.fetch_add(1);  // opened
  if (sleepers_.load() > 0) {
    const std::lock_guard<std::mutex> wake_lock(mutex_);
    wake_.notify_all();
  }
  work(0);
  gate_.fetch_add(1);  // closed: who has not joined will not
  wait_for_others();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

// A thread that has begun may have lost its core to another process. Then it is best to sleep: with a
// core idle, the system moves the thread there, and else it would go on only after a time slice.
void ThreadPool::wait_for_others() {
  const auto until = Clock::now() + kSpin;
  do {
    for (int i = 0; i < kPausesPerLook; ++i) {
      if (active_.load(std::memory_order_acquire) == 0) return;
      pause();
    }
  } while (Clock::now() < until);
  std::unique_lock<std::mutex> lock(mutex_);
  is_caller_asleep_ = true;
  all_done_.wait(lock, [&] { return active_.load() == 0; });
  is_caller_asleep_ = false;
}

void ThreadPool::work(int thread) noexcept {
  try {
    do_parts(thread);
  } catch (...) {
    const std::lock_guard<std::mutex> lock(failure_mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
}

void ThreadPool::do_parts(int thread) {
  const int size = num_threads();
  for (int i = 0; i < size; ++i) {
    Range& range = ranges_[(thread + i) % size];
    while (true) {
      if (range.next.load(std::memory_order_relaxed) >= range.end) break;
      const int begin = range.next.fetch_add(grain_, std::memory_order_relaxed);
      if (begin >= range.end) break;
      const int end = begin + grain_ < range.end ? begin + grain_ : range.end;
      call_(data_, begin, end, thread);
    }
  }
}

void ThreadPool::serve(int thread) {
  const Places places;
  uint32_t seen = 0;
  while (!is_stopping_) {
    seen = wait_for_work(seen);
    if (seen % 2 == 0) continue;
    places.avoid(caller_core_.load(std::memory_order_relaxed));
    active_.fetch_add(1);
    // Joined in time? The caller closes the gate first and then waits for those who have.
    if (gate_.load() % 2 == 1) work(thread);
    if (active_.fetch_sub(1) == 1 && is_caller_asleep_) {
      const std::lock_guard<std::mutex> lock(mutex_);
      all_done_.notify_one();
    }
  }
}

// Return the gate's new state.
uint32_t ThreadPool::wait_for_work(uint32_t seen) {
  const auto until = Clock::now() + kSpin;
  do {
    for (int i = 0; i < kPausesPerLook; ++i) {
      const uint32_t now = gate_.load(std::memory_order_acquire);
      if (now != seen || is_stopping_) return now;
      pause();
    }
  } while (Clock::now() < until);
  std::unique_lock<std::mutex> lock(mutex_);
  sleepers_.fetch_add(1);
  wake_.wait(lock, [&] { return gate_.load() != seen || is_stopping_; });
  sleepers_.fetch_sub(1);
  return gate_.load();
}

}  // namespace headway
