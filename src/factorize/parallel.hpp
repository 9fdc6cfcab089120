// Blocks of a split, worked on by all threads, each with a worker of its own.
#pragma once

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "cpu/thread_pool.hpp"
#include "cpu/threads.hpp"

namespace kronsparse::factorization {

/// Things that are made when they are needed and used by one thread at a time.
template <class Thing, class Make>
class Lent {
 public:
  explicit Lent(Make make) : make_(std::move(make)) {}

  template <class Use>
  void with(const Use& use) {
    std::unique_ptr<Thing> thing;
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        thing = std::move(idle_.back());
        idle_.pop_back();
      }
    }
    if (thing == nullptr) thing = std::make_unique<Thing>(make_());
    use(*thing);
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(thing));
  }

 private:
  Make make_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Thing>> idle_;
};

/// Calls body(first, last) for ranges that cover 0..count, on all threads. What a range throws is thrown here
/// when all have ended.
template <class Body>
void for_ranges(std::int64_t count, std::int64_t in_one, const Body& body) {
  struct Context {
    const Body& body;
    std::int64_t count, in_one;
    std::mutex mutex;
    std::exception_ptr thrown;
    std::atomic<bool> has_failed{false};
  } context{body, count, in_one, {}, nullptr, false};
  run_ranges((count + in_one - 1) / in_one, thread_count(),
             [](const void* given, std::int64_t range, Scratch&) noexcept {
               auto& shared = *static_cast<Context*>(const_cast<void*>(given));
               if (shared.has_failed) return;
               try {
                 const std::int64_t first = range * shared.in_one;
                 shared.body(first, std::min(first + shared.in_one, shared.count));
               } catch (...) {
                 const std::lock_guard lock(shared.mutex);
                 shared.has_failed = true;
                 shared.thrown = std::current_exception();
               }
             },
             &context);
  if (context.thrown) std::rethrow_exception(context.thrown);
}

}  // namespace kronsparse::factorization
