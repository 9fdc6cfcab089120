// The kernel `mma`: its launch and its entry in the table.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "core/message.hpp"
#include "cuda/backend.hpp"
#include "cuda/host/alignment.hpp"
#include "cuda/host/launch.hpp"
#include "cuda/host/runtime.hpp"
#include "cuda/host/tensor_core_refusals.hpp"
#include "cuda/large_batch/mma/kernel.cuh"
#include "cuda/large_batch/mma/search.hpp"
#include "cuda/packing/packing.hpp"
#include "kronsparse/error.hpp"

namespace kronsparse::cuda {
namespace {

using Kernel = void (*)(MmaArguments);

template <Arithmetic A>
Kernel kernel_of(XForm form, int warp_k) {
  constexpr bool half = A == Arithmetic::f16 || A == Arithmetic::bf16;
  const bool narrow = warp_k == 48;
  if (form == XForm::columns)
    return narrow ? multiply_mma<MmaTraits<A, XForm::columns, 48>>
                  : multiply_mma<MmaTraits<A, XForm::columns, 64>>;
  if constexpr (half)
    if (form == XForm::rows)
      return narrow ? multiply_mma<MmaTraits<A, XForm::rows, 48>>
                    : multiply_mma<MmaTraits<A, XForm::rows, 64>>;
  return narrow ? multiply_mma<MmaTraits<A, XForm::planes, 48>>
                : multiply_mma<MmaTraits<A, XForm::planes, 64>>;
}

Kernel kernel_of(const MmaConfig& config) {
  switch (config.arithmetic) {
    case Arithmetic::f16:
      return kernel_of<Arithmetic::f16>(config.form, config.warp_k);
    case Arithmetic::bf16:
      return kernel_of<Arithmetic::bf16>(config.form, config.warp_k);
    case Arithmetic::tf32:
      return kernel_of<Arithmetic::tf32>(config.form, config.warp_k);
    case Arithmetic::tf32x3:
      return kernel_of<Arithmetic::tf32x3>(config.form, config.warp_k);
  }
  throw Error(ErrorCode::internal, "mma: unknown arithmetic");
}

class MmaExecutor final : public CudaExecutor {
 public:
  MmaExecutor(const Problem& problem, Device device, const MmaConfig& config)
      : CudaExecutor(device, packed_order(config.order, is_transposed(problem.operation)),
                     pack_layout(problem, config.order)),
        problem_(problem),
        product_(product_of(problem)),
        config_(config),
        kernel_(kernel_of(config)) {
    const DeviceGuard guard(device.index);
    allow_shared_memory(reinterpret_cast<const void*>(kernel_), gpu(device));
    int blocks = 0;
    check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel_, config_.threads(),
                                                        static_cast<std::size_t>(config_.shared_bytes)),
          "mma: asking for the occupancy");
    if (blocks == 0) throw Error(ErrorCode::internal, "mma: no block fits on a multiprocessor");
    blocks_ = static_cast<unsigned>(
        std::min<std::int64_t>(tile_count(), std::int64_t{blocks} * gpu(device).multiprocessors));
  }

  void run(const Operands& operands, const Weights& weights) const override {
    const DeviceGuard guard(device());
    launch("multiply_mma", reinterpret_cast<const void*>(kernel_),
           {.blocks = blocks_,
            .threads = config_.threads(),
            .shared_bytes = static_cast<std::size_t>(config_.shared_bytes)},
           operands.stream, arguments_of(operands, weights));
  }

 private:
  [[nodiscard]] std::size_t element_bytes() const { return problem_.dtype == DType::f32 ? 4 : 2; }
  [[nodiscard]] std::int64_t n_tiles() const {
    return (product_.batch + config_.tile_n() - 1) / config_.tile_n();
  }
  [[nodiscard]] std::int64_t tile_count() const { return config_.order.groups() * n_tiles(); }

