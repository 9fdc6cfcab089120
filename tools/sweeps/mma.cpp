// Times every config of the kernel `mma`, for its cost model (src/cuda/large_batch/mma/search.cu).
//
// Reads problems from standard input, a line each; writes a CSV table with a row for each config.
#include <cstdio>
#include <iostream>
#include <string>

#include "cuda/large_batch/mma/search.hpp"
#include "sweep.hpp"

namespace {

using namespace kronsparse;

void sweep_configs(const Problem& problem, const sweep::EventTimer& timer) {
  const Device device{Backend::cuda, 0};
  const cuda::GpuFacts& facts = cuda::gpu(device);
  const sweep::TurningOperands operands(problem, device);
  for (const cuda::mma::Config& config : cuda::mma::all_configs(problem, facts)) {
    const auto executor = cuda::mma::make_executor(problem, device, config);
    const double microseconds = sweep::time_executor(*executor, device, operands, timer);
    const cuda::mma::Arguments& cut = config.arguments;
    std::printf("\"%s\",%zu,%d,%d,%u,%d,%u,%d,%d,%.2f,%.2f", problem.to_string().c_str(), config.shape_index,
                config.threads, cut.groups, cut.run.value(), cut.i_count, cut.m_tiles.value(), cut.from.rows,
                config.blocks_at_once, config.seconds * 1e6, microseconds);
    for (const double term : cuda::mma::cost_terms(problem, config, facts)) std::printf(",%.6g", term);
    std::puts("");
  }
  std::fflush(stdout);
}

}  // namespace

int main() {
  std::puts("problem,shape,threads,groups,run,i_count,m_tiles,rows,blocks,predicted_us,measured_us,terms");
  const sweep::EventTimer timer;
  for (std::string line; std::getline(std::cin, line);)
    if (!line.empty() && line[0] != '#') sweep_configs(Problem::parse(line), timer);
  return 0;
}
