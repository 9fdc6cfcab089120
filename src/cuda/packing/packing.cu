// The kernel that packs values, for up to four factors in one launch, and its use by executors.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cuda/device/ptx_sm90.cuh"
#include "cuda/host/launch.hpp"
#include "cuda/packing/packing.cuh"
#include "cuda/tuning/tuning.hpp"

namespace kronsparse::cuda {
namespace {

constexpr int most_tasks = 4;
constexpr int threads = 128, blocks_at_once = 6;  // 80 registers for each thread: with 64 it spills

/// Tasks, and the first block of each.
template <class Task>
struct Tasks {
  unsigned first_block[most_tasks + 1] = {};
  Task tasks[most_tasks];
};
static_assert(sizeof(Tasks<PackTask>) <= 4096 && sizeof(Tasks<WidenTask>) <= 4096,
              "what a launch may be told");

/// Lets later kernels start at once: they wait for this one before they read what it writes. This one waits
/// for the earlier kernels, which may still write the values or read the packed weights.
__device__ inline void meet_other_kernels() {
#if __CUDA_ARCH__ >= 900
  ptx::let_later_kernels_start();
  ptx::wait_for_earlier_kernels();
#endif
}

/// Calls body(task, number of the thread within the task, number of threads of the task) after the earlier
/// kernels have ended. The first read of an argument goes to memory, and a task is read digit by digit. So
/// the block copies its whole task to shared memory first, while the earlier kernels still run.
template <class Task, class Body>
__device__ inline void with_task(const Tasks<Task>& all, const Body& body) {
  __shared__ __align__(16) std::byte room[sizeof(Task)];
  static_assert(sizeof(Task) % 8 == 0 && std::is_trivially_copyable_v<Task>);
  int number = 0;
  while (blockIdx.x >= all.first_block[number + 1]) ++number;
  const auto* from = reinterpret_cast<const std::uint64_t*>(&all.tasks[number]);
  for (unsigned at = threadIdx.x; at < sizeof(Task) / 8; at += threads)
    reinterpret_cast<std::uint64_t*>(room)[at] = from[at];
  __syncthreads();
  meet_other_kernels();
  const unsigned first = all.first_block[number];
  body(*reinterpret_cast<const Task*>(room), (blockIdx.x - first) * threads + threadIdx.x,
       (all.first_block[number + 1] - first) * threads);
}

__global__ void __launch_bounds__(threads, blocks_at_once)
    pack_values(const __grid_constant__ Tasks<PackTask> all) {
  with_task(all, [](const PackTask& task, unsigned from, unsigned step) {
    if (task.is_wide)
      packing::pack_items<std::uint64_t>(task, from, step);
    else
      packing::pack_items<std::uint32_t>(task, from, step);
  });
}

template <class T>
struct ComplexOf {
  T re, im;
};

__device__ inline float widened(__half value) { return __half2float(value); }
__device__ inline float widened(__nv_bfloat16 value) { return __bfloat162float(value); }
template <class T>
__device__ inline T widened(T value) {
  return value;
}

template <class T>
__device__ inline void conjugate(T& /*value*/) {}
template <class T>
__device__ inline void conjugate(ComplexOf<T>& value) {
  value.im = -value.im;
}

template <class T, class Index>
__device__ inline void widen(const WidenTask& task, unsigned from, unsigned step) {
  using Result = decltype(widened(T{}));
  auto* const packed = static_cast<Result*>(task.packed);
  for (Index at = from; at < static_cast<Index>(task.elements); at += step) {
    const std::int64_t source = packing::widened_source(task, at);
    Result value{};
    if (source >= 0) {
      value = widened(static_cast<const T*>(task.values)[source]);
      if (task.conjugated) conjugate(value);
    }
    packed[at] = value;
  }
}

template <class T>
__device__ inline void widen_any(const WidenTask& task, unsigned from, unsigned step) {
  if (task.is_wide)
    widen<T, std::uint64_t>(task, from, step);
  else
    widen<T, std::uint32_t>(task, from, step);
}

__global__ void __launch_bounds__(threads, blocks_at_once)
    widen_values(const __grid_constant__ Tasks<WidenTask> all) {
  with_task(all, [](const WidenTask& task, unsigned from, unsigned step) {
    switch (task.dtype) {
      case DType::f16:
        return widen_any<__half>(task, from, step);
      case DType::bf16:
        return widen_any<__nv_bfloat16>(task, from, step);
      case DType::f32:
        return widen_any<float>(task, from, step);
      case DType::f64:
        return widen_any<double>(task, from, step);
      case DType::complex64:
        return widen_any<ComplexOf<float>>(task, from, step);
      case DType::complex128:
        return widen_any<ComplexOf<double>>(task, from, step);
    }
  });
}

std::uint64_t items_of(const PackTask& task) { return task.items; }
std::uint64_t items_of(const WidenTask& task) { return task.elements; }
/// The work of a task in units, which decides its share of the blocks.
std::uint64_t work_of(const PackTask& task) { return task.units; }
std::uint64_t work_of(const WidenTask& task) { return task.elements; }

/// Collects tasks and launches them.
template <class Task>
class Launcher {
 public:
  Launcher(const char* name, void (*kernel)(Tasks<Task>), const GpuFacts& facts, Stream stream)
      : name_(name), kernel_(kernel), facts_(facts), stream_(stream) {}

  void add(const Task& task) {
    all_.tasks[count_++] = task;
    if (count_ == most_tasks) launch_all();
  }

