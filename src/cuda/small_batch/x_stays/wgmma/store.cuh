// The small-batch kernel `x-stays-wgmma`: results on their way to y.
#pragma once

#include "cuda/device/epilogue.cuh"
#include "cuda/small_batch/x_stays/wgmma/tiles.cuh"

namespace kronsparse::cuda::x_stays_wgmma {

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// Takes the sums of a row to y. In the wgmma accumulator, output 16·warp + lane/4 + 8h and samples 8q +
/// 2·(lane%4) + e are sums[4q + 2h + e].
template <class T, int samples>
class RowStore {
 public:
  using Sums = float[samples / 2];

  __device__ RowStore(const Arguments& args, const BlockPlace& place, const SharedLayout& layout,
                      std::uint32_t shared)
      : args_(args), place_(place), layout_(layout), shared_(shared) {}

  /// Stores sums that hold all terms: to shared memory, or to y if results are not collected.
  __device__ void store(Sums& sums, int row) const {
    const int lane = threadIdx.x % 32, first = threadIdx.x % 128 / 32 * 16 + lane / 4;
    const Target targets[2] = {target_of(row, first), target_of(row, first + 8)};
#pragma unroll
    for (int e = 0; e < samples / 2; ++e) sums[e] += targets[e / 2 % 2].bias;
    activate_all(sums, args_.activation);
    if (samples >= 16 && args_.y_vector != 0 && args_.cut.block_j() == 1) {
      put_matrices(sums, row);
      return;
    }
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int e = 0; e < samples / 4; ++e)
        put(targets[h], e / 2 * 8 + lane % 4 * 2 + e % 2, place_.samples, sums[e / 2 * 4 + 2 * h + e % 2]);
  }

  /// Sends partial sums to the blocks that add them up.
  __device__ void share_out(const Sums& sums, int row) const {
    const int lane = threadIdx.x % 32, first = threadIdx.x % 128 / 32 * 16 + lane / 4;
    const int share = args_.cut.share(), share_log2 = 31 - __clz(share);
    const int stride = partial_stride(args_.cut);
    const std::uint32_t partials = partials_of(row) + place_.rank * tile_k * stride * 4;
#pragma unroll
    for (int q = 0; q < samples / 8; ++q) {
      const int sample = 8 * q + lane % 4 * 2;
      const std::uint32_t to = ptx::cluster_address(partials, sample >> share_log2);
#pragma unroll
      for (int h = 0; h < 2; ++h)
        ptx::store_cluster_floats(to + ((first + 8 * h) * stride + (sample & (share - 1))) * 4,
                                  sums[4 * q + 2 * h], sums[4 * q + 2 * h + 1]);
    }
  }

  /// Adds up the partial sums that the cluster has left here: this block's share of samples, for all rows of
  /// the block.
  __device__ void add_up() const {
    const Cut& cut = args_.cut;
    const int stride = partial_stride(cut), quads_log2 = 29 - __clz(cut.share());
    const int there = place_.samples - place_.rank * cut.share();
    const int pieces = cut.block_outputs() << quads_log2;
    for (int piece = threadIdx.x; piece < pieces; piece += cut.threads) {
      const int k = piece % tile_k, sample = (piece / tile_k & ((1 << quads_log2) - 1)) * 4;
      const int row = piece / tile_k >> quads_log2;
      const Target target = target_of(row, k);
      float sums[4] = {target.bias, target.bias, target.bias, target.bias};
      std::uint32_t from = partials_of(row) + (k * stride + sample) * 4;
      for (int rank = 0; rank < cut.cluster; ++rank, from += tile_k * stride * 4) {
        const uint4 part = ptx::load_shared_16(from);
        sums[0] += __uint_as_float(part.x), sums[1] += __uint_as_float(part.y);
        sums[2] += __uint_as_float(part.z), sums[3] += __uint_as_float(part.w);
      }
      activate_all(sums, args_.activation);
#pragma unroll
      for (int e = 0; e < 4; ++e) put(target, sample + e, there, sums[e]);
    }
  }

  /// Copies the results from shared memory to y, in runs as long as possible.
  __device__ void copy_out() const {
    if (args_.y_vector == 8)
      copy_vectors<uint4>();
    else if (args_.y_vector == 4)
      copy_vectors<uint2>();
    else if (args_.y_vector == 1)
      copy_vectors<std::uint16_t>();
  }

 private:
  struct Target {
    bool exists;
    int at;  ///< place among a sample's results
    float bias;
    std::int64_t feature;
  };

  __device__ std::uint32_t partials_of(int row) const {
    return shared_ + layout_.partials + row * args_.cut.cluster * tile_k * partial_stride(args_.cut) * 4;
  }

  __device__ T* y() const {
    return static_cast<T*>(args_.y) +
           (place_.first_sample + (args_.cut.cluster > 1 ? place_.rank * args_.cut.share() : 0)) *
               args_.y_sample;
  }

