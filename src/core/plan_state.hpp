// The insides of Plan and PackedValues: decisions by batch.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/decision.hpp"
#include "kronsparse/plan.hpp"

namespace kronsparse {

/// Decisions by key, found by many threads at once. A decision is made again in some 50 us, so that
/// forgetting all of them now and then costs less than keeping count of which were used.
template <class Key, class Hash>
class DecisionTable {
 public:
  /// Null where there is none.
  [[nodiscard]] std::shared_ptr<const Decision> find(const Key& key) const {
    const std::shared_lock reading(mutex_);
    const auto found = decisions_.find(key);
    return found == decisions_.end() ? nullptr : found->second;
  }

  /// A decision that is there already stays.
  std::shared_ptr<const Decision> add(const Key& key, Decision&& decision) {
    auto made = std::make_shared<const Decision>(std::move(decision));
    const std::unique_lock changing(mutex_);
    if (decisions_.size() >= most) decisions_.clear();
    return decisions_.emplace(key, std::move(made)).first->second;
  }

  void clear() {
    const std::unique_lock changing(mutex_);
    decisions_.clear();
  }

 private:
  static constexpr std::size_t most = 2048;
  mutable std::shared_mutex mutex_;
  std::unordered_map<Key, std::shared_ptr<const Decision>, Hash> decisions_;
};

struct BatchHash {
  std::size_t operator()(const Batch& batch) const noexcept {
    auto hash = static_cast<std::uint64_t>(batch.size);
    for (const std::int64_t stride : {batch.cols_stride, batch.rows_stride})
      hash = (hash ^ hash >> 29U) * 0x9e3779b97f4a7c15U + static_cast<std::uint64_t>(stride);
    return (hash ^ hash >> 32U) * 0x9e3779b97f4a7c15U;
  }
};

struct Plan::State {
  State(Problem problem_given, Device device_given, std::string_view implementation_given);

  /// The problem with another batch; throws what is wrong with that.
  [[nodiscard]] Problem with(const Batch& batch) const;
  [[nodiscard]] Forced forced() const { return {forced_name, forced_argument}; }
  /// For values that are packed at each run. `stores`: the run writes the intermediates.
  [[nodiscard]] std::shared_ptr<const Decision> decide(const Batch& batch, bool stores = false,
                                                       Stream stream = nullptr) const;
  /// The decision that a run with these operands takes.
  [[nodiscard]] std::shared_ptr<const Decision> decision_for(const Batch& batch,
                                                             const Operands& operands) const;

  std::uint64_t number;  ///< of the plan, never used again
  Problem problem;
  Device device;
  const BackendEntry* backend = nullptr;
  std::string forced_name, forced_argument;
  mutable DecisionTable<Batch, BatchHash> decisions;
  mutable DecisionTable<Batch, BatchHash> storing;  ///< for runs that write the intermediates
  mutable BatchClasses classes;                     ///< of batches that were decided for
  std::optional<PackedValues> kept;
  std::string implementation;  ///< of the problem's own batch
};

/// One order of the values of a factor, or of a whole chain, packed.
struct PackedEntry {
  std::size_t factor;   ///< the first of them
  std::size_t factors;  ///< how many
  PackedOrder order;
  std::shared_ptr<const Executor> packer;
  std::shared_ptr<void> memory;
};

/// Whether `more` bytes may be kept, of a chain's values packed as a whole, beside the `held` ones. All
/// copies together take at most three times the bytes of the values, but for one: small factors that are
/// multiplied together have more values than before (ten factors of 2x2 blocks, as two of 32x32 in two parts,
/// take 6.4 times the bytes). The first copy may take a quarter of the dense matrix, or a mebibyte.
[[nodiscard]] bool may_keep_whole(const Chain& chain, DType dtype, std::size_t held, std::size_t more);

struct PackedKey {
  std::uint64_t plan;
  Batch batch;
  bool stores = false;  ///< whether the run writes the intermediates

  friend bool operator==(const PackedKey&, const PackedKey&) = default;
};
struct PackedKeyHash {
  std::size_t operator()(const PackedKey& key) const noexcept {
    return BatchHash{}(key.batch) ^ (2 * key.plan + (key.stores ? 1 : 0)) * 0x9e3779b97f4a7c15U;
  }
};

struct PackedValues::State {
  State(const Plan::State& plan, Allocator given);

