// kronsparse bench: checks problems, then times them.
#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "arguments.hpp"
#include "commands.hpp"
#include "files.hpp"
#include "kronsparse/plan.hpp"
#include "kronsparse/version.hpp"
#include "mirror.hpp"
#include "terminal.hpp"
#include "timing.hpp"
#include "verify.hpp"

namespace kronsparse::cli {
namespace {

using Json = nlohmann::ordered_json;

#if defined(__clang__)
constexpr const char* compiler = __VERSION__;
#else
constexpr const char* compiler = "GCC " __VERSION__;
#endif

struct Options {
  ProblemList problems;
  std::string device;
  std::string implementation;
  std::string out;
  std::uint64_t seed = 1;
  TimingOptions timing;
  bool all = false;
  bool json = false;
};

struct Outcome {
  Problem problem;
  std::string implementation;
  std::string forcing;  ///< the option that chooses it again
  Expected::Comparison comparison;
  std::optional<Timing> timing;  ///< absent when the answer was wrong
};

/// Copies of one problem's plan and operands. Runs that take turns on them find
/// nothing of the last one in a GPU's cache, as in a program that does other
/// work between; on the CPU, and where one is too large for the cache, there is
/// one copy.
class Rotation {
 public:
  Rotation(const Problem& problem, Inputs& inputs, Tensor& y, Device device,
           const std::string& implementation)
      : inputs_(inputs), y_(y), device_(device) {
    add(problem, implementation);
    if (device.backend == Backend::cpu) return;
    const auto one = static_cast<double>(turns_.front().staged.bytes() + plan().packed_bytes());
    const double all = 4.0 * static_cast<double>(describe(device).cache_bytes);
    constexpr double most = 64;
    const auto count = static_cast<std::size_t>(std::clamp(std::ceil(all / one), 1.0, most));
    while (turns_.size() < count) add(problem, implementation);
  }

  [[nodiscard]] const Plan& plan() const noexcept { return turns_.front().plan; }
  /// The next one's turn.
  void run() {
    const Turn& turn = turns_[next_];
    turn.plan.run(turn.staged.operands());
    next_ = (next_ + 1) % turns_.size();
  }

 private:
  struct Turn {
    DeviceOperands staged;
    Plan plan;
  };
  void add(const Problem& problem, const std::string& implementation) {
    DeviceOperands staged(inputs_, y_, device_);
    Plan plan(problem, staged.values(), device_, implementation);
    staged.make_workspace(plan);
    turns_.push_back({std::move(staged), std::move(plan)});
  }

