#include "chain/fused_wgmma_run.hpp"

#include <algorithm>
#include <memory>

#include "cuda/chain/fused_wgmma/kernels.hpp"

namespace kronsparse::emulation {
namespace {

using cuda::fused_wgmma::Arguments;
using cuda::fused_wgmma::Config;
using cuda::fused_wgmma::Step;

FusedWgmmaCut cut_of(const ProductCase& one, const Config& config, const Arguments& all) {
  const Step& last = all.step[all.steps - 1];
  FusedWgmmaCut cut{one.problem.dtype,
                    config.shape_index,
                    all.parts,
                    all.steps,
                    last.in_place,
                    all.y_waits,
                    all.x_boxes,
                    all.y_vectors,
                    {},
                    false,
                    false,
                    false,
                    false};
  for (int s = 0; s < all.steps; ++s) {
    const Step& step = all.step[s];
    cut.items.insert(step.item_number);
    const bool has_fewer = step.item.blocks < cuda::fused_wgmma::item_shape(step.item_number).blocks;
    cut.has_fewer_blocks = cut.has_fewer_blocks || has_fewer;
    cut.has_slabs = cut.has_slabs || step.slabs > 1;
    cut.has_mixing = cut.has_mixing || step.mixing != 0;
    cut.has_padding = cut.has_padding || step.padded > step.b || step.block_lines > step.terms;
  }
  return cut;
}

/// `cut` is told how the case is cut when the kernel is launched; it may be null.
ChainKernel kernel_of(const ProductCase& one, const std::vector<cuda::Link>& links, const Config& config,
                      FusedWgmmaCut* cut) {
  return {links, cuda::fused_wgmma::packed_order(one.problem, links).bytes,
          cuda::fused_wgmma::chain_parts(one.problem, links),
          [=, &one](const Operands& operands, const void* weights) {
            const auto all = std::make_shared<Arguments>(
                cuda::fused_wgmma::arguments_of(one.problem, config, operands, weights));
            if (cut != nullptr) *cut = cut_of(one, config, *all);
            const std::int64_t places = std::int64_t{one.multiprocessors} * config.shape.blocks_at_once;
            const auto kernel = one.problem.dtype == DType::bf16
                                    ? cuda::fused_wgmma_bf16_kernel(config.shape_index)
                                    : cuda::fused_wgmma_f16_kernel(config.shape_index);
            return Launch{static_cast<int>(std::clamp<std::int64_t>(places, 1, all->tiles)),
                          config.shape.warpgroups * cuda::fused_wgmma::warpgroup_threads +
                              cuda::fused_wgmma::producer_threads,
                          config.shared_bytes, [all, kernel] { kernel(*all); }};
          }};
}

}  // namespace

std::vector<std::vector<cuda::Link>> fused_wgmma_ways(const Problem& problem) {
  std::vector<std::vector<cuda::Link>> ways = cuda::ways_of(problem);
  std::erase_if(ways, [](const auto& links) { return !cuda::fused_wgmma::refusal_of(links).empty(); });
  return ways;
}

FusedWgmmaCut run_fused_wgmma(const ProductCase& one, const std::vector<cuda::Link>& links,
                              const Config& config, const Exponents& exponents) {
  FusedWgmmaCut cut{};
  run_chain(one, kernel_of(one, links, config, &cut), exponents);
  return cut;
}

double worst_error(const ProductCase& one, const std::vector<cuda::Link>& links, const Config& config,
                   double least, double most) {
  return worst_error(one, kernel_of(one, links, config, nullptr), least, most);
}

}  // namespace kronsparse::emulation
