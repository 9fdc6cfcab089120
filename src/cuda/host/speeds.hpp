// How fast a GPU is beside the one that its cost models were fitted on (tuning/), so far always an H200.
//
// A cost model says what share of a rate a kernel reached on an H200. Some kernels wait for memory, others
// for their own instructions; on the H200 both could be written as shares of the copy rate. Elsewhere they
// part: an RTX 4090 has six times as many clocks for each byte of its memory. So a model multiplies a share
// that instructions set by clocks_per_byte(), and one that L2 sets by l2_per_byte(). All of these are exactly
// 1 on an H200. Host code only.
#pragma once

#include <string>

#include "cuda/host/runtime.hpp"
#include "kronsparse/dtype.hpp"

namespace kronsparse::cuda {

/// No kernel moves data faster than this share of the copy rate, however many clocks it has; those on FMA
/// units, whose threads have the sums to do besides, less.
inline constexpr double best_memory_share = 0.8, best_fma_memory_share = 0.7;

/// Clocks of all multiprocessors for each byte that a copy moves, beside the GPU of the fits.
[[nodiscard]] double clocks_per_byte(const GpuFacts& facts);
/// Bytes that L2 hands to multiprocessors for each byte that a copy moves, beside it.
[[nodiscard]] double l2_per_byte(const GpuFacts& facts);
/// The clock of a multiprocessor, beside it.
[[nodiscard]] double relative_clock(const GpuFacts& facts);
/// The rate of L2, to all multiprocessors together, beside it.
[[nodiscard]] double relative_l2(const GpuFacts& facts);
/// The same, to each multiprocessor.
[[nodiscard]] double relative_l2_of_one(const GpuFacts& facts);

/// Rates that were measured, per second; 0 where nothing was. Multiply-adds, not flops.
struct MeasuredRates {
  double l2 = 0, copy = 0;  ///< bytes
  double f16 = 0, bf16 = 0, tf32 = 0, fma32 = 0, fma64 = 0;
};
/// Gives the functions of this file the rates of all GPUs of a name. A rate within 10 % of the estimate for
/// it changes nothing, so that noise does not change choices.
void set_measured_rates(const std::string& name, const MeasuredRates& rates);
/// Forgets them: for tests.
void forget_measured_rates();
/// The copy rate that cost models count with: measured, or as the facts have it.
[[nodiscard]] double copy_rate(const GpuFacts& facts);

/// The units that multiply: tensor cores by their operand, or FMA units in that precision.
enum class Units { f16, bf16, tf32, fma32, fma64 };

/// Multiply-adds per clock and multiprocessor, by mma.sync for tensor cores: measured, or else by the
/// architecture. GeForce cards halve the rate of sums in f32, and cannot be told from others by their
/// architecture, so that the estimate is theirs.
[[nodiscard]] double multiply_adds_per_clock(const GpuFacts& facts, Units units);

/// The rate that a kernel reaches where it reached `fitted` on the GPU of the fits, in multiply-adds per
/// clock and multiprocessor: no more than 80 % of what the units can do for `products` products each.
[[nodiscard]] double reached_rate(const GpuFacts& facts, Units units, double fitted, double products = 1);

/// Multiply-adds per clock and multiprocessor of Hopper's wgmma: of half types, or of TF32.
[[nodiscard]] constexpr double wgmma_per_clock(bool half) { return half ? 2048 : 1024; }

}  // namespace kronsparse::cuda
