// Rows of x and y that the copy engine does not take, because their addresses or their strides are no
// multiples of 16 bytes.
//
// Each row begins at some byte of an aligned vector of 16 bytes. Whole aligned vectors that cover a row of x
// are copied, asynchronously, to where the row belongs; the last one, for which the row has no room, lies
// aside. When they have arrived, each lane takes two neighbouring vectors and puts the 16 bytes in place that
// belong there. Results are shifted the other way on their way out.
#pragma once

#include "cuda/device/ptx_sm90.cuh"
#include "cuda/device/racecheck.cuh"
#include "cuda/device/shift.cuh"
#include "cuda/large_batch/gemm/tiles.cuh"

namespace kronsparse::cuda::gemm {

/// Brings stages of x: what the warps of the producer do, except for the first.
///
/// A stage has rows of samples, one for each term, or rows of terms, one for each sample, of `boxes` boxes. A
/// warp takes 32 vectors at a time, which are whole rows.
template <class Traits, int boxes>
class RowProducer {
 public:
  __device__ RowProducer(const GemmArguments& p, std::uint32_t shared)
      : p_(p),
        shared_(shared),
        barriers_{shared},
        lane_row_(static_cast<int>(threadIdx.x) % 32 / kVectors),
        vector_(static_cast<int>(threadIdx.x) % kVectors) {}

  __device__ void run() {
    ptx::wait_for_earlier_kernels();
    Walk walk(p_, Traits::shape.n, boxes * kGemmBoxSamples);
    RingPlace next;     // the stage that is requested next
    RingPlace arrived;  // the oldest stage that was requested and not handed over
    // 4 bits for each stage: by how many bytes its first row is off, and whether it is the last of its tile.
    std::uint32_t stages = 0;
    int under_way = 0;
    for (int chunk = 0; under_way != 0 || !walk.done();) {
      if (!walk.done()) {
        ptx::barrier_wait(barriers_.empty(next.at), next.parity ^ 1);
        const bool is_last = chunk + kGemmStageChunks == p_.chunks;
        const std::uint32_t about = request(walk.tile(), chunk, next.at) | (is_last ? 1 : 0);
        ptx::commit_copies();
        stages = (stages & ~(15u << 4 * next.at)) | about << 4 * next.at;
        next.advance(p_.stages);
        ++under_way;
        chunk = is_last ? 0 : chunk + kGemmStageChunks;
        if (is_last) walk.next();
        // A stage becomes free when the one after it has been handed over.
        if (under_way < p_.stages - 1 && !walk.done()) continue;
      }
      wait_for_oldest(under_way);
      const std::uint32_t about = stages >> 4 * arrived.at;
      shift(arrived.at, kColumns && (about & 1) != 0 ? last_terms() : kRows, about & 14);
      ptx::fence_for_bulk();  // wgmma reads through the same proxy as the copy engine
      if (speaks_for_warp()) ptx::barrier_arrive(barriers_.full(arrived.at));
      arrived.advance(p_.stages);
      --under_way;
    }
  }

 private:
  static constexpr bool kColumns = Traits::shape.columns;
  static constexpr int kVectors = kColumns ? 8 * boxes : 8;  ///< of a row
  static constexpr int kRows = kColumns ? 64 : 64 * boxes;   ///< of a stage
  static constexpr int kUnitRows = 32 / kVectors;            ///< that a warp takes at a time
  static constexpr int kUnits = kRows / kUnitRows;
  static constexpr int kStep = kGemmRowWarps * kUnitRows;  ///< rows from one of a warp's units to the next
  static constexpr int kAtOnce = 2;                        ///< units that are shifted together

  /// Waits for the oldest of so many groups of copies.
  __device__ static void wait_for_oldest(int groups) {
    switch (groups) {
      case 1:
        ptx::wait_copies<0>();
        break;
      case 2:
        ptx::wait_copies<1>();
        break;
      case 3:
        ptx::wait_copies<2>();
        break;
      case 4:
        ptx::wait_copies<3>();
        break;
      case 5:
        ptx::wait_copies<4>();
        break;
      case 6:
        ptx::wait_copies<5>();
        break;
      default:
        ptx::wait_copies<6>();
        break;
    }
    static_assert(kGemmMaxRowStages == 8, "at most 7 groups");
    __syncwarp();
  }