  void check_belongs(const Plan::State& plan) const;
  [[nodiscard]] std::shared_ptr<const Decision> find(const Plan::State& plan, const Batch& batch,
                                                     bool stores = false) const {
    return decisions.find({plan.number, batch, stores});
  }
  /// Decides for a batch, packs what is to be kept and is not there, and waits for it.
  std::shared_ptr<const Decision> prepare(const Plan::State& plan, const Batch& batch,
                                          std::span<const void* const> values, Stream stream);
  /// The best way to run a batch with what is packed; Error unsupported where there is none.
  [[nodiscard]] std::shared_ptr<const Decision> decide_with_packed(const Plan::State& plan,
                                                                   const Batch& batch, bool stores) const;
  /// Packs other values in every order that is there.
  void set_values(std::span<const void* const> values, Stream stream);
  [[nodiscard]] std::size_t bytes() const;

  Chain chain;
  DType dtype;
  Device device;
  const BackendEntry* backend;
  Allocator allocator;
  /// A plan's own: its runs are given no values, so that what no packed order serves is packed, room or not.
  bool always_keeps = false;
  mutable DecisionTable<PackedKey, PackedKeyHash> decisions;  ///< of batches that were prepared
  /// Decisions for the others, which take what is packed for those: preparing may still find a faster way.
  mutable DecisionTable<PackedKey, PackedKeyHash> fitted;
  mutable std::mutex mutex;  ///< of the entries
  std::vector<PackedEntry> entries;
  /// Plans and the powers of two that batches they were prepared for lie between: others of these take what
  /// is packed, where a kernel reads it, without a search for something better.
  std::vector<std::pair<std::uint64_t, int>> searched;
  /// Values were packed in the order of a stream, and nobody has waited for that.
  std::atomic<bool> are_fresh = false;

 private:
  /// A way to run a step with values in an order that is packed.
  struct Fitting {
    Assessment way;
    const PackedEntry* entry;
  };
  [[nodiscard]] std::size_t limit() const;
  /// Such ways, the fastest first, not made yet.
  [[nodiscard]] std::vector<Fitting> ways_that_fit(const Step& step, const Plan::State& plan,
                                                   std::span<const PackedEntry> packed) const;
  /// The first of them, made.
  [[nodiscard]] static std::optional<DecidedStep> made_of(const Step& step, std::span<const Fitting> all);
  /// The best way to read values in an order that is packed.
  [[nodiscard]] std::optional<DecidedStep> fitting(const Step& step, const Plan::State& plan,
                                                   std::span<const PackedEntry> packed) const;
  /// The answers for steps, in their order: searched for once, though asked for twice.
  using Answers = std::vector<std::vector<Assessment>>;
  /// The whole chain as one step, where that is the fastest way and there is room for its order; adds to
  /// `packed` what is to be packed, and to `of_steps` the answers for the steps if it asked for them.
  [[nodiscard]] std::optional<DecidedStep> choose_whole(const Problem& problem, const Plan::State& plan,
                                                        bool is_known, Answers& of_steps,
                                                        std::vector<PackedEntry>& packed) const;
  /// The seconds of the steps one by one with what is packed; infinite where that is not enough.
  [[nodiscard]] double fitting_seconds(const Problem& problem, const Plan::State& plan,
                                       std::span<const PackedEntry> packed) const;
  /// Takes memory for the order of a step.
  [[nodiscard]] DecidedStep keep(DecidedStep made, std::vector<PackedEntry>& packed) const;
  /// Adds to `packed` what is to be packed for the step.
  /// `is_known`: batches like this were searched for, and what is packed will do. `all`: the answers for the
  /// step, or none where they are to be asked for.
  [[nodiscard]] DecidedStep choose_kept(Step step, const Plan::State& plan, bool is_known,
                                        std::vector<Assessment> all, std::vector<PackedEntry>& packed) const;
};

/// Null for a plan that was moved from: Error invalid_argument.
template <class State>
[[nodiscard]] State& checked_state(const std::unique_ptr<State>& state, const char* what);

}  // namespace kronsparse
