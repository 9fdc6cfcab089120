// How blocks that share neighbouring j exchange them (gradient_mma.cuh, form `exchanged`).
//
// A sector of memory holds 16 j, and the sums of 16 products leave a block room for
// few rows of each: operands would come from L2 many times. Four blocks of a cluster
// take four j each and twice as many rows of g and of x. Each of them copies whole
// sectors, of a quarter of a stage's samples, to a place of its own; the threads
// that copied them sort them by j into the stages of the four blocks.
#pragma once

#include "cuda/gradient_tile.cuh"
#include "cuda/ptx_sm90.cuh"

namespace kronsparse::cuda {

constexpr int kExchangeBlocks = 4;
constexpr int kExchangeJ = 4;  ///< of a block
constexpr int kExchangeWarpsM = 2, kExchangeWarpsN = 4;
constexpr int kExchangeM = 64, kExchangeN = 128;  ///< rows of g and of x in a block
constexpr int kExchangeSamples = 16;              ///< in a stage
constexpr int kExchangeStages = 3;                ///< read, being filled, and read by the slowest
constexpr int kExchangePlaces = 4;                ///< of copies: three under way
/// A thread copies two rows' units of one half of a sector, and as often as this.
constexpr int kExchangePasses =
    kExchangeSamples / kExchangeBlocks * (kExchangeM + kExchangeN) / kGradientMaxThreads;
constexpr int kExchangePlaceBytes = kExchangePasses * 2 * 16 * kGradientMaxThreads;
static_assert(kExchangeSamples / kExchangeBlocks * (kExchangeM + kExchangeN) % kGradientMaxThreads == 0);

namespace gradient {

/// One operand's part in it: `Rows` of a block, a thread's from its first sample on.
template <int Rows>
class Exchanger {
 public:
  static constexpr int passes = kExchangeSamples / kExchangeBlocks * Rows / kGradientMaxThreads;

  __device__ Exchanger(const GradientArguments& p, const GradientOperand& operand, const Tile& tile,
                       std::int64_t row0)
      : operand_(operand) {
    const int thread = static_cast<int>(threadIdx.x);
    const int half = thread % 2;
    row_ = thread / 2 * 2 % Rows;
    sample_ = tile.part * share + thread / Rows;
    const std::int64_t j0 = tile.j0 - tile.part * kExchangeJ;
    const std::int64_t left = operand.rows - row0 - row_;
    rows_ = j0 + half * 8 < p.d ? static_cast<int>(max(std::int64_t{0}, min(left, std::int64_t{2}))) : 0;
    from_ = operand.data + tile.i * operand.to_next_i + (row0 + row_) * operand.to_next_row +
            (j0 + half * 8) * operand.to_next_j + (tile.n0 + sample_) * operand.to_next_sample;
    stage_step_ = kExchangeSamples * operand.to_next_sample;
  }

  /// The next stage's sectors, of whose samples `left` exist, to this thread's units of a place.
  __device__ void copy(std::uint32_t to, int left) {
#pragma unroll
    for (int pass = 0; pass < passes; ++pass) {
      const int elements = sample_ + pass * pass_samples < left ? 8 : 0;
      const std::byte* from = from_ + pass * pass_samples * operand_.to_next_sample;
#pragma unroll
      for (int row = 0; row < 2; ++row)
        if (row < rows_)
          copy_unit(operand_.width, unit(to, pass, row), from + row * operand_.to_next_row, elements);
    }
    from_ += stage_step_;
  }

  /// Sends them, from there, to the same stage of two blocks: two rows of four j each.
  __device__ void send(std::uint32_t from, const std::uint32_t (&stages)[2]) const {
#pragma unroll
    for (int pass = 0; pass < passes; ++pass) {
      const uint4 first = ptx::load_shared_16(unit(from, pass, 0));
      const uint4 second = ptx::load_shared_16(unit(from, pass, 1));
      const std::uint32_t to = (sample_ + pass * pass_samples) * operand_.pitch + row_ * (kExchangeJ * 2);
      ptx::store_cluster_16(stages[0] + to, uint4{first.x, first.y, second.x, second.y});
      ptx::store_cluster_16(stages[1] + to, uint4{first.z, first.w, second.z, second.w});
    }
  }

 private:
  static constexpr int share = kExchangeSamples / kExchangeBlocks;  // samples of a block
  static constexpr int pass_samples = kGradientMaxThreads / Rows;   // samples of a pass
  static_assert(passes * pass_samples == share && kGradientMaxThreads % Rows == 0);

  __device__ static std::uint32_t unit(std::uint32_t place, int pass, int row) {
    return place + ((pass * 2 + row) * kGradientMaxThreads + static_cast<int>(threadIdx.x)) * 16;
  }

  const GradientOperand& operand_;
  const std::byte* from_;
  std::int64_t stage_step_;
  int row_, sample_;
  int rows_;  ///< of two that exist
};

/// The copies and the exchange of a block, a stage at a time.
class Exchange {
 public:
  __device__ Exchange(const GradientArguments& p, const Tile& tile, std::uint32_t shared)
      : p_(p),
        g_(p, p.g, tile, tile.k0),
        x_(p, p.x, tile, tile.l0),
        places_(shared + kExchangeStages * p.stage_bytes),
        left_(tile.samples) {
    const std::uint32_t first = tile.split * kExchangeBlocks + threadIdx.x % 2 * 2;
    blocks_[0] = ptx::cluster_address(shared, first);
    blocks_[1] = ptx::cluster_address(shared, first + 1);
  }

  /// Begins the copies of the next stage.
  __device__ void copy() {
    const std::uint32_t place = places_ + copied_ * kExchangePlaceBytes;
    g_.copy(place, left_);
    x_.copy(place + g_bytes, left_);
    ptx::commit_copies();
    left_ -= kExchangeSamples;
    if (++copied_ == kExchangePlaces) copied_ = 0;
  }

  /// Sends what was copied longest ago. A thread reads what it copied itself, so nobody else is waited for.
  __device__ void send() {
    ptx::wait_copies<kExchangePlaces - 2>();
    const std::uint32_t place = places_ + sent_ * kExchangePlaceBytes;
    const std::uint32_t stage = to_ * p_.stage_bytes;
    g_.send(place, {blocks_[0] + stage, blocks_[1] + stage});
    x_.send(place + g_bytes, {blocks_[0] + stage + p_.x_offset, blocks_[1] + stage + p_.x_offset});
    if (++sent_ == kExchangePlaces) sent_ = 0;
    if (++to_ == kExchangeStages) to_ = 0;
  }

 private:
  static constexpr int g_bytes = Exchanger<kExchangeM>::passes * 2 * 16 * kGradientMaxThreads;

  const GradientArguments& p_;
  Exchanger<kExchangeM> g_;
  Exchanger<kExchangeN> x_;
  std::uint32_t places_;
  std::uint32_t blocks_[2];  ///< shared memory of those who get this thread's j
  int left_;
  int copied_ = 0, sent_ = 0, to_ = 0;
};

}  // namespace gradient
}  // namespace kronsparse::cuda
