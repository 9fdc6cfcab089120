// Operands and a clock, for the programs that time configs.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <random>
#include <vector>

#include "core/geometry.hpp"
#include "core/implementation.hpp"
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
    const bool is_gradient = problem.operation == Operation::gradient;
    const std::size_t x_bytes = static_cast<std::size_t>(x_matrix(problem).extent()) * element,
                      g_bytes = static_cast<std::size_t>(rows_matrix(problem).extent()) * element,
                      y_bytes = is_gradient ? static_cast<std::size_t>(problem.chain.nnz()) * element
                                            : static_cast<std::size_t>(y_matrix(problem).extent()) * element;
    const std::size_t copies =
        std::clamp<std::size_t>((std::size_t{200} << 20) / (x_bytes + y_bytes) + 1, 2, 12);
    for (std::size_t copy = 0; copy < copies; ++copy) {
      fill(x_.emplace_back(x_bytes, device), problem.dtype, random);
      if (is_gradient) fill(g_.emplace_back(g_bytes, device), problem.dtype, random);
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
    Operands operands{.x = x_[copy].data(), .y = y_[copy].data()};
    if (!g_.empty()) operands.g = g_[copy].data();
    return operands;
  }
  [[nodiscard]] const void* const* values() const { return addresses_.data(); }

 private:
  mutable std::vector<Buffer> x_, g_, y_;
  std::vector<Buffer> values_;
  std::vector<const void*> addresses_;
};

/// Times runs in a CUDA graph, as small batches are run: what the host needs for a launch does not count.
class GraphTimer {
 public:
  GraphTimer() {
    cuda::check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
    cuda::check(cudaEventCreate(&begin_), "making an event");
    cuda::check(cudaEventCreate(&end_), "making an event");
  }
  /// Median microseconds of a run(turn, stream), of several rounds. Long runs are repeated less often.
  template <class Run>
  double time(const Run& run) const {
    const double first = Graph(*this, run, 1).round();
    const int runs = std::clamp(static_cast<int>(600 / first), 2, 48);
    const Graph graph(*this, run, runs);
    std::vector<double> rounds;
    for (int round = 0; round < 5; ++round) rounds.push_back(graph.round() / runs);
    std::ranges::sort(rounds);
    return rounds[rounds.size() / 2];
  }

 private:
  /// Some runs, captured.
  class Graph {
   public:
    template <class Run>
    Graph(const GraphTimer& timer, const Run& run, int runs) : timer_(timer) {
      run(0, timer.stream_);  // loads the kernel, which must not be captured
      cuda::check(cudaStreamSynchronize(timer.stream_), "running");
      cuda::check(cudaStreamBeginCapture(timer.stream_, cudaStreamCaptureModeThreadLocal), "capturing");
      for (int turn = 0; turn < runs; ++turn) run(turn, timer.stream_);
      cudaGraph_t graph = nullptr;
      cuda::check(cudaStreamEndCapture(timer.stream_, &graph), "capturing");
      cuda::check(cudaGraphInstantiate(&executable_, graph, 0), "making a graph");
      cuda::check(cudaGraphDestroy(graph), "making a graph");
      static_cast<void>(round());
    }
    ~Graph() { static_cast<void>(cudaGraphExecDestroy(executable_)); }
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;

    /// Microseconds of all runs.
    [[nodiscard]] double round() const {
      cuda::check(cudaEventRecord(timer_.begin_, timer_.stream_), "recording");
      cuda::check(cudaGraphLaunch(executable_, timer_.stream_), "running");
      cuda::check(cudaEventRecord(timer_.end_, timer_.stream_), "recording");
      cuda::check(cudaEventSynchronize(timer_.end_), "running");
      float milliseconds = 0;
      cuda::check(cudaEventElapsedTime(&milliseconds, timer_.begin_, timer_.end_), "asking for the time");
      return milliseconds * 1000.0;
    }

   private:
    const GraphTimer& timer_;
    cudaGraphExec_t executable_ = nullptr;
  };

  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

/// Packs the values for the executor, and times its runs. Small batches, which read weights more than x, find
/// these in the cache no more than x: copies of them take turns.
inline double time_executor(const Executor& executor, const Problem& problem, Device device,
                            const TurningOperands& operands, const GraphTimer& timer) {
  constexpr std::int64_t small_batch = 64;
  const std::size_t bytes = std::max<std::size_t>(executor.order().bytes, 1);
  const std::size_t copies =
      problem.batch > small_batch ? 1 : std::clamp<std::size_t>((std::size_t{200} << 20) / bytes + 1, 2, 48);
  std::vector<Buffer> packed;
  for (std::size_t copy = 0; copy < copies; ++copy) {
    void* const data = packed.emplace_back(bytes, device).data();
    if (problem.operation == Operation::gradient) continue;
    const PackJob job{.executor = &executor, .values = operands.values(), .packed = data};
    backend_of(device).pack(device, {&job, 1}, nullptr);
  }
  cuda::check(cudaDeviceSynchronize(), "packing");
  return timer.time([&](int turn, cudaStream_t stream) {
    Operands of_turn = operands.of_turn(turn);
    of_turn.stream = stream;
    const Buffer& weights = packed[static_cast<std::size_t>(turn) % copies];
    executor.run(of_turn, {.data = const_cast<Buffer&>(weights).data()});
  });
}

}  // namespace kronsparse::sweep
