// A chain bound to a dtype, a layout, an epilogue and a device: what runs for which batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "kronsparse/device.hpp"
#include "kronsparse/export.h"
#include "kronsparse/problem.hpp"

namespace kronsparse {

class PackedValues;

/// The part of a problem that may differ in every run: how many samples there are, and how they lie.
struct Batch {
  std::int64_t size = 1;
  std::int64_t cols_stride = 0;  ///< as in Problem; 0 means dense
  std::int64_t rows_stride = 0;

  friend bool operator==(const Batch&, const Batch&) = default;
};

/// Pointers of one run, in the memory of the plan's device. Any element-aligned
/// address will do. Outputs must not overlap other operands; x and y may be disjoint column
/// windows of one buffer when both have the same row stride. Until a run is done, y may hold anything.
struct Operands {
  const void* x = nullptr;
  void* y = nullptr;
  const void* bias = nullptr;  ///< rows() elements; needed exactly when the problem has +bias
  const void* g = nullptr;     ///< gradient only: the gradient of the product, with K's rows
  Stream stream = nullptr;

  /// An address for each factor's values, left factor first, for a plan that keeps none: they are read now,
  /// and packed into the workspace. Or the values as PackedValues has packed them.
  const void* const* values = nullptr;
  const PackedValues* packed = nullptr;

  /// gradient only: an address for each factor's gradient instead of y, null for one that is not wanted.
  void* const* gradients = nullptr;
  /// gradient only, where values are given: K^H g, the gradient with respect to x. May be null.
  void* grad_x = nullptr;

  /// At least Plan::workspace_bytes, aligned to 256 bytes; anything where that is 0. Runs that may be under
  /// way at the same time need each their own.
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  /// Plan::intermediate_bytes of memory, aligned to 256 bytes, for the intermediates: multiply writes
  /// them, and the gradient of the same x reads them instead of computing them again. May be null. Writing
  /// them takes the factors one by one, so a plan that keeps values may need `values`, too.
  void* intermediates = nullptr;
};

/// One implementation's answer to a problem, as `kronsparse info --problem` prints it.
struct Candidate {
  std::string implementation;
  Device device;
  std::string refusal;              ///< why it does not accept the problem; empty when it does
  double predicted_seconds = 0;     ///< by the cost model, or measured; meaningful when it accepts
  bool is_measured = false;         ///< by tune(), with the same problem on this device
  std::size_t workspace_bytes = 0;  ///< of a run, besides those for packed values
};

/// Every implementation for the device with its cost or refusal: those that
/// accept first, cheapest first. A Plan of one factor takes the first. Where the variable KRONSPARSE_IMPL
/// names an implementation, all others refuse. For a chain, those that compute all of it in one pass accept:
/// a Plan takes the first of them, or the steps that `steps_of` lists, whichever is faster.
///
///     auto all = kronsparse::candidates(kronsparse::Problem::parse("f32 batch_first B=8 2x3x4x5"));
///     assert(all.front().refusal.empty());
[[nodiscard]] KRONSPARSE_API std::vector<Candidate> candidates(const Problem& problem, Device device = {});

/// The products that a run of a chain consists of, in their order, each a problem with one factor.
///
///     auto problem = kronsparse::Problem::parse("f32 batch_first B=8 1x2x2x2*2x2x2x1 +relu");
///     auto steps = kronsparse::steps_of(problem);
///     assert(steps.size() == 2 && steps[0].to_string() == "f32 batch_first B=8 2x2x2x1");
[[nodiscard]] KRONSPARSE_API std::vector<Problem> steps_of(const Problem& problem);

/// The cost model's seconds of a run of the problem, values being packed; those that tune() measured, where
/// it did. Nothing is built or run.
///
///     using namespace kronsparse;
///     assert(predicted_seconds(Problem::parse("f32 batch_first B=64 1x64x64x64*64x64x64x1")) > 0);
[[nodiscard]] KRONSPARSE_API double predicted_seconds(const Problem& problem, Device device = {});

/// The problem's chain with those neighbours fused that make its runs fastest, by the cost model.
/// Operator::fuse fuses the values.
///
///     using namespace kronsparse;
///     const Chain chain = planned(Problem::parse("f32 batch_first B=1 1x2x2x2*2x2x2x1"));
///     assert(chain.rows() == 4 && chain.cols() == 4);
[[nodiscard]] KRONSPARSE_API Chain planned(const Problem& problem, Device device = {});

/// Name and one-line summary of every implementation in this build.
struct ImplementationInfo {
  std::string name;
  Backend backend;
  std::string summary;
  bool takes_chains = false;  ///< whether it computes chains in one pass, or else single factors
};
[[nodiscard]] KRONSPARSE_API std::vector<ImplementationInfo> implementations();

/// Allocates memory for packed values: takes bytes > 0, returns memory of the plan's device that is aligned
/// to 256 bytes. It is released when the last copy of the pointer goes. May throw.
using Allocator = std::function<std::shared_ptr<void>(std::size_t bytes)>;

/// The addresses of a chain's values, (a,b,c,d) arrays: an address for each factor, left factor
/// first (an array, a vector or a span of them), or one address where they lie one after the other in that
/// order. No address stands for the gradient of one factor, which has no values.
///
///     using namespace kronsparse;
///     std::vector<float> left(8, 1.0f), right(8, 2.0f), x(3 * 4, 1.0f), y(3 * 4);
///     const float* factors[] = {left.data(), right.data()};
///     const Plan plan(Problem::parse("f32 batch_first B=3 1x2x2x2*2x2x2x1"), factors);
///     const Buffer workspace(plan.workspace_bytes({.size = 3}));
///     Operands operands{.x = x.data(), .y = y.data()};
///     operands.workspace = workspace.data();
///     operands.workspace_bytes = workspace.bytes();
///     plan.run(operands);
///     assert(y[0] == 8.0f);
class FactorValues {
 public:
  // NOLINTBEGIN(google-explicit-constructor): what lies somewhere is given
  FactorValues(std::nullptr_t = nullptr) {}
  template <class Element, class = std::enable_if_t<!std::is_pointer_v<Element>>>
  FactorValues(const Element* one_after_the_other) : first_(one_after_the_other) {}
  template <std::ranges::contiguous_range Addresses,
            class = std::enable_if_t<std::is_pointer_v<std::ranges::range_value_t<Addresses>>>>
  FactorValues(const Addresses& of_each) : each_(std::ranges::begin(of_each), std::ranges::end(of_each)) {}
  // NOLINTEND(google-explicit-constructor)

