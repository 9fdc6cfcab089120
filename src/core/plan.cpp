#include "kronsparse/plan.hpp"

#include <atomic>
#include <limits>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "core/message.hpp"
#include "core/operand_check.hpp"
#include "core/plan_state.hpp"
#include "core/run_scope.hpp"
#include "core/tune.hpp"
#include "kronsparse/error.hpp"

namespace kronsparse {

template <class State>
State& checked_state(const std::unique_ptr<State>& state, const char* what) {
  if (state == nullptr)
    throw Error(ErrorCode::invalid_argument, message("{}: used after it was moved from", what));
  return *state;
}
template Plan::State& checked_state(const std::unique_ptr<Plan::State>&, const char*);
template PackedValues::State& checked_state(const std::unique_ptr<PackedValues::State>&, const char*);

namespace {

/// Turns std::bad_alloc into an Error that says for what memory ran out.
template <class Body>
decltype(auto) with_memory_errors(const Problem& problem, Body&& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::out_of_memory, message("plan: memory ran out for {}", problem.to_string()));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::out_of_memory) throw;
    throw Error(error.code(), message("plan: memory ran out for {}, {}", problem.to_string(), error.what()));
  }
}

std::uint64_t next_number() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

Batch batch_of(const Problem& problem) { return {problem.batch, problem.cols_stride, problem.rows_stride}; }

bool needs_values(const Problem& problem) {
  return problem.operation != Operation::gradient || problem.chain.size() > 1;
}

}  // namespace

std::vector<const void*> FactorValues::addresses(const Chain& chain, DType dtype) const {
  if (first_ == nullptr) return each_;
  std::vector<const void*> all;
  const auto* at = static_cast<const std::byte*>(first_);
  for (const Pattern& factor : chain.factors()) {
    all.push_back(at);
    at += static_cast<std::size_t>(factor.nnz()) * size_of(dtype);
  }
  return all;
}

Plan::State::State(Problem problem_given, Device device_given, std::string_view implementation_given)
    : number(next_number()), problem(std::move(problem_given)), device(device_given) {
  problem.validate();
  backend = &backend_of(device);
  const Forced found = forced_or_variable(implementation_given);
  forced_name = found.name;
  forced_argument = found.argument;
}

Problem Plan::State::with(const Batch& batch) const {
  Problem other = problem;
  other.batch = batch.size;
  other.cols_stride = batch.cols_stride;
  other.rows_stride = batch.rows_stride;
  other.validate();
  return other;
}

std::shared_ptr<const Decision> Plan::State::decide(const Batch& batch, bool stores, Stream stream) const {
  auto& table = stores ? storing : decisions;
  if (auto found = table.find(batch)) return found;
  const Problem of_batch = with(batch);
  if (forced_name.empty()) tune_if_asked(of_batch, *backend, device, stream);
  const BatchClass kind(of_batch, stores);
  Learned learned = classes.find(kind);
  Ways ways = cheapest_ways(of_batch, *backend, device, forced(), stores, learned);
  classes.add(kind, std::move(learned));
  Decision decision{.problem = of_batch};
  for (auto& [step, chosen] : ways) decision.steps.push_back(with_executor(std::move(step), chosen));
  complete(decision);
  return table.add(batch, std::move(decision));
}

std::shared_ptr<const Decision> Plan::State::decision_for(const Batch& batch,
                                                          const Operands& operands) const {
  const bool stores = operands.intermediates != nullptr && problem.operation == Operation::multiply &&
                      problem.chain.size() > 1;
  if (operands.packed != nullptr) {
    const PackedValues::State& packed = checked_state(operands.packed->state_, "packed");
    packed.check_belongs(*this);
    if (operands.values == nullptr) return packed.decide_with_packed(*this, batch, stores);
    if (auto found = packed.find(*this, batch, stores)) return found;
    // A decision that takes the factors one by one writes the intermediates, too.
    if (auto found = stores ? packed.find(*this, batch, false) : nullptr; found && found->steps.size() > 1)
      return found;
  } else if (operands.values == nullptr && kept) {
    return kept->state_->decide_with_packed(*this, batch, stores);
  }
  return decide(batch, stores, operands.stream);
}

Plan::Plan(const Problem& problem, Device device, std::string_view implementation)
    : state_(std::make_unique<State>(problem, device, implementation)) {
  with_memory_errors(
      problem, [&] { state_->implementation = state_->decide(batch_of(state_->problem))->implementation; });
}

Plan::Plan(const Problem& problem, const FactorValues& given, Device device, std::string_view implementation)
    : state_(std::make_unique<State>(problem, device, implementation)) {
  const std::vector<const void*> values = given.addresses(problem.chain, problem.dtype);
  if (needs_values(problem) || !values.empty()) check_values(values, problem.chain, problem.dtype);
  with_memory_errors(problem, [&] {
    const Batch batch = batch_of(state_->problem);
    if (values.empty()) {
      state_->implementation = state_->decide(batch)->implementation;
      return;
    }
    state_->kept.emplace(*this);
    state_->kept->state_->always_keeps = true;
    state_->implementation = state_->kept->state_->prepare(*state_, batch, values, nullptr)->implementation;
  });
}

Plan::Plan(Plan&&) noexcept = default;
Plan& Plan::operator=(Plan&&) noexcept = default;
Plan::~Plan() = default;

