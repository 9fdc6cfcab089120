// kronsparse_sweep KERNEL < problems.txt > rows.csv: times every way of a kernel to run each problem, a line
// of standard input each. Operands take turns, so that no run finds x in the cache. Needs a GPU.
#include <cstdio>
#include <iostream>
#include <string>

#include "kronsparse/error.hpp"
#include "operands.hpp"
#include "rows.hpp"
#include "subjects.hpp"

namespace {

using namespace kronsparse;

void sweep_ways(const sweep::Subject& subject, const Problem& problem, const sweep::GraphTimer& timer) {
  if (const std::string reason = refusal(subject, problem); !reason.empty()) {
    std::fprintf(stderr, "%s: %s\n", problem.to_string().c_str(), reason.c_str());
    return;
  }
  const sweep::TurningOperands operands(problem, sweep::first_gpu);
  const std::vector<double> predicted = subject.seconds(problem);
  const std::vector<std::string> labels = subject.labels(problem);
  for (std::size_t way = 0; way < labels.size(); ++way) {
    const auto executor = subject.make(problem, way);
    const double microseconds = sweep::time_executor(*executor, problem, sweep::first_gpu, operands, timer);
    sweep::write_row(std::cout, problem, labels[way], predicted[way], 1e-6 * microseconds);
  }
  std::cout.flush();
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::fputs("usage: kronsparse_sweep KERNEL < problems.txt > rows.csv\n", stderr);
    return 2;
  }
  try {
    const sweep::Subject& subject = sweep::subject(arguments[1]);
    sweep::write_header(std::cout, subject, cuda::gpu(sweep::first_gpu));
    const sweep::GraphTimer timer;
    for (std::string line; std::getline(std::cin, line);)
      if (!line.empty() && line[0] != '#') sweep_ways(subject, Problem::parse(line), timer);
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "kronsparse_sweep: %s\n", error.what());
    return 1;
  }
}
