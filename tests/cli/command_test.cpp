// info, check, bench, demo and the exit codes, through the executable.
#include <nlohmann/json.hpp>

#include "command_fixture.hpp"
#include "kronsparse/version.hpp"

namespace kronsparse::cli {
namespace {

using Json = nlohmann::json;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(CommandTest, VersionAndHelp) {
  EXPECT_EQ(run("--version").out, KRONSPARSE_VERSION "\n");
  for (const char* arguments :
       {"--help", "info --help", "run --help", "check --help", "bench --help", "demo --help"}) {
    const CommandResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 0) << arguments;
    EXPECT_TRUE(contains(result.out, "Usage: ")) << arguments;
    EXPECT_TRUE(result.err.empty()) << arguments;
  }
  EXPECT_TRUE(contains(run("--help").out, "Exit codes:"));
}

TEST_F(CommandTest, WrongUsageIsTwo) {
  for (const char* arguments :
       {"", "frobnicate", "info --frobnicate", "check", "bench", "check 'f32 batch_first B=1'",
        "check 'f32 batch_first B=1 1x2x0x4'", "check --seed x 'f32 batch_first B=1 1x1x1x1'",
        "check --seed -1 'f32 batch_first B=1 1x1x1x1'", "bench --seed 1.5 'f32 batch_first B=1 1x1x1x1'",
        "check --seed 18446744073709551616 'f32 batch_first B=1 1x1x1x1'",
        "bench --min-time nan 'f32 batch_first B=1 1x1x1x1'", "info --device nonsense",
        "check --impl nonsense 'f32 batch_first B=1 1x1x1x1'",
        "check --device gpu 'f32 batch_first B=1 1x1x1x1'", "info --problem nonsense", "info --problem ''",
        "bench --runs 0 'f32 batch_first B=1 1x1x1x1'",
        "bench --all --impl reference 'f32 batch_first B=1 1x1x1x1'"}) {
    const CommandResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 2) << arguments << "\n" << result.err;
    EXPECT_TRUE(contains(result.err, "kronsparse: ")) << arguments << "\n" << result.err;
    EXPECT_TRUE(result.out.empty()) << arguments << "\n" << result.out;
  }
}

TEST_F(CommandTest, AnUnknownCommandIsNamed) {
  EXPECT_EQ(run("frobnicate")
                .err.find("kronsparse: 'frobnicate' is neither a command nor an option; the "
                          "commands are info, run, check, bench, tune, profile, demo\n"),
            0U);
  EXPECT_EQ(run("--frobnicate info").err.find("kronsparse: '--frobnicate' is neither"), 0U);
  EXPECT_EQ(run("info --frobnicate").err.find("kronsparse: The following argument was not expected: "), 0U);
}

TEST_F(CommandTest, FilesAndMemoryAreThree) {
  for (const char* arguments :
       {"check --file missing.txt", "check --file .", "check 'f64 batch_first B=1000000000 1024x64x64x16'",
        "bench --min-time 0 --runs 1 --out missing/times.json 'f32 batch_first B=1 1x1x1x1'",
        "demo --quick --out /dev/null/here"}) {
    const CommandResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 3) << arguments << "\n" << result.err;
    EXPECT_TRUE(contains(result.err, "kronsparse: ")) << arguments << "\n" << result.err;
  }
}

TEST_F(CommandTest, ThreadsThatCannotBeCreatedAreDoneWithout) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer needs more address space than any limit leaves";
#endif
  int tried = 0;
  for (const std::string kibibytes : {"100000", "150000", "300000", "600000"}) {
    const std::string limit = "ulimit -v " + kibibytes + " && OMP_NUM_THREADS=";
    const std::string check = "check 'f32 batch_first B=512 4x32x32x4'";
    if (run(check, limit + "1").exit_code != 0)
      continue;  // with kernels for GPUs the library alone is nearly as large
    ++tried;
    const CommandResult result = run(check, limit + "1000");
    EXPECT_EQ(result.exit_code, 0) << kibibytes << ": " << result.err;
  }
  EXPECT_GT(tried, 0);
}

