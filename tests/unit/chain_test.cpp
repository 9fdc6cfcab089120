#include "kronsparse/chain.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "expect_error.hpp"
#include "kronsparse/device.hpp"

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
                                 "cuda:a", "cuda:1:2", "cuda1", " cpu"})
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
