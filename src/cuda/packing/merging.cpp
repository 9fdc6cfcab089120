#include "cuda/packing/merging.hpp"

#include <vector>

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
  for (std::size_t at = 0; at < factors.size(); ++at) {
    const auto product =
        Chain(std::vector<Pattern>(factors.begin() + static_cast<std::ptrdiff_t>(at), factors.end()))
            .product();
    if (!product) throw Error(ErrorCode::internal, "merging: a product of factors has no pattern");
    task.factors[at] = sizes_of(factors[at]);
    task.products[at] = sizes_of(*product);
  }
  task.merged = task.products[0];
  return task;
}

}  // namespace kronsparse::cuda
