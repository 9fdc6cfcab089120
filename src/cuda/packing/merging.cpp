#include "cuda/packing/merging.hpp"

#include <optional>

#include "kronsparse/error.hpp"

namespace kronsparse::cuda {
namespace {

Sizes sizes_of(const Pattern& pattern) { return {pattern.a, pattern.b, pattern.c, pattern.d}; }

}  // namespace

MergeTask merge_task(std::span<const Pattern> factors, DType dtype) {
  if (factors.size() > MergeTask::most_factors) throw Error(ErrorCode::internal, "merging: too many factors");
  MergeTask task;
  task.count = static_cast<int>(factors.size());
  task.dtype = dtype;
  std::optional<Pattern> tail;
  for (std::size_t at = factors.size(); at-- > 0;) {
    tail = tail ? factors[at].times(*tail) : std::optional(factors[at]);
    if (!tail) throw Error(ErrorCode::internal, "merging: a product of factors has no pattern");
    task.factors[at] = sizes_of(factors[at]);
    task.products[at] = sizes_of(*tail);
  }
  task.merged = task.products[0];
  return task;
}

}  // namespace kronsparse::cuda
