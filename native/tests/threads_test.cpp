// The thread pool alone, for the sanitizers: every part is done once and what it wrote is seen after
// the join, whoever calls, however many threads sleep, and whatever a body throws.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#ifdef __linux__
#include <sched.h>
#endif

#include "threads.h"

namespace {

using headway::ThreadPool;

void check(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "threads_test: %s\n", what.c_str());
  std::exit(1);
}

// Plain memory, so that a missing order between the threads is a race.
void add_one_to_each(ThreadPool& pool, std::vector<int>& values, int grain) {
  pool.parallel(static_cast<int>(values.size()), grain, [&](int begin, int end, int thread) {
    check(thread >= 0 && thread < pool.num_threads(), "a thread that is not in the pool");
    check(end - begin >= 1, "a part of nothing");
    check(end - begin <= grain || pool.num_threads() == 1, "a part that is too large");
    for (int i = begin; i < end; ++i) ++values[i];
  });
}

void check_each_is_done_once(ThreadPool& pool) {
  for (const int count : {1, 2, 3, 7, 64, 1000}) {
    for (const int grain : {1, 2, 5, 64}) {
      std::vector<int> values(count, 0);
      add_one_to_each(pool, values, grain);
      for (const int value : values) check(value == 1, "a part was not done once");
    }
  }
  pool.parallel(0, 1, [](int, int, int) { check(false, "nothing to do, and a body was called"); });
}

void check_storm(ThreadPool& pool) {
  std::vector<int> values(16, 0);
  for (int round = 1; round <= 5000; ++round) {
    add_one_to_each(pool, values, 1);
    const int sum = std::accumulate(values.begin(), values.end(), 0);  // of the caller, between two
    check(sum == 16 * round, "a join came too early");
  }
}

// Longer than threads spin, about as long, and shorter.
void check_sleepers(ThreadPool& pool) {
  std::vector<int> values(16, 0);
  for (int round = 0; round < 300; ++round) {
    std::this_thread::sleep_for(std::chrono::microseconds(round % 3 * 60 + 5));
    add_one_to_each(pool, values, 2);
  }
  for (const int value : values) check(value == 300, "a part was lost while threads slept");
}

void check_many_callers(ThreadPool& pool) {
  std::vector<std::vector<int>> all(4, std::vector<int>(32, 0));
  std::vector<std::thread> callers;
  for (std::vector<int>& values : all) {
    callers.emplace_back([&pool, &values] {
      for (int round = 0; round < 500; ++round) add_one_to_each(pool, values, 3);
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (const std::vector<int>& values : all) {
    for (const int value : values) check(value == 500, "callers disturbed each other");
  }
}

void check_exceptions(ThreadPool& pool) {
  for (int round = 0; round < 200; ++round) {
    const int culprit = round % 64;
    bool is_caught = false;
    try {
      pool.parallel(64, 1, [&](int begin, int end, int) {
        for (int i = begin; i < end; ++i) {
          if (i == culprit || i == 63 - culprit) throw std::runtime_error("of a body");
        }
      });
    } catch (const std::runtime_error& error) {
      is_caught = error.what() == std::string("of a body");
    }
    check(is_caught, "an exception was lost");
    std::vector<int> values(8, 0);
    add_one_to_each(pool, values, 1);  // and the pool goes on
    for (const int value : values) check(value == 1, "the pool did not recover");
  }
}

// With threads that still start, spin, sleep, or work.
void check_short_lives() {
  for (int round = 0; round < 200; ++round) {
    ThreadPool pool(1 + round % 5);
    std::vector<int> values(9, 0);
    for (int i = 0; i < round % 3; ++i) add_one_to_each(pool, values, 1);
    if (round % 20 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

#ifdef __linux__

cpu_set_t places() {
  cpu_set_t all;
  check(sched_getaffinity(0, sizeof all, &all) == 0, "a thread's cores are not known");
  return all;
}

void stay_on(int core) {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(core, &only);
  check(sched_setaffinity(0, sizeof only, &only) == 0, "a thread can't be bound to a core");
}

// A thread that was put on the caller's core leaves it.
void check_threads_make_way() {
  const cpu_set_t all = places();
  if (CPU_COUNT(&all) < 2) return;
  ThreadPool pool(2);
  const int core = sched_getcpu();
  stay_on(core);
  std::atomic<bool> is_put{false}, is_away{false};
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!is_away && std::chrono::steady_clock::now() < until) {
    pool.parallel(64, 1, [&](int, int, int thread) {
      std::this_thread::sleep_for(std::chrono::microseconds(20));  // so that both get parts
      if (thread == 0) return;
      if (is_put) is_away = sched_getcpu() != core;
      else stay_on(core), is_put = true;
    });
  }
  check(is_away, "a thread stayed on the caller's core");
  sched_setaffinity(0, sizeof all, &all);
}

#endif

}  // namespace

int main() {
  for (const int size : {1, 2, 3, 8}) {  // more than there are cores, too
    ThreadPool pool(size);
    check_each_is_done_once(pool);
    check_storm(pool);
    check_sleepers(pool);
    check_many_callers(pool);
    check_exceptions(pool);
  }
  check_short_lives();
#ifdef __linux__
  check_threads_make_way();
#endif
  std::puts("threads_test: passed");
}
