// The product for small batches: packing, launch.
#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <string>

#include "core/geometry.hpp"
#include "core/implementation.hpp"
#include "core/message.hpp"
#include "cuda/backend.hpp"
#include "cuda/launch.hpp"
#include "cuda/multiply_skinny.cuh"
#include "cuda/product.hpp"
#include "cuda/runtime.hpp"
#include "cuda/skinny_config.hpp"
#include "cuda/tensor_core.hpp"

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

/// Whether to prefetch weights; clusters and longer streams lose by it (measured on an H200).
bool gains_by_prefetch(const Cut& cut) {
  return cut.n_tiles == 1 && cut.cluster == 1 && cut.groups == 1 && cut.segments == 1 &&
         cut.tiles_per_warp <= 24;
}

class SkinnyExecutor final : public Executor {
 public:
  SkinnyExecutor(const Problem& problem, Device device, const Cut& cut)
      : problem_(problem), product_(product_of(problem)), device_(device.index) {
    const DeviceGuard guard(device_);
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
    weights_ = DeviceMemory(device_, static_cast<std::size_t>(packed_vectors(cut, p)) * sizeof(uint4));
    arguments_ = {.weights = static_cast<const uint4*>(weights_.data()),
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

  void set_values(const void* values, Stream stream) override {
    const DeviceGuard guard(device_);
    const Product& p = product_;
    const bool transposed = is_transposed(problem_.operation);
    const std::int64_t k_stride = transposed ? p.d : p.c * p.d;
    const std::int64_t l_stride = transposed ? p.b * p.d : p.d;
    const std::int64_t vectors = packed_vectors(arguments_.cut, p);
    const auto blocks =
        static_cast<unsigned>(std::min<std::int64_t>(ceil_div<std::int64_t>(vectors, 256), 8192));
    dispatch_type(problem_.dtype, [&]<class T>() {
      launch("skinny (packing)", pack<T>, {.blocks = blocks, .threads = 256}, stream,
             static_cast<uint4*>(weights_.data()), static_cast<const T*>(values), arguments_.cut, vectors,
             p.b, p.c, p.d, k_stride, l_stride);
    });
    fresh_.packed_on(stream);
  }

  void run(const Operands& operands) const override {
    const DeviceGuard guard(device_);
    Arguments arguments = arguments_;
    arguments.x = operands.x;
    arguments.y = operands.y;
    arguments.bias = operands.bias;
    arguments.cut.vector = arguments.cut.vector && reinterpret_cast<std::uintptr_t>(operands.x) % 16 == 0;
    arguments.quads = has_quads_ && reinterpret_cast<std::uintptr_t>(operands.y) % quad_bytes_ == 0;

    const Cut& cut = arguments.cut;
    LaunchShape shape{.blocks = dim3(static_cast<unsigned>(blocks_of_weights(cut, product_)),
                                     static_cast<unsigned>(ceil_div(arguments.batch, cut.n_tiles * 8))),
                      .threads = cut.warps() * 32,
                      .shared_bytes = shared_bytes_,
                      .cluster_blocks = cut.cluster};
    fresh_.run(operands.stream, [&](bool may_overlap) {
      shape.overlapping = overlapping_ && may_overlap;
      launch("multiply_skinny", kernel_, shape, operands.stream, arguments);
    });
  }

  [[nodiscard]] std::size_t packed_bytes() const noexcept override { return weights_.bytes(); }

 private:
  Problem problem_;
  Product product_;
  int device_;
  bool overlapping_ = false;  ///< a kernel loads its weights while the one before it finishes
  bool has_quads_ = false;    ///< whether four features at a time of y are four j or four k of one block
  std::size_t quad_bytes_ = 0;
  const void* kernel_ = nullptr;
  std::size_t shared_bytes_ = 0;
  DeviceMemory weights_;
  FreshWeights fresh_;
  Arguments arguments_{};
};

std::string refuse(const Problem& problem, Device device) {
  if (problem.operation == Operation::gradient) return "computes products, not the gradient of the values";
  if (problem.dtype != DType::f16 && problem.dtype != DType::bf16 && problem.dtype != DType::f32)
    return message("multiplies f16, bf16 and f32, not {}", name(problem.dtype));
  if (std::string reason = batch_refusal(problem, max_batch); !reason.empty()) return reason;
  const GpuFacts& facts = gpu(device);
  if (std::string reason = capability_refusal(facts, 80); !reason.empty()) return reason;
  const Choice choice = choose(problem, facts);
  if (!std::isfinite(choice.seconds)) return "has no way to cut a pattern of this size into blocks";
  return {};
}

double predict(const Problem& problem, Device device) { return choose(problem, gpu(device)).seconds; }

std::unique_ptr<Executor> make(const Problem& problem, Device device) {
  const GpuFacts& facts = gpu(device);
  return std::make_unique<SkinnyExecutor>(problem, device, choose(problem, facts).cut);
}

}  // namespace
}  // namespace skinny

Implementation skinny_implementation() {
  return {.name = "skinny",
          .backend = Backend::cuda,
          .summary = "batches up to 64: weights streamed once, tensor cores for half types",
          .refuse = skinny::refuse,
          .predict = skinny::predict,
          .make = skinny::make};
}

}  // namespace kronsparse::cuda
