// One problem's operands in device memory, and a run with everything around it checked.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "device.hpp"
#include "kronsparse/buffer.hpp"
#include "kronsparse/plan.hpp"
#include "kronsparse/problem.hpp"
#include "oracle.hpp"
#include "scalars.hpp"

namespace conformance {

/// The place of element (feature, sample) in a matrix.
struct View {
  std::int64_t features;
  std::int64_t batch;
  std::int64_t stride;
  bool batch_first;

  [[nodiscard]] std::int64_t row_count() const { return batch_first ? batch : features; }
  [[nodiscard]] std::int64_t row_length() const { return batch_first ? features : batch; }
  [[nodiscard]] std::int64_t elements() const {
    return row_count() == 0 || row_length() == 0 ? 0 : (row_count() - 1) * stride + row_length();
  }
  [[nodiscard]] std::int64_t offset(std::int64_t feature, std::int64_t sample) const {
    return batch_first ? sample * stride + feature : feature * stride + sample;
  }
};

/// Views of the problem's operands, from the documentation of Problem alone.
struct Views {
  explicit Views(const kronsparse::Problem& problem);
  View x;
  View g;  ///< no elements unless gradient
  View y;  ///< one row of nnz features for the gradient
};

/// The places of a problem's operands in memory. They follow from the seed, so that a seed
/// repeats a failure and the cases visit every placement.
struct Placements {
  explicit Placements(std::uint64_t seed);
  /// The place of operand 0 to 4 (values, x, g, bias, y); misalignment in units of the element's alignment.
  std::array<Placement, 5> placement{};
  std::array<std::size_t, 5> misalignment{};
};

template <class T>
class Harness {
 public:
  using Wide = WideOf<T>;

  Harness(const TestDevice& device, const kronsparse::Problem& problem, std::uint64_t seed)
      : device_(device),
        views_(problem),
        bias_elements_(problem.bias ? problem.pattern().rows() : 0),
        values_(buffer(problem.operation == kronsparse::Operation::gradient ? 0 : problem.pattern().nnz(),
                       seed, 0)),
        x_(buffer(views_.x.elements(), seed, 1)),
        g_(buffer(views_.g.elements(), seed, 2)),
        bias_(buffer(bias_elements_, seed, 3)),
        y_(buffer(views_.y.elements(), seed, 4)),
        has_values_(problem.operation != kronsparse::Operation::gradient) {}

  /// Puts the operands, which must be numbers of T, where the problem wants them.
  void load(const Data<Wide>& data) {
    place(values_, {static_cast<std::int64_t>(data.values.size()), 1, 1, false}, data.values);
    place(x_, views_.x, data.x);
    place(g_, views_.g, data.g);
    place(bias_, {bias_elements_, 1, 1, false}, data.bias);
  }

  /// The values for Plan; null for the gradient.
  [[nodiscard]] const void* values() const { return has_values_ ? values_.device_data() : nullptr; }
  /// Plans keep no pointer to the values: after this they would read NaN.
  void forget_values() {
    values_.poison();
    values_.upload();
  }

  [[nodiscard]] kronsparse::Operands operands() const {
    return {.x = x_.device_data(),
            .y = y_.device_data(),
            .bias = bias_elements_ > 0 ? bias_.device_data() : nullptr,
            .g = views_.g.features > 0 ? g_.device_data() : nullptr,
            .workspace = workspace_.data(),
            .workspace_bytes = workspace_.bytes()};
  }
  /// What kernels need besides kept values; for those who run the plan themselves.
  void make_workspace(const kronsparse::Plan& plan) {
    const kronsparse::Problem& problem = plan.problem();
    const std::size_t bytes = plan.workspace_bytes(
        {.size = problem.batch, .cols_stride = problem.cols_stride, .rows_stride = problem.rows_stride},
        operands());
    if (bytes > workspace_.bytes()) workspace_ = kronsparse::Buffer(bytes, plan.device());
  }

  /// Fills y with NaN and runs. Returns what happened to memory that was not
  /// to be touched; empty when nothing did.
  [[nodiscard]] std::string run(const kronsparse::Plan& plan) {
    prepare_output();
    make_workspace(plan);
    plan.run(operands());
    return collect_output();
  }
  /// The two halves of run(), for those who run the plan themselves.
  void prepare_output() {
    y_.poison();
    y_.upload();
  }
  [[nodiscard]] std::string collect_output() {
    device_.synchronise();
    y_.download();
    if (std::string where = y_.damaged_guard(); !where.empty()) return "y was written " + where;
    if (std::string where = damaged_gap(); !where.empty()) return "y was written " + where;
    if (!x_.unchanged()) return "x was written";
    if (!g_.unchanged()) return "g was written";
    if (!bias_.unchanged()) return "bias was written";
    return {};
  }

