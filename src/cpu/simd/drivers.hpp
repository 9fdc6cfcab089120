// The three drivers: how blocks of a problem are brought to the micro-kernel.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "core/implementation.hpp"
#include "cpu/simd/kernel_set.hpp"
#include "cpu/simd/parallel.hpp"
#include "cpu/turned.hpp"

namespace kronsparse::simd {

enum class Driver : std::uint8_t { rows, columns, gradient };
/// Which one takes a problem as it lies, on vectors of so many lanes.
[[nodiscard]] Driver driver_of(const Problem& problem, int lanes);

/// Samples are tile rows, (k, j) are lanes: batch_first, and batches too small
/// to fill a vector. Reads X in place where storage allows.
template <class Real>
[[nodiscard]] std::unique_ptr<TaskExecutor> make_rows(const Problem& problem, const KernelSet<Real>& kernels,
                                                      std::string_view implementation);

/// Outputs k are tile rows, samples are lanes: batch_last, and what is turned into it, which `on_one_thread`
/// is for.
template <class Real>
[[nodiscard]] std::unique_ptr<ColumnsDriver> make_columns(const Problem& problem,
                                                          const KernelSet<Real>& kernels,
                                                          std::string_view implementation,
                                                          bool on_one_thread = false);

inline constexpr std::int64_t gradient_sample_block = 128;   ///< samples copied at a time
inline constexpr std::int64_t gradient_panels_per_unit = 8;  ///< panels for which g is copied once
/// Outputs k are tile rows, (l, j) are lanes, and the sum runs over the batch.
template <class Real>
[[nodiscard]] std::unique_ptr<Executor> make_gradient(const Problem& problem, const KernelSet<Real>& kernels);

/// The order of a factor's packed values, told apart from others by the driver, the vectors, and how the
/// values are read. Its bytes and numbers from 4 on are the driver's to say.
template <class Real>
[[nodiscard]] PackedOrder order_of(Driver driver, const Problem& problem, const KernelSet<Real>& kernels,
                                   std::string_view implementation) {
  PackedOrder order{.family = implementation};
  order.numbers = {static_cast<int>(driver), static_cast<int>(problem.operation), kernels.lanes,
                   sizeof(Real)};
  return order;
}

/// The kernel for a group width, panel width and number of valid rows.
template <class Real>
[[nodiscard]] typename KernelSet<Real>::Tile tile_for(const KernelSet<Real>& kernels, int group, int vectors,
                                                      int rows) {
  const int row_class = rows == 1 ? 2 : rows <= 4 ? 1 : 0;
  return kernels.tile[__builtin_ctz(static_cast<unsigned>(group))][vectors - 1][row_class];
}

/// Whether Y should be written around the caches: it would only push X out of
/// them, unless the problem is small enough for the reader to find Y there.
[[nodiscard]] bool writes_around_caches(const Problem& problem);

[[nodiscard]] inline bool on_cache_line(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % cache_line == 0;
}
template <class Real>
[[nodiscard]] bool whole_cache_lines(std::int64_t reals) {
  return static_cast<std::uint64_t>(reals) * sizeof(Real) % cache_line == 0;
}

/// The same of a tile of 16-bit elements, two of whose vectors are one of reals.
[[nodiscard]] inline bool halves_in_cache_lines(int lanes, int vectors, std::int64_t row_stride,
                                                std::int64_t vector_stride) {
  return static_cast<std::size_t>(lanes) * sizeof(float) == cache_line && vectors % 2 == 0 &&
         vector_stride == lanes && static_cast<std::uint64_t>(row_stride) * 2 % cache_line == 0;
}

/// Splits `total` into the fewest blocks of at most `most`, as equal as can be
/// in multiples of `multiple`; returns the block size.
[[nodiscard]] inline std::int64_t even_block(std::int64_t total, std::int64_t most, std::int64_t multiple) {
  const std::int64_t capacity = most < multiple ? multiple : most / multiple * multiple;
  const std::int64_t blocks = (total + capacity - 1) / capacity;
  if (blocks <= 1) return total;
  const std::int64_t even = (total + blocks - 1) / blocks;
  return (even + multiple - 1) / multiple * multiple;
}

}  // namespace kronsparse::simd
