#include "cases.hpp"

#include <algorithm>

#include "data.hpp"

namespace conformance {
namespace {

using kronsparse::Activation;
using kronsparse::DType;
using kronsparse::Layout;
using kronsparse::Operation;
using kronsparse::Pattern;
using kronsparse::Problem;

/// Around the widths of vectors (2 to 32 elements) and of tiles made of a few of them.
const std::vector<std::int64_t> kBlockSizes = {1,  2,  3,  4,  5,  7,  8,  9,  15, 16, 17,  23, 24,
                                               25, 31, 32, 33, 47, 48, 49, 63, 64, 65, 100, 129};
const std::vector<std::int64_t> kDilations = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 48};
const std::vector<std::int64_t> kBatches = {0,  1,  2,  3,  7,  13, 15, 16,  17,
                                            31, 33, 47, 48, 49, 64, 97, 193, 251};
const std::vector<std::int64_t> kLongSums = {300, 1000, 2500};

/// Multiplications a case may cost; the run of all cases stays short by this.
constexpr std::int64_t kBudget = 60'000;

struct Size {
  Pattern pattern;
  std::int64_t batch;
};

/// Makes the size affordable: fewer samples first, then a narrower d, fewer blocks.
Size affordable(Size size) {
  Pattern& pattern = size.pattern;
  while (pattern.nnz() * size.batch > kBudget && size.batch > 7) size.batch = size.batch * 2 / 3;
  while (pattern.nnz() * std::max<std::int64_t>(size.batch, 1) > kBudget && pattern.d > 1) --pattern.d;
  while (pattern.nnz() * std::max<std::int64_t>(size.batch, 1) > kBudget && pattern.a > 1) --pattern.a;
  return size;
}

/// Every listed size of b, c, d and the batch, with the others varying alongside.
std::vector<Size> systematic_sizes() {
  const auto at = [](const std::vector<std::int64_t>& items, std::size_t index) {
    return items[index % items.size()];
  };
  const std::vector<std::int64_t> few = {1, 3, 4, 5, 8, 2, 9, 17};
  std::vector<Size> sizes;
  for (std::size_t index = 0; index < kBlockSizes.size(); ++index) {
    const std::int64_t a = 1 + static_cast<std::int64_t>(index % 3);
    sizes.push_back(
        {{a, kBlockSizes[index], at(few, index), at(kDilations, 5 * index)}, at(kBatches, 7 * index + 3)});
    sizes.push_back(
        {{a, at(few, index), kBlockSizes[index], at(kDilations, 7 * index)}, at(kBatches, 5 * index + 4)});
    sizes.push_back({{1, kBlockSizes[index], at(kBlockSizes, index + 9), 1}, at(kBatches, 5 * index + 1)});
  }
  for (std::size_t index = 0; index < kDilations.size(); ++index) {
    const std::int64_t d = kDilations[index];
    sizes.push_back({{1 + static_cast<std::int64_t>(index % 2), at(few, index + 1), at(few, index + 2), d},
                     at(kBatches, 3 * index + 5)});
    sizes.push_back({{1, at(kBlockSizes, index + 8), at(few, index), d}, at(kBatches, index + 1)});
  }
  for (std::size_t index = 0; index < kBatches.size(); ++index) {
    sizes.push_back({{2, 3, 5, at(few, index)}, kBatches[index]});
    sizes.push_back({{1, at(few, index), 16, at(kDilations, index + 6)}, kBatches[index]});
    sizes.push_back({{1, 17, at(few, index + 1), 1}, kBatches[index]});
  }
  for (const std::int64_t length : kLongSums) {
    sizes.push_back({{1, 3, length, 1}, 7});
    sizes.push_back({{1, 1, length, 4}, 5});
    sizes.push_back({{1, length, 2, 1}, 9});  // a long sum once transposed
    sizes.push_back({{1, length, 1, 3}, 3});
    sizes.push_back({{length, 1, 2, 1}, 3});
    sizes.push_back({{1, 2, 1, length}, 3});
    sizes.push_back({{2, 2, 3, 2}, length});  // long for the gradient
  }
  // Each of a,b,c,d equal to 1, alone and together.
  for (unsigned ones = 0; ones < 16; ++ones)
    sizes.push_back({{(ones & 1u) != 0 ? 1 : 3, (ones & 2u) != 0 ? 1 : 5, (ones & 4u) != 0 ? 1 : 7,
                      (ones & 8u) != 0 ? 1 : 11},
                     at(kBatches, ones)});
  // Many outputs of a few j, which some CPUs copy until they fill vectors.
  for (const std::int64_t d : {2, 3, 6}) {
    sizes.push_back({{2, 37, 5, d}, 13});
    sizes.push_back({{1, 4, 64, d}, 29});
    sizes.push_back({{1, 34, 19, d}, 6});
  }
  // Rows of whole units of 128 bytes, of few terms and of many.
  for (const std::int64_t d : {4, 8, 16, 32, 64}) {
    sizes.push_back({{2, 17, 64 / d, d}, 25});
    sizes.push_back({{1, 3, 320 / d, d}, 64});
    sizes.push_back({{1, 2, 4096 / d, d}, 7});
  }
  for (const std::int64_t blocks : {7, 13, 64}) {
    sizes.push_back({{blocks, 4, 3, 1}, 17});
    sizes.push_back({{blocks, 2, 5, 4}, 3});
  }
  // Many samples of few features, odd ones among them; four, as every other one has gaps.
  for (const std::int64_t batch : {468, 460, 455, 450}) sizes.push_back({{1, 8, 8, 2}, batch});
  for (const std::int64_t batch : {131, 130, 129, 128}) sizes.push_back({{2, 13, 9, 5}, batch});
  return sizes;
}

Size random_size(Random& random) {
  // Mostly small dimensions, and all of the larger ones sooner or later.
  const auto dimension = [&random](const std::vector<std::int64_t>& items) {
    return random.next() % 2 == 0 ? random.integer(1, 9) : random.pick(items);
  };
  const Pattern pattern{random.integer(1, 4), dimension(kBlockSizes), dimension(kBlockSizes),
                        dimension(kDilations)};
  return {pattern, random.pick(kBatches)};
}

/// Dense, then one side strided, then the other, then both; gaps of odd sizes.
void stride(Problem& problem, std::size_t index) {
  const std::vector<std::int64_t> gaps = {1, 3, 8, 17};
  const std::int64_t gap = gaps[(index / 4) % gaps.size()];
  const bool batch_first = problem.layout == Layout::batch_first;
  if (index % 4 == 1 || index % 4 == 3)
    problem.cols_stride = (batch_first ? problem.pattern().cols() : problem.batch) + gap;
  if (index % 4 == 2 || index % 4 == 3)
    problem.rows_stride = (batch_first ? problem.pattern().rows() : problem.batch) + 2 * gap - 1;
}

/// One problem of each size, in turn without and with gaps.
std::vector<Problem> problems_of(const std::vector<Size>& sizes, DType dtype, Layout layout,
                                 Operation operation) {
  std::vector<Problem> problems;
  for (const Size& size : sizes) {
    Problem problem{
        .chain = size.pattern, .batch = size.batch, .dtype = dtype, .layout = layout, .operation = operation};
    stride(problem, problems.size());
    problems.push_back(problem);
  }
  return problems;
}

}  // namespace