TEST_F(CommandTest, AMissingDeviceIsThree) {
  const std::string problem = " --device cuda:99 'f32 batch_first B=1 1x1x1x1'";
  for (const std::string& arguments :
       {"check" + problem, "bench" + problem, std::string("demo --quick --device cuda:99"),
        std::string("info --device cuda:99"),
        std::string("info --device cuda:99 --problem 'f32 batch_first B=1 1x1x1x1'")}) {
    const CommandResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 3) << arguments << "\n" << result.err;
    EXPECT_TRUE(contains(result.err, "device: cuda:99 cannot be used, ")) << arguments << "\n" << result.err;
  }
}

TEST_F(CommandTest, FullDiskIsThree) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  // Less than a buffer, and more.
  std::string many;
  for (int line = 0; line < 50; ++line) many += "f32 batch_first B=1 1x1x1x1\n";
  write("problems.txt", many);
  for (const char* arguments : {"info", "check --json --impl reference --file problems.txt"}) {
    EXPECT_EQ(exit_code_of(std::string(arguments) + " >/dev/full 2>stderr"), 3) << arguments;
    EXPECT_TRUE(read("stderr").ends_with("kronsparse: standard output cannot be written\n"))
        << read("stderr");
    EXPECT_FALSE(contains(read("stderr"), "internal")) << read("stderr");
  }
}

TEST_F(CommandTest, AnStderrThatCannotBeWrittenChangesNothing) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  const std::string problem = "'f32 batch_first B=2 2x2x2x2' >/dev/null";
  for (const char* stderr_of : {" 2>&-", " 2>/dev/full"}) {
    EXPECT_EQ(exit_code_of("check " + problem + stderr_of), 0);
    EXPECT_EQ(exit_code_of("bench --min-time 0 --runs 1 " + problem + stderr_of), 0);
    EXPECT_EQ(exit_code_of("check nonsense" + std::string(stderr_of)), 2);
    EXPECT_EQ(exit_code_of("check --file missing.txt" + std::string(stderr_of)), 3);
  }
  // A file opened where stderr was must not get its messages; nor one where stdout was, which still fails.
  EXPECT_EQ(exit_code_of("bench --min-time 0 --runs 1 --out times.json " + problem + " 2>&- <&-"), 0);
  EXPECT_TRUE(Json::accept(read("times.json")));
  EXPECT_EQ(exit_code_of("info >&- 2>/dev/null"), 3);
}

TEST_F(CommandTest, InfoListsTheBuild) {
  const CommandResult text = run("info");
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_TRUE(contains(text.out, "reference"));
  EXPECT_FALSE(contains(text.out, "\x1b"));

  const Json json = Json::parse(run("info --json").out);
  EXPECT_EQ(json["version"], KRONSPARSE_VERSION);
  EXPECT_EQ(json["backends"][0], "cpu");
  EXPECT_EQ(json["devices"][0]["device"], "cpu");
  EXPECT_GE(json["implementations"].size(), 1U);
}

TEST_F(CommandTest, InfoOfOneDevice) {
  const CommandResult text = run("info --device cpu");
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_TRUE(contains(text.out, "reference"));
  EXPECT_FALSE(contains(text.out, "cuda:"));
  const Json json = Json::parse(run("info --json --device cpu").out);
  ASSERT_EQ(json["devices"].size(), 1U);
  EXPECT_EQ(json["devices"][0]["device"], "cpu");
  EXPECT_GE(json["implementations"].size(), 1U);
  for (const Json& item : json["implementations"]) EXPECT_EQ(item["backend"], "cpu");
}

TEST_F(CommandTest, NumbersAreTakenAsTheyStandOrRefused) {
  const std::string problem = " 'f32 batch_first B=1 1x1x1x1'";
  EXPECT_EQ(Json::parse(run("check --json --seed 18446744073709551615" + problem).out)["seed"],
            std::uint64_t{18446744073709551615U});
  const std::string allowed = "given, must be a whole number from 0 to 18446744073709551615";
  for (const char* wrong : {"-1", "18446744073709551616", "0x10"}) {
    const std::string arguments = problem + " --seed=" + wrong;
    EXPECT_TRUE(contains(run("check" + arguments).err, allowed)) << wrong;
  }
  EXPECT_TRUE(
      contains(run("bench --min-time nan" + problem).err, "'nan' given, must be a number from 0 to 3600"));
}