  /// The target of output k_in_tile of a row of the block.
  __device__ Target target_of(int row, int k_in_tile) const {
    const int panel_row = place_.k_block * args_.cut.block_rows() + row;
    const int k_tile = static_cast<int>(args_.j_group.quotient(static_cast<unsigned>(panel_row)));
    const std::int64_t k = std::int64_t{k_tile} * tile_k + k_in_tile;
    const std::int64_t j = place_.j + panel_row - k_tile * args_.cut.j_group;
    Target target{};
    target.exists = k < args_.b && j < args_.d;
    if (!target.exists) return target;
    const int block_j = args_.cut.block_j();
    const int tile = block_j == args_.cut.j_group ? static_cast<int>(args_.j_group.quotient(row)) : 0;
    target.at = (tile * tile_k + k_in_tile) * block_j + row - tile * block_j;
    target.feature = (place_.i * args_.b + k) * args_.d + j;
    if (args_.bias != nullptr)
      target.bias = static_cast<float>(__ldcg(static_cast<const T*>(args_.bias) + target.feature));
    return target;
  }

  /// Stores one result, if its sample is below `there`.
  __device__ void put(const Target& target, int sample, int there, float value) const {
    if (!target.exists || sample >= there) return;
    if (args_.y_vector != 0)
      ptx::store_shared_2(shared_ + layout_.results + sample * layout_.result + target.at * 2,
                          static_cast<std::uint16_t>(pair(value, 0.0f)));
    else
      y()[sample * args_.y_sample + target.feature * args_.y_feature] = static_cast<T>(value);
  }

  /// For outputs that are neighbours: stores 8 samples x 8 outputs at a time, including samples and outputs
  /// that do not exist.
  __device__ void put_matrices(const Sums& sums, int row) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
    // Lanes 8m to 8m + 7 give the addresses of matrix m: samples 8·(m/2), outputs 8·(m%2).
    std::uint32_t to = shared_ + layout_.results + (lane / 16 * 8 + lane % 8) * layout_.result +
                       (row * tile_k + warp * 16 + lane / 8 % 2 * 8) * 2;
#pragma unroll
    for (int q = 0; q + 1 < samples / 8; q += 2, to += 16 * layout_.result)
      ptx::store_matrices_transposed(
          to, pair(sums[4 * q], sums[4 * q + 1]), pair(sums[4 * q + 2], sums[4 * q + 3]),
          pair(sums[4 * q + 4], sums[4 * q + 5]), pair(sums[4 * q + 6], sums[4 * q + 7]));
  }

  __device__ static std::uint32_t pair(float low, float high) {
    const T parts[2] = {static_cast<T>(low), static_cast<T>(high)};
    std::uint32_t word;
    memcpy(&word, parts, 4);
    return word;
  }

  template <class Vector>
  __device__ static Vector loaded(std::uint32_t from) {
    if constexpr (sizeof(Vector) == 16)
      return ptx::load_shared_16(from);
    else if constexpr (sizeof(Vector) == 8)
      return ptx::load_shared_8(from);
    else
      return ptx::load_shared_2(from);
  }

  template <class Vector>
  __device__ void copy_vectors() const {
    constexpr int width = sizeof(Vector) / sizeof(T);
    const Cut& cut = args_.cut;
    const int block_j = cut.block_j();
    const bool is_whole = block_j == args_.d;
    const auto first_row = static_cast<unsigned>(place_.k_block * cut.block_rows());
    const unsigned first_tile = args_.j_group.quotient(first_row);
    const std::int64_t first_k = std::int64_t{first_tile} * tile_k;
    const std::int64_t j = place_.j + first_row - first_tile * args_.j_group.value();
    const int outputs =
        static_cast<int>(min((args_.b - first_k) * block_j, std::int64_t{cut.block_outputs()}));
    const int there =
        cut.cluster == 1 ? place_.samples : min(place_.samples - place_.rank * cut.share(), cut.share());
    T* const to = y() + (place_.i * args_.b + first_k) * args_.d + j;
    const int pieces = outputs / width, j_log2 = 31 - __clz(block_j);
    for_pieces(pieces, there, [&](int sample, int piece) {
      const int at = piece * width;
      std::int64_t feature = at;
      if (!is_whole) {
        feature = (at >> j_log2) * args_.d + (at & (block_j - 1));
        if (j + (at & (block_j - 1)) >= args_.d) return;
      }
      *reinterpret_cast<Vector*>(to + sample * args_.y_sample + feature) =
          loaded<Vector>(shared_ + layout_.results + sample * layout_.result + at * 2);
    });
  }

  template <class Body>
  __device__ static void for_pieces(int count, int there, Body&& body) {
    const int threads_log2 = 31 - __clz(static_cast<int>(blockDim.x));
    if (threadIdx.x >> threads_log2 != 0) return;  // this is the producer: the others are a power of two
    const int width_log2 = min(threads_log2, count <= 4 ? 2 : 32 - __clz(count - 1));
    for (int sample = threadIdx.x >> width_log2; sample < there; sample += 1 << (threads_log2 - width_log2))
      for (int piece = threadIdx.x & ((1 << width_log2) - 1); piece < count; piece += 1 << width_log2)
        body(sample, piece);
  }

  const Arguments& args_;
  const BlockPlace& place_;
  const SharedLayout& layout_;
  std::uint32_t shared_;
};

#endif

}  // namespace kronsparse::cuda::x_stays_wgmma
