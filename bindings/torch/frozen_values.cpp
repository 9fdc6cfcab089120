#include "frozen_values.hpp"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>

#include "kronsparse/buffer.hpp"
#include "kronsparse/error.hpp"

namespace kronsparse::binding {
namespace {

/// A stream that nobody has: null is the default one.
int address_of_no_stream = 0;

struct Registry {
  std::mutex mutex;
  std::int64_t last = 0;
  std::unordered_map<std::int64_t, std::shared_ptr<FrozenValues>> values;
  std::vector<std::shared_ptr<FrozenValues>> captured;

  static Registry& instance() {
    // Never destroyed: at the end of a process torch and the GPU's driver may be gone before it.
    static auto& registry = *new Registry;
    return registry;
  }
};

}  // namespace

FrozenValues::FrozenValues(std::vector<Tensor> factors, std::vector<std::int64_t> versions)
    : factors_(std::move(factors)), versions_(std::move(versions)), last_stream_(&address_of_no_stream) {
  if (factors_.empty() || factors_.size() != versions_.size())
    throw Error(ErrorCode::size_mismatch,
                "versions: " + std::to_string(versions_.size()) +
                    " given, must be one for each of the factors, of which there are " +
                    std::to_string(factors_.size()) + " and must be one");
  device_ = device_of("factors", factors_.front());
  for (const Tensor& factor : factors_) addresses_.push_back(address_of(factor));
}

FrozenValues::~FrozenValues() {
  // Memory goes back to the stream it was allocated on, while others may still read it.
  if (device_.backend == Backend::cpu || streams_.size() < 2) return;
  for (const Stream stream : streams_) try {
      synchronise(device_, stream);
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): a stream that is gone has no runs
    }
}

bool FrozenValues::are(std::span<const Tensor> factors) const {
  if (factors.size() != addresses_.size()) return false;
  for (std::size_t at = 0; at < factors.size(); ++at)
    if (address_of(factors[at]) != addresses_[at]) return false;
  return true;
}

void FrozenValues::check_versions(std::span<const Tensor> factors) const {
  for (std::size_t at = 0; at < factors.size(); ++at)
    if (versions_[at] != unknown_version && version_of(factors[at]) != versions_[at])
      throw Error(ErrorCode::invalid_argument,
                  "factor" + std::to_string(at) +
                      ": changed while its layer is frozen; call unfreeze() before weights are changed, and "
                      "freeze() again afterwards");
}

FrozenValues::OfDtype& FrozenValues::of_dtype(const Plan& plan) {
  const DType dtype = plan.problem().dtype;
  const auto found = std::ranges::find(packed_, dtype, [](const auto& one) { return one->dtype; });
  if (found != packed_.end()) return **found;
  packed_.push_back(
      std::make_unique<OfDtype>(OfDtype{dtype, PackedValues(plan, torch_allocator(plan.device()))}));
  return *packed_.back();
}

FrozenValues::Ready FrozenValues::prepare(const Plan& plan, const Batch& batch, Stream stream) {
  const bool is_captured = device_.backend != Backend::cpu && is_capturing(device_, stream);
  OfDtype* found = nullptr;
  {
    const std::scoped_lock lock(mutex_);
    found = &of_dtype(plan);
  }
  bool is_complete = found->packed.is_ready(plan, batch);
  if (!is_complete) {
    if (is_captured) return {nullptr, false};  // nothing can be waited for
    std::vector<Tensor> dense;
    std::vector<const void*> addresses;
    for (const Tensor& factor : factors_) {
      dense.push_back(dense_as(factor, plan.problem().dtype, device_));
      addresses.push_back(address_of(dense.back()));
    }
    is_complete = found->packed.prepare(plan, batch, addresses, stream);
  }
  if (is_captured) is_captured_ = true;
  remember(stream);
  return {&found->packed, is_complete};
}

void FrozenValues::remember(Stream stream) {
  if (stream == last_stream_.load(std::memory_order_relaxed)) return;
  const std::scoped_lock lock(mutex_);
  if (std::ranges::find(streams_, stream) == streams_.end()) streams_.push_back(stream);
  last_stream_ = stream;
}

std::size_t FrozenValues::bytes() const {
  const std::scoped_lock lock(mutex_);
  std::size_t sum = 0;
  for (const auto& one : packed_) sum += one->packed.bytes();
  return sum;
}

std::int64_t freeze(std::vector<Tensor> factors, std::vector<std::int64_t> versions) {
  auto made = std::make_shared<FrozenValues>(std::move(factors), std::move(versions));
  Registry& registry = Registry::instance();
  const std::scoped_lock lock(registry.mutex);
  registry.values.emplace(++registry.last, std::move(made));
  return registry.last;
}

std::shared_ptr<FrozenValues> find_frozen(std::int64_t number) {
  Registry& registry = Registry::instance();
  const std::scoped_lock lock(registry.mutex);
  const auto found = registry.values.find(number);
  if (found == registry.values.end())
    throw Error(ErrorCode::invalid_argument,
                "packed: " + std::to_string(number) +
                    " given, must be the number of values that are frozen in this process: the layer was "
                    "unfrozen or is gone, or belongs to another process");
  return found->second;
}

void release(std::int64_t number) {
  std::shared_ptr<FrozenValues> released;  // freed without the lock
  Registry& registry = Registry::instance();
  const std::scoped_lock lock(registry.mutex);
  const auto found = registry.values.find(number);
  if (found == registry.values.end()) return;
  released = std::move(found->second);
  registry.values.erase(found);
  if (released->is_captured()) registry.captured.push_back(released);
}

FrozenInfo frozen_info() {
  Registry& registry = Registry::instance();
  const std::scoped_lock lock(registry.mutex);
  std::size_t bytes = 0;
  for (const auto& [number, values] : registry.values) bytes += values->bytes();
  for (const auto& values : registry.captured) bytes += values->bytes();
  return {static_cast<std::int64_t>(registry.values.size()), static_cast<std::int64_t>(bytes)};
}

}  // namespace kronsparse::binding
