#include "plan_cache.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "kronsparse/buffer.hpp"
#include "kronsparse/error.hpp"

namespace kronsparse::binding {
namespace {

std::atomic<std::int64_t> plans_made{0};
std::atomic<std::int64_t> values_packed{0};

/// A stream that nobody has: null is the default one.
int address_of_no_stream = 0;
const Stream no_stream = &address_of_no_stream;

}  // namespace

/// What tells values apart from those packed before.
struct PlanCache::Stamp {
  std::int64_t version = unknown_version;
  std::int64_t age = 0;  ///< how often everything was marked stale

  [[nodiscard]] bool is_known() const { return version >= 0; }
  friend bool operator==(const Stamp&, const Stamp&) = default;
};

/// A plan and what it holds packed.
class PlanCache::Entry {
 public:
  /// Values with another stamp than those packed before, or an unknown one, are packed now.
  /// While a stream is captured nothing may be waited for; torch has waited for all streams before.
  void run(const Problem& problem, Device device, const std::optional<Values>& values, const Stamp& stamp,
           const Operands& operands, bool is_captured) {
    {
      const std::shared_lock reading(mutex_);
      if (plan_ && (!values || (stamp.is_known() && stamp == stamp_))) {
        if (!is_captured) wait_for_packing(operands.stream);
        remember(operands.stream);
        plan_->run(operands);
        return;
      }
    }
    // Whoever packs has the plan alone: on the CPU until the run is done, on a GPU until it is enqueued.
    const std::unique_lock changing(mutex_);
    if (!is_captured) wait_for_runs_elsewhere(device, operands.stream);
    remember(operands.stream);
    if (values)
      pack(problem, device, *values, operands.stream);
    else if (!plan_)
      make(problem, device, nullptr);
    stamp_ = stamp;
    plan_->run(operands);
  }

  void mark_stale() {
    const std::unique_lock changing(mutex_);
    stamp_ = {};
  }

  [[nodiscard]] std::int64_t bytes() const {
    const std::shared_lock reading(mutex_);
    return plan_ ? static_cast<std::int64_t>(plan_->packed_bytes()) : 0;
  }

 private:
  void make(const Problem& problem, Device device, const void* values) {
    plan_.emplace(problem, values, device);
    ++plans_made;
  }

  void pack(const Problem& problem, Device device, const Values& values, Stream stream) {
    stamp_ = {};  // should packing fail
    const Tensor packable = dense_like(values.tensor, values.like);
    if (plan_) {
      plan_->set_values(packable.data_ptr(), stream);
      packed_on_ = stream;
      is_packed_for_all_ = device.backend == Backend::cpu;
    } else {
      if (stream != nullptr) synchronise(device, stream);  // a new plan reads them on the default stream
      make(problem, device, packable.data_ptr());
      is_packed_for_all_ = true;
    }
    if (values.packing != Packing::each_call) memory_ = alias_of(values.tensor);
    ++values_packed;
  }

  void wait_for_packing(Stream stream) {
    if (is_packed_for_all_ || stream == packed_on_) return;
    synchronise(plan_->device(), packed_on_);
    is_packed_for_all_ = true;
  }

  /// Runs of other streams may still read what is about to be packed anew.
  void wait_for_runs_elsewhere(Device device, Stream stream) {
    const std::scoped_lock lock(streams_mutex_);
    for (const Stream other : streams_)
      if (other != stream) synchronise(device, other);
    streams_.clear();
    last_stream_ = no_stream;
  }

  /// That there are runs on this stream. Nearly always it is the one of the run before.
  void remember(Stream stream) {
    if (stream == last_stream_.load(std::memory_order_relaxed)) return;
    const std::scoped_lock lock(streams_mutex_);
    if (std::ranges::find(streams_, stream) == streams_.end()) streams_.push_back(stream);
    last_stream_ = stream;
  }

