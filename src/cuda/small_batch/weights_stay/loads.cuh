// The path of x to shared memory, and from there to the tensor cores' registers. tiles.cuh says how it lies.
#pragma once

#include "cuda/device/ptx_sm90.cuh"
#include "cuda/device/ring.cuh"
#include "cuda/device/tensor_core.cuh"
#include "cuda/small_batch/mma.cuh"
#include "cuda/small_batch/weights_stay/tiles.cuh"

namespace kronsparse::cuda::weights_stay {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/// The position of a block.
struct BlockPlace {
  int tile;  ///< tile of outputs, numbered through all i
  int i, first_k, first_sample;

  __device__ explicit BlockPlace(const Arguments& args) {
    // Blocks with the same weights are neighbours, so that they read them at the same time.
    const unsigned number = ptx::block_number();
    tile = static_cast<int>(args.blocks_of_samples.quotient(number));
    const int sample_block =
        static_cast<int>(number) - tile * static_cast<int>(args.blocks_of_samples.value());
    i = static_cast<int>(args.k_tiles.quotient(static_cast<unsigned>(tile)));
    first_k = (tile - i * args.cut.k_tiles) * tile_outputs;
    first_sample = sample_block * args.cut.passes * tile_samples;
  }
};

/// A warp's share of the copies, and its lanes' loads.
template <Shape shape>
class X {
  static constexpr int block_j = shape.block_j(), loads = 4 / (8 / block_j);

 public:
  __device__ X(const Arguments& args, const BlockPlace& place, std::uint32_t base, std::uint32_t barriers,
               int warp)
      : args_(args),
        place_(place),
        box_(base + shape.box_place(warp)),
        barrier_(barriers + warp / shape.sharing_warps() * 8),
        warp_(warp) {
    const int lane = lane_number();
    const int first_term = warp / shape.j_warps() * shape.steps() * step_terms;
#pragma unroll
    for (int load = 0; load < loads; ++load) {
      const int term = first_term + term_of(8 / block_j, lane % 4, load * (8 / block_j));
      from_[load] =
          base + shape.place(shape.sample_of(lane / 4), term * shape.d * 2 + warp % shape.j_warps() * 16);
    }
  }

  /// Called by every warp, before a barrier of the block.
  __device__ void init() const {
    if (warp_ % shape.sharing_warps() != 0 || lane_number() != 0) return;
    for (int buffer = 0; buffer < args_.cut.buffers(); ++buffer) ptx::barrier_init(barrier_of(buffer), 1);
    ptx::barrier_init_fence();
    if (args_.boxes) ptx::prefetch_map(&args_.x_map);
  }

  /// Requests the x of a pass into a buffer that nobody reads.
  __device__ void ask(int pass, int buffer) const {
    const int first_sample = place_.first_sample + pass * tile_samples;
    if (!args_.boxes) {
      copy_elements(first_sample, buffer);
    } else if (lane_number() == 0) {
      const std::uint32_t to = box_ + buffer * shape.buffer_bytes(), barrier = barrier_of(buffer);
      if (warp_ % shape.sharing_warps() == 0)
        ptx::barrier_arrive_expecting(barrier, shape.sharing_warps() * shape.box_bytes());
      if constexpr (shape.by_rows())
        ptx::copy_box(to, &args_.x_map, 0, first_sample, warp_ * shape.box_rows(), place_.i, barrier);
      else
        ptx::copy_box(to, &args_.x_map, 0, 0, first_sample + warp_, place_.i, barrier);
    }
  }

  /// Waits for the requested x.
  __device__ void wait(const RingPlace& at) const {
    if (args_.boxes)
      ptx::barrier_wait(barrier_of(at.at), at.parity);
    else
      meet();  // each warp has copied a share
  }

  /// Waits until all warps that share this x have read it.
  __device__ void meet() const {
    if constexpr (shape.sharing_warps() == 1)
      __syncwarp();
    else if constexpr (shape.sharing_warps() == warps)
      __syncthreads();
    else
      ptx::barrier_of(1 + warp_ / shape.sharing_warps(), shape.sharing_warps() * 32);
  }

  /// Loads the x of a step.
  __device__ void load(std::uint32_t (&words)[loads * 4], int buffer, int step) const {
#pragma unroll
    for (int load = 0; load < loads; ++load) {
      const uint4 v =
          ptx::load_shared_16(from_[load] + buffer * shape.buffer_bytes() + step * shape.step_bytes());
      words[4 * load] = v.x, words[4 * load + 1] = v.y;
      words[4 * load + 2] = v.z, words[4 * load + 3] = v.w;
    }
  }

  static constexpr int words_of_a_step = loads * 4;

 private:
  __device__ static int lane_number() { return static_cast<int>(threadIdx.x) % 32; }
  [[nodiscard]] __device__ std::uint32_t barrier_of(int buffer) const {
    return barrier_ + buffer * shape.groups() * 8;
  }

  /// Copies an x that the copy engine cannot take, to the same places.
  __device__ void copy_elements(int first_sample, int buffer) const {
    constexpr int units = row_bytes / 16, samples = shape.by_rows() ? tile_samples : 1;
    const int first_row = shape.by_rows() ? warp_ * shape.box_rows() : 0;
    if (!shape.by_rows()) first_sample += warp_;
    const std::uint32_t base = box_ - shape.box_place(warp_) + buffer * shape.buffer_bytes();
    for (int at = lane_number(); at < shape.box_rows() * samples * units; at += 32) {
      const int unit = at % units, row = first_row + at / units % shape.box_rows(),
                sample = at / units / shape.box_rows();
      const bool exists = row < args_.x_rows && first_sample + sample < args_.batch;
      const auto* from = static_cast<const std::byte*>(args_.x) +
                         (first_sample + sample) * args_.x_sample * 2 +
                         (std::int64_t{place_.i} * args_.x_rows + row) * row_bytes + unit * 16;
      mma::store_elements(base + shape.place(shape.by_rows() ? sample : warp_, row * row_bytes + unit * 16),
                          from, exists ? 8 : 0);
    }
  }

  const Arguments& args_;
  const BlockPlace& place_;
  std::uint32_t box_, barrier_;
  int warp_;
  std::uint32_t from_[loads];
};

#endif

}  // namespace kronsparse::cuda::weights_stay
