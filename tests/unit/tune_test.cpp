// Measuring instead of predicting: what is remembered, where, and who finds it.
#include "kronsparse/tune.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/run_scope.hpp"
#include "core/text.hpp"
#include "core/tuned_times.hpp"
#include "core/user_cache.hpp"
#include "expect_error.hpp"
#include "kronsparse/error.hpp"
#include "kronsparse/plan.hpp"
#include "kronsparse/profile.hpp"

namespace kronsparse {
namespace {

namespace fs = std::filesystem;

constexpr TuneOptions quick{.seconds = 1e-3};

/// A user's folder that goes with the test.
class Tuning : public testing::Test {
 public:
  ~Tuning() override {
    unsetenv("KRONSPARSE_TUNE");
    setenv("KRONSPARSE_CACHE_DIR", "", 1);
    forget_tuned_times();
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

 protected:
  Tuning() : folder_(fs::temp_directory_path() / ("kronsparse_tuning_" + std::to_string(getpid()))) {
    setenv("KRONSPARSE_CACHE_DIR", folder_.c_str(), 1);
    forget_tuned_times();
  }

  static std::string first(const Problem& problem) { return candidates(problem).front().implementation; }
  [[nodiscard]] std::vector<fs::path> files() const {
    std::vector<fs::path> all;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(folder_ / "tuning", none)) all.push_back(entry.path());
    return all;
  }
  /// Pretends that the plain loops were measured to be fastest.
  static void prefer_reference(const Problem& problem) {
    set_tuned_times(problem, {}, {{"reference", 1e-6, 2e-6, 1.0}}, true);
  }

