// The problems that the amx family takes and leaves to others. The conformance tests check its results.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "cpu/amx/drivers.hpp"
#include "cpu/cpu_info.hpp"
#include "kronsparse/kronsparse.hpp"

namespace kronsparse {
namespace {

/// The refusal of amx-emulated, in builds that have it.
const Candidate* emulated(const std::vector<Candidate>& all) {
  for (const Candidate& one : all)
    if (one.implementation == "amx-emulated") return &one;
  return nullptr;
}

std::string refusal(const std::string& problem) {
  const std::vector<Candidate> all = candidates(Problem::parse(problem));
  const Candidate* one = emulated(all);
  return one == nullptr ? "not in this build" : one->refusal;
}

class Amx : public testing::Test {
 protected:
  void SetUp() override {
    if (emulated(candidates(Problem::parse("bf16 batch_first B=1 1x1x1x1"))) == nullptr)
      GTEST_SKIP() << "built without KRONSPARSE_EMULATED_TILES";
  }
};

TEST_F(Amx, TakesWhatTilesCanMultiply) {
  for (const char* problem : {"bf16 batch_first B=1 1x1x1x1", "bf16 batch_first B=17 2x3x5x8 +bias +gelu",
                              "bf16 batch_first B=3 1x7x9x48", "bf16 batch_first B=32 1x7x9x24",
                              "bf16 batch_last B=5 2x3x5x7", "transposed bf16 batch_last B=100 1x64x256x3",
                              "f16 batch_first B=17 2x3x5x8", "f16 batch_last B=5 2x3x5x7 +bias"})
    EXPECT_EQ(refusal(problem), "") << problem;
}

TEST_F(Amx, SaysWhatItLeavesToOthers) {
  EXPECT_EQ(refusal("f32 batch_first B=8 1x64x64x1"), "needs dtype f16 or bf16; here f32");
  EXPECT_EQ(refusal("gradient bf16 batch_last B=8 1x64x64x1"),
            "multiplies only; here the operation is gradient");
  EXPECT_EQ(refusal("bf16 batch_first B=8 1x64x64x24"),
            "needs d = 1, 2, 4, 8 or a multiple of 16 for so few samples in batch_first; here 24");
  EXPECT_NE(refusal("bf16 batch_first B=1 1x1x1000000x16").find("terms, so that X stays in L2; here 1000000"),
            std::string::npos);
}

// The longest sum that it takes of each layout: scratch is two blocks, which must stay in L2.
TEST_F(Amx, ScratchIsBoundedByTheCache) {
  const auto l2 = static_cast<std::int64_t>(cpu_info().l2_bytes);
  for (const std::int64_t together : {1, 16})
    for (const std::string dtype : {"bf16", "f16"}) {
      const std::int64_t most = l2 * 3 / 4 / ((dtype == "f16" ? 256 : 128) * together);
      const std::string layout = together == 1 ? " batch_last" : " batch_first";
      const auto text = [&](std::int64_t depth) {
        return dtype + layout + " B=64 1x1x" + std::to_string(depth) + "x" + std::to_string(together);
      };
      EXPECT_EQ(refusal(text(most)), "");
      EXPECT_NE(refusal(text(most + 1)), "");
    }
}

TEST_F(Amx, IsChosenByNobody) {
  EXPECT_NE(candidates(Problem::parse("bf16 batch_last B=4096 1x192x192x4")).front().implementation,
            "amx-emulated");
}

// Tiles are zero wherever there is nothing to multiply: what fills them up must not meet inf or nan.
template <class T>
void padding_meets_no_infinity(const std::string& dtype) {
  for (const char* layout : {" batch_first", " batch_last"}) {
    const Problem problem = Problem::parse(dtype + layout + " B=1 1x1x3x1");
    const std::vector<T> values(3, T(1.0F));
    const std::vector<T> x{T(1.0F), T(std::numeric_limits<float>::infinity()), T(2.0F)};
    T y;
    const Plan plan(problem, values.data(), {}, "amx-emulated");
    plan.run({.x = x.data(), .y = &y});
    EXPECT_EQ(static_cast<float>(y), std::numeric_limits<float>::infinity()) << layout;
  }
}
TEST_F(Amx, PaddingMeetsNoInfinity) {
  padding_meets_no_infinity<BFloat16>("bf16");
  padding_meets_no_infinity<Half>("f16");
}

/// y = value·x for every x, as amx has it.
std::vector<float> products(Half value, const std::vector<Half>& x, const std::string& layout) {
  const Problem problem = Problem::parse("f16 " + layout + " B=" + std::to_string(x.size()) + " 1x1x1x1");
  std::vector<Half> y(x.size());
  Plan(problem, &value, {}, "amx-emulated").run({.x = x.data(), .y = y.data()});
  return {y.begin(), y.end()};
}

/// Every number of f16 there is: also inf, nan, and those without a leading one.
std::vector<Half> all_halves() {
  std::vector<Half> all(std::size_t{1} << 16U);
  for (std::size_t bits = 0; bits < all.size(); ++bits) all[bits].bits = static_cast<std::uint16_t>(bits);
  return all;
}

bool are_same(float one, float other) { return one == other || (std::isnan(one) && std::isnan(other)); }

// f16 is multiplied in pieces of bf16. Times 1 they add up to the number again; times anything else to the
// product as f32 has it, rounded once: 22 bits are exact.
TEST_F(Amx, PiecesOfEveryHalfMultiplyExactly) {
  const std::vector<Half> x = all_halves();
  const float inf = std::numeric_limits<float>::infinity();
  for (const std::string layout : {"batch_first", "batch_last"})
    for (const float value : {1.0F, -1.0F, 2047.0F / 1024, 0.0F, 0x1p-24F, 1023 * 0x1p-24F, 65504.0F, inf,
                              -inf, std::numeric_limits<float>::quiet_NaN()}) {
      const std::vector<float> y = products(Half(value), x, layout);
      for (std::size_t n = 0; n < x.size(); ++n) {
        const float right(Half(value * static_cast<float>(x[n])));
        ASSERT_PRED2(are_same, y[n], right)
            << layout << ": " << value << " times " << static_cast<float>(x[n]);
      }
    }
}

// The same of weights, which are cut into pieces elsewhere.
TEST_F(Amx, PiecesOfEveryWeightMultiplyExactly) {
  const std::vector<Half> values = all_halves();
  const float inf = std::numeric_limits<float>::infinity();
  for (const std::string layout : {"batch_first", "batch_last"}) {
    const Problem problem =
        Problem::parse("f16 " + layout + " B=1 1x" + std::to_string(values.size()) + "x1x1");
    const Plan plan(problem, values.data(), {}, "amx-emulated");
    for (const float number : {1.0F, 1025.0F / 1024, 3 * 0x1p-24F, -inf}) {
      const Half x(number);
      std::vector<Half> y(values.size());
      plan.run({.x = &x, .y = y.data()});
      for (std::size_t k = 0; k < y.size(); ++k) {
        const float right(Half(number * static_cast<float>(values[k])));
        ASSERT_PRED2(are_same, static_cast<float>(y[k]), right)
            << layout << ": " << number << " times " << static_cast<float>(values[k]);
      }
    }
  }
}

/// Elements after which memory ends: whoever reads on is killed, in every build.
class AtTheEndOfMemory {
 public:
  explicit AtTheEndOfMemory(std::size_t count) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t bytes = count * sizeof(BFloat16), pages = (bytes + page - 1) / page * page;
    mapped_ = pages + page;
    start_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start_ == MAP_FAILED) throw std::bad_alloc();
    std::byte* end = static_cast<std::byte*>(start_) + pages;
    if (mprotect(end, page, PROT_NONE) != 0) throw std::bad_alloc();
    elements_ = {reinterpret_cast<BFloat16*>(end - bytes), count};
  }
  AtTheEndOfMemory(const AtTheEndOfMemory&) = delete;
  AtTheEndOfMemory& operator=(const AtTheEndOfMemory&) = delete;
  ~AtTheEndOfMemory() { munmap(start_, mapped_); }

