// Refusals that the tensor-core kernels share.
#pragma once

#include <cstdint>
#include <string>

#include "core/message.hpp"
#include "cuda/device/tensor_core.cuh"
#include "cuda/host/product.hpp"
#include "cuda/host/runtime.hpp"

namespace kronsparse::cuda {

[[nodiscard]] inline Arithmetic arithmetic_of(const Problem& problem) {
  if (problem.dtype == DType::f16) return Arithmetic::f16;
  if (problem.dtype == DType::bf16) return Arithmetic::bf16;
  return problem.mode == Mode::tf32 ? Arithmetic::tf32 : Arithmetic::tf32x3;
}

/// Why these kernels cannot take the problem on any GPU; empty when they can.
[[nodiscard]] inline std::string tensor_core_refusal(const Problem& problem) {
  if (problem.operation == Operation::gradient)
    return "multiplies only, the gradient has its own implementation";
  if (problem.dtype != DType::f16 && problem.dtype != DType::bf16 && problem.dtype != DType::f32)
    return message("tensor cores here multiply f16, bf16 and f32, not {}", name(problem.dtype));
  if (problem.dtype == DType::f32 && problem.mode == Mode::ieee) return "the mode ieee allows FMA units only";
  // The split loses up to 9 units in the last place of a product. Sums must be so long that a library's own
  // rounding errors are of that size.
  constexpr std::int64_t least_terms = 16;
  const std::int64_t terms = product_of(problem).c;
  if (problem.dtype == DType::f32 && problem.mode == Mode::fp32 && terms < least_terms)
    return message("needs sums of at least {} terms to be as accurate as a library; here {}", least_terms,
                   terms);
  constexpr std::int64_t limit = std::int64_t{1} << 31;
  const Pattern& pattern = problem.pattern();
  if (pattern.b >= limit || pattern.c >= limit || pattern.d >= limit)
    return message("needs b, c and d below 2^31; the pattern is {}", pattern.to_string());
  return {};
}

/// The same for kernels that multiply half types alone.
[[nodiscard]] inline std::string half_refusal(const Problem& problem) {
  if (std::string reason = tensor_core_refusal(problem); !reason.empty()) return reason;
  return problem.dtype == DType::f32 ? "takes the half types f16 and bf16, not f32" : "";
}

/// Why a kernel for at most `most` samples cannot take the problem; empty when it can.
[[nodiscard]] inline std::string batch_refusal(const Problem& problem, std::int64_t most) {
  if (problem.batch <= most) return {};
  return message("is for batches of at most {}, not {}", most, problem.batch);
}

/// Why a kernel cannot take the rows of x, of c·d elements for each i. It takes multiples of `row_elements`
/// up to `most`. Empty when it can.
[[nodiscard]] inline std::string row_refusal(const Product& p, int row_elements, int most) {
  if (p.c <= most / p.d && p.c * p.d % row_elements == 0) return {};
  return message("needs terms·d to be a multiple of {} and at most {}; here {}·{} = {}", row_elements, most,
                 p.c, p.d, p.c * p.d);
}

/// Why the GPU, or the code that was compiled for it, lacks this compute capability (80 for 8.0); empty when
/// both have it.
[[nodiscard]] inline std::string capability_refusal(const GpuFacts& facts, int needed) {
  const auto text = [](int capability) { return message("{}.{}", capability / 10, capability % 10); };
  if (facts.code.compute_capability >= needed) return {};
  if (facts.compute_capability < needed)
    return message("needs compute capability {}, {} has {}", text(needed), facts.name,
                   text(facts.compute_capability));
  return message("needs code for compute capability {}, this build's for {} is for {}", text(needed),
                 facts.name, text(facts.code.compute_capability));
}

/// Why the GPU lacks Hopper's instructions, which no other GPU has, or the build lacks code that uses them;
/// empty when neither does.
[[nodiscard]] inline std::string hopper_refusal(const GpuFacts& facts) {
  if (facts.compute_capability != 90)
    return message("needs compute capability 9.0, {} has {}.{}", facts.name, facts.compute_capability / 10,
                   facts.compute_capability % 10);
  if (facts.code.compute_capability != 90 || facts.code.kind != 'a')
    return message("needs code for sm_90a, this build's for {} is for {}", facts.name,
                   architectures_text({&facts.code, 1}));
  return {};
}

/// The most shared memory for a block that a GPU of today has.
inline constexpr std::size_t most_shared_bytes = std::size_t{227} << 10;
/// The refusal of a problem that a GPU with that much would take.
[[nodiscard]] inline std::string shared_memory_refusal(const GpuFacts& facts) {
  return message("needs more than the {} bytes of shared memory that a block has on {}", facts.shared_bytes,
                 facts.name);
}

/// Why the GPU cannot hold a block's tile, or the kernel cannot count the tiles; empty when it can.
[[nodiscard]] inline std::string tile_refusal(const GpuFacts& facts, int shared_bytes, std::int64_t groups,
                                              std::int64_t n_tiles) {
  if (static_cast<std::size_t>(shared_bytes) > facts.shared_bytes)
    return message("its tiles need {} bytes of shared memory, {} has {}", shared_bytes, facts.name,
                   facts.shared_bytes);
  constexpr double limit = 2147483648.0;
  if (static_cast<double>(groups) * static_cast<double>(n_tiles) >= limit)
    return "counts its tiles in 32 bits";
  return {};
}

}  // namespace kronsparse::cuda
