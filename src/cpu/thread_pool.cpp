#include "cpu/thread_pool.hpp"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>

namespace kronsparse {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int most_helpers = most_threads - 1;
constexpr int most_runs = 16;  // at a time that helpers join; further ones are alone

// The library's own functions are all that runs on them, so this is plenty; the usual 8 MiB a thread would
// exhaust a limited address space.
constexpr std::size_t stack_bytes = std::size_t{1} << 20;

// Another run soon after is common, and a thread that sleeps takes longer to wake than a short run takes.
constexpr std::chrono::microseconds time_to_look{100};
constexpr std::chrono::microseconds time_to_watch{100};

// Address space that helpers leave to others, where it is limited.
constexpr std::size_t bytes_left_free = std::size_t{64} << 20;

// After a thread could not be created: trying costs some 10 us.
constexpr std::chrono::seconds time_to_next_attempt{1};

void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // yield does nothing on most CPUs
#endif
}

/// Waits until done(), for some time: true if it is. Others who want this CPU get it.
template <class Done>
bool spin(std::chrono::microseconds time, const Done& done) noexcept {
  constexpr int looks = 32;
  const Clock::time_point end = Clock::now() + time;
  do {
    for (int look = 0; look < looks; ++look) {
      if (done()) return true;
      pause();
    }
    std::this_thread::yield();
  } while (Clock::now() < end);
  return done();
}

/// How far a run is, changed as one: aligned, or else clang asks libatomic.
struct alignas(8) Progress {
  std::uint32_t left = 0;    ///< ranges that nobody has begun
  std::uint16_t room = 0;    ///< helpers that may still come
  std::uint16_t inside = 0;  ///< helpers at work on it
};
static_assert(sizeof(Progress) == 8 && std::atomic<Progress>::is_always_lock_free);

/// A place for a run that helpers may join. They come with a range that they have begun, and leave when all
/// are begun: whoever waits for `inside` to be 0 waits for ranges at work, not for threads.
struct alignas(cache_line) Run {
  std::atomic<Progress> progress{};
  std::atomic<bool> is_taken{false};
  std::atomic<std::uint32_t> sleeper{0};  ///< 1: the run's own thread sleeps until helpers have left
  // Stable while progress has ranges left or helpers inside.
  RangeFunction function = nullptr;
  const void* context = nullptr;
  std::int64_t ranges = 0;

  /// The range that this thread has now begun, or -1.
  std::int64_t begin_range(bool joins) noexcept {
    Progress now = progress.load(std::memory_order_relaxed);
    Progress next;
    do {
      if (now.left == 0 || (joins && now.room == 0)) return -1;
      next = now;
      --next.left;
      if (joins) {
        --next.room;
        ++next.inside;
      }
    } while (
        !progress.compare_exchange_weak(now, next, std::memory_order_acq_rel, std::memory_order_relaxed));
    return ranges - now.left;
  }

  void leave() noexcept {
    Progress now = progress.load(std::memory_order_relaxed);
    Progress next;
    do {
      next = now;
      --next.inside;
    } while (!progress.compare_exchange_weak(now, next));
    if (next.inside == 0 && sleeper.exchange(0) == 1) sleeper.notify_all();
  }

  void wait_for_helpers() noexcept {
    const auto are_gone = [&] { return progress.load().inside == 0; };
    if (are_gone() || spin(time_to_watch, are_gone)) return;
    for (;;) {
      sleeper.store(1);
      if (are_gone()) break;
      sleeper.wait(1);
    }
    sleeper.store(0);
  }
};

