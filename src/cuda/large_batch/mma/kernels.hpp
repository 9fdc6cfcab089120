// The kernels of kernel.cuh, by the number of their shape. Each arithmetic is compiled in its own file.
#pragma once

#include <array>
#include <cstddef>

#include "cuda/large_batch/mma/tiles.cuh"

namespace kronsparse::cuda {
namespace mma {

// Sums take 64 of 128 registers, or 128 of 255.
inline constexpr std::array half_shapes = {
    Shape{.slots = 2, .blocks = 2, .has_chunks = false}, Shape{.slots = 4, .blocks = 1, .has_chunks = false},
    Shape{.slots = 2, .blocks = 2, .has_chunks = true}, Shape{.slots = 4, .blocks = 1, .has_chunks = true}};
inline constexpr std::array float_shapes = {
    Shape{.slots = 4, .blocks = 2, .has_chunks = false}, Shape{.slots = 8, .blocks = 1, .has_chunks = false},
    Shape{.slots = 4, .blocks = 2, .has_chunks = true}, Shape{.slots = 8, .blocks = 1, .has_chunks = true}};

using Kernel = void (*)(Arguments);

}  // namespace mma

[[nodiscard]] mma::Kernel mma_f16_kernel(std::size_t shape);
[[nodiscard]] mma::Kernel mma_bf16_kernel(std::size_t shape);
[[nodiscard]] mma::Kernel mma_tf32_kernel(std::size_t shape);
[[nodiscard]] mma::Kernel mma_tf32x3_kernel(std::size_t shape);

}  // namespace kronsparse::cuda