  /// The outcome of the last run, as the oracle lays it out.
  [[nodiscard]] std::vector<Wide> output() const {
    std::vector<Wide> result;
    result.reserve(static_cast<std::size_t>(views_.y.features * views_.y.batch));
    for (std::int64_t feature = 0; feature < views_.y.features; ++feature)
      for (std::int64_t sample = 0; sample < views_.y.batch; ++sample)
        result.push_back(decode(read(views_.y.offset(feature, sample))));
    return result;
  }
  /// The same, byte by byte with the gaps. (A std::byte would be compared one at a time.)
  [[nodiscard]] std::vector<unsigned char> output_bytes() const {
    std::vector<unsigned char> result(y_.bytes());
    if (!result.empty()) std::memcpy(result.data(), y_.image_data(), y_.bytes());
    return result;
  }

 private:
  GuardedBuffer buffer(std::int64_t elements, std::uint64_t seed, std::size_t operand) const {
    const Placements placements(seed);
    return {device_, static_cast<std::size_t>(elements) * sizeof(T), placements.placement[operand],
            placements.misalignment[operand] * kronsparse::alignment_of(kronsparse::dtype_of<T>)};
  }

  static void place(GuardedBuffer& buffer, const View& view, const std::vector<Wide>& numbers) {
    buffer.poison();
    std::size_t at = 0;
    for (std::int64_t feature = 0; feature < view.features; ++feature)
      for (std::int64_t sample = 0; sample < view.batch; ++sample, ++at) {
        const T element = encode<T>(numbers[at]);
        std::memcpy(buffer.image_data() + view.offset(feature, sample) * std::int64_t{sizeof(T)}, &element,
                    sizeof(T));
      }
    buffer.upload();
  }

  [[nodiscard]] T read(std::int64_t offset) const {
    T element;
    std::memcpy(&element, y_.image_data() + offset * std::int64_t{sizeof(T)}, sizeof(T));
    return element;
  }

  /// Between the rows of a strided y, where nothing may be written.
  [[nodiscard]] std::string damaged_gap() const {
    if (views_.y.elements() == 0) return {};
    const std::int64_t gap = (views_.y.stride - views_.y.row_length()) * std::int64_t{sizeof(T)};
    for (std::int64_t row = 0; row + 1 < views_.y.row_count(); ++row) {
      const std::byte* first =
          y_.image_data() + (row * views_.y.stride + views_.y.row_length()) * std::int64_t{sizeof(T)};
      for (std::int64_t byte = 0; byte < gap; ++byte)
        if (first[byte] != std::byte{0xff})
          return std::to_string(byte) + " bytes into the gap after row " + std::to_string(row);
    }
    return {};
  }

  const TestDevice& device_;
  Views views_;
  std::int64_t bias_elements_;
  GuardedBuffer values_;
  GuardedBuffer x_;
  GuardedBuffer g_;
  GuardedBuffer bias_;
  GuardedBuffer y_;
  kronsparse::Buffer workspace_;
  bool has_values_;
};

inline Views::Views(const kronsparse::Problem& problem) : x{}, g{}, y{} {
  using kronsparse::Operation;
  const bool batch_first = problem.layout == kronsparse::Layout::batch_first;
  const auto view = [&](std::int64_t features, std::int64_t stride) -> View {
    const std::int64_t row = batch_first ? features : problem.batch;
    return {features, problem.batch, stride == 0 ? row : stride, batch_first};
  };
  const View cols = view(problem.pattern().cols(), problem.cols_stride);
  const View rows = view(problem.pattern().rows(), problem.rows_stride);
  const bool gradient = problem.operation == Operation::gradient;
  const bool forward = gradient || problem.operation == Operation::multiply;
  x = forward ? cols : rows;
  y = forward ? rows : cols;
  if (gradient) {
    g = rows;
    y = {problem.pattern().nnz(), 1, problem.pattern().nnz(), true};
  }
}

inline Placements::Placements(std::uint64_t seed) {
  constexpr std::array kPlacements = {Placement::aligned, Placement::misaligned, Placement::flush_end,
                                      Placement::misaligned, Placement::flush_start};
  for (std::size_t operand = 0; operand < placement.size(); ++operand) {
    const std::uint64_t turn = seed * 2 + (seed / 5) * operand;
    placement[operand] = kPlacements[turn % kPlacements.size()];
    misalignment[operand] = 1 + (seed + 3 * operand) % 15;
  }
}

}  // namespace conformance
