// The CPU's `fused`: neighbours multiplied together, and chunks of samples. What it computes is in the
// conformance tests, too.
#include <gtest/gtest.h>

#include <algorithm>
#include <complex>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "core/choice.hpp"
#include "cpu/fused/merging.hpp"
#include "kronsparse/buffer.hpp"
#include "kronsparse/dtype.hpp"
#include "kronsparse/operator.hpp"
#include "kronsparse/plan.hpp"

namespace kronsparse {
namespace {

/// Small integers, so that every product of factors is exact.
template <class T>
std::vector<T> integers(std::int64_t count, int seed) {
  std::minstd_rand random(static_cast<unsigned>(seed));
  std::vector<T> all(static_cast<std::size_t>(count));
  for (T& one : all) one = T(static_cast<float>(static_cast<int>(random() % 5) - 2));
  return all;
}

/// Chains whose neighbours have products: square ones, others, diagonal factors, one that goes down and up.
const std::vector<Chain>& chains() {
  static const std::vector<Chain> all = {
      Chain::butterfly(8),
      Chain::butterfly(64),
      Chain::boft(48, 4, 2),
      Chain{{1, 3, 2, 10}, {2, 5, 7, 2}, {14, 2, 3, 1}},
      Chain{{1, 1, 1, 12}, {3, 2, 5, 2}, {1, 1, 1, 30}},
      Chain{{6, 2, 2, 1}, {3, 4, 4, 1}, {1, 12, 6, 1}},
      Chain{{1, 7, 5, 1}, {1, 5, 9, 1}},
  };
  return all;
}

fused::Merging merging_of(const Chain& chain) {
  std::optional<fused::Merging> all(chain[0]);
  for (std::size_t at = 1; at < chain.size(); ++at) all = all->times(chain[at]);
  return *all;
}

TEST(Merging, IsTheProductOfTheFactors) {
  for (const Chain& chain : chains()) {
    std::vector<std::vector<float>> values;
    std::vector<const void*> addresses;
    for (std::size_t at = 0; at < chain.size(); ++at)
      values.push_back(integers<float>(chain[at].nnz(), static_cast<int>(at) + 1));
    for (const std::vector<float>& one : values) addresses.push_back(one.data());
    Operator<float> expected(chain, values);
    while (expected.chain().size() > 1) expected = expected.fuse(0);

    const fused::Merging merging = merging_of(chain);
    ASSERT_EQ(merging.product(), expected.chain()[0]) << chain.to_string();
    std::vector<float> merged(static_cast<std::size_t>(merging.product().nnz()), -77.0F);
    merging.merge(DType::f32, addresses.data(), merged.data());
    EXPECT_EQ(merged, expected.factors()[0]) << chain.to_string();
  }
}

TEST(Merging, WidensHalvesAndRoundsOnce) {
  // 1 + 2^-10 is a half; its square is not, but a float.
  const std::vector<Half> one_and_a_bit(1, Half(1.0009765625F));
  const void* values[] = {one_and_a_bit.data(), one_and_a_bit.data()};
  float merged = 0;
  fused::Merging(Pattern{}).times(Pattern{})->merge(DType::f16, values, &merged);
  EXPECT_EQ(merged, 1.0009765625F * 1.0009765625F);
}

TEST(Merging, HasNoProductWithoutAPattern) {
  EXPECT_FALSE(fused::Merging(Pattern{2, 3, 3, 1}).times(Pattern{3, 2, 2, 1}));
}

/// Every way to cut a batch into chunks, whole ones and a last one: against the factors one by one.
TEST(Fused, EveryBatch) {
  const Chain chain = Chain::butterfly(16);
  for (const DType dtype : {DType::f32, DType::bf16, DType::complex64})
    for (const Layout layout : {Layout::batch_first, Layout::batch_last})
      for (const std::int64_t batch : {0, 1, 2, 15, 16, 17, 31, 33, 127, 128, 129, 143, 513, 1023, 1100}) {
        Problem problem{.chain = chain, .batch = batch, .dtype = dtype};
        problem.layout = layout;
        const std::size_t size = size_of(dtype);
        const auto bytes_of = [&](std::int64_t count, int seed) {
          std::vector<std::byte> bytes(static_cast<std::size_t>(count) * size);
          if (dtype == DType::bf16) {
            const std::vector<BFloat16> all = integers<BFloat16>(count, seed);
            std::copy_n(reinterpret_cast<const std::byte*>(all.data()), bytes.size(), bytes.data());
          } else {
            const std::vector<float> all = integers<float>(static_cast<std::int64_t>(bytes.size() / 4), seed);
            std::copy_n(reinterpret_cast<const std::byte*>(all.data()), bytes.size(), bytes.data());
          }
          return bytes;
        };
        const std::vector<std::byte> values = bytes_of(chain.nnz(), 1), x = bytes_of(16 * batch, 2);
        std::vector<std::byte> y(x.size(), std::byte{0xff}), expected(y);
        for (const auto& [name, to] : {std::pair{"fused", &y}, std::pair{"reference", &expected}}) {
          const Plan plan(problem, values.data(), {}, name);
          const Batch of_run{.size = batch};
          const Buffer workspace(plan.workspace_bytes(of_run));
          plan.run(of_run, {.x = x.data(),
                            .y = to->data(),
                            .workspace = workspace.data(),
                            .workspace_bytes = workspace.bytes()});
        }
        EXPECT_EQ(y, expected) << problem.to_string();
      }
}

TEST(Fused, IsChosenWhereFactorsAreSmall) {
  for (const char* text : {"f32 batch_first B=1000 ", "f32 batch_last B=64 ", "f16 batch_first B=64 "}) {
    const Problem problem = Problem::parse(text + Chain::butterfly(256).to_string());
    EXPECT_EQ(Plan(problem, Device{}).implementation(), "fused") << text;
  }
}

TEST(Fused, LeavesLargeFactorsAlone) {
  const Problem problem = Problem::parse("f32 batch_first B=100 1x64x64x64*64x64x64x1");
  const std::vector<Candidate> all = candidates(problem);
  const auto fused = std::ranges::find(all, "fused", &Candidate::implementation);
  ASSERT_NE(fused, all.end());
  EXPECT_NE(fused->refusal.find("no neighbours"), std::string::npos) << fused->refusal;
}

TEST(Fused, PackedValuesAreAtMostThreeTimesTheValues) {
  for (const char* dtype : {"f32", "f64", "f16", "complex64"})
    for (std::int64_t n = 16; n <= 4096; n *= 4) {
      const Chain chain = Chain::butterfly(n);
      const Problem problem = Problem::parse(std::string(dtype) + " batch_first B=100 " + chain.to_string());
      const std::size_t given = static_cast<std::size_t>(chain.nnz()) * size_of(problem.dtype);
      const std::vector<std::byte> values(given);
      const Plan plan(problem, values.data(), {}, "fused");
      // A packed complex value is four reals, for two.
      const std::size_t most = (is_complex(problem.dtype) ? 6 : 3) * given + 4096;
      EXPECT_LE(plan.packed_bytes(), most) << dtype << " " << n;
    }
}

}  // namespace
}  // namespace kronsparse
