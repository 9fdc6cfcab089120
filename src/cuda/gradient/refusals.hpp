// Refusals that the gradient's kernels on tensor cores share.
#pragma once

#include <cstdint>
#include <string>

#include "core/message.hpp"
#include "cuda/gradient/mma/search.hpp"

namespace kronsparse::cuda {

/// Why neither takes the problem on any GPU; empty when they may.
[[nodiscard]] inline std::string gradient_refusal(const Problem& problem) {
  if (problem.operation != Operation::gradient)
    return "computes the gradient of the values, not products with the matrix";
  if (problem.dtype != DType::f16 && problem.dtype != DType::bf16)
    return message("its tensor cores multiply f16 and bf16, not {}", name(problem.dtype));
  const Pattern& pattern = problem.pattern();
  constexpr std::int64_t limit = std::int64_t{1} << 31;
  if (pattern.b >= limit || pattern.c >= limit || pattern.d >= limit)
    return message("needs b, c and d below 2^31; the pattern is {}", pattern.to_string());
  if (problem.layout == Layout::batch_first && pattern.d % 2 != 0 && pattern.d > kGradientMaxOddJ)
    return message("in batch_first it takes an even d, or an odd d up to {}, not {}", kGradientMaxOddJ,
                   pattern.d);
  return {};
}

}  // namespace kronsparse::cuda
