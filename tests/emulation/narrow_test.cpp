// The kernel for small batches in blocks of few outputs, compiled for the CPU, on problems whose results are
// exact: every shape, clusters that split sums, stages that are filled again.
#include <gtest/gtest.h>

#include <set>
#include <tuple>
#include <vector>

#include "cases.hpp"
#include "narrow_run.hpp"
#include "picker.hpp"

namespace kronsparse::emulation {
namespace {

std::vector<NarrowCut> cuts;

/// By the cut that number `which` falls to, of those for the problem that are wanted.
template <class Wanted>
void run(const ProductCase& one, std::size_t which, const Wanted& wanted) {
  std::vector<cuda::narrow::Choice> choices = cuda::narrow::choices(one.problem, one.gpu());
  std::erase_if(choices, [&](const cuda::narrow::Choice& choice) { return !wanted(choice.cut); });
  if (choices.empty()) {
    ADD_FAILURE() << one.text() << ": there is no way to cut it";
    return;
  }
  const cuda::narrow::Cut& cut = choices[which % choices.size()].cut;
  try {
    cuts.push_back(run_narrow(one, cut));
  } catch (const std::exception& error) {
    ADD_FAILURE() << one.text() << " (" << cut.shape.outputs << " outputs, splits " << cut.splits
                  << ", warpgroups " << cut.warpgroups << ", stages " << cut.stages << " of "
                  << cut.stage_slabs << "): " << error.what();
  }
}
void run(const ProductCase& one, std::size_t which) {
  run(one, which, [](const cuda::narrow::Cut&) { return true; });
}

ProductCase any_case(DType dtype, Picker& pick) {
  const std::int64_t blocks[] = {1, 2, 3};
  const std::int64_t rows[] = {1, 7, 8, 33, 64, 70};
  const std::int64_t terms[] = {1, 3, 8, 12, 50, 64, 100, 264};
  const std::int64_t products[] = {1, 2, 4, 8, 16, 24, 32};
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

TEST(Narrow, EveryShape) {
  Picker pick(3);
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const cuda::narrow::Shape& shape : cuda::narrow::shapes) {
      ProductCase one;
      one.problem.dtype = dtype;
      one.problem.pattern = {1, shape.outputs + 3, 3 * shape.slab_terms() + 8, shape.block_j};
      one.problem.batch = pick.next(2) == 0 ? 64 : 40;
      one.problem.bias = true;
      one.timing = pick.next(2) == 0 ? Timing::late : Timing::early;
      run(one, pick.next(1000), [&](const cuda::narrow::Cut& cut) { return cut.shape == shape; });
      if (quick) break;
    }
}

TEST(Narrow, AnyProblem) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    Picker pick(static_cast<std::uint64_t>(dtype));
    for (int at = 0; at < (quick ? 8 : 60); ++at) run(any_case(dtype, pick), pick.next(1000));
  }
}

/// Long sums: clusters that split them, and stages that are filled again and again.
TEST(Narrow, LongSums) {
  Picker pick(7);
  for (const char* text : {"f16 batch_first B=64 1x32x2048x1", "bf16 batch_first B=8 1x40x2000x1",
                           "f16 batch_first B=64 1x48x1024x2 +bias", "f16 batch_first B=33 1x40x512x4",
                           "bf16 batch_first B=64 1x70x520x4 +bias +relu", "f16 batch_first B=64 1x32x256x8",
                           "f16 batch_first B=64 1x32x128x16", "bf16 batch_first B=64 1x16x100x32"})
    for (int at = 0; at < (quick ? 1 : 6); ++at) {
      ProductCase one;
      one.problem = Problem::parse(text);
      one.timing = at % 2 == 0 ? Timing::late : Timing::early;
      run(one, pick.next(1000));
    }
}

/// Cases are picked, and cuts for them: this says that nothing is left out.
/// Run by itself (a filter) it has nothing to look at.
TEST(NarrowCoverage, EveryWay) {
  if (quick || cuts.empty()) GTEST_SKIP() << "needs all cases";
  std::set<std::tuple<DType, int, int>> shapes;
  std::set<int> splits, warpgroups, stage_slabs;
  std::set<bool> boxes, y_vectors, refilled;
  std::set<int> parts_of_j;
  for (const NarrowCut& how : cuts) {
    const cuda::narrow::Cut& cut = how.cut;
    shapes.emplace(how.dtype, cut.shape.block_j, cut.shape.outputs);
    splits.insert(cut.splits);
    warpgroups.insert(cut.warpgroups);
    stage_slabs.insert(cut.stage_slabs);
    boxes.insert(how.boxes);
    y_vectors.insert(how.y_vectors);
    refilled.insert(cut.fillings() > cut.stages);
    if (cut.j_groups > 1) parts_of_j.insert(cut.shape.block_j);
  }
  EXPECT_EQ(shapes.size(), 2 * cuda::narrow::shapes.size());
  EXPECT_EQ(splits, (std::set<int>{1, 2, 4, 8}));
  EXPECT_EQ(warpgroups, (std::set<int>{1, 2, 3, 4}));
  EXPECT_EQ(stage_slabs, (std::set<int>{1, 2, 4}));
  EXPECT_EQ(boxes.size(), 2U);
  EXPECT_EQ(y_vectors.size(), 2U);
  EXPECT_EQ(refilled.size(), 2U);
  EXPECT_EQ(parts_of_j, (std::set<int>{8, 16}));
}

}  // namespace
}  // namespace kronsparse::emulation
