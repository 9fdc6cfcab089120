#include "chain/fused_run.hpp"

#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "core/geometry.hpp"
#include "cuda/chain/fused/kernels.hpp"
#include "cuda/device/epilogue.cuh"
#include "cuda/host/tensor_core_refusals.hpp"
#include "cuda/packing/merging.hpp"
#include "cuda/packing/packing.cuh"
#include "memory.hpp"

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

/// The values of each factor, in the order of the chain, packed for the kernel.
struct Values {
  std::vector<std::vector<float>> plain;
  Memory packed;
};

/// The rounded product of a link's factors, and what rounding leaves.
std::vector<Memory> merged_values(const Problem& problem, const cuda::fused::Link& link,
                                  const std::vector<Memory>& given) {
  const auto factors = std::span(problem.chain.factors()).subspan(link.factor, link.factors);
  const cuda::MergeTask merging = cuda::merge_task(factors, problem.dtype);
  const Pattern& p = link.pattern;
  std::vector<Memory> merged;
  for (int part = 0; part < 2; ++part) merged.emplace_back(problem.dtype, p.nnz(), 0);
  for (std::int64_t place = 0; place < p.nnz(); ++place) {
    const std::int64_t j = place % p.d, l = place / p.d % p.c, k = place / (p.d * p.c) % p.b,
                       i = place / (p.d * p.c * p.b);
    const float value = cuda::merged_value(
        merging, (i * p.b + k) * p.d + j, (i * p.c + l) * p.d + j, [&](int factor, std::int64_t index) {
          return given[link.factor + static_cast<std::size_t>(factor)].value(index);
        });
    merged[0].set(place, value);
    merged[1].set(place, value - merged[0].value(place));
  }
  return merged;
}

Values make_values(const Problem& problem, Numbers& numbers) {
  const std::vector<cuda::fused::Link> links = cuda::fused::links_of(problem);
  const auto element = static_cast<std::int64_t>(size_of(problem.dtype));
  Values values{
      {},
      Memory(problem.dtype,
             static_cast<std::int64_t>(cuda::fused::packed_order(problem, links).bytes) / element, 0)};
  // Products of factors need more bits than bf16 has, and no more than two numbers of it have.
  std::size_t most = 1;
  for (const cuda::fused::Link& link : links) most = std::max(most, link.factors);
  const bool few_bits = problem.dtype == DType::f32 && problem.mode == Mode::tf32;
  const int range = most == 1 || few_bits ? 1 : most == 2 ? 19 : 3;
  std::vector<Memory> given;
  for (const Pattern& factor : problem.chain.factors()) {
    std::vector<float>& plain = values.plain.emplace_back();
    Memory& memory = given.emplace_back(problem.dtype, factor.nnz(), 0);
    for (std::int64_t at = 0; at < factor.nnz(); ++at) {
      plain.push_back(numbers.next(range));
      memory.set(at, plain.back());
    }
  }
  for (const cuda::ChainPart& part : cuda::fused::chain_parts(problem, links)) {
    const auto link = std::ranges::find(links, part.first, &cuda::fused::Link::factor);
    std::vector<Memory> merged;
    if (part.count > 1) merged = merged_values(problem, *link, given);
    cuda::PackTask task = cuda::pack_task(part.layout);
    task.values = part.count > 1 ? merged[part.is_rest ? 1 : 0].first() : given[part.first].first();
    task.packed = values.packed.first() + part.offset;
    cuda::packing::pack_items<std::uint32_t>(task, 0, 1);
  }
  return values;
}

/// The product of a batch (features, samples) with one factor.
std::vector<float> multiplied(const Pattern& p, bool transposed, const std::vector<float>& values,
                              const std::vector<float>& x, std::int64_t batch) {
  const std::int64_t b = transposed ? p.c : p.b, c = transposed ? p.b : p.c;
  std::vector<float> y(static_cast<std::size_t>(p.a * b * p.d * batch));
  for (std::int64_t i = 0; i < p.a; ++i)
    for (std::int64_t k = 0; k < b; ++k)
      for (std::int64_t j = 0; j < p.d; ++j) {
        float* const to = y.data() + ((i * b + k) * p.d + j) * batch;
        for (std::int64_t l = 0; l < c; ++l) {
          const std::int64_t row = transposed ? l : k, column = transposed ? k : l;
          const float value = values[static_cast<std::size_t>(((i * p.b + row) * p.c + column) * p.d + j)];
          const float* const from = x.data() + ((i * c + l) * p.d + j) * batch;
          for (std::int64_t n = 0; n < batch; ++n) to[n] += value * from[n];
        }
      }
  return y;
}

}  // namespace

