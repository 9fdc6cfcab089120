// Packing values into the orders of kernels: the tasks of the packing kernel, and the executors that use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/implementation.hpp"
#include "cuda/host/divisor.hpp"
#include "cuda/host/product.hpp"
#include "cuda/host/runtime.hpp"
#include "cuda/packing/layout.hpp"
#include "cuda/packing/merging.hpp"

namespace kronsparse::cuda {

/// Packs the values of one factor into one order. An item is the work that a thread takes at once: some
/// units, then `repeats` - 1 times as many again, each one `repeat` further.
struct PackTask {
  static constexpr int most_digits = 12;

  struct Step {
    std::uint32_t k = 0, l = 0, j = 0;
  };
  struct Digit {
    Divisor count;
    std::uint32_t row = 0;
    Step step;
    std::uint64_t from = 0, to = 0;  ///< elements of the values; units
  };
  struct UnitStep {
    Step step;
    std::uint32_t from = 0, to = 0;
  };

  const std::byte* values = nullptr;
  std::byte* packed = nullptr;
  std::uint64_t items = 0;
  std::uint64_t units = 0;  ///< units that it writes, for its share of the blocks
  int form = 0;             ///< index into pack_forms
  int digit_count = 0;
  bool is_wide = false;    ///< whether numbers need 64 bits
  bool is_padded = false;  ///< whether some places have weights that do not exist
  bool swizzled = false;
  bool has_rows = false;
  bool splits_floats = false;
  std::uint32_t b = 0, c = 0, d = 0;
  std::uint32_t to_rest = 0;  ///< units from a float's TF32 part to its remainder
  int mixing = 0;             ///< see PackLayout
  Divisor units_of_j;         ///< used if there is mixing
  std::uint64_t i_from = 0, i_to = 0;
  Divisor rows_of_k;  ///< used if has_rows
  std::uint32_t row_k = 0, row_j = 0;
  std::uint64_t row_k_from = 0, row_j_from = 0;
  std::uint32_t repeats = 1;
  UnitStep repeat;
  std::uint32_t unit_bits[3] = {};  ///< units from one to the next, for each bit of a unit's number
  std::int64_t vectors[8] = {};     ///< bytes from the item's first vector
  Step vector_steps[8];             ///< the same as indices of weights; either all weights of a vector exist
                                    ///< or none
  Digit digits[most_digits];
};

/// Packs the weights of the FMA kernels, elements of any type, in the order [i][group of j][tile of
/// k][l][j][k] (large_batch/simt). Halves become floats.
struct WidenTask {
  const void* values = nullptr;
  void* packed = nullptr;
  DType dtype = DType::f32;
  bool conjugated = false;
  bool is_wide = false;
  std::uint64_t elements = 0;  ///< elements of the packed weights
  std::int64_t b = 0, c = 0, d = 0;
  std::int64_t k_stride = 0, l_stride = 0;
  std::uint64_t tiles = 1, groups = 1;
  std::uint32_t k_width = 1, j_width = 1;
  Divisor k_digit, j_digit, l_digit, tile_digit, group_digit;
};

/// A task for this many tiles of k and groups of j, without addresses.
[[nodiscard]] WidenTask widen_task(const Problem& problem, std::int64_t tiles, std::int64_t k_width,
                                   std::int64_t groups, std::int64_t j_width);
/// A task for values that begin at a multiple of `alignment` bytes, without addresses.
[[nodiscard]] PackTask pack_task(const PackLayout& layout, int alignment = 16);

/// The predicted seconds of packing `value_bytes` into `packed_bytes`.
[[nodiscard]] double packing_seconds(const GpuFacts& facts, double value_bytes, double packed_bytes);
/// The same for a problem and its order.
[[nodiscard]] double packing_seconds(const GpuFacts& facts, const Problem& problem, const PackedOrder& order);

/// The proposal of an implementation that cannot run the problem.
[[nodiscard]] inline Proposal refused(std::string reason) {
  return {.refusal = std::move(reason), .seconds = 0, .packing_seconds = 0, .make = {}};
}
/// Why an implementation cannot read values that are already packed; empty if they are in its order.
inline constexpr const char* has_other_order = "has no way to read values in the order they are packed in";
[[nodiscard]] std::string order_refusal(const PackedOrder& order, const PackedOrder* packed_as);

/// The proposal of a kernel whose config says everything. `Made` is its executor, made from (problem, device,
/// config).
template <class Made, class Config>
[[nodiscard]] Proposal proposal_of(const Problem& problem, Device device, const Config& config,
                                   const PackedOrder* packed_as, double seconds) {
  const PackedOrder order = packed_order(config.order, is_transposed(problem.operation));
  if (std::string reason = order_refusal(order, packed_as); !reason.empty())
    return refused(std::move(reason));
  return {.refusal = {},
          .seconds = seconds,
          .packing_seconds = packing_seconds(gpu(device), problem, order),
          .make = [problem, device, config]() -> std::unique_ptr<Executor> {
            return std::make_unique<Made>(problem, device, config);
          }};
}

/// A part of the packed values of a chain: the values of one factor, or the product of several.
struct ChainPart {
  std::size_t first, count;  ///< of the factors
  std::size_t offset;        ///< bytes from the start of the packed values
  PackLayout layout;         ///< one factor: its order
  MergeTask merging;         ///< several factors
  std::size_t exponents;     ///< several factors: the place of the product's exponents
};

/// An executor whose order is one layout, several layouts one after the other, or elements for the FMA
/// kernels.
class CudaExecutor : public Executor {
 public:
  [[nodiscard]] const PackedOrder& order() const noexcept final { return order_; }
  void pack(const void* values, void* packed, Stream stream) const final;
  /// The layouts, for another executor that uses this one and packs for it.
  [[nodiscard]] std::vector<PackLayout> layouts() const;

 protected:
  /// For an executor without values.
  explicit CudaExecutor(Device device) : device_(device.index) {}
  CudaExecutor(Device device, const PackedOrder& order, std::span<const PackLayout> layouts);
  /// For a chain.
  CudaExecutor(Device device, const PackedOrder& order, std::span<const ChainPart> parts);
  CudaExecutor(Device device, const PackedOrder& order, const PackLayout& layout)
      : CudaExecutor(device, order, std::span(&layout, 1)) {}
  CudaExecutor(Device device, const PackedOrder& order, const WidenTask& task);

  [[nodiscard]] int device() const noexcept { return device_; }

 private:
  friend void pack_all(Device device, std::span<const PackJob> jobs, Stream stream);
  struct Part {
    PackLayout layout;
    PackTask task;
    std::size_t offset;      ///< bytes from the start of the packed values
    std::size_t factor = 0;  ///< of the executor's problem
  };
  struct Merged {
    MergeTask task;
    std::size_t offset, exponents;  ///< bytes from the start of the packed values
    std::size_t factor;             ///< the first, of the executor's problem
  };

  int device_;
  PackedOrder order_;
  std::vector<Part> parts_;
  std::vector<Merged> merged_;
  std::vector<WidenTask> widened_;  ///< at most one
};

/// Packs for several executors, with as few launches as possible.
void pack_all(Device device, std::span<const PackJob> jobs, Stream stream);

}  // namespace kronsparse::cuda
