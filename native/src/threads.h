// A fork and join of short loops over threads of our own.
//
// Threads wait spinning for a short while and then sleep, so that they are quick inside a step and
// out of the way of others after it. The caller never waits for a thread that has not begun: it does
// the work itself, so another process on a core costs that core and no more. For one that has begun it
// waits in the same way. A thread that finds itself on the caller's core moves to another one: where a
// system wakes both on one core, it may leave them there for half a second. In a process that was forked from the one with the threads there are none:
// there the caller does everything.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace headway {

class ThreadPool {
 public:
  explicit ThreadPool(int num_threads);  // throws std::system_error if that many can't be started
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(ranges_.size()); }
  // Whether this process was forked after the threads began, so that it has none of them.
  bool is_orphaned() const;

  // Call body(begin, end, thread) for parts of [0, count) of at most `grain`, each once; one thread
  // alone does all at a time. If a body throws, the first exception is thrown here after all have
  // ended, and parts may be missing. Several may call at once, and take turns; a body must not call.
  template <class Body>
  void parallel(int count, int grain, const Body& body) {
    if (count <= 0) return;
    run(count, grain, [](const void* data, int begin, int end, int thread) {
      (*static_cast<const Body*>(data))(begin, end, thread);
    }, &body);
  }

 private:
  using Call = void (*)(const void* data, int begin, int end, int thread);

  // The part of the work that a thread begins with; others help when theirs is done.
  struct alignas(128) Range {
    std::atomic<int> next{0};
    int end = 0;
  };

  void stop();
  void run(int count, int grain, Call call, const void* data);
  void work(int thread) noexcept;
  void do_parts(int thread);
  void wait_for_others();
  void serve(int thread);
  uint32_t wait_for_work(uint32_t seen);
  const int num_forks_;  // before the threads began
  std::vector<Range> ranges_;
  Call call_ = nullptr;
  const void* data_ = nullptr;
  int grain_ = 1;
  std::mutex failure_mutex_;
  std::exception_ptr failure_;
  // Odd while there is work that a thread may join; each fork and each join adds one.
  alignas(128) std::atomic<uint32_t> gate_{0};
  std::atomic<int> caller_core_{-1};
  alignas(128) std::atomic<int> active_{0};
  alignas(128) std::atomic<int> sleepers_{0};
  std::atomic<bool> is_stopping_{false}, is_caller_asleep_{false};
  std::mutex mutex_;
  std::condition_variable wake_, all_done_;
  std::mutex one_caller_;
  std::vector<std::thread> threads_;
};

// What threads wait on can't be destroyed in a forked process, where they are missing: it is left.
struct LeaveOrphan {
  void operator()(ThreadPool* pool) const {
    if (!pool->is_orphaned()) delete pool;
  }
};
using OwnedPool = std::unique_ptr<ThreadPool, LeaveOrphan>;

}  // namespace headway