std::vector<cuda::fused::Config> fused_configs(const ProductCase& one) {
  return cuda::fused::all_configs(one.problem, cuda::fused::links_of(one.problem), one.gpu());
}

FusedCut run_fused(const ProductCase& one, const cuda::fused::Config& config) {
  const Problem& problem = one.problem;
  problem.validate();
  const DType dtype = problem.dtype;
  const std::int64_t batch = problem.batch;
  const bool transposed = is_transposed(problem.operation);
  Numbers numbers;
  const Values values = make_values(problem, numbers);
  const MatrixShape x_shape = x_matrix(problem), y_shape = y_matrix(problem);
  const bool first = problem.layout == Layout::batch_first;
  const auto at = [&](const MatrixShape& shape, std::int64_t feature, std::int64_t sample) {
    return first ? sample * shape.stride + feature : feature * shape.stride + sample;
  };
  Memory x(dtype, x_shape.extent(), one.x_offset);
  Memory y(dtype, y_shape.extent(), one.y_offset);
  Memory bias(dtype, problem.chain.rows(), 0);
  const std::int64_t x_features = transposed ? problem.chain.rows() : problem.chain.cols();
  std::vector<float> now(static_cast<std::size_t>(x_features * batch));
  for (std::int64_t feature = 0; feature < x_features; ++feature)
    for (std::int64_t sample = 0; sample < batch; ++sample) {
      float value = numbers.next(2);
      if (one.infinite && feature == x_features - 1 && sample == batch - 1)
        value = std::numeric_limits<float>::infinity();
      x.set(at(x_shape, feature, sample), value);
      now[static_cast<std::size_t>(feature * batch + sample)] = value;
    }
  for (std::int64_t row = 0; row < bias.elements(); ++row) bias.set(row, numbers.next(9));

  const Operands operands{.x = x.first(), .y = y.first(), .bias = problem.bias ? bias.first() : nullptr};
  const GlobalMemory memory{{x.range(), values.packed.range()}, {y.range()}};
  const cuda::fused::Arguments arguments =
      cuda::fused::arguments_of(problem, config, operands, values.packed.first());
  const Arithmetic arithmetic = cuda::arithmetic_of(problem);
  const std::int64_t places = one.multiprocessors * config.blocks_at_once / config.ranks();
  const auto clusters = static_cast<int>(std::clamp<std::int64_t>(places, 1, arguments.tiles));
  launch(clusters * config.ranks(), config.ranks(), config.threads, config.shared_bytes, one.timing, memory,
         [arguments, kernel = kernel_of(arithmetic, config.shape_index)] { kernel(arguments); });

  for (const cuda::fused::Link& link : cuda::fused::links_of(problem)) {
    for (std::size_t n = 0; n < link.factors; ++n) {
      const std::size_t factor = link.factor + (transposed ? n : link.factors - 1 - n);
      now = multiplied(problem.chain[factor], transposed, values.plain[factor], now, batch);
    }
    const bool is_last = transposed ? link.factor + link.factors == problem.chain.size() : link.factor == 0;
    if (!is_last)  // between the kernel's products, numbers are rounded
      for (float& value : now) value = value_of(dtype, bits_of(dtype, value));
  }
  std::vector<bool> written(static_cast<std::size_t>(y.elements()));
  const std::int64_t y_features = transposed ? problem.chain.cols() : problem.chain.rows();
  for (std::int64_t feature = 0; feature < y_features; ++feature)
    for (std::int64_t sample = 0; sample < batch; ++sample) {
      float sum = now[static_cast<std::size_t>(feature * batch + sample)];
      if (problem.bias) sum += bias.value(feature);
      const float expected = cuda::activate(sum, problem.activation);
      const std::int64_t place = at(y_shape, feature, sample);
      written[static_cast<std::size_t>(place)] = true;
      if (!same(dtype, y.bits(place), expected))
        throw EmulationError("feature " + std::to_string(feature) + " of sample " + std::to_string(sample) +
                             ": " + std::to_string(value_of(dtype, y.bits(place))) + " instead of " +
                             std::to_string(expected));
    }
  const std::uint32_t untouched = dtype == DType::f32 ? 0xffffffffu : 0xffffu;
  for (std::int64_t place = 0; place < y.elements(); ++place)
    if (!written[static_cast<std::size_t>(place)] && y.bits(place) != untouched)
      throw EmulationError("element " + std::to_string(place) + " of y, outside the matrix, was written");
  if (!y.untouched_before()) throw EmulationError("memory before y was written");
  return {arithmetic,          config.shape.samples, config.ranks(),   arguments.parts,
          arguments.x_buffers, config.threads,       arguments.x_rows, arguments.samples_first,
          arguments.x_vectors, arguments.y_vectors};
}

}  // namespace kronsparse::emulation