  [[nodiscard]] std::span<BFloat16> elements() const { return elements_; }

 private:
  void* start_;
  std::size_t mapped_;
  std::span<BFloat16> elements_;
};

// With d = 1 tiles are read from X as it lies: whole ones of strips that are all there, and nothing beside
// them. The block next to the one that is looked at is full of nan, and after the last sample memory ends.
TEST_F(Amx, ReadsOnlyItsOwnTermsInPlace) {
  constexpr std::size_t outs = 20;
  const BFloat16 nan(std::numeric_limits<float>::quiet_NaN());
  const auto small = [](std::size_t number) { return BFloat16(static_cast<float>(number % 7) - 3); };
  for (const std::size_t depth : {31, 32, 33, 48, 64, 80})
    for (const std::size_t batch : {1, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 100}) {
      const Problem problem = Problem::parse("bf16 batch_first B=" + std::to_string(batch) + " 2x" +
                                             std::to_string(outs) + "x" + std::to_string(depth) + "x1");
      std::vector<BFloat16> values(2 * outs * depth), y(batch * 2 * outs);
      for (std::size_t at = 0; at < values.size(); ++at) values[at] = small(at * 5 + at / 11);
      const AtTheEndOfMemory memory(batch * 2 * depth);
      const std::span<BFloat16> x = memory.elements();
      std::ranges::fill(x, nan);
      for (std::size_t n = 0; n < batch; ++n)
        for (std::size_t l = 0; l < depth; ++l) x[n * 2 * depth + l] = small(n * 3 + l * 5 + l / 9);
      const Plan plan(problem, values.data(), {}, "amx-emulated");
      plan.run({.x = x.data(), .y = y.data()});
      for (std::size_t n = 0; n < batch; ++n)
        for (std::size_t k = 0; k < outs; ++k) {
          float sum = 0;
          for (std::size_t l = 0; l < depth; ++l)
            sum += static_cast<float>(values[k * depth + l]) * static_cast<float>(x[n * 2 * depth + l]);
          ASSERT_EQ(static_cast<float>(y[n * 2 * outs + k]), static_cast<float>(BFloat16(sum)))
              << "depth " << depth << ", batch " << batch << ", sample " << n << ", output " << k;
        }
    }
}

TEST(AmxGroups, AreAllOfASmallDOrALine) {
  for (const auto& [d, together] : std::vector<std::pair<std::int64_t, int>>{
           {1, 1}, {2, 2}, {4, 4}, {8, 8}, {16, 16}, {48, 16}, {3, 0}, {24, 0}})
    EXPECT_EQ(amx::j_block(d), together) << d;
}

}  // namespace
}  // namespace kronsparse