  void launch_all() {
    if (count_ == 0) return;
    // The grid has a few times as many blocks as run at once, so that no block works long after the others.
    // Each block takes its items in turn with the others.
    constexpr int turns = 4;
    const double most = double{turns * blocks_at_once} * std::max(facts_.multiprocessors, 1);
    double work = 0;
    for (int n = 0; n < count_; ++n) work += static_cast<double>(work_of(all_.tasks[n]));
    unsigned blocks = 0;
    for (int n = 0; n < most_tasks; ++n) {
      all_.first_block[n] = blocks;
      if (n >= count_) continue;
      const double share = most * static_cast<double>(work_of(all_.tasks[n])) / std::max(work, 1.0);
      const std::uint64_t needed = (items_of(all_.tasks[n]) + threads - 1) / threads;
      blocks += static_cast<unsigned>(std::clamp<std::uint64_t>(
          needed, 1, std::max<std::uint64_t>(static_cast<std::uint64_t>(share), 1)));
    }
    // No block belongs to the places after the last task.
    for (int n = count_; n <= most_tasks; ++n) all_.first_block[n] = blocks;
    count_ = 0;
    // Asks for all shared memory, though it needs little. The next product needs it, and a multiprocessor
    // takes 5 us to change how its memory is divided.
    launch(name_, kernel_,
           {.blocks = blocks,
            .threads = threads,
            .overlapping = facts_.code.compute_capability >= 90,
            .shared_percent = 100},
           stream_, all_);
  }

 private:
  const char* name_;
  void (*kernel_)(Tasks<Task>);
  const GpuFacts& facts_;
  Stream stream_;
  int count_ = 0;
  Tasks<Task> all_{};
};

}  // namespace

double packing_seconds(const GpuFacts& facts, double value_bytes, double packed_bytes) {
  const tuning::Packing& costs = tuning_of(facts).packing.costs;
  return costs.start + (value_bytes + packed_bytes) / (costs.copy * std::max(facts.memory_rate, 1e10));
}

double packing_seconds(const GpuFacts& facts, const Problem& problem, const PackedOrder& order) {
  return packing_seconds(
      facts, static_cast<double>(problem.pattern().nnz()) * static_cast<double>(size_of(problem.dtype)),
      static_cast<double>(order.bytes));
}

std::string order_refusal(const PackedOrder& order, const PackedOrder* packed_as) {
  return packed_as == nullptr || *packed_as == order ? "" : has_other_order;
}

CudaExecutor::CudaExecutor(Device device, const PackedOrder& order, std::span<const PackLayout> layouts)
    : device_(device.index), order_(order) {
  std::size_t offset = 0;
  for (const PackLayout& layout : layouts) {
    parts_.push_back({layout, pack_task(layout), offset});
    offset += static_cast<std::size_t>(layout.all_units()) * sizeof(packing::Unit);
  }
}

CudaExecutor::CudaExecutor(Device device, const PackedOrder& order, const WidenTask& task)
    : device_(device.index), order_(order), widened_{task} {}

CudaExecutor::CudaExecutor(Device device, const PackedOrder& order, std::span<const ChainPart> parts)
    : device_(device.index), order_(order) {
  for (const ChainPart& part : parts)
    if (part.count == 1)
      parts_.push_back({part.layout, pack_task(part.layout), part.offset, part.first});
    else
      merged_.push_back({part.merging, part.offset, part.exponents, part.first});
}

void CudaExecutor::pack(const void* values, void* packed, Stream stream) const {
  const PackJob job{.executor = this, .values = &values, .packed = packed};
  pack_all(Device{Backend::cuda, device_}, {&job, 1}, stream);
}

std::vector<PackLayout> CudaExecutor::layouts() const {
  std::vector<PackLayout> all;
  for (const Part& part : parts_) all.push_back(part.layout);
  return all;
}

void pack_all(Device device, std::span<const PackJob> jobs, Stream stream) {
  const DeviceGuard guard(device.index);
  const GpuFacts& facts = gpu(device);
  Launcher<PackTask> packs("pack_values", pack_values, facts, stream);
  Launcher<WidenTask> widens("widen_values", widen_values, facts, stream);
  for (const PackJob& job : jobs) {
    const auto& executor = static_cast<const CudaExecutor&>(*job.executor);
    auto* const packed = static_cast<std::byte*>(job.packed);
    for (const CudaExecutor::Merged& merged : executor.merged_) {
      MergeTask task = merged.task;
      for (int factor = 0; factor < task.count; ++factor)
        task.values[factor] = job.values[merged.factor + static_cast<std::size_t>(factor)];
      task.packed = packed + merged.offset;
      task.exponents = reinterpret_cast<std::uint8_t*>(packed + merged.exponents);
      merge_values(task, stream);
    }
    for (const CudaExecutor::Part& part : executor.parts_) {
      const void* values = job.values[part.factor];
      const auto address = reinterpret_cast<std::uintptr_t>(values);
      // Only few values lie at addresses that do not allow vector loads.
      const int alignment = static_cast<int>(std::min<std::uintptr_t>(address & -address, 16));
      PackTask task = address % 16 == 0 ? part.task : pack_task(part.layout, alignment);
      task.values = static_cast<const std::byte*>(values);
      task.packed = packed + part.offset;
      packs.add(task);
    }
    for (WidenTask task : executor.widened_) {
      task.values = *job.values;
      task.packed = job.packed;
      widens.add(task);
    }
    if (executor.order_.is_as_given())
      check(cudaMemcpyAsync(job.packed, *job.values, executor.order_.bytes, cudaMemcpyDeviceToDevice,
                            static_cast<cudaStream_t>(stream)),
            "copying values");
  }
  packs.launch_all();
  widens.launch_all();
}

}  // namespace kronsparse::cuda
