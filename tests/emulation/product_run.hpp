// Runs one product by a kernel on the CPU, with operands whose results are exact, and compares with a plain
// loop.
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

/// A problem, the addresses of its operands, and the GPU that it is cut for.
struct ProductCase {
  Problem problem;
  int x_offset = 0;         ///< elements from a multiple of 16 bytes
  int g_offset = 0;         ///< the same, for a gradient
  int y_offset = 0;         ///< the same
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

/// The place of each weight among the packed ones.
struct PackedOrder {
  std::int64_t elements;
  std::function<std::int64_t(std::int64_t i, std::int64_t k, std::int64_t l, std::int64_t j)> place;
  std::int64_t to_rest = 0;  ///< from a float's TF32 part to its remainder, if floats are split
  bool in_floats = false;    ///< halves are widened

  static PackedOrder of(const cuda::WgmmaOrder& order);
  /// The order of a cut that gives the weight at each place.
  static PackedOrder of(const cuda::Product& p, std::int64_t elements,
                        const std::function<cuda::PackedPlace(std::int64_t)>& place_at);
};

/// Runs the launch that `launch_of(operands, packed weights)` returns. An EmulationError says which result
/// differs, or what the kernel did that a GPU would not allow. `split`: floats are multiplied as two TF32
/// numbers each.
void run_product(const ProductCase& one, const PackedOrder& order, bool split,
                 const std::function<Launch(const Operands&, const void*)>& launch_of);

/// The same for several launches, one after the other, with a workspace of so many bytes in between.
void run_steps(const ProductCase& one, const PackedOrder& order, std::int64_t workspace_bytes,
               const std::function<std::vector<Launch>(const Operands&, const void*)>& launches_of);

}  // namespace kronsparse::emulation
