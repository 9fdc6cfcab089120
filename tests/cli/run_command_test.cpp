// kronsparse run, through the executable, on files made here.
#include <sys/stat.h>

#include <complex>

#include "command_fixture.hpp"
#include "kronsparse/dtype.hpp"

namespace kronsparse::cli {
namespace {

// The pattern 2x1x3x2 with values 1..12: K is 4 x 12, and with x = 1 each
// output is the sum of three values, l = 0, 1, 2 two apart.
const std::vector<float> values{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
const std::vector<float> row_sums{1 + 3 + 5, 2 + 4 + 6, 7 + 9 + 11, 8 + 10 + 12};

class RunTest : public CommandTest {
 protected:
  void SetUp() override {
    CommandTest::SetUp();
    save("values.npy", NpyType::f32, {2, 1, 3, 2}, values);
    save("flat.npy", NpyType::f32, {12}, values);
    save("ones.npy", NpyType::f32, {1, 12}, std::vector<float>(12, 1));
  }

  void expect_failure(int exit_code, const std::string& arguments, const std::string& message) const {
    const std::size_t before = files();
    const CommandResult result = run("run " + arguments);
    EXPECT_EQ(result.exit_code, exit_code) << arguments << "\n" << result.err;
    EXPECT_EQ(result.err.find("kronsparse: "), 0U) << result.err;
    EXPECT_NE(result.err.find(message), std::string::npos) << arguments << "\n" << result.err;
    EXPECT_EQ(files(), before) << arguments << " left something behind";
  }
};

TEST_F(RunTest, MultipliesBatchFirst) {
  const CommandResult result = run("run --values values.npy --x ones.npy --out y.npy");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("y.npy: f32 (1, 4)"), std::string::npos) << result.out;
  EXPECT_TRUE(result.err.empty());
  EXPECT_EQ(elements<float>("y.npy"), row_sums);
  EXPECT_EQ(load_npy(path("y.npy")).shape, (std::vector<std::int64_t>{1, 4}));
}

TEST_F(RunTest, TakesFlatValuesWithAPattern) {
  EXPECT_EQ(run("run --quiet --pattern 2x1x3x2 --values flat.npy --x ones.npy --out y.npy").out, "");
  EXPECT_EQ(elements<float>("y.npy"), row_sums);
}

TEST_F(RunTest, MultipliesBatchLastWithEpilogueOnEveryImplementation) {
  save("x.npy", NpyType::f32, {12, 2}, std::vector<float>(24, 1));
  save("bias.npy", NpyType::f32, {4}, std::vector<float>{-100, 1, -100, 1});
  for (const char* implementation : {"reference", ""}) {
    const std::string force = *implementation == '\0' ? "" : std::string(" --impl ") + implementation;
    const CommandResult result =
        run("run --layout batch_last --values values.npy --x x.npy --bias bias.npy --activation relu --out "
            "y.npy" +
            force);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(elements<float>("y.npy"), (std::vector<float>{0, 0, 13, 13, 0, 0, 31, 31}));
  }
}

TEST_F(RunTest, ReadsColumnMajorX) {
  // The bytes that numpy.save writes for the transpose of a (12, 2) array.
  std::vector<float> data(24, 1);
  for (std::size_t index = 1; index < 24; index += 2) data[index] = 2;  // x[1, :] = 2
  std::string file = npy_header(NpyType::f32, std::vector<std::int64_t>{2, 12});
  file.replace(file.find("False,"), 6, "True, ");
  file.append(reinterpret_cast<const char*>(data.data()), data.size() * sizeof(float));
  write("x.npy", file);
  ASSERT_EQ(run("run --values values.npy --x x.npy --out y.npy").exit_code, 0);
  EXPECT_EQ(elements<float>("y.npy"), (std::vector<float>{9, 12, 27, 30, 18, 24, 54, 60}));
}

TEST_F(RunTest, TransposedAdjointAndGradient) {
  save("g.npy", NpyType::f32, {1, 4}, std::vector<float>{1, 10, 100, 1000});
  ASSERT_EQ(run("run --operation transposed --values values.npy --x g.npy --out y.npy").exit_code, 0);
  EXPECT_EQ(elements<float>("y.npy"),
            (std::vector<float>{1, 20, 3, 40, 5, 60, 700, 8000, 900, 10000, 1100, 12000}));

  const CommandResult gradient =
      run("run --operation gradient --pattern 2x1x3x2 --x ones.npy --g g.npy --out dv.npy");
  ASSERT_EQ(gradient.exit_code, 0) << gradient.err;
  EXPECT_EQ(load_npy(path("dv.npy")).shape, (std::vector<std::int64_t>{2, 1, 3, 2}));
  EXPECT_EQ(elements<float>("dv.npy"),
            (std::vector<float>{1, 10, 1, 10, 1, 10, 100, 1000, 100, 1000, 100, 1000}));

  using Complex = std::complex<double>;
  save("cv.npy", NpyType::complex128, {1, 1, 1, 1}, std::vector<Complex>{{0, 1}});
  save("cx.npy", NpyType::complex128, {1, 1}, std::vector<Complex>{{2, 0}});
  ASSERT_EQ(run("run --operation adjoint --values cv.npy --x cx.npy --out cy.npy").exit_code, 0);
  EXPECT_EQ(elements<Complex>("cy.npy"), (std::vector<Complex>{{0, -2}}));
}

/// [[1, 2], [3, 4]] beside each other, twice, and then sums of neighbours: 1x1x2x2 times 2x2x2x1.
TEST_F(RunTest, ChainsOfFactors) {
  save("left.npy", NpyType::f32, {1, 1, 2, 2}, std::vector<float>{1, 1, 1, 1});
  save("right.npy", NpyType::f32, {2, 2, 2, 1}, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8});
  save("left-flat.npy", NpyType::f32, {4}, std::vector<float>{1, 1, 1, 1});
  save("right-flat.npy", NpyType::f32, {8}, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8});
  save("x4.npy", NpyType::f32, {1, 4}, std::vector<float>{1, 10, 100, 1000});
  const std::vector<float> expected{6521, 8743};  // right x = (21, 43, 6500, 8700)
  const CommandResult result = run("run --values left.npy --values right.npy --x x4.npy --out y.npy");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(result.out.find("1x1x2x2*2x2x2x1") != std::string::npos) << result.out;
  EXPECT_EQ(elements<float>("y.npy"), expected);
  ASSERT_EQ(
      run("run --pattern '1x1x2x2*2x2x2x1' --values left-flat.npy --values right-flat.npy --x x4.npy --out "
          "y.npy --impl reference")
          .exit_code,
      0);
  EXPECT_EQ(elements<float>("y.npy"), expected);

