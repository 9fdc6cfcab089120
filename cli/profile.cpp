// kronsparse profile: a device's own rates.
#include "kronsparse/profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "arguments.hpp"
#include "commands.hpp"
#include "kronsparse/error.hpp"
#include "terminal.hpp"
#include "timing.hpp"

namespace kronsparse::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string device;
  bool show = false;
  bool json = false;
};

std::string text_of(const Rate& rate) {
  if (rate.unit == "s") return duration_text(rate.value);
  const bool is_large = rate.value >= 1e12;
  return fmt::format("{:.4g} {}{}", rate.value * (is_large ? 1e-12 : 1e-9), is_large ? "T" : "G", rate.unit);
}

/// Whether programs that start later find these: that they cannot be written is no error.
bool is_kept(Device device, const std::vector<Rate>& rates) {
  return std::ranges::equal(kept_profile(device), rates, {}, &Rate::value, &Rate::value);
}

void run_profile(const Options& options) {
  const Device device = choose_device(options.device, "");
  if (!options.show && device.backend == Backend::cpu) warn_if_busy();
  const std::vector<Rate> rates = options.show ? kept_profile(device) : measure_profile(device);
  if (rates.empty())
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("--show: nothing is kept of {}; without it, the device is measured", device.to_string()));
  if (options.json) {
    Json out{{"device", device.to_string()}, {"description", describe(device).description}};
    out["rates"] = Json::array();
    for (const Rate& rate : rates)
      out["rates"].push_back({{"name", rate.name}, {"value", rate.value}, {"unit", rate.unit}});
    fmt::print("{}\n", out.dump(2));
    return;
  }
  fmt::print("{}, {}\n\n", device.to_string(), describe(device).description);
  Table table({{"rate"}, {"measured", Table::Align::right}});
  for (const Rate& rate : rates) table.add_row({rate.name, text_of(rate)});
  fmt::print("{}", table.render(stdout));
  if (!options.show)
    fmt::print("{}\n", is_kept(device, rates)
                           ? "kept for programs that start later"
                           : "not kept: there is no folder of the user that can be written");
}

}  // namespace

void add_profile_command(Arguments& arguments, ExitCode& /*exit_code*/) {
  auto options = std::make_shared<Options>();
  const Command command =
      arguments.add_command("profile", "Measure a device's own rates, which cost models take shares of");
  command.option("--device", options->device, device_help);
  command.flag("--show", options->show, "Print what was measured before, and measure nothing");
  command.flag("--json", options->json, "Print JSON instead of a table");
  command.footer(
      R"(On an NVIDIA GPU: copies, reads of memory, L2 and shared memory, tensor cores, FMA units, launches and
latencies, in about two seconds; elsewhere a copy alone. The rates are kept for the user, beside the
times of 'kronsparse tune', and cost models of programs that start later take them in place of
estimates, where they differ by more than 10 %.

Examples:
  kronsparse profile
  kronsparse profile --device cuda:0 --json)");
  command.callback([options] { run_profile(*options); });
}

}  // namespace kronsparse::cli
