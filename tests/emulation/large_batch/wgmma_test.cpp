// Runs wgmma on the CPU, on problems whose results are exact: every tile, widths of copies and stores, tails
// of every dimension.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <set>
#include <tuple>

#include "cases.hpp"
#include "large_batch/wgmma_run.hpp"
#include "picker.hpp"

namespace kronsparse::emulation {
namespace {

struct Format {
  DType dtype;
  Mode mode;
};
constexpr Format kFormats[] = {
    {DType::f16, Mode::fp32}, {DType::bf16, Mode::fp32}, {DType::f32, Mode::tf32}, {DType::f32, Mode::fp32}};

/// A problem with tails in some dimensions and none in others, at some address.
ProductCase any_case(const Format& format, Layout layout, std::int64_t d, Picker& pick) {
  const std::int64_t blocks[] = {1, 2, 3};
  const std::int64_t outputs[] = {5, 32, 37, 48, 64, 72, 96, 128, 150, 192, 256};
  const std::int64_t terms[] = {1, 8, 16, 17, 23, 32, 40, 61, 64, 130};
  const std::int64_t batches[] = {1, 7, 64, 65, 128, 130, 200, 331};
  const Activation activations[] = {Activation::none, Activation::none,      Activation::relu,
                                    Activation::gelu, Activation::gelu_tanh, Activation::silu};
  ProductCase one;
  Problem& problem = one.problem;
  problem.dtype = format.dtype;
  problem.mode = format.mode;
  problem.layout = layout;
  constexpr double most_work = 4e5;  // limits the plain loop that results are compared with
  do {
    problem.chain = Pattern{pick.of(blocks), pick.of(outputs), pick.of(terms), d};
    problem.batch = pick.of(batches);
  } while (static_cast<double>(problem.pattern().nnz()) * static_cast<double>(problem.batch) > most_work);
  if (pick.next(4) == 0) {
    problem.operation = Operation::transposed;
    problem.chain = problem.pattern().transposed();
  } else {
    problem.bias = pick.next(3) == 0;
    problem.activation = pick.of(activations);
  }
  // Picks addresses and strides for copies of 16 bytes, of 4, or of one element, for x and y independently.
  const std::int64_t to_sixteen = format.dtype == DType::f32 ? 4 : 8;
  const auto place = [&](std::int64_t dense, std::int64_t& stride, int& offset) {
    const std::size_t kind = pick.next(4);
    if (kind == 0) return;  // no gaps, at 16 bytes
    const std::int64_t unit = kind == 1 ? to_sixteen : kind == 2 ? 2 : 1;
    stride = (dense + unit - 1) / unit * unit + unit * static_cast<std::int64_t>(pick.next(3));
    offset = static_cast<int>(unit % to_sixteen);
  };
  const bool first = layout == Layout::batch_first;
  const bool transposed = problem.operation == Operation::transposed;
  place(first ? problem.pattern().cols() : problem.batch, problem.cols_stride,
        transposed ? one.y_offset : one.x_offset);
  place(first ? problem.pattern().rows() : problem.batch, problem.rows_stride,
        transposed ? one.x_offset : one.y_offset);
  const int multiprocessors[] = {1, 2, 3, 7};
  one.multiprocessors = pick.of(multiprocessors);
  one.infinite = pick.next(6) == 0;
  one.timing = pick.next(2) == 0 ? Timing::late : Timing::early;
  return one;
}

Cases<WgmmaCut> cases(run_wgmma);

void run_any(const Format& format, Layout layout, std::int64_t d, int count) {
  Picker pick(static_cast<std::uint64_t>(d) * 8 + static_cast<std::uint64_t>(&format - kFormats) * 2 +
              static_cast<std::uint64_t>(layout));
  for (int at = 0; at < (quick ? (count + 3) / 4 : count); ++at) cases.run(any_case(format, layout, d, pick));
}

TEST(Wgmma, BatchFirst) {
  for (const Format& format : kFormats)
    for (const std::int64_t d : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 24, 33, 48})
      run_any(format, Layout::batch_first, d, d <= 8 ? 4 : 2);
}

TEST(Wgmma, BatchLast) {
  for (const Format& format : kFormats)
    for (const std::int64_t d : {1, 2, 5}) run_any(format, Layout::batch_last, d, 6);
}

/// Runs a problem for each tile: as many j and outputs as it has, with tails elsewhere.
TEST(Wgmma, EveryTile) {
  int at = 0;
  for (const Format& format : kFormats) {
    const auto run_shape = [&](const cuda::WgmmaShape& shape) {
      ProductCase one;
      one.problem.dtype = format.dtype;
      one.problem.mode = format.mode;
      one.problem.layout = shape.form == cuda::XForm::columns ? Layout::batch_last : Layout::batch_first;
      one.problem.chain = Pattern{1, shape.n, 20, shape.products * (shape.split_words ? 2 : 1)};
      one.problem.batch = 67;
      one.multiprocessors = 1;
      one.timing = at++ % 2 == 0 ? Timing::late : Timing::early;
      cases.run(one);
    };
    if (format.dtype == DType::f32)
      for (const cuda::WgmmaShape& shape : cuda::float_shapes) run_shape(shape);
    else
      for (const cuda::WgmmaShape& shape : cuda::half_shapes) run_shape(shape);
  }
}

/// d = 3, 5, 7: a term may begin anywhere in a unit of 16 bytes, so every number of terms ends at another
/// place in one.
TEST(Wgmma, LinesOfEveryLength) {
  int at = 0;
  for (const std::int64_t d : {3, 5, 7})
    for (std::int64_t c = 1; c <= (quick ? 8 : 33); ++c, ++at) {
      ProductCase one;
      one.problem.dtype = at % 2 == 0 ? DType::f16 : DType::bf16;
      one.problem.chain = Pattern{1, 9, c, d};
      one.problem.batch = 5;
      // Gaps between rows, which must not be read.
      one.problem.cols_stride = (c * d + 15) / 8 * 8;
      one.problem.rows_stride = (9 * d + 15) / 8 * 8;
      one.timing = at % 3 == 0 ? Timing::early : Timing::late;
      cases.run(one);
    }
}

/// Weights too large to stay in shared memory are streamed, for several tiles of several groups.
TEST(Wgmma, StreamedWeights) {
  for (const Format& format : kFormats)
    for (const Layout layout : {Layout::batch_first, Layout::batch_last})
      for (const std::int64_t d : {1, 3, 4, 7, 20}) {
        if (layout == Layout::batch_last && d != 3) continue;
        ProductCase one;
        one.problem.dtype = format.dtype;
        one.problem.mode = format.mode;
        one.problem.layout = layout;
        const bool columns = layout == Layout::batch_last;
        // A float is stored twice, in four bytes each.
        const std::int64_t terms = (columns || d == 1 ? 900 : 400) / (format.dtype == DType::f32 ? 3 : 1);
        one.problem.chain = Pattern{1, d == 20 ? 20 : 70, terms, d};
        one.problem.batch = 20;
        one.multiprocessors = 1;
        one.timing = d % 2 == 0 ? Timing::early : Timing::late;
        cases.run(one);
      }
}

/// Cases are picked, and tiles chosen for them. This test checks that no tile and no width is left out. Run
/// alone (by a filter) it has nothing to look at.
TEST(WgmmaCoverage, EveryTileAndWidth) {
  if (quick || cases.cuts().empty()) GTEST_SKIP() << "needs all cases";
  std::set<std::tuple<cuda::Arithmetic, std::size_t>> shapes;
  std::set<std::tuple<bool, cuda::XForm, int>> copies, stores;
  std::set<std::tuple<cuda::XForm, bool>> residence;
  for (const WgmmaCut& cut : cases.cuts()) {
    const bool half = cut.arithmetic == cuda::Arithmetic::f16 || cut.arithmetic == cuda::Arithmetic::bf16;
    const cuda::XForm form =
        half ? cuda::half_shapes[cut.shape_index].form : cuda::float_shapes[cut.shape_index].form;
    shapes.emplace(cut.arithmetic, cut.shape_index);
    copies.emplace(half, form, cut.x_copy);
    stores.emplace(half, form, cut.y_store);
    residence.emplace(form, cut.resident);
  }
  EXPECT_EQ(shapes.size(), 2 * cuda::half_shapes.size() + 2 * cuda::float_shapes.size());
  // 16, 4 and 2 bytes for four forms of half types; 16 and 4 for two forms of floats.
  EXPECT_EQ(copies.size(), 16u);
  EXPECT_EQ(stores.size(), 16u);
  EXPECT_EQ(residence.size(), 8u);
}

}  // namespace
}  // namespace kronsparse::emulation
