#include "core/decision.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <utility>

#include "core/geometry.hpp"
#include "core/message.hpp"
#include "core/tuned_times.hpp"
#include "kronsparse/error.hpp"

namespace kronsparse {
namespace {

/// The addresses that run_decision reads and writes, by location.
class Addresses {
 public:
  Addresses(const Decision& decision, const Operands& operands, const Workspace& workspace)
      : decision_(decision), operands_(operands), workspace_(workspace) {}

  [[nodiscard]] void* at(Location location, std::size_t factor) const {
    const MemoryLayout& memory = decision_.memory;
    switch (location.place) {
      case Place::nothing:
        return nullptr;
      case Place::x:
        return const_cast<void*>(operands_.x);
      case Place::y:
        return operands_.y;
      case Place::g:
        return const_cast<void*>(operands_.g);
      case Place::grad_x:
        return operands_.grad_x;
      case Place::gradient:
        return gradient_of(factor);
      case Place::intermediate: {
        auto* begin = operands_.intermediates != nullptr ? static_cast<std::byte*>(operands_.intermediates)
                                                         : in_workspace(workspace_.intermediates);
        // A product that nobody needs later takes one of two scratches, as all steps but the gradient's do.
        if (operands_.intermediates == nullptr && decision_.problem.operation != Operation::gradient)
          return in_workspace(workspace_.scratch +
                              location.index % 2 % memory.scratches * memory.scratch_bytes);
        return begin + memory.intermediates[location.index];
      }
      case Place::scratch:
        return in_workspace(workspace_.scratch + location.index % memory.scratches * memory.scratch_bytes);
    }
    return nullptr;
  }

  [[nodiscard]] std::byte* in_workspace(std::size_t offset) const {
    return static_cast<std::byte*>(operands_.workspace) + offset;
  }

 private:
  [[nodiscard]] void* gradient_of(std::size_t factor) const {
    if (operands_.gradients != nullptr) return operands_.gradients[factor];
    std::int64_t before = 0;
    for (std::size_t other = 0; other < factor; ++other) before += decision_.problem.chain[other].nnz();
    return static_cast<std::byte*>(operands_.y) +
           static_cast<std::size_t>(before) * size_of(decision_.problem.dtype);
  }