  Inputs& inputs_;
  Tensor& y_;
  Device device_;
  std::vector<Turn> turns_;
  std::size_t next_ = 0;
};

/// One run and its comparison.
Outcome checked_run(const Problem& problem, Inputs& inputs, Tensor& y, Device device, const std::string& name,
                    const Expected& expected) {
  DeviceOperands staged(inputs, y, device);
  const Plan plan(problem, staged.values(), device, name);
  staged.make_workspace(plan);
  staged.clear_output();
  plan.run(staged.operands());
  staged.fetch_output();
  return {problem, plan.implementation(), forcing(plan, name), expected.compare(y), std::nullopt};
}

std::vector<Outcome> bench_problem(const Problem& problem, const Options& options, Device device,
                                   Progress& progress) {
  constexpr double reference_flops = 1e8;
  Inputs inputs = random_inputs(problem, options.seed);
  const Sample sample = choose_sample(problem, reference_flops, options.seed);
  const Expected expected(problem, inputs, sample);
  Inputs thinned;  // timed are the inputs as they were: zeros would make a GPU faster
  if (needs_thinning(problem, sample)) {
    thinned = random_inputs(problem, options.seed);
    thin(thinned, problem, sample);
  }
  Inputs& checked = needs_thinning(problem, sample) ? thinned : inputs;
  Tensor y = output_tensor(problem);
  std::vector<Outcome> outcomes;
  for (const std::string& name :
       choose_implementations(problem, device, options.implementation, options.all)) {
    Outcome outcome = checked_run(problem, checked, y, device, name, expected);
    progress.step(fmt::format("{}: {}", outcome.implementation, problem.to_string()));
    if (outcome.comparison.pass) {
      Rotation rotation(problem, inputs, y, device, name);
      outcome.timing.emplace([&] { rotation.run(); }, options.timing, device);
    }
    outcomes.push_back(std::move(outcome));
  }
  return outcomes;
}

Json machine_as_json(Device device) {
  utsname names{};
  ::uname(&names);
  Json out{{"system", names.sysname},
           {"release", names.release},
           {"architecture", names.machine},
           {"threads", std::thread::hardware_concurrency()}};
  out["device"] = {{"name", device.to_string()}, {"description", describe(device).description}};
  return out;
}

Json as_json(const Outcome& outcome, double copy_rate) {
  const Problem& problem = outcome.problem;
  Json out{{"problem", problem.to_string()},
           {"implementation", outcome.implementation},
           {"pass", outcome.comparison.pass},
           {"max_error", outcome.comparison.max_error},
           {"compared", outcome.comparison.compared},
           {"elements", outcome.comparison.elements},
           {"flops", problem.flops()},
           {"bytes", problem.bytes()},
           {"copy_seconds", problem.bytes() / copy_rate}};
  if (outcome.timing) {
    const Timing& timing = *outcome.timing;
    out["median_seconds"] = timing.median();
    out["quartile_seconds"] = {timing.quantile(0.25), timing.quantile(0.75)};
    out["gflop_per_s"] = problem.flops() / timing.median() * 1e-9;
    out["gb_per_s"] = problem.bytes() / timing.median() * 1e-9;
    out["run_seconds"] = timing.seconds();
  } else {
    out["failure"] = outcome.comparison.failure;
  }
  return out;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

std::string report_as_json(const std::vector<Outcome>& outcomes, const Options& options, Device device,
                           double copy_rate) {
  Json out{{"kronsparse", KRONSPARSE_VERSION},
           {"compiler", compiler},
           {"time", utc_now()},
           {"machine", machine_as_json(device)},
           {"copy_gb_per_s", copy_rate * 1e-9},
           {"seed", options.seed}};
  out["results"] = Json::array();
  for (const Outcome& outcome : outcomes) out["results"].push_back(as_json(outcome, copy_rate));
  return out.dump(2) + "\n";
}

void print_table(const std::vector<Outcome>& outcomes, Device device, double copy_rate) {
  using enum Table::Align;
  Table table({{"problem"},
               {"implementation"},
               {"median", right},
               {"quartiles", right},
               {"runs", right},
               {"GFLOP/s", right},
               {"GB/s", right},
               {"x copy", right},
               {"max error", right}});
  for (const Outcome& outcome : outcomes) {
    const Problem& problem = outcome.problem;
    const std::string error = fmt::format("{:.1e}", outcome.comparison.max_error);
    if (!outcome.timing) {
      table.add_row({problem.to_string(), outcome.implementation, coloured("WRONG", Colour::red, stdout), "-",
                     "-", "-", "-", "-", error});
      continue;
    }
    const Timing& timing = *outcome.timing;
    table.add_row(
        {problem.to_string(), outcome.implementation, duration_text(timing.median()),
         fmt::format("{} - {}", duration_text(timing.quantile(0.25)), duration_text(timing.quantile(0.75))),
         std::to_string(timing.seconds().size()),
         fmt::format("{:.4g}", problem.flops() / timing.median() * 1e-9),
         fmt::format("{:.3g}", problem.bytes() / timing.median() * 1e-9),
         fmt::format("{:.2f}", timing.median() * copy_rate / problem.bytes()), error});
  }
  fmt::print(
      "{}copy rate {:.1f} GB/s (read + write, {}); 'x copy' is time over that of copying the "
      "operands\n",
      table.render(stdout), copy_rate * 1e-9,
      device.backend == Backend::cpu ? std::string("all cores") : device.to_string());
}

ExitCode run_bench(const Options& options) {
  const std::vector<Problem> problems = options.problems.problems();
  const Device device = choose_device(options.device, options.implementation);
  if (device.backend == Backend::cpu) warn_if_busy();
  std::size_t steps = 1;
  for (const Problem& problem : problems) {
    steps += choose_implementations(problem, device, options.implementation, options.all).size();
  }
  std::vector<Outcome> outcomes;
  double copy_rate = 0;
  {
    Progress progress(steps);
    progress.step("copy rate of this machine");
    copy_rate = measure_copy_rate(device);
    for (const Problem& problem : problems) {
      for (Outcome& outcome : bench_problem(problem, options, device, progress)) {
        outcomes.push_back(std::move(outcome));
      }
    }
  }
  ExitCode exit_code = ExitCode::ok;
  for (const Outcome& outcome : outcomes) {
    if (outcome.comparison.pass) continue;
    exit_code = ExitCode::wrong_result;
    print_to_stderr(fmt::format(
        "kronsparse: {}: {}: {}\n  reproduce: kronsparse check {} --device {}{} --seed {}\n",
        outcome.implementation, outcome.problem.to_string(), outcome.comparison.failure,
        shell_quoted(outcome.problem.to_string()), device.to_string(), outcome.forcing, options.seed));
  }
  const std::string report = report_as_json(outcomes, options, device, copy_rate);
  if (options.json) {
    fmt::print("{}", report);
  } else {
    print_table(outcomes, device, copy_rate);
  }
  if (!options.out.empty()) {
    write_atomically(options.out, report);
    if (!options.json) fmt::print("{}\n", options.out);
  }
  return exit_code;
}

}  // namespace

void add_bench_command(Arguments& arguments, ExitCode& exit_code) {
  auto options = std::make_shared<Options>();
  const Command command = arguments.add_command("bench", "Time problems, after checking their answers");
  options->problems.add_options(command);
  command.flag("--all", options->all,
               "Time every implementation that accepts the problem, not only the chosen one");
  command
      .option("--impl", options->implementation,
              "Name of the implementation or family to time; for a chain, in every factor")
      .excludes("--all");
  command.option("--device", options->device, device_help);
  command
      .option("--min-time", options->timing.min_seconds,
              "Minimum measuring time per implementation, in seconds")
      .between(0.0, 3600.0)
      .show_default();
  command.option("--runs", options->timing.min_runs, "Minimum number of timed runs per implementation")
      .between(1, 10'000)
      .show_default();
  add_seed_option(command, options->seed);
  command.flag("--json", options->json, "Print JSON: machine, versions, and the seconds of every run");
  command.option("--out", options->out, "File that the same JSON is written to as well").type_name("FILE");
  command.footer(
      R"(Every answer is compared with the reference first, or a random sample of it where that would take
long. A wrong one is not timed, and the exit code is 1. Inputs are random. CPU runs repeat on the
same data, so operands that fit in the caches are found there. GPU runs take turns on copies that
together exceed its cache, and the GPU's own clock times them.

Examples:
  kronsparse bench "f32 batch_first B=4096 1x64x64x64" --all
  kronsparse bench "f32 batch_first B=1024 1x64x64x64*64x64x64x1 +bias +gelu"
  kronsparse bench --file problems.txt --min-time 2 --out times.json)");
  command.callback([options, &exit_code] { exit_code = run_bench(*options); });
}

}  // namespace kronsparse::cli
