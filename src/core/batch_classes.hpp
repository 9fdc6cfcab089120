// What the decision for one batch size says of others like it: most of them need no whole search.
#pragma once

#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "core/choice.hpp"
#include "kronsparse/problem.hpp"

namespace kronsparse {

/// Who takes this many times as long as the best for one batch of a class is not asked about others of it.
inline constexpr double far_slower = 1.5;

/// Batches that differ by less than a factor of two, and whose rows are aligned alike: the same kernels take
/// them, and which of these are fast changes little. Kernels for small batches take up to a power of two.
struct BatchClass {
  int log2 = 0;            ///< of the largest batch
  int alignment = 0;       ///< of rows, as bits of what is aligned to 2, 4, 8, 16 elements
  bool is_stored = false;  ///< whether runs write the intermediates

  BatchClass(const Problem& problem, bool stores);
  friend bool operator==(const BatchClass&, const BatchClass&) = default;
};

/// Who need not be asked about a class.
struct Learned {
  std::vector<Places> outdone;  ///< for each step of the problem
  bool skips_whole = false;     ///< those for the chain in one pass
  bool skips_steps = false;     ///< all others
};

/// What is known of the classes of one problem, found and added to by many threads.
class BatchClasses {
 public:
  [[nodiscard]] Learned find(const BatchClass& kind) const;
  void add(const BatchClass& kind, Learned learned);

 private:
  static constexpr std::size_t most = 64;  // strides may come and go
  mutable std::mutex mutex_;
  std::vector<std::pair<BatchClass, Learned>> all_;
};

}  // namespace kronsparse