  mutable std::shared_mutex mutex_;
  std::optional<Plan> plan_;
  std::optional<Tensor> memory_;  ///< of the values, kept so that its address stays theirs
  Stamp stamp_;
  Stream packed_on_ = nullptr;
  std::atomic<bool> is_packed_for_all_ = true;  ///< streams, not only for the one it was done on
  std::mutex streams_mutex_;
  std::vector<Stream> streams_;                  ///< with runs since the last packing
  std::atomic<Stream> last_stream_ = no_stream;  ///< of them
};

Packing parse_packing(std::string_view text) {
  if (text == "each_call") return Packing::each_call;
  if (text == "on_change") return Packing::on_change;
  if (text == "frozen") return Packing::frozen;
  throw Error(ErrorCode::parse,
              "packing: '" + std::string(text) + "' given, must be each_call, on_change or frozen");
}

std::size_t PlanCache::Hash::operator()(const Key& key) const noexcept {
  std::uint64_t hash = 0xcbf29ce484222325U;
  const auto mix = [&](auto part) {
    hash = (hash ^ static_cast<std::uint64_t>(part)) * 0x9e3779b97f4a7c15U;
    hash ^= hash >> 32U;
  };
  const Problem& problem = key.problem;
  for (const std::int64_t size : {problem.pattern.a, problem.pattern.b, problem.pattern.c, problem.pattern.d,
                                  problem.batch, problem.cols_stride, problem.rows_stride})
    mix(size);
  // The rest differs rarely between problems of the same sizes: one round for all.
  mix(static_cast<unsigned>(problem.dtype) | static_cast<unsigned>(problem.layout) << 4U |
      static_cast<unsigned>(problem.operation) << 8U | static_cast<unsigned>(problem.mode) << 12U |
      static_cast<unsigned>(problem.activation) << 16U | static_cast<unsigned>(problem.bias) << 20U |
      static_cast<unsigned>(key.device.index) << 24U);
  mix(reinterpret_cast<std::uintptr_t>(key.values));
  mix(reinterpret_cast<std::uintptr_t>(key.stream));
  return hash;
}

PlanCache& PlanCache::instance() {
  // Never destroyed: at the end of a process torch and the GPU's driver may be gone before it.
  static auto& cache = *new PlanCache;
  return cache;
}

void PlanCache::run(const Problem& problem, Device device, const std::optional<Values>& values,
                    const Operands& operands) {
  const bool is_captured = device.backend != Backend::cpu && is_capturing(device, operands.stream);
  Key key{.problem = problem, .device = device, .stream = operands.stream};
  Stamp stamp;
  if (values && values->packing != Packing::each_call) {
    stamp = {values->version, age_};
    if (stamp.is_known()) {
      key.values = values->tensor.data_ptr();
      std::ranges::copy(values->tensor.strides(), key.strides.begin());
      key.dtype = dtype_of("values", values->tensor);
      if (!is_captured) key.stream = nullptr;
    }
  }
  if (!is_captured) {
    find_or_make(key)->run(problem, device, values, stamp, operands, false);
    return;
  }
  const std::shared_ptr<Entry> entry = find_or_take_for_capture(key);
  if (values && values->packing != Packing::frozen) stamp = {};  // inside the graph
  entry->run(problem, device, values, stamp, operands, true);
}

std::shared_ptr<PlanCache::Entry> PlanCache::find_or_make(const Key& key) {
  const std::scoped_lock lock(mutex_);
  if (const auto found = places_.find(key); found != places_.end()) {
    entries_.splice(entries_.begin(), entries_, found->second);
    return found->second->second;
  }
  shrink_to(std::max<std::size_t>(capacity_, 1) - 1);
  make_room_for(key);
  entries_.emplace_front(key, std::make_shared<Entry>());
  places_.emplace(key, entries_.begin());
  return entries_.front().second;
}

// A plan cannot be made while a stream is captured; one that a call before has made changes hands.
std::shared_ptr<PlanCache::Entry> PlanCache::find_or_take_for_capture(const Key& key) {
  const std::scoped_lock lock(mutex_);
  if (const auto found = captured_.find(key); found != captured_.end()) return found->second;
  const auto fits = [&](const Entries::value_type& candidate) {
    Key wanted = key;
    wanted.stream = candidate.first.stream;
    return candidate.first == wanted;
  };
  const auto donor = std::ranges::find_if(entries_, fits);
  if (donor == entries_.end())
    throw Error(ErrorCode::invalid_argument,
                "stream: it is being captured into a CUDA graph, and there is no plan yet for " +
                    key.problem.to_string() + "; call the layer once with the same sizes before the capture");
  std::shared_ptr<Entry> entry = donor->second;
  places_.erase(donor->first);
  entries_.erase(donor);
  captured_.emplace(key, entry);
  return entry;
}

void PlanCache::shrink_to(std::size_t count) {
  while (entries_.size() > count) {
    places_.erase(entries_.back().first);
    entries_.pop_back();
  }
}

/// A model that is called with ever new sizes of the batch would else hold its packed values a thousand
/// times.
void PlanCache::make_room_for(const Key& key) {
  if (key.values == nullptr) return;
  const auto is_alike = [&](const Entries::value_type& other) {
    return other.first.values == key.values && other.first.problem.operation == key.problem.operation;
  };
  if (std::ranges::count_if(entries_, is_alike) < sizes_kept) return;
  const auto used_last = std::ranges::find_if(entries_.rbegin(), entries_.rend(), is_alike);
  places_.erase(used_last->first);
  entries_.erase(std::next(used_last).base());
}

void PlanCache::mark_stale(const Tensor& values) {
  const void* address = values.data_ptr();
  const std::scoped_lock lock(mutex_);
  for (const auto& [key, entry] : entries_)
    if (key.values != nullptr && key.values == address) entry->mark_stale();
  for (const auto& [key, entry] : captured_)
    if (key.values != nullptr && key.values == address) entry->mark_stale();
}

void PlanCache::drop(const Tensor& values) {
  const void* address = values.data_ptr();
  const std::scoped_lock lock(mutex_);
  std::erase_if(entries_, [&](const Entries::value_type& candidate) {
    if (candidate.first.values == nullptr || candidate.first.values != address) return false;
    places_.erase(candidate.first);
    return true;
  });
}

void PlanCache::clear() {
  const std::scoped_lock lock(mutex_);
  places_.clear();
  entries_.clear();
  captured_.clear();
}

void PlanCache::resize(std::int64_t capacity) {
  if (capacity < 1)
    throw Error(ErrorCode::invalid_argument,
                "capacity: " + std::to_string(capacity) + " given, must be at least 1");
  const std::scoped_lock lock(mutex_);
  capacity_ = static_cast<std::size_t>(capacity);
  shrink_to(capacity_);
}

PlanCacheInfo PlanCache::info() const {
  const std::scoped_lock lock(mutex_);
  PlanCacheInfo info{.plans = static_cast<std::int64_t>(entries_.size() + captured_.size()),
                     .capacity = static_cast<std::int64_t>(capacity_),
                     .bytes = 0,
                     .made = plans_made,
                     .packed = values_packed};
  for (const auto& [key, entry] : entries_) info.bytes += entry->bytes();
  for (const auto& [key, entry] : captured_) info.bytes += entry->bytes();
  return info;
}

}  // namespace kronsparse::binding
