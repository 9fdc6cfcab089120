#include "core/batch_classes.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "core/geometry.hpp"

namespace kronsparse {
namespace {

int alignment_of(std::int64_t elements) {
  constexpr int most = 4;  // 16 elements
  return std::min(std::countr_zero(static_cast<std::uint64_t>(elements)), most);
}

}  // namespace

BatchClass::BatchClass(const Problem& problem, bool stores)
    : log2(problem.batch <= 1
               ? 0
               : static_cast<int>(std::bit_width(static_cast<std::uint64_t>(problem.batch - 1)))),
      is_stored(stores) {
  const bool is_gradient = problem.operation == Operation::gradient;
  const MatrixShape y = is_gradient ? rows_matrix(problem) : y_matrix(problem);
  // What a chain hands on is dense: in batch_last its rows are as long as the batch.
  const std::int64_t between = problem.layout == Layout::batch_last ? problem.batch : 0;
  for (const std::int64_t stride : {x_matrix(problem).stride, y.stride, between})
    alignment = alignment << 3 | alignment_of(stride);
}

Learned BatchClasses::find(const BatchClass& kind) const {
  const std::scoped_lock lock(mutex_);
  const auto found = std::ranges::find(all_, kind, &std::pair<BatchClass, Learned>::first);
  return found == all_.end() ? Learned{} : found->second;
}

void BatchClasses::add(const BatchClass& kind, Learned learned) {
  const std::scoped_lock lock(mutex_);
  const auto found = std::ranges::find(all_, kind, &std::pair<BatchClass, Learned>::first);
  if (found != all_.end()) {
    found->second = std::move(learned);
    return;
  }
  if (all_.size() >= most) all_.clear();
  all_.emplace_back(kind, std::move(learned));
}

}  // namespace kronsparse
