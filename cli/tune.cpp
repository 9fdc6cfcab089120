// kronsparse tune: measures who is fastest for problems, and remembers it.
#include "kronsparse/tune.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "arguments.hpp"
#include "commands.hpp"
#include "terminal.hpp"
#include "timing.hpp"

namespace kronsparse::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  ProblemList problems;
  std::string device;
  TuneOptions tuning;
  std::uint64_t most = 0;
  bool missing = false;
  bool json = false;
};

Json as_json(const Measurement& one, bool is_fastest) {
  return {{"problem", one.problem.to_string()},
          {"implementation", one.implementation},
          {"fastest", is_fastest},
          {"seconds", one.seconds},
          {"packing_seconds", one.packing_seconds},
          {"predicted_seconds", one.predicted_seconds}};
}

/// The first of each problem is its fastest.
bool is_first(const std::vector<Measurement>& all, std::size_t index) {
  return index == 0 || all[index - 1].problem.to_string() != all[index].problem.to_string();
}

void print_table(const std::vector<Measurement>& all) {
  using enum Table::Align;
  Table table({{"problem"},
               {"implementation"},
               {"measured", right},
               {"predicted", right},
               {"packing", right},
               {"verdict"}});
  for (std::size_t index = 0; index < all.size(); ++index) {
    const Measurement& one = all[index];
    table.add_row({one.problem.to_string(), one.implementation, duration_text(one.seconds),
                   duration_text(one.predicted_seconds), duration_text(one.packing_seconds),
                   is_first(all, index) ? coloured("fastest", Colour::green, stdout) : ""});
  }
  fmt::print("{}", table.render(stdout));
}

/// Whether the file has the times of all these problems: that it cannot be written is no error of tune().
bool is_kept(const std::string& path, const std::vector<Measurement>& all) {
  std::ifstream file(path);
  std::set<std::string> kept;
  for (std::string line; std::getline(file, line);) kept.insert(line.substr(0, line.find('\t')));
  return std::ranges::all_of(all,
                             [&](const Measurement& one) { return kept.contains(one.problem.to_string()); });
}

void run_tune(const Options& options) {
  const std::vector<Problem> problems = options.problems.problems();
  const Device device = choose_device(options.device, "");
  if (device.backend == Backend::cpu) warn_if_busy();
  TuneOptions tuning = options.tuning;
  tuning.again = !options.missing;
  tuning.most = static_cast<int>(options.most);
  std::vector<Measurement> all;
  {
    Progress progress(problems.size());
    for (const Problem& problem : problems) {
      progress.step(problem.to_string());
      for (Measurement& one : tune(problem, device, tuning)) all.push_back(std::move(one));
    }
  }
  const std::string file = tuning_file(device);
  if (options.json) {
    Json out{{"device", device.to_string()}, {"file", file}, {"is_kept", is_kept(file, all)}};
    out["results"] = Json::array();
    for (std::size_t index = 0; index < all.size(); ++index)
      out["results"].push_back(as_json(all[index], is_first(all, index)));
    fmt::print("{}\n", out.dump(2));
    return;
  }
  print_table(all);
  if (file.empty())
    fmt::print("nothing is kept: {}\n", std::getenv("KRONSPARSE_CACHE_DIR") != nullptr
                                            ? "KRONSPARSE_CACHE_DIR is empty"
                                            : "HOME is not set, nor is KRONSPARSE_CACHE_DIR");
  else if (is_kept(file, all))
    fmt::print("kept in {}\n", file);
  else
    fmt::print("not kept: {} cannot be written\n", file);
}

}  // namespace

void add_tune_command(Arguments& arguments, ExitCode& /*exit_code*/) {
  auto options = std::make_shared<Options>();
  const Command command = arguments.add_command("tune", "Measure who is fastest, and remember it");
  options->problems.add_options(command);
  command.option("--device", options->device, device_help);
  command
      .option("--most", options->most,
              "Measure so many implementations of each problem, those predicted to be fastest (default: all)")
      .between(1, 100);
  command.option("--min-time", options->tuning.seconds, "Measuring time per implementation, in seconds")
      .between(0.001, 3600.0)
      .show_default();
  command.flag("--missing", options->missing, "Measure only what was not measured before");
  command.flag("--json", options->json, "Print JSON instead of a table");
  command.footer(
      R"(Plans take the implementation with the least predicted time, unless it was measured here: then the
one that was fastest for this very problem, on this device and with this version of the library. The
times are kept for the user, in $XDG_CACHE_HOME/kronsparse/tuning (or ~/.cache, or
KRONSPARSE_CACHE_DIR), those of a problem as soon as it is measured: after Ctrl-C the same command with
--missing goes on. 'kronsparse info --problem' shows which are measured. For a chain every step is
measured, and the chain in one pass. With the variable KRONSPARSE_TUNE=3 programs do the same for the
three best predictions of each problem that they make a plan for.

Examples:
  kronsparse tune "f32 batch_first B=4096 1x64x64x64"
  kronsparse tune --file problems.txt --most 3 --missing)");
  command.callback([options] { run_tune(*options); });
}

}  // namespace kronsparse::cli