/// Takes up address space while it exists.
class Ballast {
 public:
  Ballast() noexcept
      : begin_(
            mmap(nullptr, bytes_left_free, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  Ballast(const Ballast&) = delete;
  Ballast& operator=(const Ballast&) = delete;
  ~Ballast() {
    if (is_there()) munmap(begin_, bytes_left_free);
  }
  [[nodiscard]] bool is_there() const noexcept { return begin_ != MAP_FAILED; }

 private:
  void* begin_;
};

/// Scratch for a helper, before it is needed.
struct Helper {
  std::atomic<Scratch*> mail{nullptr};  ///< owned; the helper takes it when it joins a run
  std::size_t bytes_given = 0;
};

/// No destructor: helpers look at it until the process has ended. Padding keeps what changes apart.
class Pool {  // NOLINT(clang-analyzer-optin.performance.Padding)
 public:
  void run(std::int64_t ranges, int threads, RangeFunction function, const void* context) noexcept {
    const int helpers = static_cast<int>(std::min<std::int64_t>({threads, ranges, most_threads})) - 1;
    if (helpers > 0) start_helpers(helpers);
    Run* const run = helpers > 0 && helpers_ > 0 ? free_run() : nullptr;
    Scratch& scratch = thread_scratch();
    if (run == nullptr) {
      for (std::int64_t range = 0; range < ranges; ++range) function(context, range, scratch);
      return;
    }
    run->function = function;
    run->context = context;
    run->ranges = ranges;
    run->progress.store({static_cast<std::uint32_t>(ranges), static_cast<std::uint16_t>(helpers), 0});
    ++posted_;
    wake(helpers - looking_);
    for (std::int64_t range = 0; (range = run->begin_range(false)) >= 0;) function(context, range, scratch);
    run->wait_for_helpers();
    run->is_taken.store(false, std::memory_order_release);
  }

  void reserve(std::size_t bytes, int threads) noexcept {
    start_helpers(std::min(threads, most_threads) - 1);
    const std::lock_guard lock(changing_);
    for (int index = 0; index < helpers_; ++index) {
      Helper& helper = all_[static_cast<std::size_t>(index)];
      if (helper.bytes_given >= bytes) continue;
      try {
        delete helper.mail.exchange(new Scratch(bytes));
        helper.bytes_given = bytes;
      } catch (const std::bad_alloc&) {
        return;
      }
    }
  }

  [[nodiscard]] int helpers() const noexcept { return helpers_; }

  /// In a forked child, which has only the thread that forked.
  void forget_helpers() noexcept {
    for (Run& run : runs_) std::construct_at(&run);
    std::construct_at(&changing_);
    looking_ = 0;
    helpers_ = 0;
    next_attempt_ = {};
    for (Helper& helper : all_) {
      const Scratch* const mail = helper.mail;  // not taken: the next helper here will
      helper.bytes_given = mail == nullptr ? 0 : mail->capacity();
    }
  }

 private:
  Run* free_run() noexcept {
    for (Run& run : runs_)
      if (!run.is_taken.load(std::memory_order_relaxed) &&
          !run.is_taken.exchange(true, std::memory_order_acquire))
        return &run;
    return nullptr;
  }

  /// Two at most: they wake others in turn, which costs the caller less than to wake them all.
  void wake(int helpers) noexcept {
    for (int count = 0; count < std::min(helpers, 2); ++count) posted_.notify_one();
  }

  void start_helpers(int wanted) noexcept {
    if (helpers_ >= wanted) return;
    const std::lock_guard lock(changing_);
    if (helpers_ >= wanted || (next_attempt_ != Clock::time_point{} && Clock::now() < next_attempt_)) return;
    // Or the first allocation after the last possible thread would fail.
    const Ballast ballast;
    while (ballast.is_there() && helpers_ < wanted && start_helper(all_[static_cast<std::size_t>(helpers_)]))
      ++helpers_;
    next_attempt_ = helpers_ < wanted ? Clock::now() + time_to_next_attempt : Clock::time_point{};
  }
  bool start_helper(Helper& helper) noexcept;
  [[noreturn]] void help(Helper& helper) noexcept;
  bool join(Run& run, Helper& helper, Scratch& scratch, bool has_slept) noexcept;

  std::array<Run, most_runs> runs_{};
  alignas(cache_line) std::atomic<std::uint32_t> posted_{0};  ///< runs so far; helpers sleep on it
  alignas(cache_line) std::atomic<int> looking_{0};           ///< helpers that need not be woken
  std::atomic<int> helpers_{0};
  std::mutex changing_;  ///< for what follows, and for helpers_ to grow
  Clock::time_point next_attempt_{};
  std::array<Helper, most_helpers> all_{};
};

constinit Pool pool;

/// The CPUs of this process, where OpenMP binds threads: the one that creates a helper may be bound to one
/// CPU, and its helpers would have to share that.
struct UnboundCpus {
  UnboundCpus() noexcept {
    is_known = std::ranges::any_of(std::array{"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"},
                                   [](const char* name) { return std::getenv(name) != nullptr; }) &&
               sched_getaffinity(0, sizeof set, &set) == 0;
  }
  cpu_set_t set{};
  bool is_known = false;
};
const UnboundCpus unbound_cpus;

[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, [] { pool.forget_helpers(); });

bool Pool::start_helper(Helper& helper) noexcept {
  const auto start = [](void* argument) noexcept -> void* {
    if (unbound_cpus.is_known)
      static_cast<void>(sched_setaffinity(0, sizeof unbound_cpus.set, &unbound_cpus.set));
    pool.help(*static_cast<Helper*>(argument));
  };
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, stack_bytes);
  // The process's signals are for its own threads. Those of faults and profilers are this one's.
  sigset_t blocked;
  sigset_t before;
  sigfillset(&blocked);
  for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGPROF})
    sigdelset(&blocked, own);
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  pthread_t thread{};
  const bool is_started = pthread_create(&thread, &attributes, start, &helper) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  return is_started;
}

/// Works on a run if it needs help.
bool Pool::join(Run& run, Helper& helper, Scratch& scratch, bool has_slept) noexcept {
  std::int64_t range = run.begin_range(true);
  if (range < 0) return false;
  if (has_slept) wake(run.progress.load(std::memory_order_relaxed).room - looking_);
  if (helper.mail.load(std::memory_order_relaxed) != nullptr) {
    const std::unique_ptr<Scratch> mail(helper.mail.exchange(nullptr));
    if (mail != nullptr) scratch.grow_by(std::move(*mail));
  }
  for (; range >= 0; range = run.begin_range(false)) run.function(run.context, range, scratch);
  run.leave();
  return true;
}

void Pool::help(Helper& helper) noexcept {
  Scratch scratch;
  bool has_slept = true;
  for (;;) {
    const std::uint32_t seen = posted_;
    bool has_helped = false;
    for (Run& run : runs_) has_helped |= join(run, helper, scratch, has_slept);
    has_slept = false;
    if (has_helped) continue;
    ++looking_;
    const bool is_new = spin(time_to_look, [&] { return posted_.load(std::memory_order_relaxed) != seen; });
    --looking_;
    if (is_new) continue;
    posted_.wait(seen);
    has_slept = true;
  }
}

}  // namespace

void run_ranges(std::int64_t ranges, int threads, RangeFunction function, const void* context) noexcept {
  pool.run(ranges, threads, function, context);
}

void reserve_scratch(std::size_t bytes, int threads) {
  static_cast<void>(thread_scratch().at_least(bytes));
  if (threads > 1) pool.reserve(bytes, threads);
}

int helper_count() noexcept { return pool.helpers(); }

}  // namespace kronsparse
