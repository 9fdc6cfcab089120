// kronsparse info: what this build has, and how it would solve a problem.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "arguments.hpp"
#include "commands.hpp"
#include "kronsparse/plan.hpp"
#include "kronsparse/version.hpp"
#include "terminal.hpp"

namespace kronsparse::cli {
namespace {

using Json = nlohmann::ordered_json;

/// The devices to list: all, or the one that --device names, with the implementations of its backend.
class Selection {
 public:
  Selection() = default;
  explicit Selection(Device only) : only_(only) { static_cast<void>(describe(only)); }

  [[nodiscard]] bool has(Device device) const noexcept { return !only_ || device == *only_; }
  [[nodiscard]] bool has(Backend backend) const noexcept { return !only_ || backend == only_->backend; }

 private:
  std::optional<Device> only_;
};

struct Options {
  std::string problem;
  bool has_problem = false;
  std::string device;
  bool json = false;
};

/// Each backend of this build once, in the order of the implementations.
std::vector<std::string> backend_names() {
  std::vector<std::string> names;
  for (const ImplementationInfo& info : implementations()) {
    std::string backend(name(info.backend));
    if (std::find(names.begin(), names.end(), backend) == names.end()) names.push_back(std::move(backend));
  }
  return names;
}

/// Backends of this build whose devices cannot be used, each with the reason.
std::vector<std::pair<std::string, std::string>> unusable_backends(const Selection& selection) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const std::string& backend : backend_names()) {
    const Device device = Device::parse(backend);
    std::string reason = why_unusable(device);
    if (!reason.empty() && selection.has(device.backend)) all.emplace_back(backend, std::move(reason));
  }
  return all;
}

Json build_as_json(const Selection& selection = {}) {
  Json out;
  out["version"] = KRONSPARSE_VERSION;
  out["backends"] = backend_names();
  out["devices"] = Json::array();
  for (const DeviceInfo& info : devices()) {
    if (!selection.has(info.device)) continue;
    out["devices"].push_back({{"device", info.device.to_string()}, {"description", info.description}});
  }
  out["unusable"] = Json::array();
  for (const auto& [backend, reason] : unusable_backends(selection)) {
    out["unusable"].push_back({{"backend", backend}, {"reason", reason}});
  }
  out["implementations"] = Json::array();
  for (const ImplementationInfo& info : implementations()) {
    if (!selection.has(info.backend)) continue;
    out["implementations"].push_back(
        {{"name", info.name}, {"backend", name(info.backend)}, {"summary", info.summary}});
  }
  return out;
}

void print_build(const Selection& selection) {
  fmt::print("kronsparse {}, backends: {}\n\n", KRONSPARSE_VERSION, fmt::join(backend_names(), ", "));
  Table device_table({{"device"}, {"description"}});
  for (const DeviceInfo& info : devices()) {
    if (selection.has(info.device)) device_table.add_row({info.device.to_string(), info.description});
  }
  Table implementation_table({{"implementation"}, {"backend"}, {"summary"}});
  for (const ImplementationInfo& info : implementations()) {
    if (!selection.has(info.backend)) continue;
    implementation_table.add_row({info.name, std::string(name(info.backend)), info.summary});
  }
  fmt::print("{}", device_table.render(stdout));
  for (const auto& [backend, reason] : unusable_backends(selection)) fmt::print("{}: {}\n", backend, reason);
  fmt::print("\n{}", implementation_table.render(stdout));
}

Json problem_as_json(const Problem& problem, const std::vector<Candidate>& list, Device device) {
  Json out{{"problem", problem.to_string()}, {"device", device.to_string()},
           {"rows", problem.pattern.rows()}, {"cols", problem.pattern.cols()},
           {"nnz", problem.pattern.nnz()},   {"density", problem.pattern.density()},
           {"flops", problem.flops()},       {"bytes", problem.bytes()}};
  out["candidates"] = Json::array();
  for (const Candidate& candidate : list) {
    const bool accepts = candidate.refusal.empty();
    out["candidates"].push_back(
        {{"implementation", candidate.implementation},
         {"device", candidate.device.to_string()},
         {"accepts", accepts},
         {"predicted_seconds", accepts ? Json(candidate.predicted_seconds) : Json(nullptr)},
         {"refusal", accepts ? Json(nullptr) : Json(candidate.refusal)}});
  }
  return out;
}

void print_problem(const Problem& problem, const std::vector<Candidate>& list, Device device) {
  const Pattern& pattern = problem.pattern;
  fmt::print("{}\n", coloured(problem.to_string(), Colour::bold, stdout));
  fmt::print("matrix {} x {}, {} values, density {:.4g}%; {:.4g} GFLOP, {:.4g} MB of operands\n\n",
             grouped(pattern.rows()), grouped(pattern.cols()), grouped(pattern.nnz()),
             100 * pattern.density(), problem.flops() * 1e-9, problem.bytes() * 1e-6);
  Table table({{"candidate"}, {"device"}, {"predicted", Table::Align::right}, {"verdict"}});
  bool first = true;
  for (const Candidate& candidate : list) {
    const bool accepts = candidate.refusal.empty();
    const std::string verdict = accepts && first ? coloured("chosen", Colour::green, stdout)
                                : accepts        ? "accepts"
                                                 : "refuses: " + candidate.refusal;
    table.add_row({candidate.implementation, device.to_string(),
                   accepts ? duration_text(candidate.predicted_seconds) : "-", verdict});
    first = false;
  }
  fmt::print("{}", table.render(stdout));
}

void run_info(const Options& options) {
  if (!options.has_problem) {
    const Selection selection =
        options.device.empty() ? Selection() : Selection(Device::parse(options.device));
    if (options.json) {
      fmt::print("{}\n", build_as_json(selection).dump(2));
    } else {
      print_build(selection);
    }
    return;
  }
  const Problem problem = Problem::parse(options.problem);
  const Device device = choose_device(options.device, "");
  const std::vector<Candidate> list = candidates(problem, device);
  if (options.json) {
    Json out = build_as_json();
    out.update(problem_as_json(problem, list, device));
    fmt::print("{}\n", out.dump(2));
  } else {
    print_problem(problem, list, device);
  }
}

}  // namespace

void add_info_command(Arguments& arguments, ExitCode& /*exit_code*/) {
  auto options = std::make_shared<Options>();
  const Command command =
      arguments.add_command("info", "Backends, devices and implementations; candidates for a problem");
  command
      .option("--problem", options->problem,
              "List every candidate for this problem, its predicted cost or its refusal")
      .type_name("PROBLEM");
  command.option("--device", options->device,
                 "With --problem, where to compute: cpu, cuda:0, ... (default: the best present);\n"
                 "without, list only this device and its implementations");
  command.flag("--json", options->json, "Print JSON");
  command.footer(R"(Examples:
  kronsparse info
  kronsparse info --problem "f16 batch_first B=25088 8x64x64x16 +bias +gelu")");
  command.callback([options, command] {
    options->has_problem = command.was_given("--problem");
    run_info(*options);
  });
}

}  // namespace kronsparse::cli