  fs::path folder_;
  const Problem problem_ = Problem::parse("f32 batch_first B=64 2x16x16x4 +bias");
};

TEST_F(Tuning, MeasuresThoseThatAcceptAndRemembersThem) {
  EXPECT_FALSE(candidates(problem_).front().is_measured);
  const std::vector<Measurement> times = tune(problem_, {}, quick);
  ASSERT_GE(times.size(), 1u);
  for (const Measurement& one : times) {
    EXPECT_EQ(one.problem.to_string(), problem_.to_string());
    EXPECT_GT(one.seconds, 0);
    EXPECT_LT(one.seconds, 1);
    EXPECT_GE(one.packing_seconds, 0);
    EXPECT_GT(one.predicted_seconds, 0);
    EXPECT_LE(times.front().seconds, one.seconds);
  }
  const std::vector<Candidate> all = candidates(problem_);
  EXPECT_EQ(all.front().implementation, times.front().implementation);
  EXPECT_TRUE(all.front().is_measured);
  EXPECT_EQ(all.front().predicted_seconds, times.front().seconds);
  ASSERT_EQ(files().size(), 1u);  // and nothing beside it
  EXPECT_EQ(files().front().string(), tuning_file());

  forget_tuned_times();  // as another process
  EXPECT_EQ(candidates(problem_).front().predicted_seconds, times.front().seconds);
  EXPECT_FALSE(candidates(Problem::parse("f32 batch_first B=65 2x16x16x4 +bias")).front().is_measured);
}

TEST_F(Tuning, DecidesWhatPlansTake) {
  ASSERT_NE(first(problem_), "reference");
  prefer_reference(problem_);
  EXPECT_EQ(first(problem_), "reference");
  EXPECT_EQ(Plan(problem_).implementation(), "reference");
  const std::vector<float> values(2 * 16 * 16 * 4, 1.0f);
  const Plan plan(problem_, values.data());
  EXPECT_EQ(plan.implementation(), "reference");
  EXPECT_EQ(plan.predicted_seconds({.size = 64}), 1e-6);
  EXPECT_EQ(predicted_seconds(problem_), 1e-6);
  // Implementations that were not measured come behind, however little is predicted.
  const std::vector<Candidate> all = candidates(problem_);
  for (std::size_t index = 1; index < all.size() && all[index].refusal.empty(); ++index) {
    EXPECT_FALSE(all[index].is_measured);
    EXPECT_GT(all[index].predicted_seconds, 1e-6);
  }
  // A chain takes it for the step, not for other batches.
  const Problem chain = Problem::parse("f32 batch_first B=64 2x16x16x4*2x16x16x4 +bias");
  EXPECT_NE(Plan(chain).implementation().find("reference"), std::string::npos);
  EXPECT_NE(Plan(problem_).implementation({.size = 63}), "reference");
}

TEST_F(Tuning, TakesTheStepsOfChainsAndEveryOperation) {
  const std::vector<Measurement> times =
      tune(Problem::parse("f64 batch_last B=8 1x2x2x2*2x2x2x1 +relu"), {}, quick);
  std::set<std::string> problems;
  for (const Measurement& one : times) problems.insert(one.problem.to_string());
  EXPECT_EQ(problems,
            (std::set<std::string>{"f64 batch_last B=8 1x2x2x2*2x2x2x1 +relu", "f64 batch_last B=8 2x2x2x1",
                                   "f64 batch_last B=8 1x2x2x2 +relu"}));
  for (const char* text : {"gradient f32 batch_first B=9 2x3x5x4", "adjoint complex64 batch_last B=7 2x3x5x4",
                           "gradient bf16 batch_first B=5 1x2x2x2*2x2x2x1",
                           "transposed f16 batch_first B=3 2x3x5x4 cols_stride=50 rows_stride=60"})
    EXPECT_GT(tune(Problem::parse(text), {}, quick).front().seconds, 0) << text;
}

TEST_F(Tuning, MeasuresTheBestPredictionsOnly) {
  const std::vector<Measurement> times = tune(problem_, {}, {.most = 1, .seconds = 1e-3, .keeps = false});
  EXPECT_EQ(times.size(), 1u);
  EXPECT_TRUE(files().empty());
  EXPECT_TRUE(candidates(problem_).front().is_measured) << "kept in the process";
  prefer_reference(problem_);
  EXPECT_EQ(tune(problem_, {}, {.seconds = 1e-3, .again = false}).front().implementation, "reference");
}

TEST_F(Tuning, IgnoresDamageAndForeignFiles) {
  prefer_reference(problem_);
  const std::string path = tuning_file();
  const std::string whole = read_cache_file(path).value();
  testing::internal::CaptureStderr();
  std::string changed = whole;
  changed[whole.find("1e-06")] = '9';
  for (const std::string& content : {changed, whole.substr(0, whole.size() / 2), whole + "more\n",
                                     std::string("another program's\n"), std::string()}) {
    std::ofstream(path, std::ios::binary) << content;
    forget_tuned_times();
    EXPECT_NE(first(problem_), "reference") << content;
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find(path), std::string::npos) << said;
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << "once in a process";
  static_cast<void>(tune(problem_, {}, quick));  // writes it anew
  forget_tuned_times();
  EXPECT_TRUE(candidates(problem_).front().is_measured);
}

TEST_F(Tuning, AddsToWhatOthersWrote) {
  prefer_reference(problem_);
  forget_tuned_times();  // as another process, which knows of another problem
  const Problem other = Problem::parse("f64 batch_first B=3 1x2x2x2");
  set_tuned_times(other, {}, {{"reference", 1e-6, 0, 1e-6}}, true);
  forget_tuned_times();
  EXPECT_TRUE(candidates(problem_).front().is_measured);
  EXPECT_TRUE(candidates(other).front().is_measured);
}

TEST_F(Tuning, KeepsWhatSeveralProcessesMeasureAtOnce) {
  constexpr int processes = 6, problems = 15;
  const auto problem_of = [](int process, int index) {
    return Problem::parse("f32 batch_first B=" + std::to_string(1 + process * problems + index) + " 1x2x2x2");
  };
  std::vector<pid_t> children;
  for (int process = 0; process < processes; ++process) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (int index = 0; index < problems; ++index) prefer_reference(problem_of(process, index));
      _exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) waitpid(child, nullptr, 0);
  forget_tuned_times();
  for (int process = 0; process < processes; ++process)
    for (int index = 0; index < problems; ++index)
      EXPECT_FALSE(tuned_times(problem_of(process, index), {}).empty()) << process << " " << index;
  EXPECT_EQ(files().size(), 1U);
}

TEST_F(Tuning, TakesNoTimeThatIsNone) {
  prefer_reference(problem_);
  for (const double wrong : {0.0, -1.0, std::numeric_limits<double>::infinity(), std::nan("")}) {
    set_tuned_times(problem_, {}, {{"reference", wrong, 0, 1.0}}, true);
    forget_tuned_times();
    EXPECT_FALSE(candidates(problem_).front().is_measured) << wrong;
  }
  EXPECT_EQ(parse_real("1.5e-06"), 1.5e-6);
  for (const char* wrong : {"", "1,5", "1.5 ", " 1.5", "x", "1.5x"})
    EXPECT_TRUE(std::isnan(parse_real(wrong))) << wrong;
}

TEST_F(Tuning, NeedsNoFolder) {
  fs::create_directories(folder_);
  std::ofstream(folder_ / "tuning") << "a file where the folder should be";
  static_cast<void>(tune(problem_, {}, quick));
  EXPECT_TRUE(candidates(problem_).front().is_measured);
  setenv("KRONSPARSE_CACHE_DIR", "", 1);
  forget_tuned_times();
  EXPECT_EQ(tuning_file(), "");
  static_cast<void>(tune(problem_, {}, quick));
  EXPECT_TRUE(candidates(problem_).front().is_measured);
}

TEST_F(Tuning, HappensWhereTheVariableAsksForIt) {
  setenv("KRONSPARSE_TUNE", "1", 1);
  const Plan plan(problem_);
  EXPECT_TRUE(candidates(problem_).front().is_measured);
  const auto with_batch = [](const char* batch) {
    return Problem::parse(std::string("f32 batch_first B=") + batch + " 2x16x16x4 +bias");
  };
  static_cast<void>(plan.workspace_bytes({.size = 7}));
  EXPECT_TRUE(candidates(with_batch("7")).front().is_measured);
  {
    const RunScope run;  // Plan::run decides in one
    EXPECT_NE(plan.implementation({.size = 8}), "");
  }
  EXPECT_FALSE(candidates(with_batch("8")).front().is_measured);
  {
    const TuningPause pause;
    static_cast<void>(plan.workspace_bytes({.size = 9}));
  }
  EXPECT_FALSE(candidates(with_batch("9")).front().is_measured);
  const Plan forced(with_batch("10"), {}, "reference");
  EXPECT_FALSE(candidates(with_batch("10")).front().is_measured);
  static_cast<void>(plan.workspace_bytes({.size = 0}));
  for (const char* wrong : {"all", "-1", "3x", "101"}) {
    setenv("KRONSPARSE_TUNE", wrong, 1);
    expect_code(ErrorCode::invalid_argument, wrong, [&] { const Plan other(problem_); });
  }
}

TEST_F(Tuning, SaysWhatIsWrong) {
  expect_code(ErrorCode::invalid_argument, "a batch of 0",
              [] { tune(Problem::parse("f32 batch_first B=0 1x2x2x2")); });
  expect_code(ErrorCode::invalid_argument, "most", [&] { tune(problem_, {}, {.most = -1}); });
  expect_code(ErrorCode::invalid_argument, "seconds", [&] { tune(problem_, {}, {.seconds = 0}); });
  expect_code(ErrorCode::device, "device", [&] { tune(problem_, {Backend::cuda, 99}); });
}

TEST_F(Tuning, KeepsTheProfileOfADeviceBesideIt) {
  EXPECT_TRUE(kept_profile().empty());
  const std::vector<Rate> rates = measure_profile();
  ASSERT_EQ(rates.front().name, "copy");
  EXPECT_EQ(rates.front().unit, "B/s");
  EXPECT_GT(rates.front().value, 1e8);
  ASSERT_EQ(kept_profile().size(), rates.size());
  EXPECT_NEAR(kept_profile().front().value, rates.front().value, 1e-6 * rates.front().value);
  expect_code(ErrorCode::device, "device", [] { measure_profile({Backend::cuda, 99}); });
}

TEST_F(Tuning, ServesManyThreads) {
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([thread] {
      const Problem own = Problem::parse("f32 batch_first B=" + std::to_string(4 + thread % 2) + " 2x4x4x2");
      for (int turn = 0; turn < 3; ++turn) {
        static_cast<void>(tune(own, {}, quick));
        EXPECT_TRUE(candidates(own).front().is_measured);
        EXPECT_NE(Plan(own).implementation(), "");
      }
    });
  for (std::thread& thread : threads) thread.join();
  forget_tuned_times();
  EXPECT_TRUE(candidates(Problem::parse("f32 batch_first B=4 2x4x4x2")).front().is_measured);
  EXPECT_TRUE(candidates(Problem::parse("f32 batch_first B=5 2x4x4x2")).front().is_measured);
}

}  // namespace
}  // namespace kronsparse