/// A batch of none takes no memory, however far apart its rows would be.
TEST_F(CommandTest, StridesOfAnEmptyBatch) {
  const CommandResult result = run(
      "check 'f32 batch_first B=0 2x2x2x2 cols_stride=1152921504606846976 rows_stride=1152921504606846976'");
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

/// A GPU where there is one, and the CPU everywhere.
TEST_F(CommandTest, EveryDeviceIsCheckedAndTimed) {
  const Json build = Json::parse(run("info --json").out);
  for (const Json& item : build["devices"]) {
    const std::string device = item["device"];
    const std::string problems = " --device " + device +
                                 " 'f32 batch_first B=33 2x16x24x5 +bias +relu'"
                                 " 'gradient f16 batch_last B=40 2x8x8x4'"
                                 " 'transposed complex64 batch_first B=5 1x9x7x3 rows_stride=100'";
    const Json checked = Json::parse(run("check --json" + problems).out);
    EXPECT_TRUE(checked["pass"]) << checked.dump(2);
    EXPECT_EQ(checked["device"], device);
    EXPECT_GE(checked["results"].size(), 3U);
    const Json timed = Json::parse(run("bench --all --min-time 0.01 --runs 2 --json" + problems).out);
    EXPECT_EQ(timed["machine"]["device"]["name"], device);
    EXPECT_GT(timed["copy_gb_per_s"].get<double>(), 0);
    for (const Json& result : timed["results"])
      EXPECT_GT(result["median_seconds"].get<double>(), 0) << result;
  }
}

TEST_F(CommandTest, AForcedImplementationChoosesItsDevice) {
  const std::string problem = " 'f32 batch_first B=3 1x2x3x4'";
  EXPECT_EQ(Json::parse(run("check --json --impl reference" + problem).out)["device"], "cpu");
  EXPECT_EQ(Json::parse(run("check --json" + problem, "KRONSPARSE_IMPL=reference").out)["device"], "cpu");
}

TEST_F(CommandTest, InfoListsCandidates) {
  const std::string problem = "f16 batch_first B=25088 8x64x64x16 +bias +gelu";
  const CommandResult text = run("info --device cpu --problem '" + problem + "'");
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_TRUE(contains(text.out, "chosen"));

  const Json json = Json::parse(run("info --json --device cpu --problem '" + problem + "'").out);
  EXPECT_EQ(json["problem"], problem);
  EXPECT_EQ(json["nnz"], 8 * 64 * 64 * 16);
  const Json& first = json["candidates"][0];
  EXPECT_TRUE(first["accepts"]);
  EXPECT_GT(first["predicted_seconds"].get<double>(), 0);
  EXPECT_TRUE(first["refusal"].is_null());
}

TEST_F(CommandTest, TuneMeasuresAndInfoSaysSo) {
  const std::string problem = "f32 batch_first B=8 2x4x4x2", folder = "KRONSPARSE_CACHE_DIR=kept";
  EXPECT_TRUE(contains(run("info --device cpu --problem '" + problem + "'", folder).out, "predicted"));
  const CommandResult text = run("tune --device cpu --min-time 0.001 '" + problem + "'", folder);
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_TRUE(contains(text.out, "fastest")) << text.out;
  EXPECT_TRUE(contains(text.out, "kept/tuning/")) << text.out;
  EXPECT_TRUE(contains(run("info --device cpu --problem '" + problem + "'", folder).out, "measured"));

  const Json json =
      Json::parse(run("tune --device cpu --missing --json --most 1 '" + problem + "'", folder).out);
  const Json& first = json["results"][0];
  EXPECT_EQ(first["problem"], problem);
  EXPECT_TRUE(first["fastest"]);
  EXPECT_GT(first["seconds"].get<double>(), 0);
  const Json info = Json::parse(run("info --json --device cpu --problem '" + problem + "'", folder).out);
  EXPECT_TRUE(info["candidates"][0]["measured"]);
  EXPECT_EQ(info["candidates"][0]["predicted_seconds"], first["seconds"])
      << "what was kept, not measured again";

  EXPECT_TRUE(
      contains(run("tune --device cpu --min-time 0.001 '" + problem + "'", "KRONSPARSE_CACHE_DIR=").out,
               "nothing is kept: KRONSPARSE_CACHE_DIR is empty"));
  EXPECT_TRUE(contains(run("tune --device cpu --min-time 0.001 '" + problem + "'",
                           "env -u KRONSPARSE_CACHE_DIR -u XDG_CACHE_HOME -u HOME")
                           .out,
                       "nothing is kept: HOME is not set"));
  write("no_folder", "a file where the folder should be");
  const std::string unwritable = "KRONSPARSE_CACHE_DIR=no_folder";
  const CommandResult lost = run("tune --device cpu --min-time 0.001 '" + problem + "'", unwritable);
  EXPECT_EQ(lost.exit_code, 0) << lost.err;
  EXPECT_TRUE(contains(lost.out, "not kept: no_folder/tuning/")) << lost.out;
  EXPECT_FALSE(Json::parse(
      run("tune --device cpu --min-time 0.001 --json '" + problem + "'", unwritable).out)["is_kept"]);
  EXPECT_EQ(run("tune").exit_code, 2);
  EXPECT_EQ(run("tune --most 0 '" + problem + "'").exit_code, 2);
  EXPECT_EQ(run("run --help", "KRONSPARSE_TUNE=x").exit_code, 0);
  EXPECT_EQ(run("bench --min-time 0 --runs 1 --device cpu '" + problem + "'", "KRONSPARSE_TUNE=x").exit_code,
            2);
  const std::string other = "f32 batch_first B=9 2x4x4x2";
  EXPECT_EQ(run("bench --min-time 0 --runs 1 --device cpu '" + other + "'", "KRONSPARSE_TUNE=2 " + folder)
                .exit_code,
            0);
  EXPECT_TRUE(contains(run("info --device cpu --problem '" + other + "'", folder).out, "measured"));
}

TEST_F(CommandTest, ProfileMeasuresADevice) {
  const std::string folder = "KRONSPARSE_CACHE_DIR=kept";
  EXPECT_EQ(run("profile --device cpu --show", folder).exit_code, 2);
  const CommandResult text = run("profile --device cpu", folder);
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_TRUE(contains(text.out, "copy")) << text.out;
  EXPECT_TRUE(contains(text.out, "\nkept for programs")) << text.out;
  EXPECT_TRUE(contains(run("profile --device cpu", "KRONSPARSE_CACHE_DIR=").out, "\nnot kept")) << text.out;
  const Json json = Json::parse(run("profile --device cpu --show --json", folder).out);
  EXPECT_EQ(json["rates"][0]["name"], "copy");
  EXPECT_GT(json["rates"][0]["value"].get<double>(), 0);
}

TEST_F(CommandTest, InfoListsTheStepsOfAChain) {
  const std::string problem = "f32 batch_first B=64 1x16x16x16*16x16x16x1 +bias";
  const CommandResult text = run("info --device cpu --problem '" + problem + "'");
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_TRUE(contains(text.out, "step 1: f32 batch_first B=64 16x16x16x1\n")) << text.out;
  EXPECT_TRUE(contains(text.out, "step 2: f32 batch_first B=64 1x16x16x16 +bias\n")) << text.out;

  const Json json = Json::parse(run("info --json --device cpu --problem '" + problem + "'").out);
  EXPECT_EQ(json["nnz"], 2 * 16 * 16 * 16);
  EXPECT_FALSE(json.contains("candidates"));
  ASSERT_EQ(json["steps"].size(), 2U);
  double seconds = 0;
  std::size_t packed = 0;
  for (const Json& step : json["steps"]) {
    EXPECT_EQ(step["chosen"], step["candidates"][0]["implementation"]);
    EXPECT_GE(step["packing_at_each_run"]["predicted_packing_seconds"].get<double>(), 0);
    seconds += step["predicted_seconds"].get<double>();
    packed += step["packed_bytes"].get<std::size_t>();
  }
  EXPECT_DOUBLE_EQ(json["predicted_seconds"].get<double>(), seconds);
  EXPECT_EQ(json["packed_bytes"].get<std::size_t>(), packed);
  // One product of 64 x 256 lies between the factors.
  EXPECT_EQ(json["workspace_bytes"], 64 * 256 * 4);
  EXPECT_EQ(run("info --device cpu --problem 'gradient f32 batch_last B=3 1x2x2x2*2x2x2x1'").exit_code, 0);
}

TEST_F(CommandTest, ChecksAndTimesChains) {
  const CommandResult checked =
      run("check --json --device cpu 'f16 batch_first B=9 1x8x4x4*4x4x6x1 +bias +gelu' "
          "'gradient complex64 batch_last B=7 2x3x5x4*4x5x7x2'");
  EXPECT_EQ(checked.exit_code, 0) << checked.err;
  EXPECT_GE(Json::parse(checked.out)["results"].size(), 2U);

  const CommandResult forced = run("check --json --impl reference 'f32 batch_first B=9 1x8x4x4*4x4x6x1'");
  EXPECT_EQ(Json::parse(forced.out)["results"][0]["implementation"], "reference + reference") << forced.err;

  const CommandResult timed = run(
      "bench --all --device cpu --min-time 0 --runs 2 --json 'f32 batch_first B=64 1x16x16x16*16x16x16x1' "
      "'gradient f32 batch_first B=64 1x16x16x16*16x16x16x1'");
  EXPECT_EQ(timed.exit_code, 0) << timed.err;
  const Json timed_json = Json::parse(timed.out);
  for (const Json& entry : timed_json["results"])
    EXPECT_GT(entry["median_seconds"].get<double>(), 0) << entry;

  const CommandResult unfit = run("check 'f32 batch_first B=9 1x8x4x4*4x5x6x1'");
  EXPECT_EQ(unfit.exit_code, 2);
  EXPECT_TRUE(contains(unfit.err, "factor 0 (1x8x4x4) has 16 columns")) << unfit.err;
}

TEST_F(CommandTest, CheckPassesAndPrintsPlainText) {
  const CommandResult result =
      run("check 'f32 batch_first B=5 2x3x4x5' 'gradient complex64 batch_last B=7 2x3x5x4'");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(contains(result.out, "ok")) << result.out;
  EXPECT_FALSE(contains(result.out + result.err, "\x1b"));
  EXPECT_TRUE(contains(result.err, "[2/2] gradient complex64 batch_last B=7 2x3x5x4\n")) << result.err;
}

TEST_F(CommandTest, CheckAsJson) {
  const CommandResult result =
      run("check --json --impl reference --seed 5 'bf16 batch_last B=5 2x3x4x5 +bias +silu'");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const Json json = Json::parse(result.out);
  EXPECT_TRUE(json["pass"]);
  EXPECT_EQ(json["seed"], 5);
  ASSERT_EQ(json["results"].size(), 1U);
  const Json& only = json["results"][0];
  EXPECT_EQ(only["problem"], "bf16 batch_last B=5 2x3x4x5 +bias +silu");
  EXPECT_EQ(only["implementation"], "reference");
  EXPECT_LE(only["error_at_worst"].get<double>(), only["bound_at_worst"].get<double>());
}

TEST_F(CommandTest, CheckReadsAFileOfProblems) {
  write("problems.txt",
        "# two problems\n\n  f32 batch_first B=2 1x2x3x4  # the first\r\nf64 batch_last B=2 1x2x3x4 +relu");
  const CommandResult good =
      run("check --json --impl reference --file problems.txt 'f16 batch_last B=1 1x1x1x1'");
  EXPECT_EQ(good.exit_code, 0) << good.err;
  EXPECT_EQ(Json::parse(good.out)["results"].size(), 3U);

  write("problems.txt", "# comment\nf32 batch_first B=2 1x2x3x4\n\nf32 batch_first B=2 oops\n");
  const CommandResult bad = run("check --file problems.txt");
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_EQ(bad.err.find("kronsparse: problems.txt:4: "), 0U) << bad.err;

  write("problems.txt", "# nothing\n");
  EXPECT_EQ(run("check --file problems.txt").exit_code, 2);
}

TEST_F(CommandTest, EnvironmentForcesAnImplementation) {
  const CommandResult result =
      run("bench --min-time 0 --runs 1 --json 'f32 batch_first B=2 1x2x3x4'", "KRONSPARSE_IMPL=reference");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(Json::parse(result.out)["results"][0]["implementation"], "reference");

  const std::string problem = " 'f32 batch_first B=2 1x2x3x4'";
  const Json checked = Json::parse(run("check --json" + problem, "KRONSPARSE_IMPL=reference").out);
  ASSERT_EQ(checked["results"].size(), 1U);
  EXPECT_EQ(checked["results"][0]["implementation"], "reference");
  const Json listed = Json::parse(run("info --json --problem" + problem, "KRONSPARSE_IMPL=reference").out);
  EXPECT_EQ(listed["candidates"][0]["implementation"], "reference");
  EXPECT_EQ(listed["candidates"][1]["refusal"], "left out, because KRONSPARSE_IMPL is 'reference'");
  for (const std::string& command :
       {"info --problem" + problem, "check" + problem, "bench --all" + problem}) {
    const CommandResult unknown = run(command, "KRONSPARSE_IMPL=nonsense");
    EXPECT_EQ(unknown.exit_code, 2) << command;
    EXPECT_TRUE(contains(unknown.err, "KRONSPARSE_IMPL: 'nonsense' is neither")) << unknown.err;
  }
}

TEST_F(CommandTest, BenchTimesAndWritesJson) {
  const CommandResult result =
      run("bench --all --min-time 0 --runs 10 --out times.json 'f32 batch_first B=64 4x16x16x4'");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(contains(result.out, "GFLOP/s"));
  EXPECT_TRUE(contains(result.out, "copy rate"));
  const Json json = Json::parse(read("times.json"));
  EXPECT_EQ(json["kronsparse"], KRONSPARSE_VERSION);
  EXPECT_GT(json["copy_gb_per_s"].get<double>(), 0);
  EXPECT_TRUE(json["machine"].contains("architecture"));
  for (const Json& entry : json["results"]) {
    EXPECT_TRUE(entry["pass"]);
    EXPECT_GE(entry["run_seconds"].size(), 10U);
    EXPECT_LE(entry["quartile_seconds"][0].get<double>(), entry["median_seconds"].get<double>());
    EXPECT_LE(entry["median_seconds"].get<double>(), entry["quartile_seconds"][1].get<double>());
  }
  EXPECT_EQ(files(), 1U);

  const CommandResult both =
      run("bench --min-time 0 --runs 2 --json --out times.json 'f32 batch_first B=64 4x16x16x4'");
  EXPECT_EQ(both.exit_code, 0) << both.err;
  EXPECT_EQ(both.out, read("times.json"));
  EXPECT_EQ(Json::parse(both.out)["results"].size(), 1U);
}

TEST_F(CommandTest, DemoShowsATableAndAPicture) {
  const CommandResult result = run("demo --quick --out pictures");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(contains(result.out, "Monarch 4096 x 4096")) << result.out;
  EXPECT_TRUE(contains(result.out, "picture: pictures/kronsparse-demo.svg")) << result.out;
  const std::string picture = read("pictures/kronsparse-demo.svg");
  EXPECT_EQ(picture.find("<svg "), 0U);
  EXPECT_TRUE(picture.ends_with("</svg>\n"));
  EXPECT_TRUE(contains(picture, "1x64x64x64"));
}

}  // namespace
}  // namespace kronsparse::cli