void Plan::set_values(const FactorValues& given, Stream stream) {
  State& state = checked_state(state_, "plan");
  if (!state.kept)
    throw Error(
        ErrorCode::invalid_argument,
        message("values: given to a plan of {} that was made without any", state.problem.to_string()));
  const std::vector<const void*> values = given.addresses(state.problem.chain, state.problem.dtype);
  check_values(values, state.problem.chain, state.problem.dtype);
  with_memory_errors(state.problem, [&] { state.kept->state_->set_values(values, stream); });
}

void Plan::set_values(const FactorValues& values) {
  set_values(values, nullptr);
  state_->backend->memory.synchronise(state_->device, nullptr);
  state_->kept->state_->are_fresh = false;
}

void Plan::prepare(const Batch& batch, const FactorValues& given) {
  State& state = checked_state(state_, "plan");
  const std::vector<const void*> values = given.addresses(state.problem.chain, state.problem.dtype);
  check_values(values, state.problem.chain, state.problem.dtype);
  with_memory_errors(state.problem, [&] {
    if (!state.kept) state.kept.emplace(*this);
    PackedValues::State& kept = *state.kept->state_;
    kept.always_keeps = true;
    static_cast<void>(kept.prepare(state, batch, values, nullptr));
  });
}

void Plan::run(const Batch& batch, const Operands& operands) const {
  const State& state = checked_state(state_, "plan");
  with_memory_errors(state.problem, [&] {
    const std::shared_ptr<const Decision> decision = [&] {
      const RunScope builds_nothing;
      return state.decision_for(batch, operands);
    }();
    check_operands(*decision, operands);
    const PackedValues* packed = operands.packed != nullptr ? operands.packed
                                 : state.kept               ? &*state.kept
                                                            : nullptr;
    const bool are_fresh = packed != nullptr && packed->state_->are_fresh.load(std::memory_order_relaxed);
    run_decision(*decision, *state.backend, state.device, operands, are_fresh);
  });
}

void Plan::run(const Operands& operands) const {
  run(batch_of(checked_state(state_, "plan").problem), operands);
}

std::size_t Plan::workspace_bytes(const Batch& batch, const Operands& operands) const {
  const State& state = checked_state(state_, "plan");
  return workspace_of(*state.decision_for(batch, operands), operands).bytes;
}

std::size_t Plan::intermediate_bytes(const Batch& batch) const {
  return checked_state(state_, "plan").decide(batch)->memory.intermediate_bytes;
}

const Problem& Plan::problem() const { return checked_state(state_, "plan").problem; }
Device Plan::device() const { return checked_state(state_, "plan").device; }

std::string Plan::implementation(const Batch& batch) const {
  const State& state = checked_state(state_, "plan");
  return state.decision_for(batch, {})->implementation;
}

const std::string& Plan::implementation() const { return checked_state(state_, "plan").implementation; }

double Plan::predicted_seconds(const Batch& batch) const {
  return checked_state(state_, "plan").decision_for(batch, {})->seconds;
}

double Plan::predicted_packing_seconds(const Batch& batch) const {
  return checked_state(state_, "plan").decision_for(batch, {})->packing_seconds;
}

std::size_t Plan::packed_bytes() const {
  const State& state = checked_state(state_, "plan");
  return state.kept ? state.kept->bytes() : 0;
}

double predicted_seconds(const Problem& problem, Device device) {
  problem.validate();
  const BackendEntry& backend = backend_of(device);
  const Forced forced = forced_or_variable({});
  std::optional<double> apart;
  const auto seconds_apart = [&] {
    if (apart) return *apart;
    apart = 0;
    for (const Step& step : make_steps(problem))  // assessed, not made: some backends would compile
      if (step.y.place != Place::grad_x)
        *apart += accepted_for(step, problem.operation, backend, device, forced).front().proposal.seconds;
    return *apart;
  };
  const std::vector<Assessment> whole =
      accepted_for_whole(problem, backend, device, forced, false, seconds_apart);
  return whole.empty() ? seconds_apart() : whole.front().proposal.seconds;
}

Chain planned(const Problem& problem, Device device) {
  problem.validate();
  const std::vector<Pattern>& factors = problem.chain.factors();
  /// The fastest way to run the factors from one on: its seconds, its first factor, and where that ends.
  struct Way {
    double seconds = std::numeric_limits<double>::infinity();
    Pattern first;
    std::size_t end = 0;
  };
  std::vector<Way> ways(factors.size() + 1);
  ways.back().seconds = 0;
  for (std::size_t begin = factors.size(); begin-- > 0;) {
    std::optional<Pattern> product = factors[begin];
    for (std::size_t end = begin + 1; product; ++end) {
      Problem step{.chain = *product, .batch = problem.batch, .dtype = problem.dtype};
      step.layout = problem.layout;
      step.operation = problem.operation;
      step.mode = problem.mode;
      const double seconds = predicted_seconds(step, device) + ways[end].seconds;
      if (seconds < ways[begin].seconds) ways[begin] = {seconds, *product, end};
      if (end == factors.size()) break;
      product = product->times(factors[end]);
    }
  }
  std::vector<Pattern> chosen;
  for (std::size_t begin = 0; begin < factors.size(); begin = ways[begin].end)
    chosen.push_back(ways[begin].first);
  return Chain(std::move(chosen));
}

}  // namespace kronsparse
