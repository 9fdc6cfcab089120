// A problem decided: an executor for each of its steps, and the memory they share.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/batch_classes.hpp"
#include "core/choice.hpp"
#include "core/implementation.hpp"
#include "core/steps.hpp"

namespace kronsparse {

inline constexpr std::size_t memory_alignment = 256;
[[nodiscard]] inline std::size_t aligned(std::size_t bytes) noexcept {
  return (bytes + memory_alignment - 1) / memory_alignment * memory_alignment;
}

/// A step and what runs it: a product with one factor, or with the whole chain.
struct DecidedStep {
  Step step;
  const Implementation* implementation;
  std::shared_ptr<const Executor> executor;
  double seconds;          ///< predicted
  double packing_seconds;  ///< predicted
  std::size_t own_bytes;   ///< of workspace, that the executor needs besides the values
  /// The values where they are kept, in the executor's order; null where a run packs them.
  std::shared_ptr<const void> kept = {};

  /// Whether the step reads values at all.
  [[nodiscard]] bool has_values() const noexcept { return step.problem.operation != Operation::gradient; }
  /// Bytes of workspace that its values take in a run.
  [[nodiscard]] std::size_t packed_bytes() const noexcept {
    const PackedOrder& order = executor->order();
    return !has_values() || kept != nullptr || order.is_as_given() ? 0 : aligned(order.bytes);
  }
};

/// The sizes of a run's memory; 0 bytes for a part that is not needed.
struct MemoryLayout {
  std::vector<std::size_t> intermediates;  ///< from the beginning of theirs, by index; the first is unused
  std::size_t intermediate_bytes = 0;
  std::size_t scratch_bytes = 0;  ///< of each scratch
  std::size_t scratches = 0;      ///< 0, 1 or 2
};

struct Decision {
  Problem problem;  ///< with the batch
  std::vector<DecidedStep> steps = {};
  MemoryLayout memory = {};
  std::string implementation = {};  ///< names, joined by " + "
  double seconds = 0;               ///< predicted, of the steps of `implementation`
  double packing_seconds = 0;
};

/// Whether a run with such operands needs a step.
[[nodiscard]] bool is_wanted(const Decision& decision, const Step& step, const Operands& operands);

/// The beginnings of the parts of a run's workspace. Packed values are first, in the order of the steps.
struct Workspace {
  std::size_t intermediates = 0;  ///< begin of them, unless the operands have a place for them
  std::size_t scratch = 0;        ///< begin of the first
  std::size_t executors = 0;      ///< begin of what executors use, one after the other
  std::size_t bytes = 0;          ///< of all
};
[[nodiscard]] Workspace workspace_of(const Decision& decision, const Operands& operands);

/// Decides for each step with `choose`, (step) -> DecidedStep.
template <class Choose>
[[nodiscard]] Decision make_decision(const Problem& problem, const Choose& choose);
/// Decides for one step that is the whole problem.
[[nodiscard]] Decision decision_of(const Problem& problem, DecidedStep whole);

/// The multiplication with a whole chain as one step.
[[nodiscard]] Step whole_step(const Problem& problem);
/// Implementations that may run a chain in one pass, the cheapest first, and none for other problems.
/// `seconds_apart` says what its steps take one by one: ways that are no faster do not count, unless one is
/// forced. `packs`: values are packed at each run. `is_outdone` becomes true where they are far slower.
[[nodiscard]] std::vector<Assessment> accepted_for_whole(const Problem& problem, const BackendEntry& backend,
                                                         Device device, const Forced& forced, bool packs,
                                                         const std::function<double()>& seconds_apart,
                                                         bool* is_outdone = nullptr);

/// Completes a decision whose problem and steps are there.
void complete(Decision& decision);

/// Implementations that may run a step: accepting ones, cheapest first, but for some that are certainly
/// slower than the first. What is forced for an operation need
/// not be able to do the other products that go with it (of the gradient, those that bring x and g to a
/// factor): these are then free.
[[nodiscard]] std::vector<Assessment> accepted_for(const Step& step, Operation operation,
                                                   const BackendEntry& backend, Device device,
                                                   const Forced& forced);

/// The implementation that steps of a chain must take: any, where the forced one takes whole chains only.
[[nodiscard]] Forced forced_for_steps(const BackendEntry& backend, const Forced& forced);

/// The cheapest way to run a step that packs its values at each run, not made yet: on a GPU, to make an
/// executor takes longer than to find it. Those that are `outdone` are asked only where nobody else accepts;
/// where that is 0 it becomes who was far slower than the cheapest.
[[nodiscard]] Assessment cheapest_packing(const Step& step, Operation operation, const BackendEntry& backend,
                                          Device device, const Forced& forced, Places* outdone = nullptr);
/// What to run, and how; not made yet.
using Ways = std::vector<std::pair<Step, Assessment>>;
/// The cheapest ways to run a problem that packs its values at each run: the chain in one pass, or its steps
/// one by one, as they must be where a run `stores` the intermediates. Uses what was learned of the batch's
/// class, and adds to it.
[[nodiscard]] Ways cheapest_ways(const Problem& problem, const BackendEntry& backend, Device device,
                                 const Forced& forced, bool stores, Learned& learned);
/// A step with its executor made.
[[nodiscard]] DecidedStep with_executor(Step step, const Assessment& chosen);
/// The cheapest way, made.
[[nodiscard]] DecidedStep choose_packing(Step step, Operation operation, const BackendEntry& backend,
                                         Device device, const Forced& forced);

/// Runs the steps; operands were checked. Weights of steps come from where they are kept, from
/// operands.values as they lie, or by packing those into the workspace.
void run_decision(const Decision& decision, const BackendEntry& backend, Device device,
                  const Operands& operands, bool kept_are_fresh);

template <class Choose>
Decision make_decision(const Problem& problem, const Choose& choose) {
  Decision decision{.problem = problem};
  for (Step& step : make_steps(problem)) decision.steps.push_back(choose(std::move(step)));
  complete(decision);
  return decision;
}

}  // namespace kronsparse
