// Runs captured in a CUDA graph. While a stream is captured in global mode, every
// call that allocates or waits is an error: a capture that succeeds shows that
// `run` does neither.
#include "kronsparse/error.hpp"
#include "operands.hpp"

namespace gpu_tests {
namespace {

using kronsparse::Plan;
using Graph = GpuTest;

class CapturedGraph {
 public:
  CapturedGraph() = default;
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;
  ~CapturedGraph() {
    if (executable_ != nullptr) static_cast<void>(cudaGraphExecDestroy(executable_));
    if (graph_ != nullptr) static_cast<void>(cudaGraphDestroy(graph_));
  }

  template <class Work>
  void capture(cudaStream_t stream, Work&& work) {
    ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    std::string error;
    try {
      work();
    } catch (const kronsparse::Error& thrown) {
      error = thrown.what();
    }
    const cudaError_t ended = cudaStreamEndCapture(stream, &graph_);
    ASSERT_EQ(error, "");
    ASSERT_CUDA(ended);
    ASSERT_CUDA(cudaGraphInstantiate(&executable_, graph_, 0));
  }
  void replay(cudaStream_t stream) const { ASSERT_CUDA(cudaGraphLaunch(executable_, stream)); }

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

TEST_F(Graph, ReplaysGiveTheSameBytes) {
  for (const Job& job : jobs()) {
    SCOPED_TRACE(job.implementation + ": " + job.problem.to_string());
    GpuOperands work(job.problem, 1);
    const OwnStream stream;
    const Plan plan(job.problem, work.values(), gpu, job.implementation);
    // Captured first and run directly later: also the first run of a plan allocates nothing.
    CapturedGraph graph;
    ASSERT_NO_FATAL_FAILURE(graph.capture(stream.get(), [&] { plan.run(work.operands(stream.get())); }));
    for (std::uint64_t seed = 2; seed < 5; ++seed) {
      work.change_x(seed);
      work.spoil_result();
      ASSERT_NO_FATAL_FAILURE(graph.replay(stream.get()));
      const std::vector<std::byte> replayed = work.result();
      work.spoil_result();
      plan.run(work.operands(stream.get()));
      ASSERT_EQ(work.result(), replayed) << "x number " << seed;
    }
  }
}

TEST_F(Graph, SetsValues) {
  for (const Job& job : jobs()) {
    if (job.problem.operation == kronsparse::Operation::gradient) continue;
    SCOPED_TRACE(job.implementation + ": " + job.problem.to_string());
    const GpuOperands work(job.problem, 1);
    const GpuOperands other(job.problem, 2);
    const OwnStream stream;
    Plan plan(job.problem, work.values(), gpu, job.implementation);
    plan.run(work.operands());
    const std::vector<std::byte> with_own = work.result();
    CapturedGraph graph;
    ASSERT_NO_FATAL_FAILURE(graph.capture(stream.get(), [&] {
      plan.set_values(work.values(), stream.get());
      plan.run(work.operands(stream.get()));
    }));
    plan.set_values(other.values());
    plan.run(work.operands());
    ASSERT_NE(work.result(), with_own);
    ASSERT_NO_FATAL_FAILURE(graph.replay(stream.get()));
    ASSERT_EQ(work.result(), with_own);
  }
}

/// Several runs, of several plans, in one graph; replayed several times without waiting.
TEST_F(Graph, HoldsManyRuns) {
  const OwnStream stream;
  std::vector<GpuOperands> work;
  std::vector<Plan> plans;
  std::vector<std::vector<std::byte>> expected;
  for (const Job& job : jobs()) {
    work.emplace_back(job.problem, 1);
    plans.emplace_back(job.problem, work.back().values(), gpu, job.implementation);
    plans.back().run(work.back().operands());
    expected.push_back(work.back().result());
    work.back().spoil_result();
  }
  CapturedGraph graph;
  ASSERT_NO_FATAL_FAILURE(graph.capture(stream.get(), [&] {
    for (int repeat = 0; repeat < 2; ++repeat)
      for (std::size_t at = 0; at < plans.size(); ++at) plans[at].run(work[at].operands(stream.get()));
  }));
  for (int replay = 0; replay < 5; ++replay) ASSERT_NO_FATAL_FAILURE(graph.replay(stream.get()));
  for (std::size_t at = 0; at < plans.size(); ++at)
    EXPECT_EQ(work[at].result(), expected[at])
        << plans[at].implementation() << ": " << plans[at].problem().to_string();
}

}  // namespace
}  // namespace gpu_tests
