// One plan on several streams, from several threads.
#include <atomic>
#include <memory>
#include <thread>

#include "operands.hpp"

namespace gpu_tests {
namespace {

using kronsparse::Plan;
using Streams = GpuTest;

/// The operands of a thread, and what it must get.
struct Worker {
  Worker(const Job& job, std::uint64_t seed) : operands(job.problem, seed) {}
  GpuOperands operands;
  OwnStream stream;
  std::vector<std::byte> alone;
};

TEST_F(Streams, OnePlanFromSeveralThreadsOnSeveralStreams) {
  constexpr std::uint64_t workers_per_job = 6;
  constexpr int runs = 20;
  for (const Job& job : jobs()) {
    SCOPED_TRACE(job.implementation + ": " + job.problem.to_string());
    std::vector<std::unique_ptr<Worker>> workers;
    for (std::uint64_t seed = 0; seed < workers_per_job; ++seed)
      workers.push_back(std::make_unique<Worker>(job, seed));
    const Plan plan(job.problem, workers.front()->operands.values(), gpu, job.implementation);
    for (const auto& worker : workers) {
      plan.run(worker->operands.operands());
      worker->alone = worker->operands.result();
      worker->operands.spoil_result();
    }
    std::atomic<std::uint64_t> waiting{workers_per_job};
    std::vector<std::thread> threads;
    threads.reserve(workers.size());
    for (const auto& worker : workers)
      threads.emplace_back([&plan, &waiting, &worker = *worker] {
        --waiting;
        while (waiting.load() > 0) std::this_thread::yield();
        for (int run = 0; run < runs; ++run) plan.run(worker.operands.operands(worker.stream.get()));
      });
    for (std::thread& thread : threads) thread.join();
    for (const auto& worker : workers) ASSERT_EQ(worker->operands.result(), worker->alone);
  }
}

TEST_F(Streams, ValuesAreSetInTheOrderOfAStream) {
  const OwnStream stream;
  for (const Job& job : jobs()) {
    if (job.problem.operation == kronsparse::Operation::gradient) continue;
    SCOPED_TRACE(job.implementation + ": " + job.problem.to_string());
    const GpuOperands work(job.problem, 1);
    const GpuOperands other(job.problem, 2);
    Plan plan(job.problem, other.values(), gpu, job.implementation);
    plan.run(work.operands());
    const std::vector<std::byte> with_others = work.result();
    plan.set_values(work.values());
    plan.run(work.operands());
    const std::vector<std::byte> with_own = work.result();
    for (int repeat = 0; repeat < 5; ++repeat) {
      // Nothing waits for anything but by the order of the stream.
      plan.run(work.operands(stream.get()));
      plan.set_values(other.values(), stream.get());
      plan.run(work.operands(stream.get()));
      ASSERT_EQ(work.result(), with_others);
      plan.set_values(work.values(), stream.get());
      plan.run(work.operands(stream.get()));
      plan.run(work.operands(stream.get()));
      ASSERT_EQ(work.result(), with_own);
    }
  }
}

TEST_F(Streams, TwoPlansOfOneThreadOverlap) {
  const std::vector<Job> all = jobs();
  for (std::size_t at = 0; at + 1 < all.size(); ++at) {
    SCOPED_TRACE(all[at].implementation + ": " + all[at].problem.to_string());
    Worker one(all[at], 1);
    Worker two(all[at + 1], 2);
    const Plan first(all[at].problem, one.operands.values(), gpu, all[at].implementation);
    const Plan second(all[at + 1].problem, two.operands.values(), gpu, all[at + 1].implementation);
    first.run(one.operands.operands());
    second.run(two.operands.operands());
    one.alone = one.operands.result();
    two.alone = two.operands.result();
    one.operands.spoil_result();
    two.operands.spoil_result();
    for (int run = 0; run < 10; ++run) {
      first.run(one.operands.operands(one.stream.get()));
      second.run(two.operands.operands(two.stream.get()));
    }
    ASSERT_EQ(one.operands.result(), one.alone);
    ASSERT_EQ(two.operands.result(), two.alone);
  }
}

/// Values are packed when the call returns, whichever stream the next run uses.
TEST_F(Streams, NewValuesAreThereForEveryStream) {
  for (const Job& job : jobs()) {
    if (job.problem.operation == kronsparse::Operation::gradient) continue;
    SCOPED_TRACE(job.implementation + ": " + job.problem.to_string());
    const GpuOperands old_values(job.problem, 1);
    GpuOperands work(job.problem, 2);
    const OwnStream stream;
    Plan plan(job.problem, work.values(), gpu, job.implementation);
    plan.run(work.operands());
    const std::vector<std::byte> expected = work.result();
    for (int round = 0; round < 5; ++round) {
      plan.set_values(old_values.values());
      plan.run(work.operands(stream.get()));
      plan.set_values(work.values());
      work.spoil_result();
      plan.run(work.operands(stream.get()));
      ASSERT_EQ(work.result(), expected);
    }
  }
}

}  // namespace
}  // namespace gpu_tests
