// A search leaves out most cuts. These tests check that it still finds the fastest of all, also among the
// cuts that read the weights of another cut. They run no kernels.
#include "cuda/small_batch/direct/search.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "cuda/small_batch/sums_stay/search.hpp"
#include "cuda/small_batch/weights_stay/search.hpp"
#include "cuda/small_batch/x_stays/mma/search.hpp"
#include "cuda/small_batch/x_stays/wgmma/search.hpp"
#include "picker.hpp"

namespace kronsparse::emulation {
namespace {

/// A GPU with clusters; the next one has less of everything.
cuda::GpuFacts large_gpu() {
  cuda::GpuFacts gpu;
  gpu.compute_capability = 90;
  gpu.code = {.compute_capability = 90, .kind = 'a'};
  gpu.multiprocessors = 132;
  gpu.shared_bytes = 227 << 10;
  gpu.l2_bytes = std::size_t{50} << 20;
  gpu.clock_hz = 1.98e9;
  gpu.memory_rate = 4.26e12;
  return gpu;
}
cuda::GpuFacts small_gpu() {
  cuda::GpuFacts gpu = large_gpu();
  gpu.compute_capability = gpu.code.compute_capability = 86;
  gpu.multiprocessors = 28;
  gpu.shared_bytes = 99 << 10;
  gpu.memory_rate = 0.4e12;
  return gpu;
}

/// The name of a family of cuts, and its functions.
template <class C>
struct Family {
  using Cut = C;
  using Choice = cuda::CutChoice<Cut>;
  const char* name;
  std::vector<Choice> (*choices)(const Problem&, const cuda::GpuFacts&);
  Choice (*choose)(const Problem&, const cuda::GpuFacts&);
  Choice (*choose_packed)(const Problem&, const cuda::GpuFacts&, const Cut&);
  bool (*same_order)(const Cut&, const Cut&);
  std::int64_t (*elements)(const Problem&, const Cut&);
  cuda::PackedPlace (*place)(const Problem&, const Cut&, std::int64_t);
  std::function<bool(const Problem&)> takes;
};

bool is_half_first(const Problem& problem) {
  return problem.dtype != DType::f32 && problem.layout == Layout::batch_first;
}

template <class Cut>
cuda::PackedPlace place_of(const Problem& /*problem*/, const Cut& cut, std::int64_t index) {
  return packed_place(cut, index);
}
template <class Cut>
std::int64_t elements_of(const Problem& problem, const Cut& cut) {
  return weight_bytes(cut, cuda::product_of(problem)) / 2;
}

template <class Cut>
Family<Cut> family(const char* name, std::function<bool(const Problem&)> takes,
                   std::vector<cuda::CutChoice<Cut>> (*choices)(const Problem&, const cuda::GpuFacts&),
                   cuda::CutChoice<Cut> (*choose)(const Problem&, const cuda::GpuFacts&),
                   cuda::CutChoice<Cut> (*choose_packed)(const Problem&, const cuda::GpuFacts&, const Cut&),
                   bool (*same_order)(const Cut&, const Cut&)) {
  return {name,       choices,          choose,        choose_packed,
          same_order, elements_of<Cut>, place_of<Cut>, std::move(takes)};
}

std::int64_t x_stays_mma_elements(const Problem& problem, const cuda::x_stays_mma::Cut& cut) {
  return weight_bytes(cut, cuda::product_of(problem)) / static_cast<std::int64_t>(size_of(problem.dtype));
}
cuda::PackedPlace x_stays_mma_place(const Problem& problem, const cuda::x_stays_mma::Cut& cut,
                                    std::int64_t index) {
  return cuda::x_stays_mma::dispatch_type(problem.dtype, [&]<class T>() {
    constexpr int vector = cuda::x_stays_mma::Tile<T>::vector;
    return cuda::x_stays_mma::packed_place<T>(cut, index / vector, static_cast<int>(index % vector));
  });
}

/// Calls the body with each family.
template <class Body>
void for_each_family(Body&& body) {
  using namespace cuda;
  body(family<direct::Cut>("direct", is_half_first, direct::choices, direct::choose, direct::choose,
                           direct::same_order));
  body(family<weights_stay::Cut>("weights-stay", is_half_first, weights_stay::choices, weights_stay::choose,
                                 weights_stay::choose, weights_stay::same_order));
  body(family<sums_stay::Cut>("sums-stay", is_half_first, sums_stay::choices, sums_stay::choose,
                              sums_stay::choose, sums_stay::same_order));
  body(family<x_stays_wgmma::Cut>(
      "x-stays-wgmma", [](const Problem& problem) { return problem.dtype != DType::f32; },
      x_stays_wgmma::choices, x_stays_wgmma::choose, x_stays_wgmma::choose, x_stays_wgmma::same_order));
  Family<x_stays_mma::Cut> x_stays_mma_family{"x-stays-mma",           x_stays_mma::choices,
                                              x_stays_mma::choose,     x_stays_mma::choose,
                                              x_stays_mma::same_order, x_stays_mma_elements,
                                              x_stays_mma_place,       [](const Problem&) { return true; }};
  body(x_stays_mma_family);
}

template <class Cut>
void expect_same(const Family<Cut>& family, const cuda::CutChoice<Cut>& found,
                 const cuda::CutChoice<Cut>& wanted, const std::string& text) {
  EXPECT_DOUBLE_EQ(found.seconds, wanted.seconds) << family.name << ": " << text;
  if (!std::isfinite(wanted.seconds)) return;
  EXPECT_TRUE(family.same_order(found.cut, wanted.cut)) << family.name << ": " << text;
}

/// Checks the search of each family that takes the problem.
void check_searches(const Problem& problem, const cuda::GpuFacts& gpu) {
  for_each_family([&](const auto& family) {
    if (!family.takes(problem)) return;
    expect_same(family, family.choose(problem, gpu), cheapest(family.choices(problem, gpu)),
                problem.to_string());
  });
}

/// A factor with sizes of every kind, and strides.
Problem any_problem(Picker& pick) {
  const std::int64_t blocks[] = {1, 1, 2, 3, 16, 96};
  const std::int64_t sizes[] = {1, 7, 8, 16, 48, 64, 100, 172, 256, 688, 1000, 1024, 2752};
  const std::int64_t products[] = {1, 1, 2, 3, 4, 4, 6, 8, 12, 16, 16, 24, 32, 63, 64};
  const DType dtypes[] = {DType::f16, DType::f16, DType::f16, DType::bf16, DType::f32};
  const auto size = [&] {
    return pick.next(3) == 0 ? 1 + static_cast<std::int64_t>(pick.next(3000)) : pick.of(sizes);
  };
  Problem problem;
  problem.chain = Chain({Pattern{pick.of(blocks), size(), size(), pick.of(products)}});
  problem.dtype = pick.of(dtypes);
  problem.layout = pick.next(5) == 0 ? Layout::batch_last : Layout::batch_first;
  problem.operation = pick.next(4) == 0 ? Operation::transposed : Operation::multiply;
  problem.batch = pick.next(65);
  if (pick.next(6) == 0 && problem.layout == Layout::batch_first) {
    problem.cols_stride = problem.pattern().cols() + static_cast<std::int64_t>(pick.next(40));
    problem.rows_stride = problem.pattern().rows() + static_cast<std::int64_t>(pick.next(40));
  }
  return problem;
}

// Patterns of layers 4096 and 11008 wide, and some of the paper's.
TEST(Search, FindsTheFastestCutOfKnownPatterns) {
  for (const char* pattern :
       {"64x64x64x1",    "1x64x64x64",  "16x256x256x1",  "1x256x256x16", "4x1024x1024x1", "1x1024x1024x4",
        "64x64x172x1",   "1x172x64x64", "16x256x688x1",  "1x688x256x16", "4x1024x2752x1", "1x2752x1024x4",
        "1x48x48x6",     "1x96x384x8",  "1x192x768x48",  "1x256x64x12",  "1x512x128x128", "1x768x192x3",
        "3x768x768x16",  "6x192x768x4", "12x192x192x4",  "96x48x192x4",  "1x1280x1280x4", "4x2048x2048x1",
        "1x3584x1024x4", "1x64x172x64", "4x2752x1024x1", "2x512x512x4",  "1x1792x1792x8"})
    for (const char* batch : {"1", "5", "8", "20", "33", "64"})
      for (const char* rest : {"f16 batch_first", "transposed bf16 batch_first", "f16 batch_last"})
        check_searches(Problem::parse(std::string(rest) + " B=" + batch + " " + pattern), large_gpu());
}

TEST(Search, FindsTheFastestCutOfAnyProblem) {
  Picker pick(71);
  for (int at = 0; at < 1000; ++at)
    check_searches(any_problem(pick), at % 4 == 3 ? small_gpu() : large_gpu());
}

// Another batch may change everything but the order of the weights.
TEST(Search, FindsTheFastestCutOfAnOrder) {
  Picker pick(72);
  int found_any = 0;
  for (int at = 0; at < 300; ++at) {
    const cuda::GpuFacts gpu = at % 4 == 3 ? small_gpu() : large_gpu();
    const Problem problem = any_problem(pick);
    Problem other = problem;
    other.batch = 1 + pick.next(64);
    for_each_family([&](const auto& family) {
      if (!family.takes(problem)) return;
      const auto packed = family.choices(problem, gpu);
      if (packed.empty()) return;
      auto of_order = family.choices(other, gpu);
      for (int time = 0; time < 3; ++time) {
        const auto& packed_as =
            time == 0 ? family.choose(problem, gpu).cut : packed[pick.next(packed.size())].cut;
        auto left = of_order;
        std::erase_if(left, [&](const auto& choice) { return !family.same_order(choice.cut, packed_as); });
        expect_same(family, family.choose_packed(other, gpu, packed_as), cheapest(left), other.to_string());
        found_any += !left.empty();
      }
    });
  }
  EXPECT_GT(found_any, 500);
}

TEST(Search, CutsOfOneOrderReadTheSameWeights) {
  Picker pick(73);
  int pairs = 0;
  for (int at = 0; at < 250; ++at) {
    const cuda::GpuFacts gpu = large_gpu();
    const Problem problem = any_problem(pick);
    Problem other = problem;
    other.batch = 1 + pick.next(64);
    for_each_family([&](const auto& family) {
      if (!family.takes(problem)) return;
      const auto first = family.choices(problem, gpu), second = family.choices(other, gpu);
      if (first.empty() || second.empty()) return;
      for (int time = 0; time < 4; ++time) {
        const auto& one = first[pick.next(first.size())].cut;
        auto alike = second;
        std::erase_if(alike, [&](const auto& choice) { return !family.same_order(choice.cut, one); });
        const auto& two = alike.empty() ? one : alike[pick.next(alike.size())].cut;
        const std::int64_t elements = family.elements(problem, one);
        ASSERT_EQ(elements, family.elements(problem, two)) << family.name << ": " << problem.to_string();
        for (int sample = 0; sample < 300; ++sample) {
          const auto index = static_cast<std::int64_t>(pick.next(static_cast<std::size_t>(elements)));
          const cuda::PackedPlace here = family.place(problem, one, index),
                                  there = family.place(problem, two, index);
          ASSERT_TRUE(here.i == there.i && here.k == there.k && here.l == there.l && here.j == there.j)
              << family.name << ": " << problem.to_string() << " at " << index;
        }
        pairs += !alike.empty();
      }
    });
  }
  EXPECT_GT(pairs, 500);
}

}  // namespace
}  // namespace kronsparse::emulation
