#include "chain_cases.hpp"

#include <numeric>

#include "data.hpp"

namespace conformance {
namespace {

using kronsparse::Chain;
using kronsparse::DType;
using kronsparse::Layout;
using kronsparse::Operation;
using kronsparse::Pattern;
using kronsparse::Problem;

/// Features between factors: with many common divisors, and odd ones.
const std::vector<std::int64_t> kSizes = {1, 6, 12, 15, 16, 24, 32, 36, 48, 60, 64, 96};
const std::vector<std::int64_t> kBatches = {1, 2, 5, 7, 16, 17, 33, 64};

/// A number that divides another.
std::int64_t divisor_of(std::int64_t number, Random& random) {
  std::vector<std::int64_t> divisors;
  for (std::int64_t one = 1; one <= number; ++one)
    if (number % one == 0) divisors.push_back(one);
  return random.pick(divisors);
}

/// Factors between random sizes: a and d divide both of a factor's sizes.
Chain random_chain(std::size_t count, Random& random) {
  std::vector<Pattern> factors;
  std::int64_t rows = random.pick(kSizes);
  for (std::size_t factor = 0; factor < count; ++factor) {
    const std::int64_t cols = random.pick(kSizes);
    const std::int64_t common = std::gcd(rows, cols);
    const std::int64_t a = divisor_of(common, random);
    const std::int64_t d = divisor_of(common / a, random);
    factors.push_back({a, rows / (a * d), cols / (a * d), d});
    rows = cols;
  }
  return Chain(std::move(factors));
}

/// As they are used: Monarch, butterflies, block-diagonal ones, the identity.
std::vector<Chain> named_chains() {
  return {Chain{{2, 3, 5, 4}},
          Chain::monarch(48, 64, 8),
          Chain::monarch(64, 36, 4),
          Chain::butterfly(16),
          Chain{{1, 16, 16, 8}, {8, 16, 16, 1}},
          Chain{{1, 1, 1, 1}, {1, 1, 1, 1}},
          Chain{{1, 33, 1, 1}, {1, 1, 40, 1}},
          Chain{{1, 2, 64, 1}, {1, 64, 3, 1}, {3, 1, 5, 1}},
          Chain{{4, 8, 8, 2}, {2, 8, 4, 4}, {1, 4, 8, 8}, {8, 8, 2, 1}}};
}

void stride(Problem& problem, std::size_t index) {
  const bool batch_first = problem.layout == Layout::batch_first;
  const auto gap = static_cast<std::int64_t>(1 + index % 5);
  if (index % 3 == 1) problem.cols_stride = (batch_first ? problem.chain.cols() : problem.batch) + gap;
  if (index % 3 != 0) problem.rows_stride = (batch_first ? problem.chain.rows() : problem.batch) + 2 * gap;
}

}  // namespace

std::vector<Case> chain_cases(DType dtype, Layout layout, Operation operation, bool quick) {
  Random random(7000 + static_cast<std::uint64_t>(dtype) * 100 + static_cast<std::uint64_t>(layout) * 10 +
                static_cast<std::uint64_t>(operation));
  std::vector<Chain> chains = named_chains();
  for (std::size_t count = 0; count < 12; ++count) chains.push_back(random_chain(1 + count % 4, random));
  const std::vector<Epilogue> allowed = epilogues(dtype, operation);
  std::vector<Case> result;
  for (std::size_t index = 0; index < chains.size(); ++index) {
    const std::int64_t batch = index == 4 ? 0 : random.pick(kBatches);
    if (quick && (index + static_cast<std::size_t>(dtype)) % 3 != 0) continue;
    const Epilogue epilogue = allowed[index % allowed.size()];
    Problem problem{.chain = chains[index],
                    .batch = batch,
                    .dtype = dtype,
                    .layout = layout,
                    .operation = operation,
                    .bias = epilogue.bias,
                    .activation = epilogue.activation};
    if (dtype == DType::f32 && index % 8 == 3) problem.mode = kronsparse::Mode::ieee;
    if (dtype == DType::f32 && index % 8 == 6) problem.mode = kronsparse::Mode::tf32;
    stride(problem, index);
    result.push_back({problem, 100 + index});
  }
  return result;
}

}  // namespace conformance