  /// An address for each factor; none where none was given.
  [[nodiscard]] KRONSPARSE_API std::vector<const void*> addresses(const Chain& chain, DType dtype) const;

 private:
  const void* first_ = nullptr;
  std::vector<const void*> each_;
};

/// A chain made ready to run. Kernels are chosen when a batch is seen for the first time, and looked up
/// afterwards. `run` never allocates device memory, never synchronises a device, and may be called from
/// several threads at once. Movable, not copyable.
///
/// A plan made with values packs them once, for the problem's batch and others it is prepared for:
///
///     using namespace kronsparse;
///     std::vector<float> values(2 * 3 * 4 * 5, 1.0f), x(7 * 40, 1.0f), y(7 * 30);
///     Plan plan(Problem::parse("f32 batch_first B=7 2x3x4x5"), values.data());
///     plan.run({.x = x.data(), .y = y.data()});
///     assert(y[0] == 4.0f);
///
/// A plan made without values reads them at each run, so that they may change at any time:
///
///     using namespace kronsparse;
///     const Plan plan(Problem::parse("f32 batch_first B=7 1x2x2x2*2x2x2x1"));
///     std::vector<float> left(8, 1.0f), right(8, 1.0f), x(5 * 4, 1.0f), y(5 * 4);
///     const void* values[] = {left.data(), right.data()};
///     const Batch batch{.size = 5};
///     Buffer workspace(plan.workspace_bytes(batch, {.values = values}));
///     plan.run(batch, {.x = x.data(), .y = y.data(), .values = values, .workspace = workspace.data(),
///                      .workspace_bytes = workspace.bytes()});
///     assert(y[0] == 4.0f);
class KRONSPARSE_API Plan {
 public:
  /// Keeps no values. `implementation` forces one by name, or by family ("simd" for the best
  /// "simd-..."), for every factor or for the chain; when empty, the variable KRONSPARSE_IMPL does the same.
  explicit Plan(const Problem& problem, Device device = {}, std::string_view implementation = {});
  /// Packs values that lie in the device's memory. They are read now and not needed later. On a GPU they are
  /// read on the default stream, and the call waits for that. Work on other streams that writes them must be
  /// done, unless those streams wait for the default one.
  Plan(const Problem& problem, const FactorValues& values, Device device = {},
       std::string_view implementation = {});
  Plan(Plan&&) noexcept;
  Plan& operator=(Plan&&) noexcept;
  ~Plan();

