#include "chain/fused_run.hpp"

#include <algorithm>
#include <memory>

#include "cuda/chain/fused/kernels.hpp"
#include "cuda/host/tensor_core_refusals.hpp"

namespace kronsparse::emulation {
namespace {

using cuda::Arithmetic;

cuda::fused::Kernel kernel_of(Arithmetic arithmetic, std::size_t shape) {
  switch (arithmetic) {
    case Arithmetic::f16:
      return cuda::fused_f16_kernel(shape);
    case Arithmetic::bf16:
      return cuda::fused_bf16_kernel(shape);
    case Arithmetic::tf32:
      return cuda::fused_tf32_kernel(shape);
    case Arithmetic::tf32x3:
      return cuda::fused_tf32x3_kernel(shape);
  }
  throw EmulationError("unknown arithmetic");
}

/// `cut` is told how the case is cut when the kernel is launched; it may be null.
ChainKernel kernel_of(const ProductCase& one, const cuda::fused::Config& config, FusedCut* cut) {
  const std::vector<cuda::Link> links = links_of(one.problem);
  const Arithmetic arithmetic = cuda::arithmetic_of(one.problem);
  return {
      links, cuda::fused::packed_order(one.problem, links).bytes,
      cuda::fused::chain_parts(one.problem, links), [=, &one](const Operands& operands, const void* weights) {
        const cuda::fused::Arguments all = cuda::fused::arguments_of(one.problem, config, operands, weights);
        if (cut != nullptr)
          *cut = {arithmetic,     config.shape.samples, config.ranks(),    all.parts,     all.x_buffers,
                  config.threads, all.x_rows,           all.samples_first, all.x_vectors, all.y_vectors};
        const std::int64_t places = one.multiprocessors * config.blocks_at_once / config.ranks();
        const auto clusters = static_cast<int>(std::clamp<std::int64_t>(places, 1, all.tiles));
        return Launch{clusters * config.ranks(), config.threads, config.shared_bytes,
                      [all, kernel = kernel_of(arithmetic, config.shape_index)] { kernel(all); },
                      config.ranks()};
      }};
}

}  // namespace

std::vector<cuda::Link> links_of(const Problem& problem) { return cuda::ways_of(problem).front(); }

std::vector<cuda::fused::Config> fused_configs(const ProductCase& one) {
  return cuda::fused::all_configs(one.problem, links_of(one.problem), one.gpu());
}

FusedCut run_fused(const ProductCase& one, const cuda::fused::Config& config, const Exponents& exponents) {
  FusedCut cut{};
  run_chain(one, kernel_of(one, config, &cut), exponents);
  return cut;
}

double worst_error(const ProductCase& one, const cuda::fused::Config& config, double least, double most) {
  return worst_error(one, kernel_of(one, config, nullptr), least, most);
}

}  // namespace kronsparse::emulation
