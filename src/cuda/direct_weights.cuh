// The way of weights as given to the tensor cores' registers: loads like those of x, and the same terms.
#pragma once

#include "cuda/direct_x.cuh"
#include "cuda/ptx_sm90.cuh"

namespace kronsparse::cuda::direct {

/// Stands for both classes below where weights are packed: the copy engine brings them to shared memory.
struct PackedWeights {
  PackedWeights() = default;
  __device__ PackedWeights(const Arguments& /*args*/, const RowPlace& /*place*/) {}
  template <bool vectors>
  __device__ void load(const Arguments& /*args*/, const PackedWeights& /*from*/, int /*first_l*/) {}
  __device__ static void wait_for_copies(std::uint32_t barrier) { ptx::barrier_wait(barrier, 0); }
  /// The operand of this number, of a step whose operands begin there for the lane.
  [[nodiscard]] __device__ uint4 operand(int number, std::uint32_t of_lane) const {
    return ptx::load_shared_16(of_lane + number * operand_bytes);
  }
};

/// Where the weights of a lane's outputs begin.
template <Shape shape>
class RowsOfWeights {
 public:
  /// Outputs that do not exist have the weights of the last one, and are not stored.
  __device__ RowsOfWeights(const Arguments& args, const RowPlace& place) {
    const auto* weights = reinterpret_cast<const std::uint16_t*>(args.weights) +
                          std::int64_t{place.i} * args.weights_of_i + place.first_j;
    const int first = place.first_k + static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
    for (int row = 0; row < shape.outputs * shape.lane_rows(); ++row)
      rows_[row] = weights + std::int64_t{min(first + 8 * row, args.b - 1)} * args.k_stride;
  }
  [[nodiscard]] __device__ const std::uint16_t* row(int number) const { return rows_[number]; }

 private:
  const std::uint16_t* rows_[shape.outputs * shape.lane_rows()];
};

/// Weights of one step: of each of the lane's outputs the terms that it has of x.
template <Shape shape>
class StepOfWeights {
  static constexpr int rows = shape.outputs * shape.lane_rows(), loads = shape.loads();
  static constexpr int load_words = shape.load / 2;

 public:
  /// Terms that do not exist are zeros, as those of x are: the product of a zero and what lies there might be
  /// no number.
  template <bool vectors>
  __device__ void load(const Arguments& args, const RowsOfWeights<shape>& from, int first_l) {
    const int lane_in_four = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int v = 0; v < loads; ++v) {
      const int l = first_l + shape.term_of(lane_in_four, v * shape.terms());
#pragma unroll
      for (int row = 0; row < rows; ++row) {
        std::uint32_t loaded[load_words];
        load_vector<shape.load, vectors>(loaded, l < args.c
                                                     ? from.row(row) + l * args.l_stride
                                                     : reinterpret_cast<const std::uint16_t*>(&no_terms));
#pragma unroll
        for (int word = 0; word < load_words; ++word) words_[row][v * load_words + word] = loaded[word];
      }
    }
  }

  __device__ static void wait_for_copies(std::uint32_t /*barrier*/) {}
  /// The operand of this number, in the words that packed weights would have: packed_place() says which.
  [[nodiscard]] __device__ uint4 operand(int number, std::uint32_t /*of_lane*/) const {
    if constexpr (shape.x_is_left()) {
      const auto& pairs = words_[number];
      return shape.tiles == 1 ? uint4{pairs[0], pairs[2], pairs[1], pairs[3]}
                              : uint4{pairs[0], pairs[1], pairs[2], pairs[3]};
    } else {
      constexpr int block_j = shape.block_j;
      const int row = number / block_j * 2, j = number % block_j;
      return {pair_of_terms<block_j>(words_[row], j, 0), pair_of_terms<block_j>(words_[row + 1], j, 0),
              pair_of_terms<block_j>(words_[row], j, 1), pair_of_terms<block_j>(words_[row + 1], j, 1)};
    }
  }

 private:
  std::uint32_t words_[rows][loads * load_words];
};

}  // namespace kronsparse::cuda::direct
