// The small-batch kernel `skinny`: its launch and its entry in the table.
#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "core/geometry.hpp"
#include "core/implementation.hpp"
#include "core/message.hpp"
#include "cuda/backend.hpp"
#include "cuda/host/launch.hpp"
#include "cuda/host/product.hpp"
#include "cuda/host/runtime.hpp"
#include "cuda/host/tensor_core_refusals.hpp"
#include "cuda/packing/packing.hpp"
#include "cuda/small_batch/cut_family.hpp"
#include "cuda/small_batch/skinny/kernel.cuh"
#include "cuda/small_batch/skinny/search.hpp"

namespace kronsparse::cuda {
namespace skinny {
namespace {

/// Calls the body with the first of 1, 2, 4 and 8 that is not less than n_tiles as its template argument.
template <class Body>
decltype(auto) dispatch_n_tiles(int n_tiles, Body&& body) {
  if (n_tiles <= 1) return body.template operator()<1>();
  if (n_tiles <= 2) return body.template operator()<2>();
  if (n_tiles <= 4) return body.template operator()<4>();
  return body.template operator()<8>();
}

/// Whether to prefetch weights. Clusters and long sequences of tiles lose by it (measured on an H200).
bool gains_by_prefetch(const Cut& cut) {
  return cut.n_tiles == 1 && cut.cluster == 1 && cut.groups == 1 && cut.segments == 1 &&
         cut.tiles_per_warp <= 24;
}

PackedOrder order_of(const Problem& problem, const Cut& cut) {
  PackedOrder order = packed_order(cut);
  order.numbers.back() = is_transposed(problem.operation);
  order.bytes = static_cast<std::size_t>(packed_vectors(cut, product_of(problem))) * sizeof(uint4);
  return order;
}

/// The cheapest cut. If `packed_as` is not null, the cheapest of the cuts that read that order.
Choice choose_cut(const Problem& problem, const GpuFacts& facts, const PackedOrder* packed_as) {
  if (packed_as == nullptr) return choose(problem, facts);
  Cut cut;
  if (packed_as->family != packed_order(cut).family) return {};
  take_order(cut, *packed_as);
  const Choice choice = choose(problem, facts, cut);
  return std::isfinite(choice.seconds) && order_of(problem, choice.cut) != *packed_as ? Choice{} : choice;
}

PackLayout layout_of(const Problem& problem, const Cut& cut) {
  return dispatch_type(problem.dtype, [&]<class T>() { return pack_layout<T>(problem, cut); });
}

class SkinnyExecutor final : public CudaExecutor {
 public:
  SkinnyExecutor(const Problem& problem, Device device, const Cut& cut)
      : CudaExecutor(device, order_of(problem, cut), layout_of(problem, cut)), product_(product_of(problem)) {
    const DeviceGuard guard(device.index);
    const Product& p = product_;
    dispatch_type(problem.dtype, [&]<class T>() {
      dispatch_n_tiles(cut.n_tiles, [&]<int n_tiles>() {
        kernel_ = reinterpret_cast<const void*>(&multiply_skinny<T, n_tiles>);
        if constexpr (n_tiles == 1)
          if (gains_by_prefetch(cut)) kernel_ = reinterpret_cast<const void*>(&multiply_skinny<T, 1, true>);
        const int samples = static_cast<int>(std::min<std::int64_t>(p.batch, n_tiles * 8));
        shared_bytes_ = static_cast<std::size_t>(shared_layout<T>(cut, samples, j_fastest(cut)).total);
      });
    });
    has_quads_ = p.y_feature == 1 && (p.batch == 1 || p.y_sample % 4 == 0) &&
                 (p.d == 1 ? p.b % 4 == 0 : p.d % 4 == 0 && j_fastest(cut) % 4 == 0);
    quad_bytes_ = 4 * size_of(problem.dtype);
    overlapping_ = can_overlap(kernel_);
    allow_shared_memory(kernel_, gpu(device));
    arguments_ = {.weights = nullptr,
                  .x = nullptr,
                  .y = nullptr,
                  .bias = nullptr,
                  .cut = cut,
                  .batch = static_cast<int>(p.batch),
                  .j_fastest_log2 = std::countr_zero(static_cast<unsigned>(j_fastest(cut))),
                  .activation = problem.activation,
                  .b = p.b,
                  .c = p.c,
                  .d = p.d,
                  .x_sample = p.x_sample,
                  .x_feature = p.x_feature,
                  .y_sample = p.y_sample,
                  .y_feature = p.y_feature,
                  .quads = false};
  }

