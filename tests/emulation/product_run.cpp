#include "product_run.hpp"

#include <bit>
#include <limits>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "builtins.hpp"
#include "core/geometry.hpp"
#include "cuda/device/epilogue.cuh"
#include "cuda/host/product.hpp"
#include "memory.hpp"

namespace kronsparse::emulation {
namespace {

/// The packed weights, and the same as a plain array [i][k][l][j].
struct Weights {
  std::vector<float> plain;
  Memory packed;
};

Weights make_weights(const cuda::Product& p, const PackedOrder& order, DType dtype, int range,
                     Numbers& numbers) {
  Weights weights{{}, Memory(order.in_floats ? DType::f32 : dtype, order.elements, 0)};
  for (std::int64_t at = 0; at < order.elements; ++at) weights.packed.set_bits(at, 0);
  for (std::int64_t i = 0; i < p.a; ++i)
    for (std::int64_t k = 0; k < p.b; ++k)
      for (std::int64_t l = 0; l < p.c; ++l)
        for (std::int64_t j = 0; j < p.d; ++j) {
          const float value = numbers.next(range);
          weights.plain.push_back(value);
          const std::int64_t to = order.place(i, k, l, j);
          if (dtype != DType::f32 || order.to_rest == 0) {
            weights.packed.set(to, value);
            continue;
          }
          const auto high =
              std::bit_cast<float>((std::bit_cast<std::uint32_t>(value) + 0x1000u) & 0xffffe000u);
          weights.packed.set(to, high);
          weights.packed.set(to + order.to_rest, value - high);
        }
  return weights;
}

}  // namespace

PackedOrder PackedOrder::of(const cuda::WgmmaOrder& order) {
  const auto place = [order](std::int64_t i, std::int64_t k, std::int64_t l, std::int64_t j) {
    return order.place(i, k, l, j);
  };
  return {order.elements(), place, order.tile_k * 16};
}

PackedOrder PackedOrder::of(const cuda::Product& p, std::int64_t elements,
                            const std::function<cuda::PackedPlace(std::int64_t)>& place_at) {
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>;
  const auto places = std::make_shared<std::map<Key, std::int64_t>>();
  for (std::int64_t index = 0; index < elements; ++index) {
    const cuda::PackedPlace at = place_at(index);
    if (at.k < p.b && at.l < p.c && at.j < p.d && !places->emplace(Key{at.i, at.k, at.l, at.j}, index).second)
      throw EmulationError("a weight has two places");
  }
  if (static_cast<std::int64_t>(places->size()) != p.a * p.b * p.c * p.d)
    throw EmulationError("a weight has no place");
  const auto place = [places](std::int64_t i, std::int64_t k, std::int64_t l, std::int64_t j) {
    return places->at({i, k, l, j});
  };
  return {elements, place};
}

std::string ProductCase::text() const {
  return problem.to_string() + " x+" + std::to_string(x_offset) + " g+" + std::to_string(g_offset) + " y+" +
         std::to_string(y_offset) + " " + std::to_string(multiprocessors) + " SMs" +
         (infinite ? " infinite" : "") + (timing == Timing::late ? " late" : " early");
}

cuda::GpuFacts ProductCase::gpu() const {
  cuda::GpuFacts facts;
  facts.compute_capability = 90;
  facts.code = {.compute_capability = 90, .kind = 'a'};
  facts.multiprocessors = multiprocessors;
  facts.shared_bytes = cuda::kEmulatedSharedBytes;
  facts.l2_bytes = l2_bytes;
  facts.clock_hz = 1.98e9;
  facts.memory_rate = 4e12;
  return facts;
}

namespace {

void run_all(const ProductCase& one, const PackedOrder& order, bool split, std::int64_t workspace_bytes,
             const std::function<std::vector<Launch>(const Operands&, const void*)>& launches_of) {
  const Problem& problem = one.problem;
  problem.validate();
  // Whole numbers that the formats hold and whose sums are exact. With split floats, one of the two operands
  // has more bits than TF32: the product of two remainders is left out.
  const cuda::Product p = cuda::product_of(problem);
  const DType dtype = problem.dtype;
  const bool long_weights = split && problem.batch % 2 == 0;
  Numbers numbers;
  const Weights weights = make_weights(p, order, dtype, long_weights ? 9001 : 2, numbers);
  const MatrixShape x_shape = x_matrix(problem), y_shape = y_matrix(problem);
  Memory x(dtype, x_shape.extent(), one.x_offset);
  Memory y(dtype, y_shape.extent(), one.y_offset);
  Memory bias(dtype, problem.pattern().rows(), 0);
  for (std::int64_t row = 0; row < x_shape.rows; ++row)
    for (std::int64_t column = 0; column < x_shape.cols; ++column)
      x.set(row * x_shape.stride + column, numbers.next(split && !long_weights ? 9001 : 3));
  for (std::int64_t at = 0; at < bias.elements(); ++at) bias.set(at, numbers.next(9));
  if (one.infinite) x.set(x.elements() - 1, std::numeric_limits<float>::infinity());

  Memory workspace(DType::f16, workspace_bytes / 2, 0);
  Operands operands{.x = x.first(), .y = y.first(), .bias = problem.bias ? bias.first() : nullptr};
  operands.workspace = workspace.first();
  GlobalMemory memory{{x.range(), weights.packed.range()}, {y.range()}};
  if (workspace_bytes != 0)
    for (auto* ranges : {&memory.readable, &memory.writable}) ranges->push_back(workspace.range());
  for (const Launch& work : launches_of(operands, weights.packed.first()))
    launch(work.blocks, work.cluster_blocks, work.threads, work.shared_bytes, one.timing, memory,
           work.kernel);

  std::vector<float> x_values;
  for (std::int64_t at = 0; at < x.elements(); ++at) x_values.push_back(x.value(at));
  std::vector<bool> written(static_cast<std::size_t>(y.elements()));
  for (std::int64_t n = 0; n < p.batch; ++n)
    for (std::int64_t i = 0; i < p.a; ++i)
      for (std::int64_t k = 0; k < p.b; ++k)
        for (std::int64_t j = 0; j < p.d; ++j) {
          float sum = 0;
          for (std::int64_t l = 0; l < p.c; ++l)
            sum +=
                weights.plain[static_cast<std::size_t>(((i * p.b + k) * p.c + l) * p.d + j)] *
                x_values[static_cast<std::size_t>(n * p.x_sample + ((i * p.c + l) * p.d + j) * p.x_feature)];
          const std::int64_t feature = (i * p.b + k) * p.d + j;
          if (problem.bias) sum += bias.value(feature);
          const float expected = cuda::activate(sum, problem.activation);
          const std::int64_t at = n * p.y_sample + feature * p.y_feature;
          written[static_cast<std::size_t>(at)] = true;
          if (!same(dtype, y.bits(at), expected))
            throw EmulationError("sample " + std::to_string(n) + " i " + std::to_string(i) + " k " +
                                 std::to_string(k) + " j " + std::to_string(j) + ": " +
                                 std::to_string(value_of(dtype, y.bits(at))) + " instead of " +
                                 std::to_string(expected));
        }
  const std::uint32_t untouched = dtype == DType::f32 ? 0xffffffffu : 0xffffu;
  for (std::int64_t at = 0; at < y.elements(); ++at)
    if (!written[static_cast<std::size_t>(at)] && y.bits(at) != untouched)
      throw EmulationError("element " + std::to_string(at) + " of y, outside the matrix, was written");
  if (!y.untouched_before()) throw EmulationError("memory before y was written");
}

}  // namespace

void run_product(const ProductCase& one, const PackedOrder& order, bool split,
                 const std::function<Launch(const Operands&, const void*)>& launch_of) {
  run_all(one, order, split, 0, [&](const Operands& operands, const void* weights) {
    return std::vector<Launch>{launch_of(operands, weights)};
  });
}

void run_steps(const ProductCase& one, const PackedOrder& order, std::int64_t workspace_bytes,
               const std::function<std::vector<Launch>(const Operands&, const void*)>& launches_of) {
  run_all(one, order, false, workspace_bytes, launches_of);
}

}  // namespace kronsparse::emulation
