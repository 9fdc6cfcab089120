// Times every config of the kernel `fused` on chains, for its cost model (src/cuda/chain/fused/search.cu).
//
// Reads problems from standard input, a line each; writes a CSV table with a row for each config, and one for
// the factors one by one, which pack their values at each run. Operands take turns, so that no run finds x in
// the cache.
#include <cstdio>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "cuda/chain/fused/search.hpp"
#include "sweep.hpp"

namespace {

using namespace kronsparse;

void sweep_configs(const Problem& problem, const sweep::EventTimer& timer) {
  const Device device{Backend::cuda, 0};
  const cuda::GpuFacts& facts = cuda::gpu(device);
  const sweep::TurningOperands all(problem, device);
  {  // one by one: a run that writes the intermediates
    const Plan plan(problem, device);
    const Batch batch{.size = problem.batch};
    Buffer between(plan.intermediate_bytes(batch), device);
    Operands first = all.of_turn(0);
    first.intermediates = between.data();
    first.values = all.values();
    Buffer workspace(plan.workspace_bytes(batch, first) + 256, device);
    const auto packing = [&](int turn) {
      Operands operands = all.of_turn(turn);
      operands.intermediates = between.data();
      operands.values = all.values();
      operands.workspace = workspace.data();
      operands.workspace_bytes = workspace.bytes();
      plan.run(batch, operands);
    };
    std::printf("\"%s\",apart,,,,,,,%.2f\n", problem.to_string().c_str(), timer.time(packing));
  }
  const std::optional<cuda::fused::Cut> cut =
      cuda::fused::best_cut(problem, cuda::fused::ways_of(problem), facts);
  if (!cut) return;
  const std::vector<cuda::fused::Link>& links = cut->links;
  for (const cuda::fused::Config& config : cuda::fused::all_configs(problem, links, facts)) {
    const auto executor = cuda::fused::make_executor(problem, device, links, config);
    const double microseconds = sweep::time_executor(*executor, device, all, timer);
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
  const sweep::EventTimer timer;
  for (std::string line; std::getline(std::cin, line);)
    if (!line.empty() && line[0] != '#') sweep_configs(Problem::parse(line), timer);
  return 0;
}
