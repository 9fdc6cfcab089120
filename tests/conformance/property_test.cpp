// Relations that must hold between results, whatever they are. Integers so small that
// everything stays exact even in bf16: all of these are equalities.
#include <gtest/gtest.h>

#include "apply.hpp"
#include "combination.hpp"
#include "kronsparse/multiply.hpp"

namespace conformance {
namespace {

using kronsparse::Layout;
using kronsparse::Operation;
using kronsparse::Pattern;
using kronsparse::Problem;

class Property : public testing::TestWithParam<Combination> {
 protected:
  /// Calls test(type, problem) with multiplications that the implementation takes.
  template <class Test>
  static void for_each_problem(Test&& test) {
    for (const Pattern& pattern :
         {Pattern{2, 3, 5, 4}, Pattern{1, 5, 2, 17}, Pattern{3, 4, 4, 1}, Pattern{1, 1, 1, 1}}) {
      const Problem problem{
          .chain = pattern, .batch = 7, .dtype = GetParam().dtype, .layout = GetParam().layout};
      if (!GetParam().target.refusal(problem).empty()) continue;
      SCOPED_TRACE(problem.to_string());
      with_element_type(problem.dtype, [&](auto element) { test(element, problem); });
    }
  }
};

/// Small integers; sums of 5 complex products of them stay below 256 even when
/// one factor is 10: exact in bf16.
template <class T>
Data<WideOf<T>> tiny_data(const Problem& problem, std::uint64_t seed) {
  Random random(seed);
  const auto maker = [&random] {
    if constexpr (complex_element<T>) {
      const double re = static_cast<double>(random.integer(-2, 2));
      return Cx<double>{re, static_cast<double>(random.integer(-2, 2))};
    } else {
      return static_cast<double>(random.integer(-2, 2));
    }
  };
  return make_data<WideOf<T>>(problem, maker, maker, maker, maker);
}

template <class S>
S inner_product(const std::vector<S>& p, const std::vector<S>& q) {
  EXPECT_EQ(p.size(), q.size());
  S sum{};
  for (std::size_t at = 0; at < p.size(); ++at) sum += p[at] * conjugate(q[at]);
  return sum;
}

template <class S>
std::vector<S> combine(S alpha, const std::vector<S>& p, S beta, const std::vector<S>& q) {
  std::vector<S> sum(p.size());
  for (std::size_t at = 0; at < p.size(); ++at) sum[at] = alpha * p[at] + beta * q[at];
  return sum;
}

template <class S>
std::vector<S> conjugates(std::vector<S> numbers) {
  for (S& number : numbers) number = conjugate(number);
  return numbers;
}

/// <K x, u> = <x, K^H u>, and the same without conjugation for K^T.
TEST_P(Property, Adjointness) {
  const Target& target = GetParam().target;
  for_each_problem([&](auto element, const Problem& problem) {
    using T = typename decltype(element)::type;
    const Data<WideOf<T>> forward = tiny_data<T>(problem, 1);
    const auto product = apply<T>(target, problem, forward);
    for (const Operation operation : {Operation::adjoint, Operation::transposed}) {
      const Problem back_problem = with(problem, operation);
      if (!target.refusal(back_problem).empty()) continue;
      Data<WideOf<T>> backward = tiny_data<T>(back_problem, 2);
      backward.values = forward.values;
      const auto back = apply<T>(target, back_problem, backward);
      if (operation == Operation::adjoint) {
        EXPECT_TRUE(inner_product(product, backward.x) == inner_product(forward.x, back));
      } else {
        EXPECT_TRUE(inner_product(product, conjugates(backward.x)) ==
                    inner_product(forward.x, conjugates(back)));
      }
    }
  });
}

/// K (2 x - 3 z) = 2 K x - 3 K z.
TEST_P(Property, Linearity) {
  const Target& target = GetParam().target;
  for_each_problem([&](auto element, const Problem& problem) {
    using T = typename decltype(element)::type;
    const WideOf<T> two = widen(IntegerOf<T>{2});
    const WideOf<T> minus_three = widen(IntegerOf<T>{-3});
    const Data<WideOf<T>> first = tiny_data<T>(problem, 3);
    Data<WideOf<T>> second = tiny_data<T>(problem, 4);
    second.values = first.values;
    Data<WideOf<T>> both = first;
    both.x = combine(two, first.x, minus_three, second.x);
    EXPECT_TRUE(apply<T>(target, problem, both) == combine(two, apply<T>(target, problem, first), minus_three,
                                                           apply<T>(target, problem, second)));
  });
}

/// b = c = 1 and ones: the identity, also of numbers that are no integers.
TEST_P(Property, IdentityFactor) {
  const Target& target = GetParam().target;
  for (const Pattern& pattern : {Pattern{1, 1, 1, 37}, Pattern{37, 1, 1, 1}, Pattern{5, 1, 1, 8}})
    for (const Operation operation : {Operation::multiply, Operation::transposed, Operation::adjoint}) {
      const Problem problem{.chain = pattern,
                            .batch = 13,
                            .dtype = GetParam().dtype,
                            .layout = GetParam().layout,
                            .operation = operation};
      if (!target.refusal(problem).empty()) continue;
      with_element_type(problem.dtype, [&](auto element) {
        using T = typename decltype(element)::type;
        Data<WideOf<T>> data = random_data<T>(problem, 5);
        data.values.assign(data.values.size(), widen(IntegerOf<T>{1}));
        EXPECT_TRUE(apply<T>(target, problem, data) == data.x) << problem.to_string();
      });
    }
}

/// The product is linear in the values, so its difference quotient is exact:
/// <K(V+E) x - K(V) x, g> = <E, gradient>.
TEST_P(Property, GradientIsTheDerivative) {
  const Target& target = GetParam().target;
  for_each_problem([&](auto element, const Problem& problem) {
    using T = typename decltype(element)::type;
    const Problem gradient_problem = with(problem, Operation::gradient);
    if (!target.refusal(gradient_problem).empty()) return;
    const WideOf<T> one = widen(IntegerOf<T>{1});
    const WideOf<T> minus_one = widen(IntegerOf<T>{-1});
    const Data<WideOf<T>> at = tiny_data<T>(problem, 6);
    const std::vector<WideOf<T>> direction = tiny_data<T>(problem, 7).values;
    Data<WideOf<T>> moved = at;
    moved.values = combine(one, at.values, one, direction);
    Data<WideOf<T>> backward = tiny_data<T>(gradient_problem, 8);
    backward.x = at.x;
    const auto change =
        combine(one, apply<T>(target, problem, moved), minus_one, apply<T>(target, problem, at));
    EXPECT_TRUE(inner_product(change, backward.g) ==
                inner_product(direction, apply<T>(target, gradient_problem, backward)));
  });
}

TEST_P(Property, LayoutsAgree) {
  const Target& target = GetParam().target;
  for_each_problem([&](auto element, const Problem& problem) {
    using T = typename decltype(element)::type;
    for (const Operation operation :
         {Operation::multiply, Operation::transposed, Operation::adjoint, Operation::gradient}) {
      const Problem here = with(problem, operation);
      Problem there = here;
      there.layout = here.layout == Layout::batch_first ? Layout::batch_last : Layout::batch_first;
      if (!target.refusal(here).empty() || !target.refusal(there).empty()) continue;
      const Data<WideOf<T>> data = tiny_data<T>(here, 9);
      EXPECT_TRUE(apply<T>(target, here, data) == apply<T>(target, there, data)) << here.to_string();
    }
  });
}

/// A chain applied factor by factor equals the dense product of its factors,
/// which is formed here from the definition.
template <class S>
using Dense = std::vector<std::vector<S>>;

template <class S>
Dense<S> dense(const Pattern& pattern, const std::vector<S>& values) {
  Dense<S> matrix(static_cast<std::size_t>(pattern.rows()),
                  std::vector<S>(static_cast<std::size_t>(pattern.cols())));
  std::size_t at = 0;
  for (std::int64_t i = 0; i < pattern.a; ++i)
    for (std::int64_t k = 0; k < pattern.b; ++k)
      for (std::int64_t l = 0; l < pattern.c; ++l)
        for (std::int64_t j = 0; j < pattern.d; ++j, ++at)
          matrix[static_cast<std::size_t>((i * pattern.b + k) * pattern.d + j)]
                [static_cast<std::size_t>((i * pattern.c + l) * pattern.d + j)] = values[at];
  return matrix;
}

template <class S>
Dense<S> operator*(const Dense<S>& p, const Dense<S>& q) {
  Dense<S> product(p.size(), std::vector<S>(q.front().size()));
  for (std::size_t row = 0; row < p.size(); ++row)
    for (std::size_t inner = 0; inner < q.size(); ++inner)
      for (std::size_t col = 0; col < q[inner].size(); ++col)
        product[row][col] += p[row][inner] * q[inner][col];
  return product;
}

TEST_P(Property, ChainIsTheDenseProduct) {
  const auto& [target, dtype, layout, operation] = GetParam();
  constexpr std::int64_t kBatch = 5;
  for (const kronsparse::Chain& chain : {kronsparse::Chain::butterfly(8), kronsparse::Chain::monarch(6, 8, 2),
                                         kronsparse::Chain{{2, 2, 3, 1}}})
    with_element_type(dtype, [&, &target = target, dtype = dtype, layout = layout](auto element) {
      using T = typename decltype(element)::type;
      Random random(10);
      const auto sign = [&random] { return widen(IntegerOf<T>{random.integer(-1, 1)}); };
      Dense<WideOf<T>> product;
      std::vector<std::vector<WideOf<T>>> values;
      for (const Pattern& factor : chain.factors()) {
        values.emplace_back();
        for (std::int64_t at = 0; at < factor.nnz(); ++at) values.back().push_back(sign());
        const Dense<WideOf<T>> matrix = dense(factor, values.back());
        product = product.empty() ? matrix : product * matrix;
      }
      Dense<WideOf<T>> x(static_cast<std::size_t>(chain.cols()), std::vector<WideOf<T>>(kBatch));
      for (auto& row : x)
        for (auto& number : row) number = sign();
      std::vector<WideOf<T>> flat;
      for (const auto& row : x) flat.insert(flat.end(), row.begin(), row.end());
      std::vector<WideOf<T>> expected;
      for (const auto& row : product* x) expected.insert(expected.end(), row.begin(), row.end());

      for (std::size_t left = chain.size(); left-- > 0;) {
        const Problem problem{.chain = chain[left], .batch = kBatch, .dtype = dtype, .layout = layout};
        if (const std::string refusal = target.refusal(problem); !refusal.empty()) GTEST_SKIP() << refusal;
        flat = apply<T>(target, problem, {values[left], flat, {}, {}});
      }
      EXPECT_TRUE(flat == expected) << chain.to_string();
    });
}

/// The same through the one-shot call, which chooses by itself; on the host.
class OneShot : public testing::TestWithParam<std::tuple<kronsparse::DType, Layout>> {};

TEST_P(OneShot, ChainIsItsFactorsOneAfterTheOther) {
  const auto [dtype, layout] = GetParam();
  constexpr std::int64_t kBatch = 5;
  const kronsparse::Chain chain = kronsparse::Chain::butterfly(8);
  with_element_type(dtype, [&, layout = layout](auto element) {
    using T = typename decltype(element)::type;
    Random random(11);
    const auto filled = [&random](std::size_t size) {
      std::vector<T> items(size);
      for (T& item : items) item = encode<T>(widen(IntegerOf<T>{random.integer(-1, 1)}));
      return items;
    };
    std::vector<std::vector<T>> values;
    std::vector<kronsparse::ConstVector> views;
    for (const Pattern& factor : chain.factors())
      values.push_back(filled(static_cast<std::size_t>(factor.nnz())));
    for (const auto& items : values)
      views.emplace_back(items.data(), static_cast<std::int64_t>(items.size()));
    const bool first = layout == Layout::batch_first;
    const std::int64_t rows = first ? kBatch : 8;
    const std::int64_t cols = first ? 8 : kBatch;
    const std::vector<T> bias = filled(8);
    const std::vector<T> x = filled(8 * kBatch);
    kronsparse::MultiplyOptions epilogue{.layout = layout, .bias = kronsparse::ConstVector{bias.data(), 8}};

    std::vector<T> stepwise = x;
    for (std::size_t left = chain.size(); left-- > 0;) {
      std::vector<T> next(x.size());
      const kronsparse::MultiplyOptions step =
          left == 0 ? epilogue : kronsparse::MultiplyOptions{.layout = layout};
      multiply(chain[left], views[left], {stepwise.data(), rows, cols}, {next.data(), rows, cols}, step);
      stepwise = next;
    }
    std::vector<T> at_once(x.size());
    multiply(chain, views, {x.data(), rows, cols}, {at_once.data(), rows, cols}, epilogue);
    for (std::size_t at = 0; at < x.size(); ++at)
      EXPECT_TRUE(decode(at_once[at]) == decode(stepwise[at])) << at;
  });
}

std::vector<Combination> multiplications() {
  std::vector<Combination> all;
  for (const Combination& item : combinations())
    if (item.operation == Operation::multiply) all.push_back(item);
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, Property, testing::ValuesIn(multiplications()), combination_name);
INSTANTIATE_TEST_SUITE_P(All, OneShot,
                         testing::Combine(testing::ValuesIn(kDTypes),
                                          testing::Values(Layout::batch_first, Layout::batch_last)));

}  // namespace
}  // namespace conformance
