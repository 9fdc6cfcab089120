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
class RowsExecutor final : public Executor {
 public:
  RowsExecutor(const Problem& problem, const KernelSet<Real>& kernels)
      : seconds_alone_(seconds_alone(problem, kernels)) {
    const Shape shape = shape_of(problem);
    std::vector<Segments> all = segments_of(shape.d * shape.unit, kernels.lanes);
    if (repeated_group(shape, kernels) > 0) all = {{0, static_cast<int>(shape.d), 1}};
    const auto middle = all.begin() + (all.front().width == kernels.lanes ? 1 : 0);
    if (middle != all.begin()) parts_.emplace_back(problem, kernels, std::vector(all.begin(), middle));
    if (middle != all.end()) parts_.emplace_back(problem, kernels, std::vector(middle, all.end()));
    for (const auto& part : parts_) scratch_bytes_ = std::max(scratch_bytes_, part.scratch_bytes());
    reserve_scratch(scratch_bytes_, threads_for(seconds_alone_));
  }

  void set_values(const void* values, Stream /*stream*/) override {
    for (auto& part : parts_) part.set_values(values);
  }
  [[nodiscard]] std::size_t packed_bytes() const noexcept override {
    std::size_t bytes = 0;
    for (const auto& part : parts_) bytes += part.packed_bytes();
    return bytes;
  }
  void run(const Operands& operands) const override {
    const int threads = threads_for(seconds_alone_);
    for (const auto& part : parts_) {
      parallel_ranges(part.tasks(), threads, scratch_bytes_,
                      [&](std::int64_t first, std::int64_t last, std::byte* scratch) {
                        part.run(operands, first, last, scratch);
                      });
    }
  }

 private:
  double seconds_alone_;
  std::vector<RowsPart<Real>> parts_;  ///< one or two
  std::size_t scratch_bytes_ = 0;
};

}  // namespace

template <class Real>
std::unique_ptr<Executor> make_rows(const Problem& problem, const KernelSet<Real>& kernels) {
  return std::make_unique<RowsExecutor<Real>>(problem, kernels);
}
template std::unique_ptr<Executor> make_rows<float>(const Problem&, const KernelSet<float>&);
template std::unique_ptr<Executor> make_rows<double>(const Problem&, const KernelSet<double>&);

}  // namespace kronsparse::simd
