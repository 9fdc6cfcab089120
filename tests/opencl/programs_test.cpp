// Programs: built once, kept on disk, and what happens to them there.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "../unit/expect_error.hpp"
#include "opencl/program.hpp"
#include "opencl/program_cache.hpp"
#include "opencl_test.hpp"

namespace kronsparse {
namespace {

namespace fs = std::filesystem;
using opencl::ProgramCounts;

/// A folder for programs that goes with the test.
class Programs : public OpenclTest {
 public:
  ~Programs() override {
    setenv("KRONSPARSE_CACHE_DIR", "", 1);
    opencl::forget_programs();
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

 protected:
  Programs() : folder_(fs::temp_directory_path() / ("kronsparse_programs_" + std::to_string(getpid()))) {
    setenv("KRONSPARSE_CACHE_DIR", folder_.c_str(), 1);
    opencl::forget_programs();
  }

  /// Programs compiled and read by a plan that begins with none.
  static ProgramCounts counts_of_a_plan() {
    opencl::forget_programs();
    const ProgramCounts before = opencl::program_counts();
    const Plan plan(Problem::parse("complex64 batch_first B=3 1x2x2x2"), opencl_0, "private");
    const ProgramCounts after = opencl::program_counts();
    return {after.compiled - before.compiled, after.read - before.read};
  }

  [[nodiscard]] std::vector<fs::path> files() const {
    std::vector<fs::path> all;
    for (const auto& entry : fs::directory_iterator(folder_ / "opencl")) all.push_back(entry.path());
    return all;
  }

  fs::path folder_;
};

TEST_F(Programs, AreCompiledOnceAndReadAfterwards) {
  const ProgramCounts first = counts_of_a_plan();
  EXPECT_EQ(first.compiled, 1);
  ASSERT_EQ(files().size(), 1U);  // and nothing beside it
  const ProgramCounts second = counts_of_a_plan();
  EXPECT_EQ(second.compiled, 0);
  EXPECT_EQ(second.read, 1);

  // A file cut short, one with another byte, an empty one, another program's.
  const fs::path file = files().front();
  const auto bytes = fs::file_size(file);
  fs::resize_file(file, bytes - 10);
  EXPECT_EQ(counts_of_a_plan().compiled, 1);
  EXPECT_EQ(fs::file_size(file), bytes);
  {
    std::fstream damaged(file, std::ios::in | std::ios::out | std::ios::binary);
    damaged.seekp(static_cast<std::streamoff>(bytes) - 100);
    damaged.put('?').put('!');
  }
  EXPECT_EQ(counts_of_a_plan().compiled, 1);
  fs::resize_file(file, 0);
  EXPECT_EQ(counts_of_a_plan().compiled, 1);
  EXPECT_EQ(counts_of_a_plan().read, 1);
}

TEST_F(Programs, OfAnotherDriverAreNotRead) {
  opencl::write_cached("key of one driver", {1, 2, 3});
  EXPECT_EQ(opencl::read_cached("key of one driver"), (std::vector<unsigned char>{1, 2, 3}));
  EXPECT_FALSE(opencl::read_cached("key of another driver").has_value());
  fs::rename(files().front(), folder_ / "opencl" / "elsewhere");
  EXPECT_FALSE(opencl::read_cached("key of one driver").has_value());
}

TEST_F(Programs, AFolderThatCannotBeWrittenIsNoError) {
  std::ofstream(folder_.string()) << "a file where the folder should be";
  opencl::write_cached("key", {1});
  EXPECT_FALSE(opencl::read_cached("key").has_value());
  EXPECT_TRUE(fs::is_regular_file(folder_));
}

TEST_F(Programs, BytesThatTheDriverDoesNotTakeAreCompiledAgain) {
  EXPECT_EQ(counts_of_a_plan().compiled, 1);
  // As whole as the cache can tell, but no program.
  std::ifstream in(files().front(), std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(in), {}};
  const std::size_t header = std::string("kronsparse program 1\n").size() + 3 * 17;
  const std::size_t key_bytes = std::stoul(all.substr(header - 51, 16), nullptr, 16);
  opencl::write_cached(all.substr(header, key_bytes), {'n', 'o'});
  EXPECT_EQ(counts_of_a_plan().compiled, 1);
}

/// Batches of all sizes run with what the plan has built; preparing for one builds more.
TEST_F(Programs, ARunBuildsNone) {
  const Problem problem = Problem::parse("f32 batch_last B=40 1x8x8x1");
  const Numbers<float> numbers(problem);
  const Buffer values = on_device(numbers.second, opencl_0);
  Plan plan(problem, values.data(), opencl_0, "local");
  const Plan unpacked(problem, opencl_0, "local");
  const auto built = [] { return opencl::program_counts().compiled + opencl::program_counts().read; };
  const int before = built();
  for (const std::int64_t size : {1, 7, 40, 64, 3000}) {
    Problem other = problem;
    other.batch = size;
    const Numbers<float> mine(other);
    const Buffer x = on_device(mine.x, opencl_0);
    Buffer y(mine.y.size() * sizeof(float), opencl_0);
    plan.run({.size = size}, {.x = x.data(), .y = y.data()});
    EXPECT_EQ(on_host<float>(y), mine.y) << size;
    y.clear();
    const void* given[] = {values.data()};
    const Buffer workspace(1 << 16, opencl_0);
    Operands operands{.x = x.data(), .y = y.data(), .values = given};
    operands.workspace = workspace.data();
    operands.workspace_bytes = workspace.bytes();
    unpacked.run({.size = size}, operands);
    EXPECT_EQ(on_host<float>(y), mine.y) << size;
  }
  EXPECT_EQ(built(), before);
  opencl::forget_programs();
  const Buffer x(5 * 8 * sizeof(float), opencl_0);
  try {
    plan.run({.size = 5}, {.x = x.data(), .y = values.data()});
    FAIL() << "a kernel was built";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported) << error.what();
  }
  plan.prepare({.size = 5}, values.data());
  EXPECT_EQ(built(), before + 1);
}

TEST_F(Programs, AreBuiltByOneOfTheThreadsThatWantThem) {
  opencl::forget_programs();
  const ProgramCounts before = opencl::program_counts();
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([thread] {
      const Problem problem =
          Problem::parse(thread % 2 == 0 ? "f32 batch_first B=3 1x2x2x2" : "f64 batch_first B=3 1x2x2x2");
      const Plan plan(problem, opencl_0, "private");
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(opencl::program_counts().compiled - before.compiled, 2);
}

/// The way of every plan, not of the builder alone; and the next plan does not suffer from it.
TEST_F(Programs, APlanWhoseProgramDoesNotCompileSaysSo) {
  const Problem problem = Problem::parse("f32 batch_first B=3 1x2x2x2");
  setenv("KRONSPARSE_OPENCL_OPTIONS", "-D Sum=1", 1);
  expect_beginning(ErrorCode::device, "opencl: building a kernel for f32 batch_first B=3 1x2x2x2 on ",
                   [&] { Plan(problem, opencl_0); });
  unsetenv("KRONSPARSE_OPENCL_OPTIONS");
  EXPECT_NO_THROW(Plan(problem, opencl_0));
}

TEST_F(Programs, ThatDoNotCompileSayWhyAndForWhat) {
  try {
    static_cast<void>(opencl::kernels_of(opencl_0, opencl::Source::private_memory, "-D DTYPE=f99 -D GROUP=1",
                                         1, "f99 batch_first B=1 1x1x1x1"));
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::device);
    const std::string text = error.what();
    for (const char* part : {"building a kernel for f99 batch_first B=1 1x1x1x1", "-D DTYPE=f99", "AXIS"})
      EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace kronsparse