  [[nodiscard]] __device__ int first_unit() const { return static_cast<int>(threadIdx.x) / 32 - 1; }
  [[nodiscard]] __device__ int row_of(int unit) const { return unit * kUnitRows + lane_row_; }
  /// From row to row.
  [[nodiscard]] __device__ std::int64_t row_bytes() const {
    return (kColumns ? p_.d * p_.x_feature : p_.x_sample) * 2;
  }
  /// The terms of a tile's last stage.
  [[nodiscard]] __device__ int last_terms() const {
    return static_cast<int>(p_.c) - (p_.chunks - kGemmStageChunks) * 16;
  }
  [[nodiscard]] __device__ std::uint32_t stage_address(int stage) const {
    return shared_ + p_.stages_offset + stage * boxes * kGemmBoxBytes;
  }
  /// The place of a vector of a row.
  [[nodiscard]] __device__ static std::uint32_t place(std::uint32_t stage, int row, int vector) {
    return kColumns ? stage + vector / 8 * kGemmBoxBytes + swizzled(row, vector % 8 * 16)
                    : stage + swizzled(row, vector * 16);
  }
  /// The place of the vector behind a row. Those of all stages lie where the copy engine has one stage more.
  [[nodiscard]] __device__ std::uint32_t place_aside(int stage, int row) const {
    return stage_address(p_.stages) + (stage * kRows + row) * 16;
  }

  /// Requests the vectors of a stage, and zeros where x ends. Returns by how many bytes the first row's
  /// address is off.
  __device__ std::uint32_t request(const Tile& tile, int chunk, int stage) const {
    const std::int64_t l0 = chunk * 16;
    const std::byte* first =
        p_.x + (tile.n0 * p_.x_sample + ((tile.i * p_.c + l0) * p_.d + tile.j) * p_.x_feature) * 2;
    const std::int64_t terms = p_.c - l0, samples = p_.batch - tile.n0;
    constexpr std::int64_t enough = 1024;
    const auto rows = static_cast<int>(min(kColumns ? terms : samples, enough));
    const int length = static_cast<int>(min(kColumns ? samples : terms, enough)) * 2;
    const auto misaligned = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(first) % 16);
    if (rows >= kRows && length >= (kVectors + 1) * 16 && first - misaligned >= p_.x)
      request_whole(first, stage);
    else
      request_parts(first, rows, length, stage);
    return misaligned;
  }

  /// Requests a stage whose covering vectors all lie within their rows of x.
  __device__ void request_whole(const std::byte* first, int stage) const {
    const std::uint32_t to = stage_address(stage);
    const std::byte* begin = first + row_of(first_unit()) * row_bytes();
#pragma unroll 2
    for (int unit = first_unit(); unit < kUnits; unit += kGemmRowWarps, begin += kStep * row_bytes()) {
      const std::byte* from = begin - reinterpret_cast<std::uintptr_t>(begin) % 16 + vector_ * 16;
      ptx::copy_async_16(place(to, row_of(unit), vector_), from, 16);
      if (vector_ == kVectors - 1) ptx::copy_async_16(place_aside(stage, row_of(unit)), from + 16, 16);
    }
  }

  /// Requests a stage of `rows` rows of `length` bytes, which may be fewer than it has room for.
  __device__ void request_parts(const std::byte* first, int rows, int length, int stage) const {
    const std::uint32_t to = stage_address(stage);
    const bool is_last = vector_ == kVectors - 1;
    const std::byte* begin = first + row_of(first_unit()) * row_bytes();
#pragma unroll 1
    for (int unit = first_unit(); unit < kUnits; unit += kGemmRowWarps, begin += kStep * row_bytes()) {
      const int row = row_of(unit);
      const std::uint32_t here = place(to, row, vector_);
      if (row < rows) {
        const auto over = static_cast<int>(reinterpret_cast<std::uintptr_t>(begin) % 16);
        const std::byte* from = begin - over + vector_ * 16;
        const int left = over + length - vector_ * 16;
        if (from >= p_.x)
          ptx::copy_async_16(here, from, max(min(left, 16), 0));
        else
          copy_head(p_.x, here, from, left);
        if (is_last && over != 0)
          ptx::copy_async_16(place_aside(stage, row), from + 16, max(min(left - 16, 16), 0));
      } else {
        ptx::store_shared_16(here, 0, 0, 0, 0);
        if (is_last) ptx::store_shared_16(place_aside(stage, row), 0, 0, 0, 0);
      }
    }
  }

