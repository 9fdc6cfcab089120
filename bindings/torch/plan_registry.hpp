// Plans without values, one for each problem that torch's operators have seen, whatever its batch. They hold
// neither weights nor memory of a device, so that they cannot be out of date: what is kept is which kernels
// run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kronsparse/plan.hpp"

namespace kronsparse::binding {

/// A problem but for its batch. `sizes` has the four of each factor, left factor first.
struct PlanKey {
  std::span<const std::int64_t> sizes;
  DType dtype = DType::f32;
  Layout layout = Layout::batch_first;
  Operation operation = Operation::multiply;
  Mode mode = Mode::fp32;
  Activation activation = Activation::none;
  bool bias = false;
  Device device;
};

/// The plan of a problem, found or made. Safe to use from several threads.
[[nodiscard]] std::shared_ptr<const Plan> find_plan(const PlanKey& key);

/// Plans kept now, and at most: those used last.
[[nodiscard]] std::size_t plan_count();
[[nodiscard]] std::size_t plan_capacity();
void set_plan_capacity(std::size_t capacity);

}  // namespace kronsparse::binding