  save("g2.npy", NpyType::f32, {1, 2}, std::vector<float>{1, 2});
  ASSERT_EQ(
      run("run --operation transposed --values left.npy --values right.npy --x g2.npy --out y.npy").exit_code,
      0);
  EXPECT_EQ(elements<float>("y.npy"), (std::vector<float>{7, 10, 19, 22}));
  const CommandResult gradient =
      run("run --operation gradient --values left.npy --values right.npy --x x4.npy --g g2.npy --out dv.npy");
  ASSERT_EQ(gradient.exit_code, 0) << gradient.err;
  EXPECT_EQ(load_npy(path("dv.npy")).shape, (std::vector<std::int64_t>{12}));
  EXPECT_EQ(elements<float>("dv.npy"),
            (std::vector<float>{21, 86, 6500, 17400, 1, 10, 2, 20, 100, 1000, 200, 2000}));

  const std::string y = " --out no.npy";
  expect_failure(2, "--values values.npy --values left.npy --x x4.npy" + y, "has 12 columns");
  expect_failure(2, "--values left.npy --pattern '1x1x2x2*2x2x2x1' --x x4.npy" + y,
                 "--values is given 1 times");
  expect_failure(2, "--values left.npy --values right.npy --x ones.npy" + y, "needs (batch, 4)");
  expect_failure(2, "--operation gradient --pattern '1x1x2x2*2x2x2x1' --x x4.npy --g g2.npy" + y,
                 "needs its --values");
  expect_failure(2, "--operation gradient --pattern 2x1x3x2 --values values.npy --x ones.npy --g g2.npy" + y,
                 "reads no --values");
}

TEST_F(RunTest, Bfloat16TravelsAsSixteenBits) {
  const auto bits = [](const std::vector<float>& numbers) {
    std::vector<std::uint16_t> out;
    out.reserve(numbers.size());
    for (const float number : numbers) out.push_back(BFloat16(number).bits);
    return out;
  };
  for (const NpyType type : {NpyType::void16, NpyType::uint16}) {
    save("v16.npy", type, {2, 1, 3, 2}, bits(values));
    save("x16.npy", type, {1, 12}, bits(std::vector<float>(12, 1)));
    ASSERT_EQ(run("run --dtype bf16 --values v16.npy --x x16.npy --out y16.npy").exit_code, 0);
    EXPECT_EQ(elements<std::uint16_t>("y16.npy"), bits(row_sums));
    EXPECT_EQ(load_npy(path("y16.npy")).type, type);
  }
  expect_failure(2, "--values v16.npy --x x16.npy --out no.npy", "--dtype bf16");
}

