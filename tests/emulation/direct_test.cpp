// The kernel for small batches that reads x straight into registers, compiled for the CPU, on problems whose
// results are exact: every shape, and every way to cut a block into warps.
#include <gtest/gtest.h>

#include <set>
#include <tuple>
#include <vector>

#include "cases.hpp"
#include "direct_run.hpp"
#include "picker.hpp"

namespace kronsparse::emulation {
namespace {

std::vector<DirectCut> cuts;

/// By the cut that number `which` falls to, of those for the problem that are wanted.
template <class Wanted>
void run(const ProductCase& one, std::size_t which, const Wanted& wanted) {
  std::vector<cuda::direct::Choice> choices = cuda::direct::choices(one.problem, one.gpu());
  std::erase_if(choices, [&](const cuda::direct::Choice& choice) { return !wanted(choice.cut); });
  if (choices.empty()) {
    ADD_FAILURE() << one.text() << ": there is no way to cut it";
    return;
  }
  const cuda::direct::Cut& cut = choices[which % choices.size()].cut;
  try {
    cuts.push_back(run_direct(one, cut));
  } catch (const std::exception& error) {
    ADD_FAILURE() << one.text() << " (" << cut.shape.block_j << " j, loads of " << cut.shape.load << ", "
                  << cut.shape.tiles << " tiles, " << cut.steps << " steps, warps " << cut.rows << " x "
                  << cut.l_warps << " x " << cut.sample_warps << "): " << error.what();
  }
}
void run(const ProductCase& one, std::size_t which) {
  run(one, which, [](const cuda::direct::Cut&) { return true; });
}

ProductCase any_case(DType dtype, Picker& pick) {
  const std::int64_t blocks[] = {1, 2, 3};
  const std::int64_t rows[] = {1, 7, 16, 33, 64};
  const std::int64_t terms[] = {1, 3, 8, 12, 50, 64, 100, 264};
  const std::int64_t products[] = {2, 4, 6, 8, 12, 16, 24, 34};
  const std::int64_t batches[] = {1, 7, 8, 20, 33, 64, 64};
  const Activation activations[] = {Activation::none, Activation::none, Activation::relu, Activation::gelu};
  ProductCase one;
  Problem& problem = one.problem;
  problem.dtype = dtype;
  problem.layout = Layout::batch_first;
  constexpr double most_work = 1.5e6;  // of the plain loop that the results are compared with
  do {
    problem.pattern = {pick.of(blocks), pick.of(rows), pick.of(terms), pick.of(products)};
    problem.batch = pick.of(batches);
  } while (static_cast<double>(problem.pattern.nnz()) * static_cast<double>(problem.batch) > most_work);
  if (pick.next(4) == 0) {
    problem.operation = Operation::transposed;
  } else {
    problem.bias = pick.next(2) == 0;
    problem.activation = pick.of(activations);
  }
  pick_strides(problem, pick);
  const int offsets[] = {0, 0, 0, 4, 3};
  one.x_offset = pick.of(offsets);
  one.y_offset = pick.of(offsets);
  one.infinite = pick.next(6) == 0;
  one.timing = pick.next(2) == 0 ? Timing::late : Timing::early;
  return one;
}

TEST(Direct, EveryShape) {
  Picker pick(3);
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const cuda::direct::Shape& shape : cuda::direct::shapes) {
      ProductCase one;
      one.problem.dtype = dtype;
      // Loads of several terms are for as many j as there are, loads of one for 3 times as many.
      const std::int64_t d = shape.terms() > 1 ? shape.block_j : 3 * shape.block_j;
      one.problem.pattern = {2, 21, 100, d};
      one.problem.batch = shape.tiles * 8 - 3;
      one.problem.bias = true;
      one.timing = pick.next(2) == 0 ? Timing::late : Timing::early;
      run(one, pick.next(1000), [&](const cuda::direct::Cut& cut) { return cut.shape == shape; });
      if (quick) break;
    }
}

TEST(Direct, AnyProblem) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    Picker pick(static_cast<std::uint64_t>(dtype));
    int left = quick ? 8 : 80;
    while (left > 0) {
      const ProductCase one = any_case(dtype, pick);
      if (cuda::direct::choices(one.problem, one.gpu()).empty()) continue;  // rows of x an odd number apart
      run(one, pick.next(1000));
      --left;
    }
  }
}

/// Sums that many warps have parts of.
TEST(Direct, LongSums) {
  Picker pick(7);
  for (const char* text : {"f16 batch_first B=8 1x20x256x8 +bias", "bf16 batch_first B=16 1x40x512x4",
                           "f16 batch_first B=5 2x17x1000x2 +bias +relu", "f16 batch_first B=20 1x16x256x6"})
    for (int at = 0; at < (quick ? 1 : 8); ++at) {
      ProductCase one;
      one.problem = Problem::parse(text);
      one.timing = at % 2 == 0 ? Timing::late : Timing::early;
      run(one, pick.next(1000), [](const cuda::direct::Cut& cut) { return cut.l_warps >= 8; });
    }
}

/// Cases are picked, and cuts for them: this says that nothing is left out.
/// Run by itself (a filter) it has nothing to look at.
TEST(DirectCoverage, EveryWay) {
  if (quick || cuts.empty()) GTEST_SKIP() << "needs all cases";
  std::set<std::tuple<DType, int, int, int>> shapes;
  std::set<int> rows, l_warps, sample_warps, parities;
  std::set<bool> x_vectors, y_vectors;
  for (const DirectCut& how : cuts) {
    const cuda::direct::Cut& cut = how.cut;
    shapes.emplace(how.dtype, cut.shape.block_j, cut.shape.load, cut.shape.tiles);
    rows.insert(cut.rows);
    l_warps.insert(cut.l_warps);
    sample_warps.insert(cut.sample_warps);
    parities.insert(cut.steps == 1 ? 1 : 2 + cut.steps % 2);
    x_vectors.insert(how.x_vectors);
    y_vectors.insert(how.y_vectors);
  }
  EXPECT_EQ(shapes.size(), 2 * cuda::direct::shapes.size());
  EXPECT_EQ(rows, (std::set<int>{1, 2, 4, 8}));
  EXPECT_EQ(l_warps, (std::set<int>{1, 2, 4, 8, 16}));
  EXPECT_EQ(sample_warps, (std::set<int>{1, 2, 4, 8}));
  EXPECT_EQ(parities, (std::set<int>{1, 2, 3}));
  EXPECT_EQ(x_vectors.size(), 2U);
  EXPECT_EQ(y_vectors.size(), 2U);
}

}  // namespace
}  // namespace kronsparse::emulation
