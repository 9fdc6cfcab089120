#include <algorithm>
#include <limits>

#include "core/checked.hpp"
#include "core/message.hpp"
#include "core/operand_check.hpp"
#include "core/plan_state.hpp"
#include "core/tune.hpp"
#include "core/tuned_times.hpp"
#include "kronsparse/buffer.hpp"
#include "kronsparse/error.hpp"

namespace kronsparse {
namespace {

/// A kernel that reads what is packed may take so much longer than the fastest before its own order is
/// packed.
constexpr double worth_packing = 1.1;

Allocator device_allocator(Device device) {
  return [device](std::size_t bytes) {
    auto buffer = std::make_shared<Buffer>(bytes, device);
    return std::shared_ptr<void>(buffer, buffer->data());
  };
}

/// Whether no run needs values: for some there may have been no room.
bool keeps_all(const Decision& decision) {
  return std::ranges::all_of(
      decision.steps, [](const DecidedStep& step) { return !step.has_values() || step.kept != nullptr; });
}

std::size_t bytes_of(std::span<const PackedEntry> packed) {
  std::size_t sum = 0;
  for (const PackedEntry& entry : packed) sum += entry.order.bytes;
  return sum;
}

std::size_t values_bytes(const Chain& chain, DType dtype) {
  return static_cast<std::size_t>(chain.nnz()) * size_of(dtype);
}

}  // namespace

bool may_keep_whole(const Chain& chain, DType dtype, std::size_t held, std::size_t more) {
  if (held + more <= 3 * values_bytes(chain, dtype)) return true;
  constexpr std::size_t small = std::size_t{1} << 20;
  const double dense = static_cast<double>(chain.rows()) * static_cast<double>(chain.cols()) *
                       static_cast<double>(size_of(dtype));
  return held == 0 && (more <= small || static_cast<double>(more) <= dense / 4);
}

PackedValues::State::State(const Plan::State& plan, Allocator given)
    : chain(plan.problem.chain),
      dtype(plan.problem.dtype),
      device(plan.device),
      backend(plan.backend),
      allocator(given ? std::move(given) : device_allocator(plan.device)) {}

void PackedValues::State::check_belongs(const Plan::State& plan) const {
  if (plan.problem.chain == chain && plan.problem.dtype == dtype && plan.device == device) return;
  throw Error(ErrorCode::size_mismatch,
              message("packed: values of {} {} on {} given, the plan is of {} {} on {}", name(dtype),
                      chain.to_string(), device.to_string(), name(plan.problem.dtype),
                      plan.problem.chain.to_string(), plan.device.to_string()));
}

std::size_t PackedValues::State::limit() const { return 3 * values_bytes(chain, dtype); }

std::size_t PackedValues::State::bytes() const {
  const std::scoped_lock lock(mutex);
  return bytes_of(entries);
}

std::vector<PackedValues::State::Fitting> PackedValues::State::ways_that_fit(
    const Step& step, const Plan::State& plan, std::span<const PackedEntry> packed) const {
  std::vector<Fitting> all;
  const bool is_free = step.problem.operation != plan.problem.operation;
  for (const PackedEntry& entry : packed) {
    if (entry.factor != step.factor || entry.factors != step.problem.chain.size()) continue;
    for (const Implementation& implementation : backend->implementations) {
      // Values as they are given may be read by several.
      const bool is_theirs = entry.order.is_as_given() || implementation.name == entry.order.family;
      if (!is_theirs || (!is_free && plan.forced().leaves_out(implementation.name))) continue;
      std::vector<Assessment> answer{
          {&implementation, implementation.propose(step.problem, device, &entry.order)}};
      apply_tuned_times(answer, step.problem, device, &entry.order);
      if (answer.front().proposal.refusal.empty()) all.push_back({std::move(answer.front()), &entry});
    }
  }
  // Who is forced comes first where they can do this step, as in accepted_for.
  const auto is_left_out = [&](const Fitting& one) {
    return plan.forced().leaves_out(one.way.implementation->name);
  };
  if (!std::ranges::all_of(all, is_left_out)) std::erase_if(all, is_left_out);
  std::ranges::stable_sort(all, {}, [](const Fitting& one) { return one.way.proposal.seconds; });
  return all;
}

std::optional<DecidedStep> PackedValues::State::made_of(const Step& step, std::span<const Fitting> all) {
  for (const Fitting& one : all) {
    DecidedStep decided = with_executor(step, one.way);
    if (decided.executor->order() != one.entry->order) continue;
    decided.kept = one.entry->memory;
    return decided;
  }
  return {};
}

std::optional<DecidedStep> PackedValues::State::fitting(const Step& step, const Plan::State& plan,
                                                        std::span<const PackedEntry> packed) const {
  return made_of(step, ways_that_fit(step, plan, packed));
}

/// Keeps the order of the fastest kernel, unless one of those packed is nearly as good, or there is no room;
/// then what is fastest of: a slower kernel whose order has room or is packed, packing at each run.
DecidedStep PackedValues::State::choose_kept(Step step, const Plan::State& plan, bool is_known,
                                             std::vector<Assessment> all,
                                             std::vector<PackedEntry>& packed) const {
  std::optional<DecidedStep> fits = fitting(step, plan, packed);
  if (fits && is_known) return *std::move(fits);
  if (all.empty()) all = accepted_for(step, plan.problem.operation, *backend, device, plan.forced());
  if (fits && (fits->seconds <= worth_packing * all.front().proposal.seconds)) return *std::move(fits);
  const bool is_first = std::ranges::none_of(packed, [&](const PackedEntry& entry) {
    return entry.factor <= step.factor && step.factor < entry.factor + entry.factors;
  });
  const std::size_t held = bytes_of(packed);
  std::optional<DecidedStep> packing;  // of the fastest
  for (const Assessment& one : all) {
    const Proposal& proposal = one.proposal;
    if (fits && fits->seconds <= proposal.seconds) return *std::move(fits);
    if (packing && !always_keeps && packing->seconds + packing->packing_seconds <= proposal.seconds)
      return *std::move(packing);
    DecidedStep made = with_executor(step, one);
    if (is_first || held + made.executor->order().bytes <= limit()) return keep(std::move(made), packed);
    if (!packing) packing = std::move(made);
  }
  if (fits) return *std::move(fits);
  return always_keeps ? keep(*std::move(packing), packed) : *std::move(packing);
}

DecidedStep PackedValues::State::keep(DecidedStep made, std::vector<PackedEntry>& packed) const {
  const PackedOrder& order = made.executor->order();
  std::shared_ptr<void> memory = allocator(std::max<std::size_t>(order.bytes, 1));
  packed.push_back({made.step.factor, made.step.problem.chain.size(), order, made.executor, memory});
  made.kept = std::move(memory);
  return made;
}

double PackedValues::State::fitting_seconds(const Problem& problem, const Plan::State& plan,
                                            std::span<const PackedEntry> packed) const {
  double sum = 0;
  for (const Step& step : make_steps(problem)) {
    const std::vector<Fitting> fits = ways_that_fit(step, plan, packed);
    if (fits.empty()) return std::numeric_limits<double>::infinity();
    sum += fits.front().way.proposal.seconds;
  }
  return sum;
}

std::optional<DecidedStep> PackedValues::State::choose_whole(const Problem& problem, const Plan::State& plan,
                                                             bool is_known, Answers& of_steps,
                                                             std::vector<PackedEntry>& packed) const {
  if (problem.chain.size() == 1 || problem.operation == Operation::gradient) return {};
  const Step whole = whole_step(problem);
  std::optional<DecidedStep> fits = fitting(whole, plan, packed);
  if (is_known) {
    const double seconds = fitting_seconds(problem, plan, packed);
    if (fits ? seconds < fits->seconds : seconds < std::numeric_limits<double>::infinity()) return {};
    if (fits) return fits;
  }
  double apart = 0;
  const auto seconds_apart = [&] {
    for (const Step& step : make_steps(problem)) {
      of_steps.push_back(accepted_for(step, problem.operation, *backend, device, plan.forced()));
      apart += of_steps.back().front().proposal.seconds;
    }
    return apart;
  };
  const std::vector<Assessment> all =
      accepted_for_whole(problem, *backend, device, plan.forced(), false, seconds_apart);
  if (all.empty()) {
    if (fits && fits->seconds <= worth_packing * apart) return fits;
    return {};
  }
  const Proposal& best = all.front().proposal;
  if (fits && fits->seconds <= worth_packing * best.seconds) return fits;
  DecidedStep made = with_executor(whole, all.front());
  const bool has_room = may_keep_whole(chain, dtype, bytes_of(packed), made.executor->order().bytes);
  if (has_room || always_keeps) return keep(std::move(made), packed);
  // Whoever asked for an implementation of whole chains by name has it, packed at each run.
  const bool is_asked_for =
      !plan.forced().name.empty() && forced_for_steps(*backend, plan.forced()).name.empty();
  return is_asked_for ? std::optional(std::move(made)) : std::nullopt;
}

std::shared_ptr<const Decision> PackedValues::State::prepare(const Plan::State& plan, const Batch& batch,
                                                             std::span<const void* const> values,
                                                             Stream stream) {
  check_belongs(plan);
  if (auto found = find(plan, batch)) return found;
  const Problem problem = plan.with(batch);
  if (plan.forced_name.empty()) tune_if_asked(problem, *backend, device, stream);
  const std::scoped_lock lock(mutex);
  // A step sees what those before it have added: the gradient's products forward and back may share an order,
  // and together they are no more than there is room for.
  std::vector<PackedEntry> packed = entries;
  const std::pair range(plan.number, BatchClass(problem, false).log2);
  const bool is_known = std::ranges::find(searched, range) != searched.end();
  Answers of_steps;
  std::optional<DecidedStep> whole = choose_whole(problem, plan, is_known, of_steps, packed);
  std::size_t at = 0;
  Decision decision =
      whole ? decision_of(problem, *std::move(whole)) : make_decision(problem, [&](Step step) {
        if (step.problem.operation == Operation::gradient)
          return choose_packing(std::move(step), plan.problem.operation, *backend, device, plan.forced());
        std::vector<Assessment> all =
            at < of_steps.size() ? std::move(of_steps[at++]) : std::vector<Assessment>();
        return choose_kept(std::move(step), plan, is_known, std::move(all), packed);
      });
  std::vector<PackJob> jobs;
  for (const PackedEntry& added : std::span(packed).subspan(entries.size()))
    jobs.push_back({added.packer.get(), &values[added.factor], added.memory.get()});
  if (!jobs.empty()) {
    backend->pack(device, jobs, stream);
    backend->memory.synchronise(device, stream);  // from now on, runs on any stream may read them
    entries = std::move(packed);
    fitted.clear();  // there may be a better order now
  }
  constexpr std::size_t most_ranges = 256;  // of plans that come and go
  if (searched.size() >= most_ranges) searched.clear();
  if (!is_known) searched.push_back(range);
  return decisions.add({plan.number, batch}, std::move(decision));
}

std::shared_ptr<const Decision> PackedValues::State::decide_with_packed(const Plan::State& plan,
                                                                        const Batch& batch,
                                                                        bool stores) const {
  check_belongs(plan);
  if (auto found = find(plan, batch, stores)) return found;
  if (auto found = fitted.find({plan.number, batch, stores})) return found;
  const Problem problem = plan.with(batch);
  const std::scoped_lock lock(mutex);
  if (problem.chain.size() > 1 && problem.operation != Operation::gradient && !stores)
    if (const std::vector<Fitting> ways = ways_that_fit(whole_step(problem), plan, entries);
        !ways.empty() && ways.front().way.proposal.seconds <= fitting_seconds(problem, plan, entries))
      if (std::optional<DecidedStep> whole = made_of(whole_step(problem), ways))
        return fitted.add({plan.number, batch, stores}, decision_of(problem, *std::move(whole)));
  Decision decision = make_decision(problem, [&](Step step) {
    if (step.problem.operation == Operation::gradient)
      return choose_packing(std::move(step), plan.problem.operation, *backend, device, plan.forced());
    std::optional<DecidedStep> fits = fitting(step, plan, entries);
    if (!fits && stores &&
        std::ranges::any_of(entries, [](const PackedEntry& one) { return one.factors > 1; }))
      throw Error(
          ErrorCode::unsupported,
          message("intermediates: given to a plan of {} whose values are packed for the chain as a whole; "
                  "give values, too",
                  plan.problem.chain.to_string()));
    if (!fits)
      throw Error(ErrorCode::unsupported,
                  message("batch: {} given to a plan of {}, must be a size that the values were packed for; "
                          "prepare() packs them",
                          batch.size, plan.problem.chain.to_string()));
    return *std::move(fits);
  });
  return fitted.add({plan.number, batch, stores}, std::move(decision));
}

void PackedValues::State::set_values(std::span<const void* const> values, Stream stream) {
  const std::scoped_lock lock(mutex);
  std::vector<PackJob> jobs;
  for (const PackedEntry& entry : entries)
    jobs.push_back({entry.packer.get(), &values[entry.factor], entry.memory.get()});
  if (!jobs.empty()) backend->pack(device, jobs, stream);
  are_fresh = true;
}

PackedValues::PackedValues(const Plan& plan, Allocator allocator)
    : state_(std::make_unique<State>(checked_state(plan.state_, "plan"), std::move(allocator))) {}
PackedValues::PackedValues(PackedValues&&) noexcept = default;
PackedValues& PackedValues::operator=(PackedValues&&) noexcept = default;
PackedValues::~PackedValues() = default;

bool PackedValues::is_ready(const Plan& plan, const Batch& batch) const {
  const State& state = checked_state(state_, "packed");
  const std::shared_ptr<const Decision> found = state.find(checked_state(plan.state_, "plan"), batch);
  return found != nullptr && keeps_all(*found);
}

bool PackedValues::prepare(const Plan& plan, const Batch& batch, std::span<const void* const> values,
                           Stream stream) {
  State& state = checked_state(state_, "packed");
  check_values(values, state.chain, state.dtype);
  const std::shared_ptr<const Decision> decision =
      state.prepare(checked_state(plan.state_, "plan"), batch, values, stream);
  return keeps_all(*decision);
}

std::size_t PackedValues::bytes() const { return checked_state(state_, "packed").bytes(); }

}  // namespace kronsparse
