// One product by a kernel on the CPU: operands whose results are exact, compared with a plain loop.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "block.hpp"
#include "cuda/host/product.hpp"
#include "cuda/host/runtime.hpp"
#include "cuda/large_batch/wgmma/weights.cuh"
#include "cuda/packing/packed_place.cuh"
#include "kronsparse/plan.hpp"

namespace kronsparse::emulation {

/// A problem, where its operands lie, and the GPU that it is cut up for.
struct ProductCase {
  Problem problem;
  int x_offset = 0;         ///< elements from an address that 16 divides
  int g_offset = 0;         ///< alike, for a gradient
  int y_offset = 0;         ///< alike
  int multiprocessors = 3;  ///< few, so that a block computes several tiles
  std::size_t l2_bytes = std::size_t{50} << 20;
  bool infinite = false;  ///< one x is an infinity
  Timing timing = Timing::late;

  [[nodiscard]] std::string text() const;
  [[nodiscard]] cuda::GpuFacts gpu() const;
};

/// The shape of a launch, and the kernel with its arguments.
struct Launch {
  int blocks;
  int threads;
  int shared_bytes;
  std::function<void()> kernel;
  int cluster_blocks = 1;
};

/// Where packing puts a weight.
struct PackedOrder {
  std::int64_t elements;
  std::function<std::int64_t(std::int64_t i, std::int64_t k, std::int64_t l, std::int64_t j)> place;
  std::int64_t to_rest = 0;  ///< of floats that are two TF32 numbers

  static PackedOrder of(const cuda::WgmmaOrder& order);
  /// Of a cut that says of every place which weight belongs there.
  static PackedOrder of(const cuda::Product& p, std::int64_t elements,
                        const std::function<cuda::PackedPlace(std::int64_t)>& place_at);
};

/// Runs what `launch_of(operands, packed weights)` says; an EmulationError says which result differs, or
/// what the kernel did that a GPU would not allow. `split`: floats are two TF32 numbers.
void run_product(const ProductCase& one, const PackedOrder& order, bool split,
                 const std::function<Launch(const Operands&, const void*)>& launch_of);

/// The same for several launches, one after the other, which may read y as well. They compute the first
/// `samples` samples; what they leave in the others' rows is no matter.
void run_steps(const ProductCase& one, const PackedOrder& order, std::int64_t samples,
               const std::function<std::vector<Launch>(const Operands&, const void*)>& launches_of);

}  // namespace kronsparse::emulation