  /// Copies the elements of a vector that begins before x.
  __device__ __noinline__ static void copy_head(const std::byte* x, std::uint32_t to, const std::byte* from,
                                                int left) {
    for (int byte = 0; byte < 16; byte += 2) {
      std::uint16_t element = 0;
      if (from + byte >= x && byte < left) element = *reinterpret_cast<const std::uint16_t*>(from + byte);
      ptx::store_shared_2(to + byte, element);
    }
  }

  /// Moves the first `rows` rows of a stage to their places. The first is off by `misaligned` bytes.
  __device__ void shift(int stage, int rows, std::uint32_t misaligned) const {
    const std::uint32_t at = stage_address(stage);
    const bool is_last = vector_ == kVectors - 1;
    const auto step = static_cast<std::uint32_t>(row_bytes());
#pragma unroll 1
    for (int first = first_unit(); first * kUnitRows < rows; first += kAtOnce * kGemmRowWarps) {
      uint4 one[kAtOnce]{}, next[kAtOnce]{};
#pragma unroll
      for (int turn = 0; turn < kAtOnce; ++turn) {
        if (first + turn * kGemmRowWarps >= kUnits) break;
        const int row = row_of(first) + turn * kStep;
        one[turn] = ptx::load_shared_16(place(at, row, vector_));
        next[turn] = ptx::load_shared_16(is_last ? place_aside(stage, row) : place(at, row, vector_ + 1));
      }
      __syncwarp();
#pragma unroll
      for (int turn = 0; turn < kAtOnce; ++turn) {
        if (first + turn * kGemmRowWarps >= kUnits) break;
        const int row = row_of(first) + turn * kStep;
        const uint4 moved = shifted(one[turn], next[turn], (misaligned + row * step) & 14);
        ptx::store_shared_16(place(at, row, vector_), moved.x, moved.y, moved.z, moved.w);
      }
    }
  }

  const GemmArguments& p_;
  std::uint32_t shared_;
  Barriers barriers_;
  int lane_row_;  ///< this lane's row of those that the warp takes at a time
  int vector_;    ///< its vector of the row
};

/// Stores a warpgroup's results: `round` outputs from k0 on, of the samples from n0 on, which lie at `from`.
template <class Traits>
__device__ inline void store_rows(const GemmArguments& p, const Tile& tile, std::int64_t k0, std::int64_t n0,
                                  std::uint32_t from) {
  constexpr GemmShape shape = Traits::shape;
  constexpr int box_bytes = shape.round * kGemmBoxSamples * 2;
  constexpr int vectors = shape.columns ? 8 * shape.sample_boxes : shape.round / 8;
  const std::int64_t outputs = p.b - k0, samples = p.batch - n0;
  constexpr std::int64_t most_outputs = shape.round, most_samples = shape.samples();
  const int rows = static_cast<int>(shape.columns ? min(outputs, most_outputs) : min(samples, most_samples));
  const int length =
      static_cast<int>(shape.columns ? min(samples, most_samples) : min(outputs, most_outputs));
  std::byte* first = p.y + (n0 * p.y_sample + ((tile.i * p.b + k0) * p.d + tile.j) * p.y_feature) * 2;
  const std::int64_t row_bytes = (shape.columns ? p.d * p.y_feature : p.y_sample) * 2;
  const auto at = [&](int row, int vector) {
    return ptx::load_shared_16(shape.columns ? from + vector / 8 * box_bytes + swizzled(row, vector % 8 * 16)
                                             : from + swizzled(row, vector * 16));
  };
#pragma unroll 2
  for (int index = static_cast<int>(threadIdx.x) % 128; index < rows * (vectors + 1); index += 128) {
    const int row = index / (vectors + 1);
    std::byte* begin = first + row * row_bytes;
    const auto over = static_cast<int>(reinterpret_cast<std::uintptr_t>(begin) % 16);
    const int vector = index % (vectors + 1);  // of those that cover the row in memory
    const int end = over / 2 + length - vector * 8;
    if (end <= 0) continue;
    // It takes the end of one vector in shared memory and the beginning of the next.
    const int one = over == 0 ? vector : vector - 1;
    const uint4 moved = shifted(at(row, max(one, 0)), at(row, min(one + 1, vectors - 1)), (16 - over) & 14);
    store_part(reinterpret_cast<std::uint16_t*>(begin - over + vector * 16), moved, over / 2 - vector * 8,
               end);
  }
}

}  // namespace kronsparse::cuda::gemm
