#include "kronsparse/plan.hpp"

#include <new>

#include "core/choice.hpp"
#include "core/implementation.hpp"
#include "core/message.hpp"
#include "core/operand_check.hpp"
#include "kronsparse/error.hpp"

namespace kronsparse {

struct Plan::State {
  Problem problem;
  Device device;
  const BackendEntry* backend;
  const Implementation* implementation;
  std::unique_ptr<Executor> executor;

  /// A run may come on any stream, and the caller may free or change the values.
  void wait_for_packing() const { backend->memory.synchronise(device, nullptr); }
};

namespace {

void check_not_moved_from(const void* state) {
  if (state == nullptr) throw Error(ErrorCode::invalid_argument, "plan: used after it was moved from");
}

[[noreturn]] void throw_out_of_memory(const Problem& problem) {
  throw Error(ErrorCode::out_of_memory, message("plan: memory ran out for {}", problem.to_string()));
}

}  // namespace

Plan::Plan(const Problem& problem, const void* values, Device device, std::string_view implementation) {
  problem.validate();
  const Implementation& chosen = choose(problem, device, implementation);
  const bool has_values = problem.operation != Operation::gradient;
  if (has_values) check_pointer("values", values, problem.dtype);
  try {
    state_ = std::make_unique<State>(
        State{problem, device, &backend_of(device), &chosen, chosen.make(problem, device)});
    if (has_values) {
      state_->executor->set_values(values, nullptr);
      state_->wait_for_packing();
    }
  } catch (const std::bad_alloc&) {
    throw_out_of_memory(problem);
  }
}

Plan::Plan(Plan&&) noexcept = default;
Plan& Plan::operator=(Plan&&) noexcept = default;
Plan::~Plan() = default;

void Plan::set_values(const void* values) {
  set_values(values, nullptr);
  state_->wait_for_packing();
}

void Plan::set_values(const void* values, Stream stream) {
  check_not_moved_from(state_.get());
  if (state_->problem.operation == Operation::gradient)
    throw Error(ErrorCode::invalid_argument,
                message("values: given to a plan of {}, which has none", state_->problem.to_string()));
  check_pointer("values", values, state_->problem.dtype);
  try {
    state_->executor->set_values(values, stream);
  } catch (const std::bad_alloc&) {
    throw_out_of_memory(state_->problem);
  }
}

void Plan::run(const Operands& operands) const {
  check_not_moved_from(state_.get());
  const Problem& problem = state_->problem;
  check_operands(problem, operands);
  if (problem.batch > 0) {
    try {
      state_->executor->run(operands);
    } catch (const std::bad_alloc&) {  // a thread's first scratch
      throw_out_of_memory(problem);
    }
  } else if (problem.operation == Operation::gradient) {
    // An empty sum.
    const std::size_t bytes = static_cast<std::size_t>(problem.pattern.nnz()) * size_of(problem.dtype);
    state_->backend->memory.clear(state_->device, operands.y, bytes, operands.stream);
  }
}

const Problem& Plan::problem() const noexcept { return state_->problem; }
Device Plan::device() const noexcept { return state_->device; }
std::string_view Plan::implementation() const noexcept { return state_->implementation->name; }
std::size_t Plan::packed_bytes() const noexcept { return state_->executor->packed_bytes(); }

}  // namespace kronsparse
