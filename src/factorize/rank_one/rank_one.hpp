// The best approximations of rank 1 of small blocks, several at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "factorize/rank_one/kernel_set.hpp"
#include "factorize/split.hpp"

namespace kronsparse::factorization {

/// The kernels that this CPU can run, the widest first.
[[nodiscard]] std::span<const RankOneKernels* const> rank_one_kernels();

/// Works on blocks of one size, a block in each lane of a vector register, in double precision. Bounds are
/// below the squared distance, rounding included: by at most a few thousand units in the last place of the
/// block's squared norm, and by far less where the block is nearly of rank 1.
template <class T>
class RankOne {
 public:
  /// So many blocks are taken at once.
  static constexpr int at_once = most_lanes;
  /// Whether blocks are small enough, or many, for a lane each.
  [[nodiscard]] static bool suits(const Split& split) noexcept;

  explicit RankOne(const Split& split, const RankOneKernels& kernels = *rank_one_kernels().front());

  /// The sum of the squared distances of blocks first, first + 1, ... of a product from the nearest of rank
  /// 1, or less by rounding; `at_once` of them, or as many as there are.
  double lower_bound(const T* product, std::int64_t first);
  /// The same; the nearest are left·right, one of them with unit vectors: `centre` says where singular values
  /// go.
  enum class Values : std::uint8_t { to_left, to_right, to_both };
  double approximate(const T* product, std::int64_t first, T* left, T* right, Values values);

 private:
  double run(const T* product, std::int64_t first, T* left, T* right, Values values);

  Split split_;
  const RankOneKernels& kernels_;
  std::vector<double> memory_;
};

}  // namespace kronsparse::factorization