TEST_F(RunTest, EmptyBatch) {
  save("x.npy", NpyType::f32, {0, 12}, std::vector<float>{});
  ASSERT_EQ(run("run --values values.npy --x x.npy --out y.npy").exit_code, 0);
  EXPECT_EQ(load_npy(path("y.npy")).shape, (std::vector<std::int64_t>{0, 4}));
}

TEST_F(RunTest, OutputMayReplaceTheInput) {
  ASSERT_EQ(run("run --values values.npy --x ones.npy --out ones.npy").exit_code, 0);
  EXPECT_EQ(elements<float>("ones.npy"), row_sums);
}

TEST_F(RunTest, DevicesArePassedThroughNotReplaced) {
  ASSERT_EQ(run("run --values values.npy --x ones.npy --out /dev/null").exit_code, 0);
  EXPECT_FALSE(std::filesystem::is_regular_file("/dev/null"));
}

TEST_F(RunTest, LinksStayAndLeadToTheResult) {
  const auto multiply_to = [&](const std::string& out) {
    return run("run --values values.npy --x ones.npy --out " + out);
  };
  std::filesystem::create_directory(path("far"));
  write("far/old.npy", "old");
  std::filesystem::create_symlink("far/old.npy", path("link.npy"));
  std::filesystem::create_symlink("link.npy", path("second.npy"));
  std::filesystem::create_symlink("far/new.npy", path("dangling.npy"));
  for (const auto& [link, target] : {std::pair{"link.npy", "far/old.npy"},
                                     {"second.npy", "far/old.npy"},
                                     {"dangling.npy", "far/new.npy"}}) {
    const CommandResult result = multiply_to(link);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_TRUE(std::filesystem::is_symlink(path(link))) << link;
    EXPECT_EQ(elements<float>(target), row_sums) << link;
    write(target, "old");
  }
  std::filesystem::create_symlink("loop.npy", path("loop.npy"));
  EXPECT_EQ(multiply_to("loop.npy").exit_code, 3);
}

TEST_F(RunTest, AReplacedFileKeepsItsPermissions) {
  using std::filesystem::perms;
  write("y.npy", "old");
  for (const perms mode : {perms{0600}, perms{0666}, perms{0640}}) {
    std::filesystem::permissions(path("y.npy"), mode);
    ASSERT_EQ(run("run --values values.npy --x ones.npy --out y.npy").exit_code, 0);
    EXPECT_EQ(std::filesystem::status(path("y.npy")).permissions(), mode);
    EXPECT_EQ(elements<float>("y.npy"), row_sums);
  }
}

TEST_F(RunTest, ARedirectedStdoutIsWrittenNotReplaced) {
  if (!std::filesystem::is_symlink("/dev/stdout")) GTEST_SKIP() << "no /dev/stdout here";
  const std::string before = std::filesystem::read_symlink("/dev/stdout");
  const std::string multiply = "run --quiet --values values.npy --x ones.npy --out ";
  // Not /dev/stdout itself, which a mistake would take from this machine.
  std::filesystem::create_symlink("/dev/stdout", path("link.npy"));
  for (const char* out : {"/dev/fd/1", "/proc/self/fd/1", "link.npy"}) {
    EXPECT_EQ(exit_code_of(multiply + out + " >y.npy"), 0) << out;
    EXPECT_EQ(elements<float>("y.npy"), row_sums) << out;
    EXPECT_EQ(std::filesystem::read_symlink("/dev/stdout"), before) << out;
    EXPECT_TRUE(std::filesystem::is_symlink(path("link.npy"))) << out;
  }
  // Behind what stands there already.
  write("log", "begun\n");
  EXPECT_EQ(exit_code_of(multiply + "/proc/self/fd/1 >>log"), 0);
  EXPECT_EQ(read("log"), "begun\n" + read("y.npy"));
}