  [[nodiscard]] MmaArguments arguments_of(const Operands& operands, const Weights& weights) const {
    const Product& p = product_;
    const auto bytes = static_cast<std::int64_t>(element_bytes());
    const auto x = reinterpret_cast<std::uintptr_t>(operands.x);
    const auto y = reinterpret_cast<std::uintptr_t>(operands.y);
    const int least = static_cast<int>(bytes);
    int x_copy = 0;
    int y_store = 0;
    if (config_.form == XForm::columns) {
      x_copy = common_alignment(least, x, p.x_feature * bytes);
      y_store = common_alignment(least, y, p.y_feature * bytes);
    } else {
      // With one word of j, a row of words or of elements is contiguous over the terms.
      const bool lines = config_.words == 1 && config_.order.j_groups == 1;
      x_copy = lines ? common_alignment(least, x, p.x_sample * bytes, p.c * p.d * bytes)
                     : std::min(4, common_alignment(least, x, p.x_sample * bytes, p.d * bytes));
      y_store = common_alignment(least, y, p.y_sample * bytes, (p.d == 1 ? p.b : p.d) * bytes);
      y_store = std::min(y_store, 4);
    }
    return {.x = static_cast<const std::byte*>(operands.x),
            .y = static_cast<std::byte*>(operands.y),
            .bias = operands.bias,
            .weights = static_cast<const std::byte*>(weights.data),
            .batch = p.batch,
            .b = p.b,
            .c = p.c,
            .d = p.d,
            .x_sample = p.x_sample,
            .x_feature = p.x_feature,
            .y_sample = p.y_sample,
            .y_feature = p.y_feature,
            .order = config_.order,
            .n_tiles = n_tiles(),
            .tiles = tile_count(),
            .x_row_step = (config_.form == XForm::columns ? p.d * p.x_feature : p.x_sample) * bytes,
            .x_chunk_step = 16 * p.d * p.x_feature * bytes,
            .words = config_.words,
            .warps_k = config_.warps_k,
            .warps_n = config_.warps_n,
            .tile_n = config_.tile_n(),
            .chunks = static_cast<int>(config_.order.chunks),
            .sub_chunks = config_.sub_chunks,
            .planes_passes = 16 / config_.warps_k,
            .unit_passes = 4 / config_.warps_k,
            .plane_bytes = config_.plane_bytes,
            .x_chunk_bytes = config_.x_stage_bytes / config_.sub_chunks,
            .x_stage_bytes = config_.x_stage_bytes,
            .w_chunk_bytes = static_cast<int>(config_.order.chunk_elements() * bytes),
            .w_stage_bytes = config_.w_stage_bytes,
            .w_region_offset = kStages * config_.x_stage_bytes,
            .out_offset = config_.shared_bytes - 2 * config_.out_bytes,
            .out_pitch = config_.out_pitch,
            .out_bytes = config_.out_bytes,
            .x_copy = x_copy,
            .y_store = y_store,
            .activation = problem_.activation};
  }

  Problem problem_;
  Product product_;
  MmaConfig config_;
  Kernel kernel_;
  unsigned blocks_ = 0;
};

Proposal propose(const Problem& problem, Device device, const PackedOrder* packed_as) {
  if (std::string reason = tensor_core_refusal(problem); !reason.empty()) return refused(std::move(reason));
  const GpuFacts& facts = gpu(device);
  if (std::string reason = capability_refusal(facts, 80); !reason.empty()) return refused(std::move(reason));
  const MmaConfig config = mma_config(problem, facts);
  if (std::string reason = tile_refusal(facts, config.shared_bytes, config.order.groups(),
                                        problem.batch / config.tile_n() + 1);
      !reason.empty())
    return refused(std::move(reason));
  return proposal_of<MmaExecutor>(problem, device, config, packed_as, mma_seconds(problem, config, facts));
}

}  // namespace

Implementation mma_implementation() {
  return {.name = "mma",
          .backend = Backend::cuda,
          .summary = "tensor cores (mma.sync), one fused pass over x and y in either layout",
          .propose = propose};
}

}  // namespace kronsparse::cuda
