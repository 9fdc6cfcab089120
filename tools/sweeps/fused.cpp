// Times every config of the kernel `fused` on chains, for its cost model (src/cuda/chain/fused/search.cu).
//
// Reads problems from standard input, a line each; writes a CSV table with a row for each config, and one for
// the factors one by one, which pack their values at each run. Operands take turns, so that no run finds x in
// the cache.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "core/geometry.hpp"
#include "cuda/chain/fused/search.hpp"
#include "cuda/host/runtime.hpp"
#include "kronsparse/buffer.hpp"
#include "kronsparse/plan.hpp"

namespace {

using namespace kronsparse;

/// Fills memory with random numbers of about unit size, as the problem's dtype has them.
void fill(Buffer& buffer, DType dtype, std::mt19937& random) {
  std::vector<std::uint16_t> halves(buffer.bytes() / 2);
  if (dtype == DType::f32) {
    std::normal_distribution<float> normal;
    std::vector<float> floats(buffer.bytes() / 4);
    for (float& value : floats) value = normal(random);
    buffer.copy_from_host(floats.data(), floats.size() * 4);
    return;
  }
  // Sign and mantissa are random, the size is 1/4 to 1.
  for (std::uint16_t& half : halves) {
    const auto bits = random();
    half = dtype == DType::f16
               ? static_cast<std::uint16_t>((bits & 0x83ffu) | (0x3400u + (bits >> 16 & 1u) * 0x400u))
               : static_cast<std::uint16_t>((bits & 0x807fu) | (0x3e80u + (bits >> 16 & 1u) * 0x80u));
  }
  buffer.copy_from_host(halves.data(), halves.size() * 2);
}

class EventTimer {
 public:
  EventTimer() {
    cuda::check(cudaEventCreate(&begin_), "making an event");
    cuda::check(cudaEventCreate(&end_), "making an event");
  }
  /// Median microseconds of a run, of several rounds.
  template <class Run>
  double time(const Run& run) const {
    run(0);
    run(1);
    std::vector<float> rounds;
    constexpr int runs = 12;
    for (int round = 0; round < 5; ++round) {
      cuda::check(cudaEventRecord(begin_), "recording");
      for (int turn = 0; turn < runs; ++turn) run(turn);
      cuda::check(cudaEventRecord(end_), "recording");
      cuda::check(cudaEventSynchronize(end_), "running");
      float milliseconds = 0;
      cuda::check(cudaEventElapsedTime(&milliseconds, begin_, end_), "asking for the time");
      rounds.push_back(milliseconds * 1000 / runs);
    }
    std::ranges::sort(rounds);
    return rounds[rounds.size() / 2];
  }

 private:
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

void sweep(const Problem& problem, const EventTimer& timer) {
  const Device device{Backend::cuda, 0};
  const cuda::GpuFacts& facts = cuda::gpu(device);
  std::mt19937 random(1);
  const std::size_t element = size_of(problem.dtype);
  const std::size_t x_bytes = static_cast<std::size_t>(x_matrix(problem).extent()) * element,
                    y_bytes = static_cast<std::size_t>(y_matrix(problem).extent()) * element;
  const std::size_t copies =
      std::clamp<std::size_t>((std::size_t{200} << 20) / (x_bytes + y_bytes) + 1, 2, 12);
  std::vector<Buffer> x, y, values;
  for (std::size_t copy = 0; copy < copies; ++copy) {
    fill(x.emplace_back(x_bytes, device), problem.dtype, random);
    y.emplace_back(y_bytes, device);
  }
  std::vector<const void*> addresses;
  for (const Pattern& factor : problem.chain.factors()) {
    fill(values.emplace_back(static_cast<std::size_t>(factor.nnz()) * element, device), problem.dtype,
         random);
    addresses.push_back(values.back().data());
  }
  const auto operands_of = [&](int turn) {
    const auto copy = static_cast<std::size_t>(turn) % copies;
    return Operands{.x = x[copy].data(), .y = y[copy].data()};
  };
  {  // one by one: a run that writes the intermediates
    const Plan plan(problem, device);
    const Batch batch{.size = problem.batch};
    Buffer between(plan.intermediate_bytes(batch), device);
    Operands first = operands_of(0);
    first.intermediates = between.data();
    first.values = addresses.data();
    Buffer workspace(plan.workspace_bytes(batch, first) + 256, device);
    const auto packing = [&](int turn) {
      Operands operands = operands_of(turn);
      operands.intermediates = between.data();
      operands.values = addresses.data();
      operands.workspace = workspace.data();
      operands.workspace_bytes = workspace.bytes();
      plan.run(batch, operands);
    };
    std::printf("\"%s\",apart,,,,,,,%.2f\n", problem.to_string().c_str(), timer.time(packing));
  }
  const std::vector<cuda::fused::Link> links = cuda::fused::links_of(problem);
  if (links.empty()) return;
  for (const cuda::fused::Config& config : cuda::fused::all_configs(problem, links, facts)) {
    const auto executor = cuda::fused::make_executor(problem, device, links, config);
    Buffer packed(executor->order().bytes, device);
    const PackJob job{.executor = executor.get(), .values = addresses.data(), .packed = packed.data()};
    backend_of(device).pack(device, {&job, 1}, nullptr);
    const double microseconds =
        timer.time([&](int turn) { executor->run(operands_of(turn), {.data = packed.data()}); });
    std::printf("\"%s\",fused,%d,%d,%d,%d,%d,%.2f,%.2f", problem.to_string().c_str(), config.shape.samples,
                config.ranks(), config.arguments.parts, config.arguments.x_buffers, config.threads,
                config.seconds * 1e6, microseconds);
    for (const double term : cuda::fused::cost_terms(problem, config, facts)) std::printf(",%.6g", term);
    std::puts("");
  }
  std::fflush(stdout);
}

}  // namespace

int main() {
  std::puts("problem,way,samples,ranks,parts,x_buffers,threads,predicted_us,measured_us,terms");
  const EventTimer timer;
  for (std::string line; std::getline(std::cin, line);)
    if (!line.empty() && line[0] != '#') sweep(Problem::parse(line), timer);
  return 0;
}
