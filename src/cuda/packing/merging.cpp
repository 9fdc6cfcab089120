#include "cuda/packing/merging.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <optional>

#include "kronsparse/error.hpp"

namespace kronsparse::cuda {
namespace {

Sizes sizes_of(const Pattern& pattern) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  if (pattern.rows() > most || pattern.cols() > most)
    throw Error(ErrorCode::internal, "merging: a factor is too large");
  const auto narrowed = [](std::int64_t size) { return static_cast<std::int32_t>(size); };
  return {narrowed(pattern.a), narrowed(pattern.b), narrowed(pattern.c), narrowed(pattern.d)};
}

}  // namespace

MergeTask merge_task(std::span<const Pattern> factors, DType dtype, bool transposed) {
  if (factors.size() > MergeTask::most_factors) throw Error(ErrorCode::internal, "merging: too many factors");
  MergeTask task;
  task.count = static_cast<int>(factors.size());
  task.dtype = dtype;
  task.transposed = transposed;
  std::optional<Pattern> tail;
  for (std::size_t at = factors.size(); at-- > 0;) {
    tail = tail ? factors[at].times(*tail) : std::optional(factors[at]);
    if (!tail) throw Error(ErrorCode::internal, "merging: a product of factors has no pattern");
    task.factors[at] = sizes_of(factors[at]);
    task.products[at] = sizes_of(*tail);
  }
  task.merged = task.products[0];
  const Sizes& p = task.merged;
  task.order = {.a = p.a,
                .b = transposed ? p.c : p.b,
                .c = transposed ? p.b : p.c,
                .d = p.d,
                .wide = size_of(dtype) == 4};
  task.parts = merged_parts(dtype);
  task.lanes = std::min(32, static_cast<int>(std::bit_floor(static_cast<unsigned>(task.padded_terms()))));
  return task;
}

}  // namespace kronsparse::cuda
