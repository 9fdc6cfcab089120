// The threads of the CPU backend help, and nothing depends on them.
#include "cpu/thread_pool.hpp"

#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <thread>
#include <vector>

#include "child.hpp"
#include "cpu/simd/parallel.hpp"

/// Threads that may still be created by this library; the linker puts this function before the system's.
static std::atomic<int> creations{1 << 20};
// NOLINTBEGIN(bugprone-reserved-identifier): the linker's names
extern "C" int __real_pthread_create(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
extern "C" int __wrap_pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                                     void* (*start)(void*), void* argument) {
  return --creations < 0 ? EAGAIN : __real_pthread_create(thread, attributes, start, argument);
}
// NOLINTEND(bugprone-reserved-identifier)

namespace kronsparse {
namespace {

/// Whether each of `count` tasks runs exactly once.
bool runs_each_once(std::int64_t count, int threads) {
  std::vector<std::atomic<int>> runs(static_cast<std::size_t>(count));
  simd::parallel_each(count, threads, [&](std::int64_t task) { ++runs[static_cast<std::size_t>(task)]; });
  return std::ranges::all_of(runs, [](const auto& number) { return number == 1; });
}

TEST(ThreadPool, RunsEveryTaskOnce) {
  for (const int threads : {1, 2, 3, 8, 1 << 30})
    for (const std::int64_t count : {0, 1, 2, 3, 15, 1000})
      EXPECT_TRUE(runs_each_once(count, std::min(threads, 40))) << threads << " threads, " << count;
}

TEST(ThreadPool, IsSharedByThreadsThatRunAtOnce) {
  constexpr int callers = 24;  // more than there are places for runs
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  threads.reserve(callers);
  for (int caller = 0; caller < callers; ++caller)
    threads.emplace_back([&] {
      bool all = true;
      for (int round = 0; round < 200; ++round) all = all && runs_each_once(40, 3);
      right += all ? 1 : 0;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, callers);
}

/// Keeps `helpers` helpers and one thread busy until it is destroyed.
class BusyHelpers {
 public:
  explicit BusyHelpers(int helpers)
      : others_([this, helpers] {
          // Two ranges a thread, so that helpers can come before this thread has had all.
          const auto hold = [](const void* self, std::int64_t, Scratch&) noexcept {
            auto& all = *static_cast<BusyHelpers*>(const_cast<void*>(self));
            ++all.held_;
            while (!all.is_over_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          };
          run_ranges(2 * (helpers + 1), helpers + 1, hold, this);
        }) {
    while (held_ <= helpers) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  BusyHelpers(const BusyHelpers&) = delete;
  BusyHelpers& operator=(const BusyHelpers&) = delete;
  ~BusyHelpers() {
    is_over_ = true;
    others_.join();
  }

 private:
  std::atomic<int> held_{0};
  std::atomic<bool> is_over_{false};
  std::thread others_;
};

// As when other programs have their CPUs: a run would take until those are done.
TEST(ThreadPool, ARunDoesNotWaitForHelpersThatAreHeldUp) {
  EXPECT_TRUE(holds_in_child([] {
    const BusyHelpers busy(2);
    return helper_count() == 2 && runs_each_once(1000, 3);
  }));
}

TEST(ThreadPool, ThreadsThatCannotBeCreatedAreDoneWithout) {
  for (const int possible : {0, 1, 5})
    EXPECT_TRUE(holds_in_child([&] {
      creations = possible;
      reserve_scratch(1000, 8);
      return runs_each_once(1000, 8) && helper_count() == possible && runs_each_once(1000, 16) &&
             helper_count() == possible;
    })) << possible;
}

TEST(ThreadPool, ThreadsAreTriedAgain) {
  EXPECT_TRUE(holds_in_child([] {
    creations = 0;
    bool all = runs_each_once(1000, 3) && helper_count() == 0;
    creations = 10;
    while (helper_count() == 0) all = all && runs_each_once(1000, 3);  // else the child's alarm ends it
    return all;
  }));
}

TEST(ThreadPool, AnExceptionOfAHelperIsTheCallers) {
  for (int round = 0; round < 100; ++round)
    EXPECT_THROW(simd::parallel_each(1000, 3,
                                     [](std::int64_t task) {
                                       if (task == 777) throw std::bad_alloc();
                                     }),
                 std::bad_alloc);
}

TEST(ThreadPool, AChildForkedWhileOthersRunHasItsOwn) {
  std::atomic<bool> is_over{false};
  std::thread other([&] {
    while (!is_over) static_cast<void>(runs_each_once(100, 3));
  });
  for (int child = 0; child < 20; ++child)
    EXPECT_TRUE(holds_in_child([] { return runs_each_once(1000, 3) && helper_count() == 2; }));
  is_over = true;
  other.join();
}

// A signal of the process is for the program's own threads, which may wait for it.
TEST(ThreadPool, HelpersTakeNoSignals) {
  EXPECT_TRUE(holds_in_child([] {
    static std::atomic<int> taken{0};
    static thread_local bool is_own = false;
    is_own = true;
    std::signal(SIGUSR1, [](int) { taken += is_own ? 1 : 100; });
    sigset_t own;
    sigemptyset(&own);
    sigaddset(&own, SIGUSR1);
    static_cast<void>(runs_each_once(1000, 3));
    pthread_sigmask(SIG_BLOCK, &own, nullptr);
    kill(getpid(), SIGUSR1);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    pthread_sigmask(SIG_UNBLOCK, &own, nullptr);
    return helper_count() == 2 && taken == 1;
  }));
}

}  // namespace
}  // namespace kronsparse