  /// Packs new values, for every batch that the plan was prepared for. Not to
  /// be called while runs are in flight.
  void set_values(const FactorValues& values);
  /// The same in the order of a stream: after what was enqueued there, and
  /// before the runs that are. Runs on other streams have to wait for it.
  void set_values(const FactorValues& values, Stream stream);
  /// Packs values in the order of the fastest kernels for this batch, unless that is done. Without it a run
  /// takes a kernel that reads an order that is packed already; where there is none, it is an Error
  /// unsupported. On an OpenCL device it also builds these kernels, which a run never does: it takes the
  /// fastest of those that are built. May allocate and wait. Not to be called while runs are in flight.
  void prepare(const Batch& batch, const FactorValues& values);

  /// Computes; checks pointers first and writes nothing if one is wrong.
  void run(const Batch& batch, const Operands& operands) const;
  /// The same for the problem's own batch.
  void run(const Operands& operands) const;

  /// Bytes of workspace that a run with such operands needs. It matters only which of them are null. Kernels
  /// that an OpenCL device needs for the batch are built now, if they are not there.
  [[nodiscard]] std::size_t workspace_bytes(const Batch& batch, const Operands& operands = {}) const;
  /// Bytes of Operands::intermediates.
  [[nodiscard]] std::size_t intermediate_bytes(const Batch& batch) const;

  [[nodiscard]] const Problem& problem() const;
  [[nodiscard]] Device device() const;
  /// The names of the implementations that run a batch, in the order of the steps, joined by " + ". Without
  /// a batch, the problem's own.
  [[nodiscard]] std::string implementation(const Batch& batch) const;
  [[nodiscard]] const std::string& implementation() const;
  /// Predicted seconds of a run, and of the packing that comes before it where the plan keeps no values.
  [[nodiscard]] double predicted_seconds(const Batch& batch) const;
  [[nodiscard]] double predicted_packing_seconds(const Batch& batch) const;
  /// Bytes of the packed values that the plan keeps.
  [[nodiscard]] std::size_t packed_bytes() const;

 private:
  friend class PackedValues;
  struct State;
  std::unique_ptr<State> state_;
};

/// Values of a chain as kernels read them, apart from any plan: one object serves all batches, streams and
/// threads, and the plans of the chain's product and of its adjoint and gradient. At most three times the
/// bytes of the values are kept, or one order of each factor where that is more; of a chain whose factors are
/// multiplied together when they are packed, a quarter of the dense matrix or a mebibyte; and whatever an
/// implementation that is forced reads. Movable, not copyable.
///
///     using namespace kronsparse;
///     std::vector<float> values(8, 1.0f), x(3 * 4, 1.0f), y(3 * 4);
///     const Plan plan(Problem::parse("f32 batch_first B=1 2x2x2x1"));
///     PackedValues packed(plan);
///     const void* factors[] = {values.data()};
///     if (!packed.is_ready(plan, {.size = 3})) packed.prepare(plan, {.size = 3}, factors);
///     plan.run({.size = 3}, {.x = x.data(), .y = y.data(), .packed = &packed});
///     assert(y[0] == 2.0f);
class KRONSPARSE_API PackedValues {
 public:
  /// For the plan's chain, dtype and device. Holds nothing yet.
  explicit PackedValues(const Plan& plan, Allocator allocator = {});
  PackedValues(PackedValues&&) noexcept;
  PackedValues& operator=(PackedValues&&) noexcept;
  ~PackedValues();

  /// Whether a run of the batch finds all it needs. Cheap; safe beside runs and prepare().
  [[nodiscard]] bool is_ready(const Plan& plan, const Batch& batch) const;
  /// Packs what the batch lacks, if there is room for it, on the stream, and waits for it. Safe beside runs.
  /// False where there was no room: such a run needs Operands::values.
  bool prepare(const Plan& plan, const Batch& batch, std::span<const void* const> values,
               Stream stream = nullptr);
  [[nodiscard]] std::size_t bytes() const;

 private:
  friend class Plan;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kronsparse
