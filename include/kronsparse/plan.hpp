// A problem bound to a device: weights packed, implementation chosen.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kronsparse/device.hpp"
#include "kronsparse/export.h"
#include "kronsparse/problem.hpp"

namespace kronsparse {

/// Pointers of one run, in the memory of the plan's device. Any element-aligned
/// address will do. y must not overlap the others; x and y may be disjoint column
/// windows of one buffer when both have the same row stride. Until a run is done, y may hold anything.
struct Operands {
  const void* x = nullptr;
  void* y = nullptr;
  const void* bias = nullptr;  ///< rows() elements; needed exactly when the problem has +bias
  const void* g = nullptr;     ///< gradient only: the gradient of the product, with K's rows
  Stream stream = nullptr;
};

/// One implementation's answer to a problem, as `kronsparse info --problem` prints it.
struct Candidate {
  std::string implementation;
  Device device;
  std::string refusal;           ///< why it does not accept the problem; empty when it does
  double predicted_seconds = 0;  ///< by the cost model; meaningful when it accepts
};

/// Every implementation for the device with its cost or refusal: those that
/// accept first, cheapest first. The first is what a Plan takes: where the
/// variable KRONSPARSE_IMPL names others, that is a refusal.
///
///     auto all = kronsparse::candidates(kronsparse::Problem::parse("f32 batch_first B=8 2x3x4x5"));
///     assert(all.front().refusal.empty());
[[nodiscard]] KRONSPARSE_API std::vector<Candidate> candidates(const Problem& problem, Device device = {});

/// Name and one-line summary of every implementation in this build.
struct ImplementationInfo {
  std::string name;
  Backend backend;
  std::string summary;
};
[[nodiscard]] KRONSPARSE_API std::vector<ImplementationInfo> implementations();

/// Packs the weights once, then runs any number of times. `run` never allocates
/// device memory, never synchronises a device, and may be called from several
/// threads at once. Movable, not copyable.
///
///     using namespace kronsparse;
///     std::vector<float> values(2 * 3 * 4 * 5, 1.0f), x(7 * 40, 1.0f), y(7 * 30);
///     Plan plan(Problem::parse("f32 batch_first B=7 2x3x4x5"), values.data());
///     plan.run({.x = x.data(), .y = y.data()});
///     assert(y[0] == 4.0f);
class KRONSPARSE_API Plan {
 public:
  /// `values` are the (a,b,c,d) values in the device's memory, read now and not
  /// needed later; for the gradient, which has none, pass nullptr. On a GPU they
  /// are read on the default stream, and the call waits for that: what writes
  /// them on a stream that does not wait for the default one must be done.
  /// `implementation` forces one by name, or by family ("simd" for the best
  /// "simd-..."); when empty, the variable KRONSPARSE_IMPL does the same.
  Plan(const Problem& problem, const void* values, Device device = {}, std::string_view implementation = {});
  Plan(Plan&&) noexcept;
  Plan& operator=(Plan&&) noexcept;
  ~Plan();

  /// Packs new values of the same problem (after a training step, say). Not to
  /// be called while runs are in flight.
  void set_values(const void* values);
  /// The same in the order of a stream: after what was enqueued there, and
  /// before the runs that are. Runs on other streams have to wait for it.
  void set_values(const void* values, Stream stream);

  /// Computes; checks pointers first and writes nothing if one is wrong.
  void run(const Operands& operands) const;

  [[nodiscard]] const Problem& problem() const noexcept;
  [[nodiscard]] Device device() const noexcept;
  [[nodiscard]] std::string_view implementation() const noexcept;
  /// Bytes the plan holds: packed weights and any fixed workspace.
  [[nodiscard]] std::size_t packed_bytes() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kronsparse
