// The orders in which the tensor-core kernels read weights: every weight has a
// place of its own, and the places are those that the fragments want.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "cuda/large_batch/mma/weights.cuh"
#include "cuda/large_batch/wgmma/weights.cuh"

namespace kronsparse::cuda {
namespace {

template <class Order>
void expect_places_of_their_own(const Order& order) {
  std::vector<bool> taken(static_cast<std::size_t>(order.elements()));
  for (std::int64_t i = 0; i < order.a; ++i)
    for (std::int64_t k = 0; k < order.b; ++k)
      for (std::int64_t l = 0; l < order.c; ++l)
        for (std::int64_t j = 0; j < order.d; ++j) {
          const std::int64_t place = order.place(i, k, l, j);
          ASSERT_GE(place, 0);
          ASSERT_LT(place, order.elements());
          ASSERT_FALSE(taken[static_cast<std::size_t>(place)]) << i << ' ' << k << ' ' << l << ' ' << j;
          taken[static_cast<std::size_t>(place)] = true;
        }
}

TEST(CudaWeights, EveryWeightHasItsOwnPlaceForMma) {
  for (const bool wide : {false, true})
    expect_places_of_their_own(FragmentOrder{.a = 2, .b = 70, .c = 35, .d = 5, .wide = wide});
}

TEST(CudaWeights, FloatsAreSplitWithoutLoss) {
  constexpr float largest = std::numeric_limits<float>::max(),
                  infinity = std::numeric_limits<float>::infinity();
  for (const float value : {0.0f, -1.0f, 1.0f / 3, 0x1.001p0f, 0x1.ffefp127f, 0x1.fffp127f, largest, -largest,
                            std::numeric_limits<float>::denorm_min()}) {
    const std::uint32_t part = tf32_part(std::bit_cast<std::uint32_t>(value));
    EXPECT_EQ(part % 0x2000, 0u) << value;
    const auto high = std::bit_cast<float>(part);
    EXPECT_TRUE(std::isfinite(high)) << value;
    EXPECT_EQ(high + (value - high), value);
  }
  EXPECT_EQ(tf32_part(std::bit_cast<std::uint32_t>(-infinity)), std::bit_cast<std::uint32_t>(-infinity));
}

TEST(CudaWeights, EveryWeightHasItsOwnPlaceForGemm) {
  const WgmmaOrder order{.a = 2,
                         .b = 70,
                         .c = 135,
                         .d = 3,
                         .j_groups = 3,
                         .k_tiles = 2,
                         .chunks = 12,
                         .j_count = 1,
                         .tile_k = 48,
                         .parts = 1,
                         .swizzled_rows = true};
  expect_places_of_their_own(order);
  // Rows of 64 terms; units of 8 terms change places as the number of the row says.
  EXPECT_EQ(order.place(0, 0, 9, 0), 9);
  EXPECT_EQ(order.place(0, 1, 9, 0), 64 + 1);
  EXPECT_EQ(order.place(0, 3, 64 + 2, 0), (48 + 3) * 64 + 3 * 8 + 2);
}

TEST(CudaWeights, EveryWeightHasItsOwnPlaceForWgmma) {
  for (const int parts : {1, 2}) {
    const WgmmaOrder order{.a = 2,
                           .b = 70,
                           .c = 35,
                           .d = 5,
                           .j_groups = 2,
                           .k_tiles = 2,
                           .chunks = 4,
                           .j_count = 4,
                           .tile_k = 48,
                           .parts = parts};
    expect_places_of_their_own(order);
    // A float's rest lies after all the first parts of its product.
    EXPECT_EQ(order.product_elements(), parts * 48 * 16);
  }
}

// Lane 4g + t holds outputs g and g + 8 of terms 4t to 4t + 3, eight halves in a row.
TEST(CudaWeights, MmaFragmentsHoldTheirLanesOutputsAndTerms) {
  const FragmentOrder halves{.a = 1, .b = 16, .c = 16, .d = 1, .wide = false};
  const FragmentOrder floats{.a = 1, .b = 16, .c = 8, .d = 1, .wide = true};
  for (int g = 0; g < 8; ++g)
    for (int t = 0; t < 4; ++t)
      for (int upper = 0; upper < 2; ++upper)
        for (int half = 0; half < 2; ++half) {
          const int lane = 4 * g + t, word = 2 * half + upper;
          for (int odd = 0; odd < 2; ++odd)
            EXPECT_EQ(halves.place(0, g + 8 * upper, 2 * t + odd + 8 * half, 0), lane * 8 + word * 2 + odd);
          EXPECT_EQ(floats.place(0, g + 8 * upper, t + 4 * half, 0), lane * 4 + word);
        }
}

TEST(CudaWeights, WgmmaBlocksHoldEightOutputs) {
  const WgmmaOrder order{.a = 1,
                         .b = 32,
                         .c = 16,
                         .d = 1,
                         .j_groups = 1,
                         .k_tiles = 1,
                         .chunks = 1,
                         .j_count = 1,
                         .tile_k = 32,
                         .parts = 1};
  for (int k = 0; k < 32; ++k)
    for (int t = 0; t < 4; ++t) {
      const int block = k / 8 * 128 + k % 8 * 8;
      EXPECT_EQ(order.place(0, k, 4 * t, 0), block + 2 * t);
      EXPECT_EQ(order.place(0, k, 4 * t + 1, 0), block + 2 * t + 1);
      EXPECT_EQ(order.place(0, k, 4 * t + 2, 0), block + 64 + 2 * t);
      EXPECT_EQ(order.place(0, k, 4 * t + 3, 0), block + 64 + 2 * t + 1);
    }
}

}  // namespace
}  // namespace kronsparse::cuda
