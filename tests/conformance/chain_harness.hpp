// A chain's operands in device memory, and runs with everything around them checked: outputs, workspace and
// intermediates lie between guard bands, and are NaN before.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chain_oracle.hpp"
#include "device.hpp"
#include "harness.hpp"
#include "kronsparse/plan.hpp"

namespace conformance {

/// The outputs of a gradient, and the place of the intermediates.
struct Wanted {
  explicit Wanted(std::uint64_t seed)
      : as_pointers(seed % 2 == 1), mask(seed / 2), grad_x(seed % 3 != 0), intermediates(seed % 4 >= 2) {}

  /// gradients[] instead of y; some of them null then, but never all.
  bool as_pointers;
  std::uint64_t mask;
  bool grad_x;
  bool intermediates;

  [[nodiscard]] bool gradient(std::size_t factor, std::size_t count) const {
    return !as_pointers || factor == mask % count || (mask >> factor & 1U) != 0;
  }
};

/// One of the outputs, as the oracle lays it out.
template <class Wide>
struct Output {
  std::string name;
  std::vector<Wide> numbers;
};

template <class T>
class ChainHarness {
 public:
  using Wide = WideOf<T>;

  ChainHarness(const TestDevice& device, const kronsparse::Problem& problem, std::uint64_t seed)
      : device_(device),
        problem_(problem),
        wanted_(seed),
        seed_(seed),
        x_view_(view(is_gradient() || is_forward() ? problem.chain.cols() : problem.chain.rows(),
                     is_gradient() || is_forward() ? problem.cols_stride : problem.rows_stride)),
        y_view_(is_gradient()  ? View{problem.chain.nnz(), 1, problem.chain.nnz(), true}
                : is_forward() ? view(problem.chain.rows(), problem.rows_stride)
                               : view(problem.chain.cols(), problem.cols_stride)),
        g_view_(is_gradient() ? view(problem.chain.rows(), problem.rows_stride) : View{}),
        grad_x_view_(is_gradient() && wanted_.grad_x ? view(problem.chain.cols(), 0) : View{}),
        x_(buffer(x_view_.elements(), 1)),
        g_(buffer(g_view_.elements(), 2)),
        bias_(buffer(problem.bias ? problem.chain.rows() : 0, 3)),
        y_(buffer(y_view_.elements(), 4)),
        grad_x_(buffer(grad_x_view_.elements(), 0)) {
    for (std::size_t factor = 0; factor < problem.chain.size(); ++factor) {
      values_.push_back(buffer(problem.chain[factor].nnz(), factor));
      gradients_.push_back(
          buffer(is_gradient() && wanted_.as_pointers ? problem.chain[factor].nnz() : 0, factor + 2));
      value_addresses_.push_back(values_.back().device_data());
      gradient_addresses_.push_back(
          wanted_.gradient(factor, problem.chain.size()) ? gradients_.back().device_data() : nullptr);
    }
  }

  /// Puts the operands, which must be numbers of T, where the problem wants them.
  void load(const ChainData<Wide>& data) {
    for (std::size_t factor = 0; factor < values_.size(); ++factor)
      place(values_[factor], {static_cast<std::int64_t>(data.values[factor].size()), 1, 1, false},
            data.values[factor]);
    place(x_, x_view_, data.x);
    place(g_, g_view_, data.g);
    place(bias_, {static_cast<std::int64_t>(data.bias.size()), 1, 1, false}, data.bias);
  }

  [[nodiscard]] std::span<const void* const> values() const { return value_addresses_; }
  /// Who keeps values, or has packed them, needs them no more: they would read NaN.
  void forget_values() {
    for (GuardedBuffer& one : values_) {
      one.poison();
      one.upload();
    }
  }

  [[nodiscard]] kronsparse::Batch batch() const {
    return {problem_.batch, problem_.cols_stride, problem_.rows_stride};
  }
  [[nodiscard]] const Wanted& wanted() const { return wanted_; }