  const Decision& decision_;
  const Operands& operands_;
  const Workspace& workspace_;
};

double cost_of(const Assessment& one, bool packs) {
  return one.proposal.seconds + (packs ? one.proposal.packing_seconds : 0);
}

/// Cheapest first; between equals the table's order decides.
void sort_by_cost(std::vector<Assessment>& all, bool packs) {
  std::ranges::sort(all, [&](const Assessment& left, const Assessment& right) {
    const double of_left = cost_of(left, packs), of_right = cost_of(right, packs);
    return of_left != of_right ? of_left < of_right : left.implementation < right.implementation;
  });
}

bool has_no_measured_times(const Problem& problem, Device device) {
  return tuned_times(problem, device).empty();
}

void clear_gradient(const DecidedStep& step, const BackendEntry& backend, Device device, void* to,
                    Stream stream) {
  const Problem& problem = step.step.problem;
  const std::size_t bytes = static_cast<std::size_t>(problem.pattern().nnz()) * size_of(problem.dtype);
  backend.memory.clear(device, to, bytes, stream);
}

}  // namespace

void complete(Decision& decision) {
  const Problem& problem = decision.problem;
  const std::size_t factors = problem.chain.size();
  const auto bytes_of = [&](std::int64_t features) {
    return aligned(static_cast<std::size_t>(features) * static_cast<std::size_t>(problem.batch) *
                   size_of(problem.dtype));
  };
  MemoryLayout& memory = decision.memory;
  const bool is_gradient = problem.operation == Operation::gradient;
  memory.intermediates.assign(factors, 0);
  if (problem.operation == Operation::multiply || is_gradient)
    for (std::size_t index = 1; index < factors; ++index) {
      memory.intermediates[index] = memory.intermediate_bytes;
      memory.intermediate_bytes += bytes_of(intermediate_features(problem.chain, index));
    }
  // Between neighbours lies one matrix whichever way they are taken.
  for (std::size_t index = 1; index < factors; ++index)
    memory.scratch_bytes = std::max(memory.scratch_bytes, bytes_of(problem.chain[index].rows()));
  const bool is_whole = decision.steps.size() == 1;  // nothing is handed on
  memory.scratches = is_whole ? 0 : std::min<std::size_t>(factors - 1, 2);

  for (const DecidedStep& step : decision.steps) {
    if (step.step.y.place == Place::grad_x) continue;  // not of every run
    if (!decision.implementation.empty()) decision.implementation += " + ";
    decision.implementation += step.implementation->name;
    decision.seconds += step.seconds;
    if (step.has_values() && step.kept == nullptr) decision.packing_seconds += step.packing_seconds;
  }
}

Decision decision_of(const Problem& problem, DecidedStep whole) {
  Decision decision{.problem = problem};
  decision.steps.push_back(std::move(whole));
  complete(decision);
  return decision;
}

Step whole_step(const Problem& problem) {
  return {.factor = 0, .problem = problem, .x = {Place::x}, .g = {}, .y = {Place::y}};
}

std::vector<Assessment> accepted_for_whole(const Problem& problem, const BackendEntry& backend, Device device,
                                           const Forced& forced, bool packs,
                                           const std::function<double()>& seconds_apart, bool* is_outdone) {
  if (problem.chain.size() == 1 || problem.operation == Operation::gradient) return {};
  const std::span<const Implementation> table = backend.implementations;
  const auto may_run = [&](bool chains) {
    return std::ranges::any_of(table, [&](const Implementation& one) {
      return one.takes_chains == chains && !forced.leaves_out(one.name);
    });
  };
  if (!may_run(true)) return {};
  if (!may_run(false)) return accepted_from(table, problem, device, forced);
  const double apart = seconds_apart();
  const bool is_open = has_no_measured_times(problem, device) && forced.name.empty();
  if (is_open && std::ranges::all_of(table, [&](const Implementation& one) {
        return !one.takes_chains || (one.at_least != nullptr && one.at_least(problem, device) >= apart);
      }))
    return {};
  std::vector<Assessment> all =
      is_open ? promising(table, problem, device, packs) : assess(table, problem, device, forced);
  std::erase_if(all, [](const Assessment& one) { return !one.proposal.refusal.empty(); });
  const auto is_slower = [&](double than) {
    return [&, than](const Assessment& one) { return cost_of(one, packs) >= than; };
  };
  if (is_outdone != nullptr) *is_outdone = is_open && std::ranges::all_of(all, is_slower(far_slower * apart));
  std::erase_if(all, is_slower(apart));
  sort_by_cost(all, false);
  return all;
}

Forced forced_for_steps(const BackendEntry& backend, const Forced& forced) {
  const auto may_run = [&](bool chains) {
    return std::ranges::any_of(backend.implementations, [&](const Implementation& one) {
      return one.takes_chains == chains && !forced.leaves_out(one.name);
    });
  };
  return may_run(true) && !may_run(false) ? Forced{} : forced;
}

std::vector<Assessment> accepted_for(const Step& step, Operation operation, const BackendEntry& backend,
                                     Device device, const Forced& forced) {
  const std::span<const Implementation> table = backend.implementations;
  if (forced.name.empty() && has_no_measured_times(step.problem, device))
    if (std::vector<Assessment> all = promising(table, step.problem, device, false); !all.empty()) {
      sort_by_cost(all, false);
      return all;
    }
  if (step.problem.operation != operation && !forced.name.empty()) {
    const std::vector<Assessment> asked = assess(table, step.problem, device, forced);
    if (asked.empty() || !asked.front().proposal.refusal.empty())
      return accepted_from(table, step.problem, device, {});
  }
  return accepted_from(table, step.problem, device, forced);
}

Assessment cheapest_packing(const Step& step, Operation operation, const BackendEntry& backend, Device device,
                            const Forced& forced, Places* outdone) {
  const bool packs = step.problem.operation != Operation::gradient;
  const std::span<const Implementation> table = backend.implementations;
  std::vector<Assessment> all;
  const bool is_open = forced.name.empty() && has_no_measured_times(step.problem, device);
  if (is_open) all = promising(table, step.problem, device, packs, outdone == nullptr ? 0 : *outdone);
  if (all.empty()) all = accepted_for(step, operation, backend, device, forced);
  sort_by_cost(all, packs);
  if (is_open && outdone != nullptr && *outdone == 0)
    for (const Assessment& one : all)
      if (cost_of(one, packs) > far_slower * cost_of(all.front(), packs))
        *outdone |= Places{1} << (one.implementation - table.data());
  return std::move(all.front());
}

Ways cheapest_ways(const Problem& problem, const BackendEntry& backend, Device device, const Forced& forced,
                   bool stores, Learned& learned) {
  const Forced of_steps = stores ? forced_for_steps(backend, forced) : forced;
  Ways ways;
  const auto seconds_apart = [&] {
    double seconds = 0;
    for (Step& step : make_steps(problem)) {
      if (learned.outdone.size() <= ways.size()) learned.outdone.push_back(0);
      Assessment chosen =
          cheapest_packing(step, problem.operation, backend, device, of_steps, &learned.outdone[ways.size()]);
      seconds += cost_of(chosen, true);
      ways.emplace_back(std::move(step), std::move(chosen));
    }
    return seconds;
  };
  if (!stores && !learned.skips_whole) {
    double apart = std::numeric_limits<double>::infinity();
    const auto apart_unless_skipped = [&] { return learned.skips_steps ? apart : apart = seconds_apart(); };
    std::vector<Assessment> whole = accepted_for_whole(problem, backend, device, forced, true,
                                                       apart_unless_skipped, &learned.skips_whole);
    if (whole.empty() && learned.skips_steps) learned.skips_whole = learned.skips_steps = false;
    if (!whole.empty()) {
      learned.skips_steps = forced.name.empty() && apart > far_slower * cost_of(whole.front(), true);
      ways.clear();
      ways.emplace_back(whole_step(problem), std::move(whole.front()));
    }
  }
  if (ways.empty()) static_cast<void>(seconds_apart());
  return ways;
}

DecidedStep with_executor(Step step, const Assessment& chosen) {
  const Proposal& proposal = chosen.proposal;
  return {std::move(step),  chosen.implementation,    proposal.make(),
          proposal.seconds, proposal.packing_seconds, proposal.workspace_bytes};
}

DecidedStep choose_packing(Step step, Operation operation, const BackendEntry& backend, Device device,
                           const Forced& forced) {
  const Assessment chosen = cheapest_packing(step, operation, backend, device, forced);
  return with_executor(std::move(step), chosen);
}

bool is_wanted(const Decision& decision, const Step& step, const Operands& operands) {
  if (decision.problem.operation != Operation::gradient) return true;
  const std::size_t factors = decision.problem.chain.size();
  const auto is_gradient_wanted = [&](std::size_t factor) {
    return operands.gradients == nullptr || operands.gradients[factor] != nullptr;
  };
  switch (step.y.place) {
    case Place::gradient:
      return is_gradient_wanted(step.factor);
    case Place::intermediate:  // for the gradients of factors to the left
      if (operands.intermediates != nullptr) return false;
      for (std::size_t factor = 0; factor < step.factor; ++factor)
        if (is_gradient_wanted(factor)) return true;
      return false;
    default:  // for those of factors to the right, and of x
      for (std::size_t factor = step.factor + 1; factor < factors; ++factor)
        if (is_gradient_wanted(factor)) return true;
      return operands.grad_x != nullptr;
  }
}

Workspace workspace_of(const Decision& decision, const Operands& operands) {
  Workspace workspace;
  for (const DecidedStep& step : decision.steps)
    if (is_wanted(decision, step.step, operands)) workspace.bytes += step.packed_bytes();
  const MemoryLayout& memory = decision.memory;
  const bool is_gradient = decision.problem.operation == Operation::gradient;
  workspace.intermediates = workspace.bytes;
  if (is_gradient && operands.intermediates == nullptr) workspace.bytes += memory.intermediate_bytes;
  workspace.scratch = workspace.bytes;
  const bool has_place =
      decision.problem.operation == Operation::multiply && operands.intermediates != nullptr;
  if (!has_place) workspace.bytes += memory.scratches * memory.scratch_bytes;
  workspace.executors = workspace.bytes;
  std::size_t most = 0;
  for (const DecidedStep& step : decision.steps)
    if (is_wanted(decision, step.step, operands)) most = std::max(most, step.own_bytes);
  workspace.bytes += aligned(most);
  return workspace;
}

void run_decision(const Decision& decision, const BackendEntry& backend, Device device,
                  const Operands& operands, bool kept_are_fresh) {
  const Workspace workspace = workspace_of(decision, operands);
  const Addresses addresses(decision, operands, workspace);
  const bool is_empty = decision.problem.batch == 0;

  // All values in one go: on a GPU that is one kernel.
  std::array<PackJob, 8> jobs;
  std::size_t job_count = 0;
  std::size_t packed_at = 0;
  const auto pack = [&] {
    if (job_count > 0) backend.pack(device, std::span(jobs).first(job_count), operands.stream);
    job_count = 0;
  };
  for (const DecidedStep& step : decision.steps) {
    const std::size_t bytes = step.packed_bytes();
    if (is_empty || bytes == 0 || !is_wanted(decision, step.step, operands)) continue;
    jobs[job_count++] = {step.executor.get(), operands.values + step.step.factor,
                         addresses.in_workspace(packed_at)};
    packed_at += bytes;
    if (job_count == jobs.size()) pack();
  }
  pack();

  // A kernel may begin before those ahead of it have ended, and they before the packing has.
  const bool just_packed = packed_at > 0 || kept_are_fresh;
  packed_at = 0;
  for (const DecidedStep& step : decision.steps) {
    if (!is_wanted(decision, step.step, operands)) continue;
    const std::size_t factor = step.step.factor;
    Operands of_step;
    of_step.x = addresses.at(step.step.x, factor);
    of_step.g = addresses.at(step.step.g, factor);
    of_step.y = addresses.at(step.step.y, factor);
    of_step.bias = step.step.problem.bias ? operands.bias : nullptr;
    of_step.stream = operands.stream;
    of_step.workspace = addresses.in_workspace(workspace.executors);
    if (is_empty) {  // sums of nothing
      if (!step.has_values()) clear_gradient(step, backend, device, of_step.y, operands.stream);
      continue;
    }
    Weights weights{.just_packed = just_packed};
    if (step.kept != nullptr)
      weights.data = step.kept.get();
    else if (const std::size_t bytes = step.packed_bytes(); bytes > 0)
      weights.data = addresses.in_workspace(std::exchange(packed_at, packed_at + bytes));
    else if (step.has_values())  // as given: work ahead of the run may write them
      weights = {.data = operands.values[factor], .just_packed = true};
    step.executor->run(of_step, weights);
  }
}

}  // namespace kronsparse
