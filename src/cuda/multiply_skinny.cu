// The product for small batches: how problems are cut, packing, launch.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <initializer_list>
#include <limits>
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
#include "cuda/tensor_core.hpp"

namespace kronsparse::cuda {
namespace skinny {
namespace {

constexpr int max_batch = 64;

template <class Int>
constexpr Int ceil_div(Int value, Int by) {
  return (value + by - 1) / by;
}

template <class Body>
decltype(auto) dispatch_type(DType dtype, Body&& body) {
  if (dtype == DType::f16) return body.template operator()<__half>();
  if (dtype == DType::bf16) return body.template operator()<__nv_bfloat16>();
  return body.template operator()<float>();
}

/// Calls the body with the first of 1, 2, 4 and 8 that is not less than n_tiles as its template argument.
template <class Body>
decltype(auto) dispatch_n_tiles(int n_tiles, Body&& body) {
  if (n_tiles <= 1) return body.template operator()<1>();
  if (n_tiles <= 2) return body.template operator()<2>();
  if (n_tiles <= 4) return body.template operator()<4>();
  return body.template operator()<8>();
}

/// Rows of a group that are neighbouring j; a power of two.
int j_fastest(const Cut& cut) {
  const int in_panel = cut.j_group & -cut.j_group;  // its largest power of two
  return std::min(in_panel, cut.rows_per_group);
}

std::int64_t blocks_of_weights(const Cut& cut, const Product& p) {
  return p.a * cut.j_groups * cut.k_blocks * cut.cluster;
}

std::int64_t packed_vectors(const Cut& cut, const Product& p) {
  return blocks_of_weights(cut, p) * cut.groups * cut.warps() * cut.segments * cut.tiles_per_warp * 32;
}

/// Bytes of weights that one block reads.
std::int64_t bytes_of_block(const Cut& cut) {
  return std::int64_t{cut.groups} * cut.warps() * cut.segments * cut.tiles_per_warp * tile_bytes;
}

/// Whether to prefetch weights; clusters and longer streams lose by it (measured on an H200).
bool gains_by_prefetch(const Cut& cut) {
  return cut.n_tiles == 1 && cut.cluster == 1 && cut.groups == 1 && cut.segments == 1 &&
         cut.tiles_per_warp <= 24;
}

/// Seconds of a run, by what an SM takes in and what its blocks wait for; fitted to an H200.
template <class T>
double predict_cut(const Cut& cut, const Product& p, const GpuFacts& facts) {
  constexpr double start = 1.6e-6;                               // of a kernel that does little
  constexpr double all_l2_rate = 4.2e12, l2_rate_of_one = 50e9;  // of all SMs together, of each
  constexpr double exchange_rate = 11e9;                         // of an SM to others of its cluster
  constexpr double l2_latency = 0.45e-6;
  constexpr double dram_latency = 0.8e-6;
  constexpr double clock = 1.7e9;
  const double samples = static_cast<double>(std::min<std::int64_t>(p.batch, cut.n_tiles * 8));
  const double chunks = std::ceil(static_cast<double>(p.batch) / (cut.n_tiles * 8));
  const double blocks = static_cast<double>(blocks_of_weights(cut, p)) * chunks;
  const double threads = cut.warps() * 32;

  const SharedLayout shared = shared_layout<T>(cut, static_cast<int>(samples), j_fastest(cut));
  const double registers = cut.n_tiles < 4 ? 168 : 255;  // of a thread, about
  const double resident =
      std::max(1.0, std::floor(std::min({16.0, (facts.shared_bytes + 1024.0) / (shared.total + 1024.0),
                                         65536 / (registers * threads)})));
  // Clusters of 4 and 8 leave some of each GPU cluster of 16 or 18 SMs idle: 128 blocks take two turns.
  const double usable = cut.cluster == 8 ? 0.72 : cut.cluster == 4 ? 0.9 : 1.0;
  const double sms = std::floor(facts.multiprocessors * usable);
  const double rounds = std::ceil(blocks / sms);  // blocks that one SM works on, at once or in turn
  const double turns = std::ceil(rounds / resident);
  const double active = std::min(blocks, sms);
  const double l2_rate = std::min(all_l2_rate / active, l2_rate_of_one);

  const double weight_bytes = static_cast<double>(bytes_of_block(cut));
  // Sectors of 32 bytes come whole: of x with features contiguous, every j of the sector.
  const double sector = 32.0 / sizeof(T);
  const double fetched_j = cut.vector         ? cut.j_group
                           : p.x_feature == 1 ? std::max<double>(cut.j_group, std::min<double>(p.d, sector))
                                              : cut.j_group * std::max(1.0, sector / samples);
  const double stagings = cut.segments > 1 ? cut.groups : 1;
  const double x_elements = samples * cut.positions<T>() * cut.segments * stagings;
  const double outputs = cut.groups * cut.rows_per_group * Tile<T>::tile_k * samples;  // before splits add up
  // What warps have in flight comes once in a latency.
  const double warps = cut.warps() * std::min(resident, rounds);
  const double in_flight = warps * std::min(tiles_in_flight<T>(cut.n_tiles), cut.tiles_per_warp) * tile_bytes;
  const double loads =
      turns < rounds ? (blocks / active + rounds) / 2 : rounds;  // blocks of an SM, as DRAM sees them
  // Other samples' blocks find them in L2.
  const double weight_rate = facts.memory_rate / active * (chunks > 1 ? 1.3 : 1.0);
  const double weights = loads * weight_bytes / std::min({weight_rate, 36e9, in_flight / dram_latency});
  // Blocks that an SM works on at once stage x while others multiply.
  const double exposed = turns < rounds ? 0.9 + 0.1 * rounds : rounds;
  const double x = exposed * x_elements * fetched_j * sizeof(T) / l2_rate;
  const double exchange = rounds * outputs * cut.warps_per_row * 4 * (cut.cluster - 1) / 2 / exchange_rate;

  // How often a thread waits for x: it has some loads in flight, of 16 bytes or of one element.
  const bool is_copied = cut.vector && cut.run == Tile<T>::vector;
  const double x_loads = x_elements * cut.j_group / Tile<T>::vector / threads;
  const double waits = is_copied    ? cut.segments * stagings
                       : cut.vector ? std::max(1.0, x_loads / loads_in_flight(cut.n_tiles))
                                    : std::max(1.0, x_loads) * (samples > 1 ? 2.5 : 1.5);
  const double staging = x + turns * waits * l2_latency;

  const double vectors = rounds * weight_bytes / 16;
  const double multiplying =
      (Tile<T>::tensor_core ? vectors / 32 * cut.n_tiles * 3 : vectors * samples / 32) / clock *
      std::max(1.0, 8 / warps);
  const double last_tiles = !is_copied && cut.n_tiles == 1
                                ? 0
                                : std::min(tiles_in_flight<T>(cut.n_tiles), cut.tiles_per_warp) * 0.02e-6;
  const double finishing = outputs / cut.cluster / threads * (0.5 * cut.parts() + 2) * 3e-9;
  const double meeting = cut.cluster > 1 ? (0.6 + 0.05 * cut.cluster) * 1e-6 : 0.1e-6;  // of blocks or warps
  const double barriers =
      cut.groups * meeting + (cut.groups - 1) * 0.7e-6 + (cut.segments * stagings - 1) * 0.1e-6;
  return start + dram_latency + staging + std::max(weights, multiplying) + last_tiles + exchange +
         turns * (finishing + barriers) + (turns - 1) * 1.0e-6 + (rounds - 1) * 0.15e-6;
}

/// Visits the ways to complete a cut whose l is split: every number of rows for a
/// block, each with as few segments as shared memory allows.
template <class T, class Visitor>
void for_each_completion(Cut cut, const Product& p, const GpuFacts& facts, Visitor&& visit) {
  const int samples = static_cast<int>(std::min<std::int64_t>(p.batch, cut.n_tiles * 8));
  const std::int64_t l_tiles = ceil_div<std::int64_t>(p.c, Tile<T>::tile_l);
  const std::int64_t rows = ceil_div<std::int64_t>(p.b, Tile<T>::tile_k) * cut.j_group;
  const std::int64_t splits = std::int64_t{cut.cluster} * cut.warps_per_row;
  if (splits > l_tiles && splits > 1) return;
  for (cut.rows_per_group = 1; cut.warps() <= max_warps; cut.rows_per_group *= 2) {
    const std::int64_t groups = ceil_div<std::int64_t>(rows, cut.rows_per_group);
    for (const int per_block : {1, 2, 3, 4, 5, 6, 8, 12, 16, 32}) {
      if (per_block > groups) break;
      cut.groups = per_block;
      const std::int64_t k_blocks = ceil_div<std::int64_t>(groups, per_block);
      if (p.a * cut.j_groups * cut.cluster > (std::int64_t{1} << 30) / k_blocks) continue;
      cut.k_blocks = static_cast<int>(k_blocks);
      for (std::int64_t segments = 1;; segments *= 2) {
        // Beyond 64 KiB of terms the shared memory of any GPU is full.
        const std::int64_t tiles = ceil_div(l_tiles, splits * segments);
        if (tiles * cut.warps_per_row * Tile<T>::tile_l > 1 << 16) continue;
        cut.segments = static_cast<int>(segments);
        cut.tiles_per_warp = static_cast<int>(tiles);
        if (static_cast<std::size_t>(shared_layout<T>(cut, samples, j_fastest(cut)).total) <=
            facts.shared_bytes) {
          visit(cut);
          break;
        }
        if (tiles == 1) break;
      }
    }
  }
}

/// Visits every cut worth considering; none only where a grid would be too large.
template <class T, class Visitor>
void for_each_cut(const Product& p, const GpuFacts& facts, Visitor&& visit) {
  constexpr int vector = Tile<T>::vector;
  // Vectors of x hold whole runs of l, or 8 (f32: 4) neighbouring j.
  const bool fits_vectors =
      p.x_feature == 1 && (p.batch == 1 || p.x_sample % vector == 0) &&
      (p.d < vector ? vector % p.d == 0 && p.c % (vector / p.d) == 0 : p.d % vector == 0);
  const int largest_cluster = facts.has_clusters() ? 8 : 1;
  for (const int j_group : {1, 2, 3, 4, 5, 6, 7, 8, 16}) {
    const bool is_whole = j_group == p.d, is_part = j_group == vector || j_group == 2 * vector;
    if (j_group > p.d || (j_group > 1 && !is_whole && !is_part)) continue;
    for (int n_tiles = 1; n_tiles <= 8; n_tiles *= 2) {
      if (n_tiles > 1 && n_tiles * 4 >= p.batch) break;  // half of it would do
      for (int cluster = 1; cluster <= largest_cluster; cluster *= 2) {
        for (int warps_per_row = 1; warps_per_row <= max_warps; warps_per_row *= 2) {
          Cut cut;
          cut.j_group = j_group;
          cut.j_groups =
              static_cast<int>(std::min<std::int64_t>(ceil_div<std::int64_t>(p.d, j_group), 1 << 30));
          cut.n_tiles = n_tiles;
          cut.cluster = cluster;
          cut.warps_per_row = warps_per_row;
          cut.vector = fits_vectors && (p.d < vector ? is_whole : j_group % vector == 0);
          cut.run = cut.vector && p.d < vector ? vector / static_cast<int>(p.d) : 1;
          for_each_completion<T>(cut, p, facts, visit);
        }
      }
    }
  }
}

struct Choice {
  Cut cut;
  double seconds = std::numeric_limits<double>::infinity();
};

Choice choose(const Problem& problem, const GpuFacts& facts) {
  const Product p = planned_product_of(problem);
  Choice best;
  dispatch_type(problem.dtype, [&]<class T>() {
    for_each_cut<T>(p, facts, [&](const Cut& cut) {
      const double seconds = predict_cut<T>(cut, p, facts);
      if (seconds < best.seconds) best = {cut, seconds};
    });
  });
  return best;
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
