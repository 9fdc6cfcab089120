// A problem bound to a kernel and a device.
#pragma once

#include <memory>

#include "core/implementation.hpp"
#include "opencl/contraction.hpp"
#include "opencl/program.hpp"

namespace kronsparse::opencl {

/// The direction of an operand that a kernel loads vectors along.
enum class Along { nothing, rows, depth, j };

/// How a kernel takes a problem apart.
struct Launch {
  Tile tile;                 ///< of a work-group, or of a work-item
  bool is_of_item = false;   ///< a work-item's
  std::int64_t j_inner = 1;  ///< tiles of j that run side by side
  Along a = Along::nothing;
  Along b = Along::nothing;
  int j_vector = 4;  ///< elements of vectors along j; others have four
};

class ContractionExecutor final : public Executor {
 public:
  ContractionExecutor(const Problem& problem, Device device, const PackedOrder& order,
                      std::shared_ptr<const Kernels> kernels, const Launch& launch);

  [[nodiscard]] const PackedOrder& order() const noexcept override { return order_; }
  void pack(const void* values, void* packed, Stream stream) const override;
  void run(const Operands& operands, const Weights& weights) const override;

 private:
  Problem problem_;
  Device device_;
  PackedOrder order_;
  Args args_;  ///< but for places
  Launch launch_;
  std::shared_ptr<const Kernels> kernels_;
};

/// Options that every kernel is built with.
[[nodiscard]] std::string common_options(const Problem& problem, Device device);

/// Work-groups of one launch at most; drivers count them in 32 bits.
inline constexpr std::int64_t most_groups = 0x7fffffff;

}  // namespace kronsparse::opencl
