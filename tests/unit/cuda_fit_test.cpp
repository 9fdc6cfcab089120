// The program that fits constants, on times that other constants predict: it must find these again.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "../../tools/sweeps/fit.hpp"
#include "cuda/tuning/sm_90.hpp"
#include "expect_error.hpp"

namespace kronsparse::sweep {
namespace {

/// Problems that the kernel takes, in layouts and sizes that most of its constants matter for.
std::vector<std::string> problems_for(const std::string& kernel) {
  std::vector<std::string> all;
  const auto add = [&](const std::string& rest, std::initializer_list<const char*> patterns) {
    for (const char* pattern : patterns) all.push_back(rest + pattern);
  };
  if (kernel == "fused") {
    for (const char* rest :
         {"f16 batch_first B=16384 ", "f32 batch_first B=8192 ", "f16 batch_last B=16384 "})
      add(rest, {"1x32x32x32*32x32x32x1", "1x64x16x16*16x16x64x1", "1x192x48x2*2x48x192x1",
                 "1x48x16x16*16x16x48x1", "1x128x16x16*16x16x128x1"});
  } else if (kernel == "mma") {
    for (const char* rest : {"f16 batch_first B=3000 ", "f32 batch_first B=900 ", "f16 batch_last B=3001 "})
      add(rest, {"9x56x56x9", "3x33x65x10", "16x10x11x5", "1x64x256x6", "2x3x212x52", "1x8x103x53"});
  } else if (kernel == "gemm" || kernel == "wgmma" || kernel == "simt") {
    for (const char* rest : {"f16 batch_last B=16384 ", "f16 batch_first B=9000 ", "f32 batch_first B=4096 ",
                             "f32 batch_last B=4096 "})
      add(rest, {"64x64x64x1", "1x256x64x32", "4x64x64x16", "1x48x192x4", "16x128x128x1", "1x768x192x8",
                 "2x96x96x24", "1x1024x1024x1"});
  } else if (kernel == "gradient-simt") {
    add("gradient f32 batch_first B=9000 ",
        {"64x64x64x1", "1x256x64x32", "4x64x64x16", "1x48x192x4", "16x128x128x1", "1x768x192x8"});
  } else if (kernel == "sums-stay") {
    for (const char* rest : {"f16 batch_first B=4 ", "f16 batch_first B=64 ", "bf16 batch_first B=17 "})
      add(rest, {"16x256x256x1", "1x512x512x4", "1x1024x1024x1", "4x512x512x2", "16x256x688x1", "2x96x1024x4",
                 "64x64x256x1"});
  } else {
    for (const char* rest : {"f16 batch_first B=4 ", "f16 batch_first B=64 ", "bf16 batch_first B=17 "})
      add(rest, {"64x64x64x1", "1x256x64x32", "4x64x64x16", "1x64x64x64", "1x512x512x4", "1x1024x1024x1",
                 "16x32x64x8"});
  }
  return all;
}

/// Rows as a sweep would write them, if the GPU did what the model says with these constants.
std::string synthetic_rows(const Subject& subject, const cuda::Tuning& truth) {
  const cuda::PretendedGpus machine({h200_facts()});
  const cuda::PretendedTuning tuning(truth);
  std::ostringstream out;
  write_header(out, subject, h200_facts());
  for (const std::string& text : problems_for(std::string(subject.name))) {
    const Problem problem = Problem::parse(text);
    if (!refusal(subject, problem).empty()) continue;
    const std::vector<double> seconds = subject.seconds(problem);
    const std::vector<std::string> labels = subject.labels(problem);
    const std::size_t step = labels.size() / 60 + 1;  // some of many
    for (std::size_t way = 0; way < labels.size(); way += step)
      write_row(out, problem, labels[way], 0, seconds[way]);
  }
  return out.str();
}

/// Constants 15 % and more away from those of the H200.
cuda::Tuning other_constants(std::string_view kernel) {
  cuda::Tuning truth = cuda::tuning::sm_90;
  std::vector<double> numbers = constants_of(truth, kernel);
  for (std::size_t at = 0; at < numbers.size(); ++at)
    numbers[at] *= at % 3 == 0 ? 1.4 : at % 3 == 1 ? 0.75 : 1.15;
  set_constants(truth, kernel, numbers);
  return truth;
}

class Fitting : public testing::TestWithParam<const Subject*> {};

TEST_P(Fitting, FindsTheConstantsBehindSyntheticRows) {
  const Subject& subject = *GetParam();
  std::istringstream rows(synthetic_rows(subject, other_constants(subject.name)));
  const Fit found = fit(subject, read_rows(rows, subject), cuda::tuning::sm_90);
  EXPECT_EQ(found.unknown, 0u);
  EXPECT_GT(found.used, 5u);
  SCOPED_TRACE("before: " + to_string(found.before) + "; after: " + to_string(found.after));
  EXPECT_LT(found.after.worst_regret, 1.06);
  EXPECT_GT(found.after.least_ratio, 0.95);
  EXPECT_LT(found.after.most_ratio, 1.05);
  EXPECT_LT(found.kept_after.worst_regret, 1.1);
}

INSTANTIATE_TEST_SUITE_P(Subjects, Fitting, testing::ValuesIn([] {
                           std::vector<const Subject*> all;
                           for (const Subject& one : subjects()) all.push_back(&one);
                           return all;
                         }()),
                         [](const auto& one) {
                           std::string name(one.param->name);
                           std::erase(name, '-');
                           return name;
                         });

TEST(FittingRows, AreReadAsTheyWereWritten) {
  const Subject& mma = subject("mma");
  std::istringstream text(synthetic_rows(mma, cuda::tuning::sm_90));
  const Rows rows = read_rows(text, mma);
  EXPECT_EQ(rows.facts.name, "NVIDIA H200");
  EXPECT_EQ(rows.facts.shared_bytes, h200_facts().shared_bytes);
  EXPECT_EQ(rows.facts.memory_rate, h200_facts().memory_rate);
  const cuda::PretendedGpus machine({rows.facts});
  EXPECT_EQ(std::ssize(rows.problems),
            std::ranges::count_if(problems_for("mma"), [&](const std::string& one) {
              return refusal(mma, Problem::parse(one)).empty();
            }));
  EXPECT_NEAR(rows.rows.front().seconds, mma.seconds(rows.problems.front()).front(), 1e-9);
}

TEST(FittingRows, OfAnotherKernelAreRefused) {
  std::istringstream other(synthetic_rows(subject("gemm"), cuda::tuning::sm_90)), empty,
      broken("problem,way,predicted_us,measured_us\n\"f16 batch_first B=4 1x8x8x1\",only,1,soon\n");
  const auto reading = [](std::istream& in, const char* kernel) {
    return [&in, kernel] { static_cast<void>(read_rows(in, subject(kernel))); };
  };
  const auto expect = [](const char* beginning, auto&& call) {
    expect_beginning(ErrorCode::invalid_argument, beginning, call);
  };
  expect("rows: line 2: the columns of mma are problem,shape,", reading(other, "mma"));
  expect("rows: there are none", reading(empty, "mma"));
  expect("rows: line 2: ", reading(broken, "gemm"));
  expect("kernel: 'staged' cannot be swept; there are gemm, ", [] { static_cast<void>(subject("staged")); });
}

}  // namespace
}  // namespace kronsparse::sweep