  /// Fills everything that may be written with NaN and runs. Returns what happened to memory that was not
  /// to be touched; empty when nothing did. `sources` has values or packed ones, or neither.
  [[nodiscard]] std::string run(const kronsparse::Plan& plan, const kronsparse::Operands& sources = {}) {
    prepare(plan, sources);
    start(plan);
    return collect();
  }
  /// The three parts of run(): only the second may go on in another thread.
  void prepare(const kronsparse::Plan& plan, const kronsparse::Operands& sources) {
    const bool is_chain_gradient = is_gradient() && problem_.chain.size() > 1;
    operands_ = sources;
    operands_.x = x_.device_data();
    operands_.g = is_gradient() ? g_.device_data() : nullptr;
    operands_.bias = problem_.bias ? bias_.device_data() : nullptr;
    const bool as_pointers = is_gradient() && wanted_.as_pointers;
    operands_.y = as_pointers ? nullptr : y_.device_data();
    operands_.gradients = as_pointers ? gradient_addresses_.data() : nullptr;
    operands_.grad_x = grad_x_view_.features > 0 ? grad_x_.device_data() : nullptr;
    intermediates_.reset();
    // A kernel for the chain as a whole writes no intermediates: the factors one by one do, and need values.
    const bool in_one_pass = is_forward() && problem_.chain.size() > 1 && operands_.values == nullptr &&
                             kronsparse::candidates(problem_, plan.device()).front().refusal.empty();
    if (wanted_.intermediates && !in_one_pass && (is_forward() || is_chain_gradient)) {
      if (is_chain_gradient) {
        fill_intermediates(plan);
      } else {
        intermediates_.emplace(memory(plan.intermediate_bytes(batch())));
        refresh(*intermediates_);
      }
      operands_.intermediates = intermediates_->device_data();
    }
    workspace_.reset();
    workspace_.emplace(memory(plan.workspace_bytes(batch(), operands_)));
    refresh(*workspace_);
    operands_.workspace = workspace_->bytes() > 0 ? workspace_->device_data() : nullptr;
    operands_.workspace_bytes = workspace_->bytes();
    refresh(y_);
    refresh(grad_x_);
    for (GuardedBuffer& one : gradients_) refresh(one);
  }
  void start(const kronsparse::Plan& plan) const { plan.run(batch(), operands_); }
  [[nodiscard]] std::string collect() {
    device_.synchronise();
    std::string wrong;
    const auto see = [&](GuardedBuffer& written, const std::string& name) {
      written.download();
      if (const std::string where = written.damaged_guard(); !where.empty() && wrong.empty())
        wrong = name + " was written " + where;
    };
    see(y_, "y");
    see(grad_x_, "grad_x");
    see(*workspace_, "the workspace");
    if (intermediates_ && !is_gradient()) see(*intermediates_, "the memory of intermediates");
    if (intermediates_ && is_gradient() && !intermediates_->unchanged()) wrong = "intermediates were written";
    for (std::size_t factor = 0; factor < gradients_.size(); ++factor)
      see(gradients_[factor], "gradient " + std::to_string(factor));
    if (wrong.empty()) wrong = damaged_gap();
    const auto unchanged = [&](const GuardedBuffer& read, const char* name) {
      if (wrong.empty() && !read.unchanged()) wrong = std::string(name) + " was written";
    };
    unchanged(x_, "x");
    unchanged(g_, "g");
    unchanged(bias_, "bias");
    for (const GuardedBuffer& one : values_) unchanged(one, "values");
    return wrong;
  }

  /// The results of the last run, in the order of expected().
  [[nodiscard]] std::vector<Output<Wide>> outputs() const {
    std::vector<Output<Wide>> all;
    if (!is_gradient()) {
      all.push_back({"y", read(y_, y_view_)});
      return all;
    }
    std::int64_t before = 0;
    for (std::size_t factor = 0; factor < gradients_.size(); ++factor) {
      const std::int64_t size = problem_.chain[factor].nnz();
      const View one{size, 1, 1, false};
      if (wanted_.gradient(factor, gradients_.size()))
        all.push_back({"the gradient of factor " + std::to_string(factor),
                       wanted_.as_pointers ? read(gradients_[factor], one) : read(y_, one, before)});
      before += size;
    }
    if (grad_x_view_.features > 0) all.push_back({"grad_x", read(grad_x_, grad_x_view_)});
    return all;
  }
  /// The same of the oracle's.
  template <class Numbers>
  [[nodiscard]] std::vector<Numbers> expected(const ChainOutcome<Numbers>& outcome) const {
    if (!is_gradient()) return {outcome.y};
    std::vector<Numbers> all;
    for (std::size_t factor = 0; factor < gradients_.size(); ++factor)
      if (wanted_.gradient(factor, gradients_.size())) all.push_back(outcome.gradients[factor]);
    if (grad_x_view_.features > 0) all.push_back(outcome.grad_x);
    return all;
  }
  /// Bit by bit.
  [[nodiscard]] std::vector<unsigned char> output_bytes() const {
    std::vector<unsigned char> all;
    const auto add = [&](const GuardedBuffer& from) {
      const auto* begin = reinterpret_cast<const unsigned char*>(from.image_data());
      all.insert(all.end(), begin, begin + from.bytes());
    };
    add(y_);
    add(grad_x_);
    for (const GuardedBuffer& one : gradients_) add(one);
    return all;
  }

