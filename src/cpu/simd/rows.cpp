// The batch_first driver: one part for the segments of j that fill a vector, one
// for those that do not.

#include <algorithm>

#include "cpu/simd/cost.hpp"
#include "cpu/simd/drivers.hpp"
#include "cpu/simd/rows_part.hpp"
#include "cpu/threads.hpp"

namespace kronsparse::simd {
namespace {

template <class Real>
class RowsExecutor final : public TaskExecutor {
 public:
  RowsExecutor(const Problem& problem, const KernelSet<Real>& kernels, std::string_view implementation)
      : seconds_alone_(seconds_alone(problem, kernels)) {
    const Shape shape = shape_of(problem);
    std::vector<Segments> all = segments_of(shape.d * shape.unit, kernels.lanes);
    if (repeated_group(shape, kernels) > 0) all = {{0, static_cast<int>(shape.d), 1}};
    const auto middle = all.begin() + (all.front().width == kernels.lanes ? 1 : 0);
    if (middle != all.begin()) parts_.emplace_back(problem, kernels, std::vector(all.begin(), middle));
    if (middle != all.end()) parts_.emplace_back(problem, kernels, std::vector(middle, all.end()));
    for (const auto& part : parts_) scratch_bytes_ = std::max(scratch_bytes_, part.scratch_bytes());
    reserve_scratch(scratch_bytes_, threads_for(seconds_alone_));
    order_ = order_of(Driver::rows, problem, kernels, implementation);
    for (const auto& part : parts_) {
      order_.bytes += aligned_bytes(part.packed_bytes());
      order_.numbers[4] = part.panel_lanes();
    }
  }

  [[nodiscard]] const PackedOrder& order() const noexcept override { return order_; }
  void pack(const void* values, void* packed, Stream /*stream*/) const override {
    auto* at = static_cast<std::byte*>(packed);
    for (const auto& part : parts_) {
      part.pack(values, at);
      at += aligned_bytes(part.packed_bytes());
    }
  }
  void run(const Operands& operands, const Weights& weights) const override {
    const int threads = threads_for(seconds_alone_);
    RunOperands of_part(operands, weights);
    for (const auto& part : parts_) {
      parallel_ranges(part.tasks(), threads, scratch_bytes_,
                      [&](std::int64_t first, std::int64_t last, std::byte* scratch) {
                        part.run(of_part, first, last, scratch);
                      });
      of_part.weights = static_cast<const std::byte*>(of_part.weights) + aligned_bytes(part.packed_bytes());
    }
  }

  [[nodiscard]] std::size_t scratch_bytes() const override { return scratch_bytes_; }
  [[nodiscard]] std::int64_t tasks() const override {
    std::int64_t all = 0;
    for (const auto& part : parts_) all += part.tasks();
    return all;
  }
  void run_tasks(const RunOperands& operands, std::int64_t first, std::int64_t last,
                 std::byte* scratch) const override {
    RunOperands of_part = operands;
    for (const auto& part : parts_) {
      if (first < part.tasks() && last > 0)
        part.run(of_part, std::max<std::int64_t>(first, 0), std::min(last, part.tasks()), scratch);
      first -= part.tasks();
      last -= part.tasks();
      of_part.weights = static_cast<const std::byte*>(of_part.weights) + aligned_bytes(part.packed_bytes());
    }
  }

 private:
  /// Every part begins on a cache line.
  [[nodiscard]] static std::size_t aligned_bytes(std::size_t bytes) {
    return (bytes + cache_line - 1) / cache_line * cache_line;
  }

  double seconds_alone_;
  std::vector<RowsPart<Real>> parts_;  ///< one or two
  std::size_t scratch_bytes_ = 0;
  PackedOrder order_;
};

}  // namespace

template <class Real>
std::unique_ptr<TaskExecutor> make_rows(const Problem& problem, const KernelSet<Real>& kernels,
                                        std::string_view implementation) {
  return std::make_unique<RowsExecutor<Real>>(problem, kernels, implementation);
}
template std::unique_ptr<TaskExecutor> make_rows<float>(const Problem&, const KernelSet<float>&,
                                                        std::string_view);
template std::unique_ptr<TaskExecutor> make_rows<double>(const Problem&, const KernelSet<double>&,
                                                         std::string_view);

}  // namespace kronsparse::simd
