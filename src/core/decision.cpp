#include "core/decision.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "core/geometry.hpp"
#include "core/message.hpp"
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
                                           const std::function<double()>& seconds_apart) {
  if (problem.chain.size() == 1 || problem.operation == Operation::gradient) return {};
  const std::span<const Implementation> table = backend.implementations;
  const auto may_run = [&](bool chains) {
    return std::ranges::any_of(table, [&](const Implementation& one) {
      return one.takes_chains == chains && !forced.leaves_out(one.name);
    });
  };
  if (!may_run(true)) return {};
  if (!may_run(false)) return accepted_from(table, problem, device, forced);
  std::vector<Assessment> all = assess(table, problem, device, forced);
  std::erase_if(all, [](const Assessment& one) { return !one.proposal.refusal.empty(); });
  if (all.empty()) return all;
  const double apart = seconds_apart();
  std::erase_if(all, [&](const Assessment& one) {
    return one.proposal.seconds + (packs ? one.proposal.packing_seconds : 0) >= apart;
  });
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
  if (step.problem.operation != operation && !forced.name.empty()) {
    const std::vector<Assessment> asked = assess(table, step.problem, device, forced);
    if (asked.empty() || !asked.front().proposal.refusal.empty())
      return accepted_from(table, step.problem, device, {});
  }
  return accepted_from(table, step.problem, device, forced);
}

Assessment cheapest_packing(const Step& step, Operation operation, const BackendEntry& backend, Device device,
                            const Forced& forced) {
  std::vector<Assessment> all = accepted_for(step, operation, backend, device, forced);
  const bool packs = step.problem.operation != Operation::gradient;
  const auto cost = [&](const Assessment& one) {
    return one.proposal.seconds + (packs ? one.proposal.packing_seconds : 0);
  };
  return std::move(*std::ranges::min_element(all, {}, cost));
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
