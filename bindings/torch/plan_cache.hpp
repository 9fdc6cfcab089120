// Plans, kept from call to call with the values they packed.
//
// An operator of torch has no place to keep a plan, so this is one for the process. A plan is found by
// its problem and by the memory of its values; torch's version counter tells whether they changed since
// they were packed. The cache keeps that memory allocated, so that other values cannot come to lie at
// the same address; changed values are packed into the plan that is there, so that training does not
// make it grow. Every size of the batch has a plan, with packed values of its own: of the same values
// and operation only so many are kept, those used last.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "kronsparse/plan.hpp"
#include "tensor.hpp"

namespace kronsparse::binding {

/// When values are packed.
enum class Packing : std::uint8_t {
  each_call,  ///< always
  on_change,  ///< when the tensor or its version is another; in a CUDA graph, at each replay
  frozen,     ///< as on_change, but replays of a CUDA graph use what was packed when it was captured
};
/// The inverse of the names above; Error parse otherwise, with the allowed words.
[[nodiscard]] Packing parse_packing(std::string_view text);

/// The values of one call.
struct Values {
  const Tensor& tensor;  ///< (a,b,c,d), with any strides, in the dtype of x or a wider one
  const Tensor& like;    ///< x: values are packed in its dtype
  Packing packing;
  std::int64_t version;  ///< torch's count of changes to the tensor, or unknown_version
};

struct PlanCacheInfo {
  std::int64_t plans;     ///< kept now
  std::int64_t capacity;  ///< kept at most, besides those of CUDA graphs
  std::int64_t bytes;     ///< of packed values and workspaces
  std::int64_t made;      ///< plans since the start
  std::int64_t packed;    ///< times that values were packed since the start
};

/// Safe to use from several threads.
class PlanCache {
 public:
  /// The cache of this process.
  static PlanCache& instance();

  /// Runs a problem on the operands' stream. The gradient has no values.
  void run(const Problem& problem, Device device, const std::optional<Values>& values,
           const Operands& operands);

  /// The next use of plans with values in this memory packs them again.
  void mark_stale(const Tensor& values);
  /// The same for all plans.
  void mark_all_stale() { ++age_; }
  /// Gives up the plans with values in this memory.
  void drop(const Tensor& values);
  void clear();
  void resize(std::int64_t capacity);
  [[nodiscard]] PlanCacheInfo info() const;

 private:
  struct Key {
    Problem problem;
    Device device;
    /// Of values that stay; null for values packed at each call, and for none.
    const void* values = nullptr;
    std::array<std::int64_t, 4> strides{};
    DType dtype = DType::f32;
    /// Null for values that stay: their plan serves all streams. Others serve one, where calls are in
    /// order; a captured graph has plans of its own.
    Stream stream = nullptr;

    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const noexcept;
  };
  struct Stamp;
  class Entry;
  using Entries = std::list<std::pair<Key, std::shared_ptr<Entry>>>;  // last used first

  [[nodiscard]] std::shared_ptr<Entry> find_or_make(const Key& key);
  [[nodiscard]] std::shared_ptr<Entry> find_or_take_for_capture(const Key& key);
  void shrink_to(std::size_t count);
  void make_room_for(const Key& key);

  mutable std::mutex mutex_;
  Entries entries_;
  std::unordered_map<Key, Entries::iterator, Hash> places_;
  /// A graph holds addresses of its plans: they stay until clear().
  std::unordered_map<Key, std::shared_ptr<Entry>, Hash> captured_;
  std::size_t capacity_ = 1024;
  static constexpr std::ptrdiff_t sizes_kept = 16;  ///< of the batch, for the same values and operation
  std::atomic<std::int64_t> age_ = 0;
};

}  // namespace kronsparse::binding