  void run(const Operands& operands, const Weights& weights) const override {
    const DeviceGuard guard(device());
    Arguments arguments = arguments_;
    arguments.weights = static_cast<const uint4*>(weights.data);
    arguments.just_packed = weights.just_packed;
    arguments.x = operands.x;
    arguments.y = operands.y;
    arguments.bias = operands.bias;
    arguments.cut.vector = arguments.cut.vector && reinterpret_cast<std::uintptr_t>(operands.x) % 16 == 0;
    arguments.quads = has_quads_ && reinterpret_cast<std::uintptr_t>(operands.y) % quad_bytes_ == 0;

    const Cut& cut = arguments.cut;
    const LaunchShape shape{.blocks = dim3(static_cast<unsigned>(blocks_of_weights(cut, product_)),
                                           static_cast<unsigned>(ceil_div(arguments.batch, cut.n_tiles * 8))),
                            .threads = cut.warps() * 32,
                            .shared_bytes = shared_bytes_,
                            .cluster_blocks = cut.cluster,
                            .overlapping = overlapping_};
    launch("multiply_skinny", kernel_, shape, operands.stream, arguments);
  }

 private:
  Product product_;
  bool overlapping_ = false;  ///< a kernel loads its weights while the one before it finishes
  bool has_quads_ = false;    ///< whether four neighbouring features of y are four j or four k of one block
  std::size_t quad_bytes_ = 0;
  const void* kernel_ = nullptr;
  std::size_t shared_bytes_ = 0;
  Arguments arguments_{};
};

Proposal propose(const Problem& problem, Device device, const PackedOrder* packed_as) {
  if (problem.operation == Operation::gradient)
    return refused("computes products, not the gradient of the values");
  if (problem.dtype != DType::f16 && problem.dtype != DType::bf16 && problem.dtype != DType::f32)
    return refused(message("multiplies f16, bf16 and f32, not {}", name(problem.dtype)));
  if (std::string reason = batch_refusal(problem, max_batch); !reason.empty())
    return refused(std::move(reason));
  const GpuFacts& facts = gpu(device);
  if (std::string reason = capability_refusal(facts, 80); !reason.empty()) return refused(std::move(reason));
  const Choice choice = choose_cut(problem, facts, packed_as);
  if (!std::isfinite(choice.seconds)) {
    if (packed_as != nullptr) return refused(has_other_order);
    GpuFacts larger = facts;
    larger.shared_bytes = most_shared_bytes;
    return refused(std::isfinite(choose(problem, larger).seconds)
                       ? shared_memory_refusal(facts)
                       : "has no way to cut a pattern of this size into blocks");
  }
  return {.refusal = {},
          .seconds = choice.seconds,
          .packing_seconds = packing_seconds(facts, problem, order_of(problem, choice.cut)),
          .make = [problem, device, cut = choice.cut]() -> std::unique_ptr<Executor> {
            return std::make_unique<SkinnyExecutor>(problem, device, cut);
          }};
}

}  // namespace

}  // namespace skinny

namespace skinny {
namespace {

std::vector<CutWay> ways(const Problem& problem, const GpuFacts& facts) {
  std::vector<CutWay> all;
  for (const auto& [cut, seconds] : choices(problem, facts))
    all.push_back({{cut.n_tiles, cut.j_group, cut.cluster, cut.warps_per_row, cut.rows_per_group, cut.groups,
                    cut.segments, cut.tiles_per_warp},
                   seconds});
  return all;
}
std::unique_ptr<Executor> executor_of_way(const Problem& problem, Device device, std::size_t way) {
  return std::make_unique<SkinnyExecutor>(problem, device, choices(problem, gpu(device)).at(way).cut);
}

}  // namespace
}  // namespace skinny

CutFamily skinny_cuts() { return {.ways = skinny::ways, .make = skinny::executor_of_way}; }

Implementation skinny_implementation() {
  return {.name = "skinny",
          .backend = Backend::cuda,
          .summary = "batches up to 64: weights streamed once, tensor cores for half types",
          .propose = skinny::propose};
}

}  // namespace kronsparse::cuda
