// kronsparse check: implementations against the reference, on random data.
#include <fmt/format.h>

#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "arguments.hpp"
#include "commands.hpp"
#include "kronsparse/plan.hpp"
#include "mirror.hpp"
#include "terminal.hpp"
#include "verify.hpp"

namespace kronsparse::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  ProblemList problems;
  std::string device;
  std::string implementation;
  std::uint64_t seed = 1;
  bool full = false;
  bool json = false;
};

struct Outcome {
  std::string problem;
  std::string implementation;
  Expected::Comparison comparison;
  std::string reproduce;
};

std::vector<Outcome> check_problem(const Problem& problem, const Options& options, Device device) {
  constexpr double reference_flops = 1e9;  // a second or two of plain loops
  const double budget = options.full ? std::numeric_limits<double>::infinity() : reference_flops;
  Inputs inputs = random_inputs(problem, options.seed);
  const Sample sample = choose_sample(problem, budget, options.seed);
  thin(inputs, problem, sample);
  const Expected expected(problem, inputs, sample);
  Tensor y = output_tensor(problem);
  DeviceOperands staged(inputs, y, device);
  std::vector<Outcome> outcomes;
  for (const std::string& name : choose_implementations(problem, device, options.implementation, true)) {
    // A reference that is too slow to compute everything as the oracle is too slow to be checked.
    if (name == "reference" && !expected.complete() && options.implementation.empty() && !outcomes.empty())
      continue;
    const Plan plan(problem, staged.values(), device, name);
    staged.make_workspace(plan);
    staged.clear_output();
    plan.run(staged.operands());
    staged.fetch_output();
    outcomes.push_back(
        {problem.to_string(), plan.implementation(), expected.compare(y),
         fmt::format("kronsparse check {} --device {}{} --seed {}{}", shell_quoted(problem.to_string()),
                     device.to_string(), forcing(plan, name), options.seed, options.full ? " --full" : "")});
  }
  return outcomes;
}

Json as_json(const Outcome& outcome) {
  const Expected::Comparison& comparison = outcome.comparison;
  Json out{{"problem", outcome.problem},
           {"implementation", outcome.implementation},
           {"pass", comparison.pass},
           {"max_error", comparison.max_error},
           {"error_at_worst", comparison.error_at_worst},
           {"bound_at_worst", comparison.bound_at_worst},
           {"compared", comparison.compared},
           {"elements", comparison.elements},
           {"batch_share", comparison.batch_share}};
  if (!comparison.pass) {
    out["failure"] = comparison.failure;
    out["reproduce"] = outcome.reproduce;
  }
  return out;
}

std::string share_text(const Expected::Comparison& comparison) {
  if (comparison.batch_share < 1) return fmt::format("{:.2g}% of B", 100.0 * comparison.batch_share);
  if (comparison.compared == comparison.elements) return "all";
  return fmt::format(
      "{:.2g}%", 100.0 * static_cast<double>(comparison.compared) / static_cast<double>(comparison.elements));
}

void print_table(const std::vector<Outcome>& outcomes) {
  using enum Table::Align;
  Table table({{"problem"},
               {"implementation"},
               {"compared", right},
               {"max error", right},
               {"worst error", right},
               {"its bound", right},
               {"verdict"}});
  for (const Outcome& outcome : outcomes) {
    const Expected::Comparison& comparison = outcome.comparison;
    table.add_row(
        {outcome.problem, outcome.implementation, share_text(comparison),
         fmt::format("{:.2e}", comparison.max_error), fmt::format("{:.2e}", comparison.error_at_worst),
         fmt::format("{:.2e}", comparison.bound_at_worst),
         comparison.pass ? coloured("ok", Colour::green, stdout) : coloured("WRONG", Colour::red, stdout)});
  }
  fmt::print("{}", table.render(stdout));
}

ExitCode run_check(const Options& options) {
  const std::vector<Problem> problems = options.problems.problems();
  const Device device = choose_device(options.device, options.implementation);
  std::vector<Outcome> outcomes;
  {
    Progress progress(problems.size());
    for (const Problem& problem : problems) {
      progress.step(problem.to_string());
      for (Outcome& outcome : check_problem(problem, options, device)) outcomes.push_back(std::move(outcome));
    }
  }
  std::size_t failures = 0;
  for (const Outcome& outcome : outcomes) {
    if (outcome.comparison.pass) continue;
    ++failures;
    print_to_stderr(fmt::format("kronsparse: {}: {}: {}\n  reproduce: {}\n", outcome.implementation,
                                outcome.problem, outcome.comparison.failure, outcome.reproduce));
  }
  if (options.json) {
    Json out{{"pass", failures == 0}, {"device", device.to_string()}, {"seed", options.seed}};
    out["results"] = Json::array();
    for (const Outcome& outcome : outcomes) out["results"].push_back(as_json(outcome));
    fmt::print("{}\n", out.dump(2));
  } else {
    print_table(outcomes);
    fmt::print("{} of {} right\n", outcomes.size() - failures, outcomes.size());
  }
  return failures == 0 ? ExitCode::ok : ExitCode::wrong_result;
}

}  // namespace

void add_check_command(Arguments& arguments, ExitCode& exit_code) {
  auto options = std::make_shared<Options>();
  const Command command =
      arguments.add_command("check", "Compare implementations with the reference on random data");
  options->problems.add_options(command);
  command.option(
      "--impl", options->implementation,
      "Name of the implementation or family to check; for a chain, in every factor. (Default: all that\n"
      "accept the problem, and for a chain also the one that is chosen for each factor; the reference\n"
      "only where it is quick)");
  command.option("--device", options->device, device_help);
  add_seed_option(command, options->seed);
  command.flag("--full", options->full,
               "Compare every element (default: a random sample where the reference would take long)");
  command.flag("--json", options->json, "Print JSON instead of a table");
  command.footer(
      R"(An element may be off by (m + 4) eps S + u |y|. With n terms, m is the smaller of n and 8 sqrt(n);
S is the sum of the terms' absolute values; eps is the precision of the accumulator; u is that of
the dtype. In a chain each factor reads what the one before has rounded: with E the bound of that,
its own is |K| E + (m + 4) eps S + u |y|. 'worst error' and 'its bound' belong to the element that
is nearest to its bound. Elements that were never written, and writes outside the output, are found
too. A sample of the gradient of a chain is a sample of the batch: the gradient of the product is
zero elsewhere. The exit code is 1 if anything is wrong; each failure prints a command that
reproduces it.

Examples:
  kronsparse check "f32 batch_first B=64 4x64x64x16" "gradient f64 batch_last B=7 2x3x5x4"
  kronsparse check "f16 batch_first B=1024 1x64x64x64*64x64x64x1 +bias +gelu"
  kronsparse check --file problems.txt --impl simd --json)");
  command.callback([options, &exit_code] { exit_code = run_check(*options); });
}

}  // namespace kronsparse::cli