 private:
  [[nodiscard]] bool is_gradient() const { return problem_.operation == kronsparse::Operation::gradient; }
  [[nodiscard]] bool is_forward() const { return problem_.operation == kronsparse::Operation::multiply; }

  [[nodiscard]] View view(std::int64_t features, std::int64_t stride) const {
    const bool batch_first = problem_.layout == kronsparse::Layout::batch_first;
    const std::int64_t row = batch_first ? features : problem_.batch;
    return {features, problem_.batch, stride == 0 ? row : stride, batch_first};
  }

  [[nodiscard]] GuardedBuffer buffer(std::int64_t elements, std::size_t turn) const {
    const Placements placements(seed_);
    const std::size_t operand = turn % placements.placement.size();
    return {device_, static_cast<std::size_t>(elements) * sizeof(T), placements.placement[operand],
            placements.misalignment[operand] * kronsparse::alignment_of(kronsparse::dtype_of<T>)};
  }
  /// Memory for workspace and intermediates: exactly so many bytes, at a multiple of 256; in turn between
  /// guard bands and up to where memory ends.
  [[nodiscard]] GuardedBuffer memory(std::size_t bytes) const {
    const bool to_the_end = seed_ % 2 == 0 && bytes % 256 == 0 && bytes > 0;
    return {device_, bytes, to_the_end ? Placement::flush_end : Placement::aligned, 0};
  }
  static void refresh(GuardedBuffer& buffer) {
    buffer.poison();
    buffer.upload();
  }

  /// By a run of the product on the same x.
  void fill_intermediates(const kronsparse::Plan& gradient_plan) {
    kronsparse::Problem forward = problem_;
    forward.operation = kronsparse::Operation::multiply;
    const kronsparse::Plan plan(forward, gradient_plan.device());
    intermediates_.emplace(memory(plan.intermediate_bytes(batch())));
    refresh(*intermediates_);
    const View y_view = view(problem_.chain.rows(), problem_.rows_stride);
    const GuardedBuffer y = buffer(y_view.elements(), 4);
    kronsparse::Operands operands{.x = x_.device_data(),
                                  .y = y.device_data(),
                                  .values = value_addresses_.data(),
                                  .intermediates = intermediates_->device_data()};
    const GuardedBuffer workspace = memory(plan.workspace_bytes(batch(), operands));
    operands.workspace = workspace.device_data();
    operands.workspace_bytes = workspace.bytes();
    plan.run(batch(), operands);
    device_.synchronise();
    intermediates_->download();
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

  static std::vector<Wide> read(const GuardedBuffer& buffer, const View& view, std::int64_t before = 0) {
    std::vector<Wide> numbers;
    numbers.reserve(static_cast<std::size_t>(view.features * view.batch));
    for (std::int64_t feature = 0; feature < view.features; ++feature)
      for (std::int64_t sample = 0; sample < view.batch; ++sample) {
        T element;
        std::memcpy(&element,
                    buffer.image_data() + (before + view.offset(feature, sample)) * std::int64_t{sizeof(T)},
                    sizeof(T));
        numbers.push_back(decode(element));
      }
    return numbers;
  }

  /// Between the rows of a strided y, where nothing may be written.
  [[nodiscard]] std::string damaged_gap() const {
    if (y_view_.elements() == 0 || is_gradient()) return {};
    const std::int64_t gap = (y_view_.stride - y_view_.row_length()) * std::int64_t{sizeof(T)};
    for (std::int64_t row = 0; row + 1 < y_view_.row_count(); ++row) {
      const std::byte* first =
          y_.image_data() + (row * y_view_.stride + y_view_.row_length()) * std::int64_t{sizeof(T)};
      for (std::int64_t byte = 0; byte < gap; ++byte)
        if (first[byte] != std::byte{0xff})
          return "y was written in the gap after row " + std::to_string(row);
    }
    return {};
  }

  const TestDevice& device_;
  kronsparse::Problem problem_;
  Wanted wanted_;
  std::uint64_t seed_;
  View x_view_, y_view_, g_view_, grad_x_view_;
  GuardedBuffer x_, g_, bias_, y_, grad_x_;
  std::vector<GuardedBuffer> values_, gradients_;
  std::vector<const void*> value_addresses_;
  std::vector<void*> gradient_addresses_;
  std::optional<GuardedBuffer> workspace_, intermediates_;
  kronsparse::Operands operands_;
};

}  // namespace conformance
