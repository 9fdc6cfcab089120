// The small-batch kernel `stream`: its launch and its entry in the table.
#include <string>

#include "core/implementation.hpp"
#include "cuda/backend.hpp"
#include "cuda/host/tensor_core_refusals.hpp"
#include "cuda/small_batch/cut_executor.cuh"
#include "cuda/small_batch/stream/search.hpp"

namespace kronsparse::cuda {
namespace {

struct Stream {
  using Cut = stream::Cut;
  using Arguments = stream::Arguments;
  static constexpr const char* name = "stream";
  static constexpr const char* kernel_name = "multiply_stream";
  static constexpr const char* summary =
      "batches up to 64 of half types: weights streamed by the copy engine to Hopper's tensor cores";
  static constexpr const char* uncut = "has no way to cut a pattern of this size into blocks";

  static std::string refusal(const Problem& problem) {
    if (std::string reason = half_refusal(problem); !reason.empty()) return reason;
    return batch_refusal(problem, stream::max_batch);
  }
  static std::string gpu_refusal(const GpuFacts& facts) { return hopper_refusal(facts); }
  static stream::Choice choose(const Problem& problem, const GpuFacts& facts) {
    return stream::choose(problem, facts);
  }
  static std::vector<stream::Choice> choices(const Problem& problem, const GpuFacts& facts) {
    return stream::choices(problem, facts);
  }
  static std::vector<int> numbers(const Cut& cut) {
    return {cut.samples, cut.j_group, cut.cluster, cut.warpgroups, cut.threads, cut.rows, cut.stages};
  }
  static stream::Choice choose(const Problem& problem, const GpuFacts& facts, const Cut& packed_as) {
    return stream::choose(problem, facts, packed_as);
  }
  static const void* kernel(DType dtype, const Cut& cut) {
    return reinterpret_cast<const void*>(stream_kernel(dtype, cut.samples));
  }
  static LaunchShape launch_shape(const Problem& problem, const Cut& cut, const GpuFacts& /*facts*/) {
    const Product p = product_of(problem);
    return {.blocks = static_cast<unsigned>(blocks_of_weights(cut, p) * sample_blocks(cut, p)),
            .threads = cut.threads + stream::producer_threads,
            .shared_bytes = static_cast<std::size_t>(shared_layout(cut).total),
            .cluster_blocks = cut.cluster};
  }
};

}  // namespace

CutFamily stream_cuts() { return cuts_of<Stream>(); }
Implementation stream_implementation() { return implementation_by_cuts<Stream>(); }

}  // namespace kronsparse::cuda
