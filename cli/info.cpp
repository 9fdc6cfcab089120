// kronsparse info: what this build has, and how it would solve a problem.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

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

/// Backends of this build without a device, and devices that are there and cannot be used, each with the
/// reason.
std::vector<std::pair<std::string, std::string>> unusable_backends(const Selection& selection) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const std::string& backend : backend_names()) {
    Device device = Device::parse(backend);
    if (!selection.has(device.backend)) continue;
    const std::string none = why_unusable({device.backend, std::numeric_limits<int>::max()});
    std::string reason = why_unusable(device);
    if (reason == none) all.emplace_back(backend, reason);
    for (; reason != none; reason = why_unusable(device)) {
      if (!reason.empty()) all.emplace_back(device.to_string(), reason);
      ++device.index;
    }
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

std::string grouped_bytes(std::size_t bytes) { return grouped(static_cast<std::int64_t>(bytes)); }

/// Values of all factors, of the elements of their product as a dense matrix; of one factor, its density.
double share_of_values(const Chain& chain) {
  return static_cast<double>(chain.nnz()) /
         (static_cast<double>(chain.rows()) * static_cast<double>(chain.cols()));
}

/// The cost of a run, by the cost models.
struct Cost {
  std::string implementation;
  double seconds = 0;
  double packing_seconds = 0;
  std::size_t workspace = 0;
};

/// Without values nothing is packed that is kept: what this plan would pack at each run, and where.
Cost cost_of(const Problem& problem, Device device, const std::string& implementation = {}) {
  const Plan plan(problem, device, implementation);
  const Batch batch{problem.batch, problem.cols_stride, problem.rows_stride};
  const std::vector<const void*> some(problem.chain.size(), &batch);  // only that there are values counts
  return {plan.implementation(), plan.predicted_seconds(batch), plan.predicted_packing_seconds(batch),
          plan.workspace_bytes(batch, {.values = some.data()})};
}

/// One product with one factor: who could run it, and what it costs where values are packed once and kept,
/// and where each run packs them.
struct StepInfo {
  Problem problem;
  std::vector<Candidate> candidates;
  Cost kept;
  Cost packing;

  /// Whether it reads values: all but the gradient do.
  [[nodiscard]] bool has_values() const noexcept { return problem.operation != Operation::gradient; }
  /// Bytes of workspace that the fastest kernel needs where values are kept, too.
  [[nodiscard]] std::size_t own_workspace() const {
    return candidates.empty() ? 0 : candidates.front().workspace_bytes;
  }
  /// Bytes of the values as the fastest kernel reads them, which may be as they are.
  [[nodiscard]] std::size_t packed_bytes() const {
    if (!has_values()) return 0;
    const auto plain = static_cast<std::size_t>(problem.chain.nnz()) * size_of(problem.dtype);
    const std::size_t packed = kept.workspace - own_workspace();
    return packed == 0 ? plain : packed;
  }
};

std::vector<StepInfo> step_infos(const Problem& problem, Device device) {
  std::vector<StepInfo> all;
  for (const Problem& step : steps_of(problem)) {
    StepInfo info{step, candidates(step, device), {}, {}};
    if (info.candidates.empty() || !info.candidates.front().refusal.empty()) {
      all.push_back(std::move(info));
      continue;
    }
    info.kept = cost_of(step, device, info.candidates.front().implementation);
    info.packing = cost_of(step, device);
    all.push_back(std::move(info));
  }
  return all;
}

/// The chain in one pass. No candidates where no implementation of the device could do that.
StepInfo whole_info(const Problem& problem, Device device) {
  StepInfo info{problem, {}, {}, {}};
  if (problem.chain.size() == 1) return info;
  std::set<std::string> for_chains;
  for (const ImplementationInfo& one : implementations())
    if (one.takes_chains && one.backend == device.backend) for_chains.insert(one.name);
  for (Candidate& candidate : candidates(problem, device))
    if (for_chains.contains(candidate.implementation)) info.candidates.push_back(std::move(candidate));
  if (info.candidates.empty() || !info.candidates.front().refusal.empty()) return info;
  info.kept = cost_of(problem, device, info.candidates.front().implementation);
  info.packing = info.kept;
  return info;
}

/// Sums over the steps; the workspace is what is left when packed values are kept.
struct Totals {
  bool in_one_pass = false;  ///< the whole chain is faster than its steps
  double kept_seconds = 0;
  double packing_run_seconds = 0;
  double packing_seconds = 0;
  std::size_t packed_bytes = 0;
  std::size_t workspace = 0;          ///< of a plan without values
  std::size_t workspace_of_kept = 0;  ///< of a plan that keeps them
};

Totals totals_of(const Problem& problem, const StepInfo& whole, const std::vector<StepInfo>& steps,
                 Device device) {
  Totals totals;
  std::size_t packed_at_each_run = 0, own_workspace = 0;
  for (const StepInfo& step : steps) {
    if (step.kept.implementation.empty()) return {};  // nobody accepts a step
    totals.kept_seconds += step.kept.seconds;
    totals.packing_run_seconds += step.packing.seconds;
    totals.packing_seconds += step.packing.packing_seconds;
    totals.packed_bytes += step.packed_bytes();
    if (step.has_values()) packed_at_each_run += step.packing.workspace;
    own_workspace = std::max(own_workspace, step.own_workspace());
  }
  if (!whole.kept.implementation.empty() && whole.kept.seconds < totals.kept_seconds)
    return {.in_one_pass = true,
            .kept_seconds = whole.kept.seconds,
            .packing_run_seconds = whole.packing.seconds,
            .packing_seconds = whole.packing.packing_seconds,
            .packed_bytes = whole.packed_bytes(),
            .workspace = whole.packing.workspace,
            .workspace_of_kept = 0};
  totals.workspace = cost_of(problem, device).workspace;
  totals.workspace_of_kept =
      totals.workspace - std::min(totals.workspace, packed_at_each_run) + own_workspace;
  return totals;
}

Json candidates_as_json(const std::vector<Candidate>& list) {
  Json out = Json::array();
  for (const Candidate& candidate : list) {
    const bool accepts = candidate.refusal.empty();
    out.push_back({{"implementation", candidate.implementation},
                   {"device", candidate.device.to_string()},
                   {"accepts", accepts},
                   {"predicted_seconds", accepts ? Json(candidate.predicted_seconds) : Json(nullptr)},
                   {"measured", candidate.is_measured},
                   {"refusal", accepts ? Json(nullptr) : Json(candidate.refusal)}});
  }
  return out;
}

Json problem_as_json(const Problem& problem, const StepInfo& whole, const std::vector<StepInfo>& steps,
                     Device device) {
  const Chain& chain = problem.chain;
  Json out{
      {"problem", problem.to_string()}, {"device", device.to_string()}, {"rows", chain.rows()},
      {"cols", chain.cols()},           {"nnz", chain.nnz()},           {"density", share_of_values(chain)},
      {"flops", problem.flops()},       {"bytes", problem.bytes()}};
  if (steps.size() == 1) out["candidates"] = candidates_as_json(steps.front().candidates);
  out["steps"] = Json::array();
  for (const StepInfo& step : steps) {
    Json item{{"problem", step.problem.to_string()},
              {"chosen", step.kept.implementation},
              {"predicted_seconds", step.kept.seconds},
              {"packed_bytes", step.packed_bytes()}};
    item["packing_at_each_run"] = {{"chosen", step.packing.implementation},
                                   {"predicted_seconds", step.packing.seconds},
                                   {"predicted_packing_seconds", step.packing.packing_seconds},
                                   {"workspace_bytes", step.packing.workspace}};
    item["candidates"] = candidates_as_json(step.candidates);
    out["steps"].push_back(std::move(item));
  }
  const Totals totals = totals_of(problem, whole, steps, device);
  if (!whole.candidates.empty())
    out["in_one_pass"] = {{"chosen", totals.in_one_pass},
                          {"candidates", candidates_as_json(whole.candidates)}};
  out["predicted_seconds"] = totals.kept_seconds;
  out["packed_bytes"] = totals.packed_bytes;
  out["workspace_bytes"] = totals.workspace_of_kept;
  out["packing_at_each_run"] = {{"predicted_seconds", totals.packing_run_seconds},
                                {"predicted_packing_seconds", totals.packing_seconds},
                                {"workspace_bytes", totals.workspace}};
  return out;
}

void print_step(const StepInfo& step, Device device) {
  Table table({{"candidate"}, {"device"}, {"time", Table::Align::right}, {"is"}, {"verdict"}});
  bool first = true;
  for (const Candidate& candidate : step.candidates) {
    const bool accepts = candidate.refusal.empty();
    const std::string verdict = accepts && first ? coloured("chosen", Colour::green, stdout)
                                : accepts        ? "accepts"
                                                 : "refuses: " + candidate.refusal;
    table.add_row({candidate.implementation, device.to_string(),
                   accepts ? duration_text(candidate.predicted_seconds) : "-",
                   !accepts                ? "-"
                   : candidate.is_measured ? "measured"
                                           : "predicted",
                   verdict});
    first = false;
  }
  fmt::print("{}", table.render(stdout));
  if (step.kept.implementation.empty() || !step.has_values()) return;
  fmt::print("packed once: {} bytes of values, a run takes {}\n", grouped_bytes(step.packed_bytes()),
             duration_text(step.kept.seconds));
  fmt::print("packed at each run: by {}, {} to pack and {} to run, {} bytes of workspace\n",
             step.packing.implementation, duration_text(step.packing.packing_seconds),
             duration_text(step.packing.seconds), grouped_bytes(step.packing.workspace));
}

void print_problem(const Problem& problem, const StepInfo& whole, const std::vector<StepInfo>& steps,
                   Device device) {
  const Chain& chain = problem.chain;
  fmt::print("{}\n", coloured(problem.to_string(), Colour::bold, stdout));
  fmt::print("matrix {} x {}, {} values, density {:.4g}%; {:.4g} GFLOP, {:.4g} MB of operands\n\n",
             grouped(chain.rows()), grouped(chain.cols()), grouped(chain.nnz()), 100 * share_of_values(chain),
             problem.flops() * 1e-9, problem.bytes() * 1e-6);
  for (std::size_t step = 0; step < steps.size(); ++step) {
    if (steps.size() > 1)
      fmt::print("step {}: {}\n", step + 1, coloured(steps[step].problem.to_string(), Colour::bold, stdout));
    print_step(steps[step], device);
    if (steps.size() > 1) fmt::print("\n");
  }
  if (steps.size() == 1) return;
  const Totals totals = totals_of(problem, whole, steps, device);
  if (!whole.candidates.empty()) {
    fmt::print("in one pass: {}\n",
               totals.in_one_pass ? "faster than the steps" : "no faster than the steps");
    print_step(whole, device);
    fmt::print("\n");
  }
  if (totals.workspace == 0) return;
  fmt::print("all: a run takes {} with values packed once ({} bytes, and {} of workspace);\n",
             duration_text(totals.kept_seconds), grouped_bytes(totals.packed_bytes),
             grouped_bytes(totals.workspace_of_kept));
  fmt::print("     {} to pack and {} to run where each run packs them ({} bytes of workspace)\n",
             duration_text(totals.packing_seconds), duration_text(totals.packing_run_seconds),
             grouped_bytes(totals.workspace));
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
  const std::vector<StepInfo> steps = step_infos(problem, device);
  const StepInfo whole = whole_info(problem, device);
  if (options.json) {
    Json out = build_as_json();
    out.update(problem_as_json(problem, whole, steps, device));
    fmt::print("{}\n", out.dump(2));
  } else {
    print_problem(problem, whole, steps, device);
  }
}

}  // namespace

void add_info_command(Arguments& arguments, ExitCode& /*exit_code*/) {
  auto options = std::make_shared<Options>();
  const Command command =
      arguments.add_command("info", "Backends, devices and implementations; candidates for a problem");
  command
      .option("--problem", options->problem,
              "Problem whose candidates are listed, each with its time or its refusal; for a chain, of each\n"
              "factor. Times are predicted, or measured by 'kronsparse tune'. Also prints what packing takes")
      .type_name("PROBLEM");
  command.option(
      "--device", options->device,
      "Device: cpu, cuda:0, ... With --problem the one that would compute (default: the best present);\n"
      "without, the only one that is listed");
  command.flag("--json", options->json, "Print JSON instead of tables");
  command.footer(R"(Examples:
  kronsparse info
  kronsparse info --problem "f16 batch_first B=25088 8x64x64x16 +bias +gelu"
  kronsparse info --problem "f16 batch_first B=1024 1x64x64x64*64x64x64x1 +bias +gelu")");
  command.callback([options, command] {
    options->has_problem = command.was_given("--problem");
    run_info(*options);
  });
}

}  // namespace kronsparse::cli
