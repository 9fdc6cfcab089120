#include "kronsparse/chain.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "expect_error.hpp"
#include "kronsparse/device.hpp"
#include "kronsparse/operator.hpp"

namespace kronsparse {
namespace {

TEST(Chain, DerivedQuantities) {
  const Chain chain{{1, 2, 3, 4}, {4, 3, 5, 1}};
  EXPECT_EQ(chain.size(), 2U);
  EXPECT_EQ(chain.rows(), 8);
  EXPECT_EQ(chain.cols(), 20);
  EXPECT_EQ(chain.nnz(), 24 + 60);
  EXPECT_EQ(chain[1], (Pattern{4, 3, 5, 1}));
}

TEST(Chain, TextRoundTrips) {
  for (const char* text : {"2x3x4x5", "1x64x64x64*64x64x64x1", "1x2x3x4*4x3x5x1*1x20x7x1"})
    EXPECT_EQ(Chain::parse(text).to_string(), text);
  std::string hundred = "1x7x7x1";
  for (int factor = 1; factor < 100; ++factor) hundred += "*7x1x1x1";
  EXPECT_EQ(Chain::parse(hundred).size(), 100U);
  EXPECT_EQ(Chain::parse(hundred).to_string(), hundred);
}

TEST(Chain, OtherTextIsAnError) {
  for (const std::string text :
       {"", "*", "1x2x2x1*", "*1x2x2x1", "1x2x2x1**1x2x2x1", "1x2x2x1 * 1x2x2x1", "1x2x2x1,1x2x2x1"})
    expect_code(ErrorCode::parse, text, [&] { (void)Chain::parse(text); });
  expect_code(ErrorCode::invalid_argument, "zero", [] { (void)Chain::parse("1x2x2x1*1x2x0x1"); });
  expect_code(ErrorCode::size_mismatch, "misfit", [] { (void)Chain::parse("1x2x2x1*1x3x2x1"); });
}

TEST(Chain, ValueCountMustFit) {
  std::vector<Pattern> factors(40, Pattern{1, std::int64_t{1} << 29, std::int64_t{1} << 29, 1});
  expect_code(ErrorCode::overflow, "sum of nnz", [&] { (void)Chain(factors); });
}

TEST(Chain, Monarch) {
  const Chain chain = Chain::monarch(4096, 1024, 32);
  EXPECT_EQ(chain.to_string(), "1x128x32x32*32x32x32x1");
  EXPECT_EQ(chain.rows(), 4096);
  EXPECT_EQ(chain.cols(), 1024);
}

TEST(Chain, Butterfly) {
  EXPECT_EQ(Chain::butterfly(2).to_string(), "1x2x2x1");
  EXPECT_EQ(Chain::butterfly(8).to_string(), "1x2x2x4*2x2x2x2*4x2x2x1");
  EXPECT_EQ(Chain::butterfly(1 << 20).size(), 20U);
  EXPECT_EQ(Chain::butterfly(1 << 20).nnz(), 20 * (2 << 20));
}

TEST(Chain, Families) {
  EXPECT_EQ(Chain::dense(6, 4).to_string(), "1x6x4x1");
  EXPECT_EQ(Chain::low_rank(6, 4, 2).to_string(), "1x6x2x1*1x2x4x1");
  EXPECT_EQ(Chain::monarch(32, 8, 4, 2).to_string(), "1x8x8x4*4x8x2x1");
  EXPECT_EQ(Chain::butterfly({2, 2, 3}, {2, 2, 3}).to_string(), "1x2x2x6*2x2x2x3*4x3x3x1");
  EXPECT_EQ(Chain::kaleidoscope(4).to_string(), "1x2x2x2*2x2x2x1*2x2x2x1*1x2x2x2");
  EXPECT_EQ(Chain::block_butterfly(12, 3).to_string(), "1x6x6x2*2x6x6x1");
  EXPECT_EQ(Chain::blast(8, 6, 2, 3).to_string(), "2x4x3x1*1x2x2x3*2x3x3x1");
  EXPECT_EQ(Chain::btt(4, 3, 5, 7, 2).to_string(), "1x4x10x3*5x6x7x1");
  EXPECT_EQ(Chain::boft(48, 4, 3).to_string(), "3x4x4x4*6x4x4x2*12x4x4x1");
  EXPECT_EQ(Chain::boft(8, 2, 3), Chain::butterfly(8));
  EXPECT_EQ(Chain::for_budget(8, 8, 40).to_string(), "1x4x2x2*2x2x4x1");
  EXPECT_EQ(Chain::for_budget(50257, 768, 1'000'000).to_string(), "1x50257x19x1*1x19x768x1");
  EXPECT_EQ(Chain::for_budget(6, 4, 24), Chain::dense(6, 4));
}

TEST(Chain, WhatFollowsFromPatterns) {
  const Chain butterfly = Chain::butterfly(8);
  EXPECT_EQ(butterfly.ranks(), (std::vector<std::int64_t>{1, 1}));
  EXPECT_TRUE(butterfly.is_chainable());
  EXPECT_FALSE(butterfly.is_redundant());
  EXPECT_EQ(butterfly.reduced(), butterfly);
  EXPECT_EQ(butterfly.product(), (Pattern{1, 8, 8, 1}));
  EXPECT_EQ(butterfly.fuse(1).to_string(), "1x2x2x4*2x4x4x1");
  EXPECT_EQ(butterfly.transposed().to_string(), "4x2x2x1*2x2x2x2*1x2x2x4");
  const Chain redundant{{1, 4, 8, 2}, {2, 8, 3, 1}, {1, 6, 6, 1}, {1, 6, 5, 1}};
  EXPECT_TRUE(redundant.is_redundant());
  EXPECT_EQ(redundant.reduced().to_string(), "1x8x5x1");
  EXPECT_EQ(Chain::kaleidoscope(8).ranks(), (std::vector<std::int64_t>{1, 1, 2, 0, 0}));
  EXPECT_FALSE(Chain::kaleidoscope(8).is_chainable());
  EXPECT_EQ((Chain{{2, 3, 3, 1}, {3, 2, 2, 1}}.product()), std::nullopt);
}

/// Entries that may differ from zero are those of a product of matrices of ones.
TEST(Chain, DensityCountsEntries) {
  for (const Chain& chain : {Chain::kaleidoscope(8), Chain::blast(12, 6, 3, 1), Chain::boft(32, 4, 2),
                             Chain{{2, 3, 3, 1}, {3, 2, 2, 1}}, Chain{{3, 1, 1, 2}, {2, 3, 1, 1}}}) {
    SCOPED_TRACE(chain.to_string());
    std::vector<std::vector<double>> ones;
    for (const Pattern& pattern : chain.factors()) ones.emplace_back(pattern.nnz(), 1.0);
    const std::vector<double> matrix = Operator<double>(chain, ones).to_dense();
    const auto entries = std::ranges::count_if(matrix, [](double entry) { return entry != 0; });
    EXPECT_DOUBLE_EQ(chain.density(), static_cast<double>(entries) / static_cast<double>(matrix.size()));
    EXPECT_EQ(chain.flops(3), 6 * chain.nnz());
  }
}

TEST(Chain, TableNamesPairsThatAreNotChainable) {
  EXPECT_EQ((Chain{{2, 3, 3, 1}, {3, 2, 2, 1}}.table()),
            "factor   pattern         rows      cols       nnz   density   rank\n"
            "     0   2x3x3x1            6         6        18     0.500   none\n"
            "     1   3x2x2x1            6         6        12     0.333\n"
            "product                     6         6        30     0.667\n");
}

TEST(Chain, WrongFamilies) {
  const auto refuses = [](const std::string& text, const auto& make) {
    expect_error(ErrorCode::invalid_argument, text, make);
  };
  refuses("low_rank: rank is 0, must be at least 1", [] { (void)Chain::low_rank(4, 4, 0); });
  refuses("kaleidoscope: n is 12, must be a power of two, at least 2", [] { (void)Chain::kaleidoscope(12); });
  refuses("block_butterfly: n is 24, must be t = 5 times a power of two",
          [] { (void)Chain::block_butterfly(24, 5); });
  refuses("blast: blocks 5 must divide rows 24 and cols 25", [] { (void)Chain::blast(24, 25, 5, 2); });
  refuses("boft: n is 24, must be a multiple of b·2^(m-1), b being 4 and m 3",
          [] { (void)Chain::boft(24, 4, 3); });
  refuses("for_budget: parameters is 15, must be at least 16, those of a matrix of rank 1",
          [] { (void)Chain::for_budget(8, 8, 15); });
  refuses(
      "butterfly: 2 row_radices, 1 col_radices and 0 ranks given, must be at least one of row_radices, as "
      "many col_radices, and ranks none or one less",
      [] {
        (void)Chain::butterfly({2, 4}, {8});
      });
  refuses("butterfly: a radix or rank is 0, must be at least 1", [] {
    (void)Chain::butterfly({2, 0}, {2, 2});
  });
  refuses("index: 2 given, must be that of a factor with a neighbour to its right, the chain has 3 factors",
          [] { (void)Chain::butterfly(8).fuse(2); });
  refuses(
      "index: 0 given, but the product of factor 0 (2x3x3x1) and factor 1 (3x2x2x1) is not Kronecker-sparse",
      [] {
        (void)Chain{{2, 3, 3, 1}, {3, 2, 2, 1}}.fuse(0);
      });
}

TEST(Device, TextRoundTrips) {
  EXPECT_EQ(Device{}.to_string(), "cpu");
  EXPECT_EQ(Device::parse("cpu"), Device{});
  EXPECT_EQ(Device::parse("cpu:0"), Device{});
  EXPECT_EQ(Device::parse("cuda"), (Device{Backend::cuda, 0}));
  for (const char* text : {"cpu", "cpu:1", "cuda:0", "cuda:7", "opencl:2147483647"})
    EXPECT_EQ(Device::parse(text).to_string(), text);
}

TEST(Device, OtherTextIsAnError) {
  for (const std::string text : {"", ":", "cpu:", "cpu:-1", "cpu:+1", "cpu:01", "cpu: 1", "CPU", "gpu",
                                 "cuda:?", "cuda:1:2", "cuda1", " cpu"})
    expect_code(ErrorCode::parse, text, [&] { (void)Device::parse(text); });
  for (const std::string text : {"cuda:2147483648", "cuda:99999999999999999999"})
    expect_code(ErrorCode::overflow, text, [&] { (void)Device::parse(text); });
}

TEST(Device, TheCpuIsAlwaysThereAndFirst) {
  ASSERT_FALSE(devices().empty());
  EXPECT_EQ(devices().front().device, Device{});
  EXPECT_FALSE(devices().front().description.empty());
}

}  // namespace
}  // namespace kronsparse
