// Predictions for an H200 beside those of a file: a change of the cost models that should leave them alone
// does. Where they are meant to change, this writes the file again:
//
//     KRONSPARSE_WRITE_PREDICTIONS=1 kronsparse_unit_tests --gtest_filter='CudaPredictions.*'
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "paper_grid.hpp"
#include "pretended_gpu.hpp"

namespace kronsparse::cuda {
namespace {

/// Problems for every kernel: a part of the paper's grid, odd sizes, small batches, gradients, chains.
std::vector<Problem> sampled_problems() {
  std::vector<Problem> all;
  const auto add = [&](const std::string& text) { all.push_back(Problem::parse(text)); };
  const std::vector<Pattern> grid = paper_grid();
  for (std::size_t index = 0; index < grid.size(); index += 23)
    for (const char* rest :
         {"f16 batch_first", "bf16 batch_last", "f32 batch_first", "f32 batch_last",
          "gradient f16 batch_first", "gradient bf16 batch_last", "gradient f32 batch_last"})
      add(std::string(rest) + " B=25088 " + grid[index].to_string());
  for (const char* pattern : {"9x56x56x9", "3x33x65x10", "64x64x172x1", "256x4x4x1", "1x2752x1024x4"})
    for (const char* rest :
         {"f16 batch_first B=16384 ", "f16 batch_last B=16384 ", "f32 batch_first B=1000 ",
          "f32 tf32 batch_last B=4096 ", "f32 ieee batch_first B=4096 ", "transposed bf16 batch_first B=777 ",
          "gradient bf16 batch_first B=4096 ", "gradient f16 batch_last B=4096 "})
      add(std::string(rest) + pattern);
  for (const char* pattern : {"64x64x64x1", "1x64x64x64", "1x256x688x16", "4x1024x1024x1", "1x1024x1024x4"})
    for (const char* rest : {"f16 batch_first B=1 ", "f16 batch_first B=16 ", "bf16 batch_first B=64 ",
                             "f32 batch_first B=8 ", "f16 batch_last B=32 "})
      add(std::string(rest) + pattern);
  for (const char* rest : {"f16 batch_first B=4096 ", "f32 batch_first B=512 ", "f16 batch_last B=25088 "})
    for (const char* chain : {"1x64x64x64*64x64x64x1", "1x2x2x64*2x32x32x2", "1x32x8x8*8x8x16x1"})
      add(std::string(rest) + chain);
  add("f64 batch_first B=1000 8x64x64x16");
  add("complex64 batch_last B=1000 8x64x64x16");
  // Every small-batch kernel with every number of j, and more that no tile divides.
  for (const char* pattern : {"16x64x64x4", "1x64x64x32", "8x48x48x8", "1x512x256x64", "1x128x16x64",
                              "32x16x64x2", "1x2048x512x1", "7x120x72x20", "1x1024x1000x8", "1x200x300x3"})
    for (const char* rest :
         {"f16 batch_first B=2 ", "bf16 batch_first B=24 ", "f16 batch_first B=64 ",
          "transposed f16 batch_first B=33 ", "f16 batch_last B=5 ", "f32 batch_first B=40 "})
      add(std::string(rest) + pattern);
  for (const char* pattern : {"1x1000x1000x8", "7x120x72x20", "12x64x64x64", "512x2x2x1", "5x80x112x7",
                              "3x33x65x12", "1x384x384x24", "2x256x256x48"})
    for (const char* rest : {"f16 batch_first B=25088 ", "f16 batch_last B=25001 ", "f32 batch_first B=9000 ",
                             "f32 tf32 batch_first B=9000 ", "gradient f16 batch_first B=9000 ",
                             "gradient f32 batch_first B=9000 ", "f64 batch_last B=100 "})
      add(std::string(rest) + pattern);
  for (const char* rest :
       {"f16 batch_first B=512 ", "transposed bf16 batch_first B=8192 ", "f32 batch_last B=8192 "})
    for (const char* chain : {"1x192x48x2*2x48x192x1", "1x16x16x16*16x16x16x1", "1x8x8x64*8x8x8x8*64x8x8x1",
                              "1x2x2x32*2x2x2x16*4x2x2x8*8x2x2x4*16x2x2x2*32x2x2x1"})
      add(std::string(rest) + chain);
  return all;
}

/// "problem<tab>implementation seconds<tab>..." with refusals left out, cheapest first.
std::string line_of(const Problem& problem) {
  std::ostringstream line;
  line.precision(17);
  line << problem.to_string();
  for (const Candidate& candidate : candidates(problem, first_gpu))
    if (candidate.refusal.empty())
      line << '\t' << candidate.implementation << ' ' << candidate.predicted_seconds;
  return line.str();
}

std::map<std::string, double> answers_of(const std::string& line) {
  std::map<std::string, double> answers;
  std::istringstream fields(line);
  std::string field;
  std::getline(fields, field, '\t');
  while (std::getline(fields, field, '\t')) {
    const std::size_t space = field.find(' ');
    answers[field.substr(0, space)] = std::strtod(field.c_str() + space, nullptr);
  }
  return answers;
}

TEST(CudaPredictions, AreThoseOfTheFileOnAnH200) {
  const PretendedGpus machine({h200()});
  if (std::getenv("KRONSPARSE_WRITE_PREDICTIONS") != nullptr) {
    std::ofstream file(KRONSPARSE_H200_PREDICTIONS);
    for (const Problem& problem : sampled_problems()) file << line_of(problem) << '\n';
    ASSERT_TRUE(file.good());
    GTEST_SKIP() << "wrote " << KRONSPARSE_H200_PREDICTIONS;
  }
  std::ifstream file(KRONSPARSE_H200_PREDICTIONS);
  for (const Problem& problem : sampled_problems()) {
    std::string expected;
    ASSERT_TRUE(std::getline(file, expected)) << "the file ends before " << problem.to_string();
    const std::string line = line_of(problem);
    const std::map<std::string, double> before = answers_of(expected), now = answers_of(line);
    ASSERT_EQ(expected.substr(0, expected.find('\t')), problem.to_string());
    for (const auto& [name, seconds] : before) {
      ASSERT_TRUE(now.contains(name)) << name << " refuses " << problem.to_string();
      EXPECT_NEAR(now.at(name), seconds, 1e-12 * seconds) << name << ", " << problem.to_string();
    }
    EXPECT_EQ(now.size(), before.size()) << problem.to_string();
  }
}

}  // namespace
}  // namespace kronsparse::cuda
