// Matrices of more than 2^31 elements, in sparse memory: an offset kept in 32
// bits anywhere goes to the wrong place (and usually crashes).
#include <gtest/gtest.h>

#include <cstring>

#include "combination.hpp"
#include "data.hpp"
#include "harness.hpp"

namespace conformance {
namespace {

class Large : public testing::TestWithParam<Combination> {};

/// A matrix of T in sparse memory.
template <class T>
class SparseMatrix {
 public:
  SparseMatrix(const TestDevice& device, const View& view)
      : device_(device),
        view_(view),
        memory_(device.allocate_sparse(static_cast<std::size_t>(std::max<std::int64_t>(view.elements(), 1)) *
                                       sizeof(T))) {}

  [[nodiscard]] bool allocated() const { return memory_ != nullptr; }
  [[nodiscard]] void* data() const { return memory_->data(); }

  void write(const std::vector<WideOf<T>>& numbers) {
    for_each([&](std::byte* where, std::size_t at) {
      const T element = encode<T>(numbers[at]);
      device_.copy_in(where, reinterpret_cast<const std::byte*>(&element), sizeof(T));
    });
  }
  [[nodiscard]] std::vector<WideOf<T>> read() const {
    std::vector<WideOf<T>> numbers(static_cast<std::size_t>(view_.features * view_.batch));
    for_each([&](const std::byte* where, std::size_t at) {
      T element;
      device_.copy_out(reinterpret_cast<std::byte*>(&element), where, sizeof(T));
      numbers[at] = decode(element);
    });
    return numbers;
  }

 private:
  template <class Visit>
  void for_each(Visit&& visit) const {
    std::size_t at = 0;
    for (std::int64_t feature = 0; feature < view_.features; ++feature)
      for (std::int64_t sample = 0; sample < view_.batch; ++sample, ++at)
        visit(memory_->data() + view_.offset(feature, sample) * std::int64_t{sizeof(T)}, at);
  }

  const TestDevice& device_;
  View view_;
  std::unique_ptr<Memory> memory_;
};

/// Rows 2^31 and some elements apart, on both sides: the third row of each lies beyond 2^32.
TEST_P(Large, StridedOperands) {
  const auto& [target, dtype, layout, operation] = GetParam();
  const auto device = make_test_device(target.device);
  with_element_type(
      dtype, [&, &target = target, dtype = dtype, layout = layout, operation = operation](auto element) {
        using T = typename decltype(element)::type;
        const bool batch_first = layout == kronsparse::Layout::batch_first;
        const kronsparse::Problem problem{
            .chain = batch_first ? kronsparse::Pattern{2, 3, 5, 2} : kronsparse::Pattern{1, 3, 3, 1},
            .batch = batch_first ? 3 : 19,
            .dtype = dtype,
            .layout = layout,
            .operation = operation,
            .cols_stride = (std::int64_t{1} << 31) + 5,
            .rows_stride = (std::int64_t{1} << 31) + 11};
        if (const std::string refusal = target.refusal(problem); !refusal.empty()) GTEST_SKIP() << refusal;
        const Views views(problem);
        SparseMatrix<T> x(*device, views.x);
        SparseMatrix<T> g(*device, views.g);
        SparseMatrix<T> y(*device, views.y);
        if (!x.allocated() || !y.allocated() || !g.allocated())
          GTEST_SKIP() << "no address space for sparse memory";

        const CrashNote note(test_reproduction());
        const Data<IntegerOf<T>> integers = integer_data<T>(problem, 1);
        const Data<WideOf<T>> data = widen(integers);
        x.write(data.x);
        g.write(data.g);
        SparseMatrix<T> values(*device, {static_cast<std::int64_t>(data.values.size()), 1, 1, false});
        values.write(data.values);
        const bool gradient = operation == kronsparse::Operation::gradient;
        const kronsparse::Plan plan(problem, gradient ? nullptr : values.data(), target.device,
                                    target.implementation);
        const kronsparse::Batch batch{problem.batch, problem.cols_stride, problem.rows_stride};
        const kronsparse::Buffer workspace(plan.workspace_bytes(batch), target.device);
        plan.run({.x = x.data(),
                  .y = y.data(),
                  .g = gradient ? g.data() : nullptr,
                  .workspace = workspace.data(),
                  .workspace_bytes = workspace.bytes()});
        device->synchronise();
        const std::vector<WideOf<T>> got = y.read();
        const std::vector<IntegerOf<T>> expected = evaluate(problem, integers);
        for (std::size_t at = 0; at < got.size(); ++at)
          ASSERT_TRUE(got[at] == round_to(widen(expected[at]), traits<T>.digits))
              << problem.to_string() << " at " << at;
      });
}

class LargeDense : public testing::TestWithParam<Target> {};

/// Dense rows: 2^31 elements and more in x without any stride, most of them the
/// zeros of untouched memory. Every one of them is read and multiplied, which
/// takes the reference a minute: only when asked for.
TEST_P(LargeDense, Operand) {
  if (!options().large) GTEST_SKIP() << "needs --large";
  using T = kronsparse::BFloat16;
  const Target& target = GetParam();
  const auto device = make_test_device(target.device);
  const kronsparse::Problem problem{.chain = kronsparse::Pattern{1, 1, (1 << 16) + 3, 1},
                                    .batch = 1 << 15,
                                    .dtype = kronsparse::DType::bf16,
                                    .layout = kronsparse::Layout::batch_last};
  if (const std::string refusal = target.refusal(problem); !refusal.empty()) GTEST_SKIP() << refusal;
  const Views views(problem);
  const auto x = device->allocate_sparse(static_cast<std::size_t>(views.x.elements()) * sizeof(T));
  if (x == nullptr) GTEST_SKIP() << "no address space for sparse memory";
  const CrashNote note(test_reproduction());
  const auto put = [&](std::int64_t feature, std::int64_t sample, double number) {
    const T element = encode<T>(number);
    device->copy_in(x->data() + views.x.offset(feature, sample) * std::int64_t{sizeof(T)},
                    reinterpret_cast<const std::byte*>(&element), sizeof(T));
  };
  // First, and last beyond 2^31; value f is f mod 4 + 1.
  const std::int64_t last_feature = views.x.features - 1;
  const std::int64_t last_sample = problem.batch - 1;
  put(0, 0, 5);
  put(last_feature, 0, 7);
  put(last_feature, last_sample, 11);
  const auto value_of = [](std::int64_t feature) { return static_cast<double>(feature % 4 + 1); };
  std::vector<double> values;
  for (std::int64_t feature = 0; feature < views.x.features; ++feature) values.push_back(value_of(feature));
  SparseMatrix<T> weights(*device, {views.x.features, 1, 1, false});
  weights.write(values);
  SparseMatrix<T> y(*device, views.y);
  const kronsparse::Plan plan(problem, weights.data(), target.device, target.implementation);
  plan.run({.x = x->data(), .y = y.data()});
  device->synchronise();
  const std::vector<double> got = y.read();
  EXPECT_EQ(got.front(), 5 * value_of(0) + 7 * value_of(last_feature));
  EXPECT_EQ(got.back(), 11 * value_of(last_feature));
  for (std::size_t sample = 1; sample + 1 < got.size(); ++sample)
    ASSERT_EQ(got[sample], 0) << "sample " << sample;
}

INSTANTIATE_TEST_SUITE_P(All, Large, testing::ValuesIn(combinations()), combination_name);
INSTANTIATE_TEST_SUITE_P(All, LargeDense, testing::ValuesIn(targets()), target_name);

}  // namespace
}  // namespace conformance
