#include "gradient/gradient_run.hpp"

#include <functional>
#include <limits>
#include <vector>

#include "core/geometry.hpp"
#include "cuda/gradient/mma/kernels.hpp"
#include "cuda/gradient/wgmma/kernels.hpp"
#include "memory.hpp"

namespace kronsparse::emulation {
namespace {

Memory make_matrix(DType dtype, const MatrixShape& shape, int offset, int range, Numbers& numbers) {
  Memory memory(dtype, shape.extent(), offset);
  for (std::int64_t row = 0; row < shape.rows; ++row)
    for (std::int64_t column = 0; column < shape.cols; ++column)
      memory.set(row * shape.stride + column, numbers.next(range));
  return memory;
}

/// The elements as floats. The gaps between rows are not compared.
std::vector<float> values_of(const Memory& memory) {
  std::vector<float> values;
  for (std::int64_t at = 0; at < memory.elements(); ++at) values.push_back(memory.value(at));
  return values;
}

}  // namespace

void run_gradient_launch(const ProductCase& one, const std::function<Launch(const Operands&)>& launch_of) {
  const Problem& problem = one.problem;
  const cuda::Product p = cuda::product_of(problem);
  const DType dtype = problem.dtype;
  Numbers numbers;
  Memory x = make_matrix(dtype, cols_matrix(problem), one.x_offset, 3, numbers);
  const Memory g = make_matrix(dtype, rows_matrix(problem), one.g_offset, 2, numbers);
  const Memory y(dtype, problem.pattern().nnz(), one.y_offset);
  if (one.infinite && x.elements() != 0) x.set(x.elements() - 1, std::numeric_limits<float>::infinity());

  const Launch shape = launch_of({.x = x.first(), .y = y.first(), .g = g.first()});
  const GlobalMemory memory{{x.range(), g.range()}, {y.range()}};
  launch(shape.blocks, shape.cluster_blocks, shape.threads, shape.shared_bytes, one.timing, memory,
         shape.kernel);

  const std::vector<float> x_values = values_of(x), g_values = values_of(g);
  std::int64_t at = 0;
  for (std::int64_t i = 0; i < p.a; ++i)
    for (std::int64_t k = 0; k < p.b; ++k)
      for (std::int64_t l = 0; l < p.c; ++l)
        for (std::int64_t j = 0; j < p.d; ++j, ++at) {
          float sum = 0;
          for (std::int64_t n = 0; n < p.batch; ++n)
            sum +=
                g_values[static_cast<std::size_t>(n * p.y_sample + ((i * p.b + k) * p.d + j) * p.y_feature)] *
                x_values[static_cast<std::size_t>(n * p.x_sample + ((i * p.c + l) * p.d + j) * p.x_feature)];
          if (!same(dtype, y.bits(at), sum))
            throw EmulationError("i " + std::to_string(i) + " k " + std::to_string(k) + " l " +
                                 std::to_string(l) + " j " + std::to_string(j) + ": " +
                                 std::to_string(value_of(dtype, y.bits(at))) + " instead of " +
                                 std::to_string(sum));
        }
  if (!y.untouched_before()) throw EmulationError("memory before y was written");
}

GradientCut run_gradient(const ProductCase& one) {
  const Problem& problem = one.problem;
  problem.validate();
  const cuda::GradientConfig config = cuda::gradient_config(problem, one.gpu());
  if (config.shared_bytes > cuda::kEmulatedSharedBytes) throw EmulationError("the tiles do not fit");
  GradientCut cut{
      problem.dtype, config.shape_index, config.splits, config.threads() / 32, config.stages, 0, 0, false};
  run_gradient_launch(one, [&](const Operands& operands) {
    const cuda::GradientArguments arguments = cuda::gradient_arguments(problem, config, operands);
    const cuda::GradientKernel kernel = problem.dtype == DType::bf16
                                            ? cuda::gradient_bf16_kernel(config.shape_index)
                                            : cuda::gradient_f16_kernel(config.shape_index);
    cut.g_width = arguments.g.width;
    cut.x_width = arguments.x.width;
    cut.y_vectors = arguments.out.vectors;
    return Launch{static_cast<int>(config.blocks(problem.pattern().a)), config.threads(), config.shared_bytes,
                  [arguments, kernel] { kernel(arguments); }, config.splits};
  });
  return cut;
}

GradientWgmmaCut run_gradient_wgmma(const ProductCase& one, std::optional<std::size_t> shape_index) {
  const Problem& problem = one.problem;
  problem.validate();
  std::optional<cuda::GradientWgmmaConfig> config = cuda::gradient_wgmma_config(problem, one.gpu());
  if (shape_index) {
    config.reset();
    for (const cuda::GradientWgmmaConfig& way : cuda::gradient_wgmma_configs(problem, one.gpu()))
      if (way.shape_index == *shape_index) config = way;
  }
  if (!config) throw EmulationError("there is no way to cut this problem");
  GradientWgmmaCut cut{problem.dtype,  config->shape_index, config->warpgroups,
                       config->splits, config->stages,      config->raw_stages,
                       false};
  run_gradient_launch(one, [&](const Operands& operands) {
    const auto arguments = cuda::gradient_wgmma_arguments(problem, *config, operands);
    if (!arguments) throw EmulationError("not for the copy engine");
    const cuda::GradientWgmmaKernel kernel = problem.dtype == DType::bf16
                                                 ? cuda::gradient_wgmma_bf16_kernel(config->shape_index)
                                                 : cuda::gradient_wgmma_f16_kernel(config->shape_index);
    cut.y_vectors = arguments->out.vectors;
    return Launch{static_cast<int>(config->blocks(problem.pattern().a)), config->threads(),
                  config->shared_bytes, [arguments, kernel] { kernel(*arguments); }, config->splits};
  });
  return cut;
}

}  // namespace kronsparse::emulation