TEST_F(RunTest, AFileInAProtectedDirectoryIsWrittenDirectly) {
  if (::geteuid() == 0) GTEST_SKIP() << "nothing is protected from root";
  using std::filesystem::perms;
  std::filesystem::create_directory(path("far"));
  write("far/y.npy", std::string(10'000, 'x'));
  std::filesystem::permissions(path("far"), perms{0555});
  const CommandResult result = run("run --values values.npy --x ones.npy --out far/y.npy");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(elements<float>("far/y.npy"), row_sums);
  EXPECT_EQ(run("run --values values.npy --x ones.npy --out far/new.npy").exit_code, 3);
  std::filesystem::permissions(path("far"), perms{0755});
}

TEST_F(RunTest, APipeIsRefusedNotWaitedFor) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  const CommandResult result = run("run --values values.npy --x pipe --out y.npy", "timeout 20");
  EXPECT_EQ(result.exit_code, 3) << result.err;
  EXPECT_EQ(result.err, "kronsparse: pipe: cannot be read: it is not a regular file\n");
}

TEST_F(RunTest, WrongCalls) {
  save("double.npy", NpyType::f64, {1, 12}, std::vector<double>(12, 1));
  save("cube.npy", NpyType::f32, {1, 12, 1}, std::vector<float>(12, 1));
  save("three.npy", NpyType::f32, {3}, std::vector<float>(3, 1));
  save("g.npy", NpyType::f32, {2, 4}, std::vector<float>(8, 1));
  const std::string y = " --out no.npy";
  expect_failure(2, "--values values.npy" + y, "--x is required");
  expect_failure(2, "--x ones.npy" + y, "--values is missing");
  expect_failure(2, "--values values.npy --x ones.npy --layout sideways" + y, "sideways");
  expect_failure(2, "--values values.npy --x ones.npy --operation divide" + y, "divide");
  expect_failure(2, "--values values.npy --x ones.npy --activation sigmoid" + y, "sigmoid");
  expect_failure(2, "--values values.npy --x ones.npy --impl fastest" + y, "fastest");
  expect_failure(2, "--values values.npy --x ones.npy --device tpu" + y, "tpu");
  expect_failure(3, "--values values.npy --x ones.npy --device cuda:99" + y, "cuda:99 cannot be used");
  expect_failure(2, "--values values.npy --x ones.npy --pattern 1x1x3x2" + y, "--pattern says 1x1x3x2");
  expect_failure(2, "--values values.npy --x ones.npy --layout batch_last" + y, "needs (12, batch)");
  expect_failure(2, "--values values.npy --x double.npy" + y, "must have one dtype");
  expect_failure(2, "--values values.npy --x ones.npy --dtype f64" + y, "--dtype says f64");
  expect_failure(2, "--values values.npy --x cube.npy" + y, "(1, 12, 1)");
  expect_failure(2, "--values flat.npy --x ones.npy" + y, "give --pattern");
  expect_failure(2, "--values three.npy --pattern 2x1x3x2 --x ones.npy" + y, "--values has shape (3,)");
  expect_failure(2, "--values values.npy --x ones.npy --bias three.npy" + y, "--bias has shape (3,)");
  expect_failure(2, "--values values.npy --x ones.npy --g g.npy" + y, "--operation gradient");
  expect_failure(2, "--operation gradient --x ones.npy --g g.npy" + y, "needs --pattern");
  expect_failure(2, "--operation gradient --pattern 2x1x3x2 --x ones.npy" + y, "needs --g");
  expect_failure(2, "--operation gradient --pattern 2x1x3x2 --x ones.npy --g g.npy" + y, "batch 2");
  expect_failure(2, "--operation adjoint --values values.npy --x g.npy --activation relu" + y, "multiply");
}

TEST_F(RunTest, WrongFiles) {
  write("text.npy", "not an array\n");
  write("short.npy", read("ones.npy").substr(0, 150));
  const std::string y = " --out no.npy";
  expect_failure(3, "--values missing.npy --x ones.npy" + y, "missing.npy: cannot be read: No such file");
  expect_failure(3, "--values values.npy --x text.npy" + y, "text.npy: is not an .npy file");
  expect_failure(3, "--values values.npy --x short.npy" + y, "short.npy: announces shape (1, 12)");
  expect_failure(3, "--values values.npy --x ." + y, "not a regular file");
  // Sound, but of a dtype that does not fit.
  std::string integers = read("ones.npy");
  integers.replace(integers.find("<f4"), 3, "<i4");
  write("integers.npy", integers);
  expect_failure(2, "--values values.npy --x integers.npy" + y, "integers.npy: has the dtype '<i4'");
  expect_failure(3, "--values values.npy --x ones.npy --out missing/y.npy",
                 "missing/y.npy: cannot be written");
  expect_failure(3, "--values values.npy --x ones.npy --out .", "directory");
}

TEST_F(RunTest, AFileTooLargeForMemoryIsNamed) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer needs more memory than the limit leaves";
#endif
  constexpr std::int64_t gib = std::int64_t{1} << 30;
  const std::string header = npy_header(NpyType::f32, std::vector<std::int64_t>{gib, 12});
  write("large.npy", header);
  std::filesystem::resize_file(path("large.npy"), header.size() + 48 * static_cast<std::uintmax_t>(gib));
  const CommandResult result =
      run("run --values values.npy --x large.npy --out no.npy", "; ulimit -v 8388608 &&");
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.err, "kronsparse: large.npy: memory ran out for its 51539607680 bytes\n");
}

}  // namespace
}  // namespace kronsparse::cli