std::vector<Epilogue> epilogues(DType dtype, Operation operation) {
  if (operation != Operation::multiply) return {{false, Activation::none}};
  if (is_complex(dtype)) return {{false, Activation::none}, {true, Activation::none}};
  std::vector<Epilogue> all;
  for (const Activation activation :
       {Activation::none, Activation::relu, Activation::gelu, Activation::gelu_tanh, Activation::silu})
    for (const bool bias : {false, true}) all.push_back({bias, activation});
  return all;
}

std::vector<Case> cases(DType dtype, Layout layout, Operation operation, bool quick) {
  std::vector<Size> sizes = systematic_sizes();
  const std::vector<Epilogue> allowed = epilogues(dtype, operation);
  // The epilogue turns with the case; a few shapes more see all of them.
  for (const Size& size : std::vector<Size>{{{1, 3, 5, 1}, 19}, {{2, 17, 4, 9}, 7}, {{1, 8, 16, 16}, 16}})
    sizes.insert(sizes.end(), allowed.size(), size);
  Random random(static_cast<std::uint64_t>(dtype) * 100 + static_cast<std::uint64_t>(layout) * 10 +
                static_cast<std::uint64_t>(operation));
  for (int count = 0; count < 50; ++count) sizes.push_back(random_size(random));

  std::vector<Case> result;
  for (std::size_t index = 0; index < sizes.size(); ++index) {
    // 5 has no factor in common with the turns of strides (4), and hardly with those of epilogues.
    if (quick && (index + static_cast<std::size_t>(dtype)) % 5 != 0) continue;
    const Size size = affordable(sizes[index]);
    Problem problem{
        .chain = size.pattern, .batch = size.batch, .dtype = dtype, .layout = layout, .operation = operation};
    // Half of the cases without an epilogue, the others in turn.
    const Epilogue epilogue = index % 2 == 0 ? allowed.front() : allowed[(index / 2) % allowed.size()];
    if (dtype == DType::f32 && index % 8 == 3) problem.mode = kronsparse::Mode::ieee;
    if (dtype == DType::f32 && index % 8 == 6) problem.mode = kronsparse::Mode::tf32;
    problem.bias = epilogue.bias;
    problem.activation = epilogue.activation;
    stride(problem, index);
    result.push_back({problem, index});
  }
  // Weights that do not fit into half of a core's L2, which are multiplied in another order.
  if (dtype == DType::f32 && layout == Layout::batch_first && operation != Operation::gradient)
    result.push_back({{.chain = Pattern{1, 96, 90, 48},
                       .batch = 53,
                       .dtype = dtype,
                       .layout = layout,
                       .operation = operation},
                      sizes.size()});
  // Rows of few j, long enough for two warpgroups or two blocks of a GPU to share (`sums-stay`).
  const bool is_half = dtype == DType::f16 || dtype == DType::bf16;
  if (is_half && layout == Layout::batch_first && operation != Operation::gradient) {
    const std::vector<Size> long_rows = {{{1, 9, 1544, 2}, 64}, {{1, 20, 256, 1}, 9},  {{1, 17, 2088, 1}, 33},
                                         {{140, 7, 128, 2}, 9}, {{2, 13, 260, 4}, 50}, {{1, 70, 136, 4}, 64}};
    for (std::size_t index = 0; index < long_rows.size(); index += quick ? 3 : 1) {
      Problem problem{.chain = long_rows[index].pattern,
                      .batch = long_rows[index].batch,
                      .dtype = dtype,
                      .layout = layout,
                      .operation = operation};
      if (operation != Operation::multiply) problem.chain = problem.pattern().transposed();
      if (index % 2 == 1) {
        problem.cols_stride = problem.pattern().cols() + 24;
        problem.rows_stride = problem.pattern().rows() + 8;
      }
      problem.bias = operation == Operation::multiply && index % 2 == 0;
      problem.activation =
          operation == Operation::multiply && index % 3 == 2 ? Activation::gelu : Activation::none;
      result.push_back({problem, sizes.size() + index});
    }
  }
  return result;
}

std::vector<Problem> sample_problems(DType dtype, Layout layout, Operation operation) {
  return problems_of({{{2, 3, 5, 7}, 23},
                      {{1, 17, 33, 1}, 49},
                      {{3, 1, 4, 33}, 5},
                      {{1, 48, 8, 4}, 97},
                      {{1, 2, 300, 2}, 16}},
                     dtype, layout, operation);
}

std::vector<Problem> threaded_problems(DType dtype, Layout layout, Operation operation) {
  return problems_of({{{2, 3, 5, 7}, 1000},
                      {{1, 17, 33, 1}, 2000},
                      {{3, 1, 4, 33}, 400},
                      {{1, 48, 8, 4}, 500},
                      {{1, 2, 300, 2}, 200},
                      {{1, 130, 240, 4}, 3}},
                     dtype, layout, operation);
}

}  // namespace conformance
