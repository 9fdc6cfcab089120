// Products and conversions of the simd family for one thread, on its fastest instruction set: for those who
// have threads of their own.
#pragma once

#include <cstdint>
#include <memory>

#include "cpu/task_executor.hpp"
#include "kronsparse/problem.hpp"

namespace kronsparse::simd {

/// Predicted, of a product with one factor, not of half types.
[[nodiscard]] double seconds_on_one_thread(const Problem& problem);
/// The driver that is predicted to take as long as that.
[[nodiscard]] std::unique_ptr<TaskExecutor> make_for_one_thread(const Problem& problem);
/// A driver that reads values in this order, of another instruction set or for other batches if need be; null
/// where there is none.
[[nodiscard]] std::unique_ptr<TaskExecutor> make_for_one_thread(const Problem& problem,
                                                                const PackedOrder& order);

/// The floats that `narrow` may read beyond the last one.
inline constexpr std::int64_t floats_beyond = 16;
/// f16 or bf16 to f32.
void widen(const void* from, DType dtype, float* to, std::int64_t count);
/// f32 to f16 or bf16, rounded to nearest.
void narrow(float* from, DType dtype, void* to, std::int64_t count);

}  // namespace kronsparse::simd
