#include "plan_registry.hpp"

#include <algorithm>
#include <array>
#include <list>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kronsparse/tune.hpp"

namespace kronsparse::binding {
namespace {

/// All of a key but its sizes.
std::uint64_t settings_of(const PlanKey& key) {
  const auto part = [](auto value, unsigned at) { return static_cast<std::uint64_t>(value) << at; };
  return part(key.dtype, 0) | part(key.layout, 4) | part(key.operation, 8) | part(key.mode, 12) |
         part(key.activation, 16) | part(key.bias, 20) | part(key.device.backend, 24) |
         part(static_cast<std::uint32_t>(key.device.index), 32);
}

std::uint64_t hash_of(std::uint64_t settings, std::span<const std::int64_t> sizes) {
  std::uint64_t hash = settings * 0x9e3779b97f4a7c15U;
  for (const std::int64_t size : sizes) {
    hash = (hash ^ static_cast<std::uint64_t>(size)) * 0x9e3779b97f4a7c15U;
    hash ^= hash >> 32U;
  }
  return hash;
}

struct Entry {
  std::uint64_t hash = 0;
  std::uint64_t settings = 0;
  std::vector<std::int64_t> sizes;
  std::shared_ptr<const Plan> plan;

  [[nodiscard]] bool is_for(std::uint64_t other, std::span<const std::int64_t> other_sizes) const {
    return settings == other && std::ranges::equal(sizes, other_sizes);
  }
};

std::shared_ptr<const Plan> make_plan(const PlanKey& key) {
  std::vector<Pattern> factors;
  for (std::size_t at = 0; at < key.sizes.size(); at += 4)
    factors.push_back({key.sizes[at], key.sizes[at + 1], key.sizes[at + 2], key.sizes[at + 3]});
  Problem problem{.chain = Chain(std::move(factors)), .dtype = key.dtype, .layout = key.layout};
  problem.operation = key.operation;
  problem.mode = key.mode;
  problem.activation = key.activation;
  problem.bias = key.bias;
  // A batch of one stands for all here. KRONSPARSE_TUNE measures when the workspace of a batch is asked for,
  // where the stream is known, which may be recorded.
  const TuningPause pause;
  return std::make_shared<const Plan>(problem, key.device);
}

/// The plans of all threads, last used first.
class Registry {
 public:
  static Registry& instance() {
    // Never destroyed: at the end of a process threads may still run.
    static auto& registry = *new Registry;
    return registry;
  }

  std::shared_ptr<const Plan> find_or_make(const PlanKey& key, std::uint64_t settings, std::uint64_t hash) {
    {
      const std::scoped_lock lock(mutex_);
      if (auto found = find(settings, key.sizes, hash)) return found;
    }
    std::shared_ptr<const Plan> made = make_plan(key);  // takes long, and may throw
    const std::scoped_lock lock(mutex_);
    if (auto found = find(settings, key.sizes, hash)) return found;
    entries_.push_front({hash, settings, {key.sizes.begin(), key.sizes.end()}, made});
    places_.emplace(hash, entries_.begin());
    shrink();
    return made;
  }

  std::size_t count() {
    const std::scoped_lock lock(mutex_);
    return entries_.size();
  }

  std::size_t capacity() {
    const std::scoped_lock lock(mutex_);
    return capacity_;
  }

  void set_capacity(std::size_t capacity) {
    const std::scoped_lock lock(mutex_);
    capacity_ = capacity;
    shrink();
  }

 private:
  using Entries = std::list<Entry>;

  std::shared_ptr<const Plan> find(std::uint64_t settings, std::span<const std::int64_t> sizes,
                                   std::uint64_t hash) {
    const auto [begin, end] = places_.equal_range(hash);
    for (auto place = begin; place != end; ++place)
      if (place->second->is_for(settings, sizes)) {
        entries_.splice(entries_.begin(), entries_, place->second);
        return place->second->plan;
      }
    return nullptr;
  }

  void shrink() {
    while (entries_.size() > capacity_) {
      const auto last = std::prev(entries_.end());
      const auto [begin, end] = places_.equal_range(last->hash);
      for (auto place = begin; place != end; ++place)
        if (place->second == last) {
          places_.erase(place);
          break;
        }
      entries_.erase(last);
    }
  }

  std::mutex mutex_;
  Entries entries_;
  std::unordered_multimap<std::uint64_t, Entries::iterator> places_;
  std::size_t capacity_ = 4096;
};

}  // namespace

std::shared_ptr<const Plan> find_plan(const PlanKey& key) {
  const std::uint64_t settings = settings_of(key);
  const std::uint64_t hash = hash_of(settings, key.sizes);
  // Each thread keeps the plans it used last, and needs no lock for them.
  thread_local std::array<Entry, 64> recent;
  Entry& slot = recent[hash % recent.size()];
  if (slot.plan == nullptr || slot.hash != hash || !slot.is_for(settings, key.sizes)) {
    std::shared_ptr<const Plan> plan = Registry::instance().find_or_make(key, settings, hash);
    slot = {hash, settings, {key.sizes.begin(), key.sizes.end()}, std::move(plan)};
  }
  return slot.plan;
}

std::size_t plan_count() { return Registry::instance().count(); }
std::size_t plan_capacity() { return Registry::instance().capacity(); }
void set_plan_capacity(std::size_t capacity) { Registry::instance().set_capacity(capacity); }

}  // namespace kronsparse::binding
