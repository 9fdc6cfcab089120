// Operands and a clock, for the programs that time configs.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <random>
#include <vector>

#include "core/geometry.hpp"
#include "cuda/host/runtime.hpp"
#include "kronsparse/buffer.hpp"
#include "kronsparse/plan.hpp"

namespace kronsparse::sweep {

/// Fills memory with random numbers of about unit size, as the dtype has them. Large memory repeats them.
inline void fill(Buffer& buffer, DType dtype, std::mt19937& random) {
  const std::size_t bytes = std::min<std::size_t>(buffer.bytes(), std::size_t{4} << 20);
  std::vector<std::uint32_t> words((bytes + 3) / 4);
  // Sign and mantissa are random, the size is 1/4 to 1.
  const auto half = [dtype](std::uint32_t bits) {
    return dtype == DType::f16 ? (bits & 0x83ffu) | (0x3400u + (bits >> 15 & 1u) * 0x400u)
                               : (bits & 0x807fu) | (0x3e80u + (bits >> 15 & 1u) * 0x80u);
  };
  for (std::uint32_t& word : words) {
    const auto bits = static_cast<std::uint32_t>(random());
    word = dtype == DType::f32 ? (bits & 0x807fffffu) | (0x3e800000u + (bits >> 30 & 1u) * 0x800000u)
                               : half(bits & 0xffffu) | half(bits >> 16) << 16;
  }
  auto* const to = static_cast<std::byte*>(buffer.data());
  cuda::check(cudaMemcpy(to, words.data(), bytes, cudaMemcpyHostToDevice), "filling memory");
  for (std::size_t done = bytes; done < buffer.bytes();) {
    const std::size_t more = std::min(done, buffer.bytes() - done);
    cuda::check(cudaMemcpy(to + done, to, more, cudaMemcpyDeviceToDevice), "filling memory");
    done += more;
  }
}

/// Operands that take turns, so that no run finds x in the cache.
class TurningOperands {
 public:
  TurningOperands(const Problem& problem, Device device) {
    std::mt19937 random(1);
    const std::size_t element = size_of(problem.dtype);
    const std::size_t x_bytes = static_cast<std::size_t>(x_matrix(problem).extent()) * element,
                      y_bytes = static_cast<std::size_t>(y_matrix(problem).extent()) * element;
    const std::size_t copies =
        std::clamp<std::size_t>((std::size_t{200} << 20) / (x_bytes + y_bytes) + 1, 2, 12);
    for (std::size_t copy = 0; copy < copies; ++copy) {
      fill(x_.emplace_back(x_bytes, device), problem.dtype, random);
      y_.emplace_back(y_bytes, device);
    }
    for (const Pattern& factor : problem.chain.factors()) {
      fill(values_.emplace_back(static_cast<std::size_t>(factor.nnz()) * element, device), problem.dtype,
           random);
      addresses_.push_back(values_.back().data());
    }
  }
  [[nodiscard]] Operands of_turn(int turn) const {
    const auto copy = static_cast<std::size_t>(turn) % x_.size();
    return Operands{.x = x_[copy].data(), .y = y_[copy].data()};
  }
  [[nodiscard]] const void* const* values() const { return addresses_.data(); }

 private:
  mutable std::vector<Buffer> x_, y_;
  std::vector<Buffer> values_;
  std::vector<const void*> addresses_;
};

class EventTimer {
 public:
  EventTimer() {
    cuda::check(cudaEventCreate(&begin_), "making an event");
    cuda::check(cudaEventCreate(&end_), "making an event");
  }
  /// Median microseconds of a run, of several rounds. Long runs are repeated less often.
  template <class Run>
  double time(const Run& run) const {
    run(0);
    const double first = round_of(run, 1);
    const int runs = std::clamp(static_cast<int>(300 / first), 1, 12);
    std::vector<double> rounds;
    for (int round = 0; round < 5; ++round) rounds.push_back(round_of(run, runs));
    std::ranges::sort(rounds);
    return rounds[rounds.size() / 2];
  }

 private:
  template <class Run>
  double round_of(const Run& run, int runs) const {
    cuda::check(cudaEventRecord(begin_), "recording");
    for (int turn = 0; turn < runs; ++turn) run(turn);
    cuda::check(cudaEventRecord(end_), "recording");
    cuda::check(cudaEventSynchronize(end_), "running");
    float milliseconds = 0;
    cuda::check(cudaEventElapsedTime(&milliseconds, begin_, end_), "asking for the time");
    return milliseconds * 1000.0 / runs;
  }

  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

/// Packs the values for the executor, and times its runs.
inline double time_executor(const Executor& executor, Device device, const TurningOperands& operands,
                            const EventTimer& timer) {
  Buffer packed(executor.order().bytes, device);
  void* const data = packed.data();
  const PackJob job{.executor = &executor, .values = operands.values(), .packed = data};
  backend_of(device).pack(device, {&job, 1}, nullptr);
  return timer.time([&](int turn) { executor.run(operands.of_turn(turn), {.data = data}); });
}

}  // namespace kronsparse::sweep
