#include "chain/chain_run.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "core/geometry.hpp"
#include "cuda/device/epilogue.cuh"
#include "cuda/packing/merging.hpp"
#include "cuda/packing/packing.cuh"
#include "memory.hpp"

namespace kronsparse::emulation {
namespace {

using cuda::Link;

/// The numbers of a case, which a dtype may round.
struct Source {
  /// A weight, by the index of its factor and its own.
  std::function<double(std::size_t factor, std::int64_t index)> weight;
  /// An x, by its feature and sample.
  std::function<double(std::int64_t feature, std::int64_t sample)> x;
  std::function<double(std::int64_t row)> bias;
};

/// The product of a batch (features, samples) with one factor.
template <class T>
std::vector<T> multiplied(const Pattern& p, bool transposed, const std::vector<T>& values,
                          const std::vector<T>& x, std::int64_t batch) {
  const std::int64_t b = transposed ? p.c : p.b, c = transposed ? p.b : p.c;
  std::vector<T> y(static_cast<std::size_t>(p.a * b * p.d * batch));
  for (std::int64_t i = 0; i < p.a; ++i)
    for (std::int64_t k = 0; k < b; ++k)
      for (std::int64_t j = 0; j < p.d; ++j) {
        T* const to = y.data() + ((i * b + k) * p.d + j) * batch;
        for (std::int64_t l = 0; l < c; ++l) {
          const std::int64_t row = transposed ? l : k, column = transposed ? k : l;
          const T value = values[static_cast<std::size_t>(((i * p.b + row) * p.c + column) * p.d + j)];
          const T* const from = x.data() + ((i * c + l) * p.d + j) * batch;
          for (std::int64_t n = 0; n < batch; ++n) to[n] += value * from[n];
        }
      }
  return y;
}

/// One run: its operands, the launch, and what was written.
class Run {
 public:
  Run(const ProductCase& one, const ChainKernel& kernel, const Source& source)
      : one_(one),
        kernel_(kernel),
        x_(one.problem.dtype, x_matrix(one.problem).extent(), one.x_offset),
        y_(one.problem.dtype, y_matrix(one.problem).extent(), one.y_offset),
        bias_(one.problem.dtype, one.problem.chain.rows(), 0) {
    const Problem& problem = one.problem;
    problem.validate();
    for (std::size_t factor = 0; factor < problem.chain.size(); ++factor) {
      Memory& memory = weights_.emplace_back(problem.dtype, problem.chain[factor].nnz(), 0);
      for (std::int64_t at = 0; at < memory.elements(); ++at)
        memory.set(at, static_cast<float>(source.weight(factor, at)));
    }
    for (std::int64_t feature = 0; feature < x_features(); ++feature)
      for (std::int64_t sample = 0; sample < problem.batch; ++sample)
        x_.set(place(x_matrix(problem), feature, sample), static_cast<float>(source.x(feature, sample)));
    for (std::int64_t row = 0; row < bias_.elements(); ++row)
      bias_.set(row, static_cast<float>(source.bias(row)));
  }

  void launch_all() {
    const Problem& problem = one_.problem;
    Memory packed(problem.dtype, static_cast<std::int64_t>(kernel_.packed_bytes / size_of(problem.dtype)), 0);
    for (cuda::ChainPart part : kernel_.parts) {
      if (part.count == 1) {
        cuda::PackTask task = cuda::pack_task(part.layout);
        task.values = weights_[part.first].first();
        task.packed = packed.first() + part.offset;
        cuda::packing::pack_items<std::uint32_t>(task, 0, 1);
        continue;
      }
      for (std::size_t factor = 0; factor < part.count; ++factor)
        part.merging.values[factor] = weights_[part.first + factor].first();
      part.merging.packed = packed.first() + part.offset;
      part.merging.exponents = reinterpret_cast<std::uint8_t*>(packed.first() + part.exponents);
      run_merging(part.merging, one_.timing);
    }
    const Operands operands{.x = x_.first(), .y = y_.first(), .bias = problem.bias ? bias_.first() : nullptr};
    const Launch of = kernel_.launch_of(operands, packed.first());
    const GlobalMemory memory{{x_.range(), packed.range()}, {y_.range()}};
    launch(of.blocks, of.cluster_blocks, of.threads, of.shared_bytes, one_.timing, memory, of.kernel);
  }

  /// The products one by one in type T, (features, samples), without bias and activation. `rounded`: between
  /// the kernel's products, numbers are rounded. `absolute`: with everything's size.
  template <class T>
  [[nodiscard]] std::vector<T> one_by_one(bool rounded, bool absolute) const {
    const Problem& problem = one_.problem;
    const bool transposed = is_transposed(problem.operation);
    const auto sized = [&](float value) { return static_cast<T>(absolute ? std::abs(value) : value); };
    std::vector<T> now;
    for (std::int64_t feature = 0; feature < x_features(); ++feature)
      for (std::int64_t sample = 0; sample < problem.batch; ++sample)
        now.push_back(sized(x_.value(place(x_matrix(problem), feature, sample))));
    for (const Link& link : kernel_.links) {
      for (std::size_t n = 0; n < link.factors; ++n) {
        const std::size_t factor = link.factor + (transposed ? n : link.factors - 1 - n);
        std::vector<T> values;
        for (std::int64_t at = 0; at < weights_[factor].elements(); ++at)
          values.push_back(sized(weights_[factor].value(at)));
        now = multiplied(problem.chain[factor], transposed, values, now, problem.batch);
      }
      if (rounded && &link != &kernel_.links.back())
        for (T& value : now)
          value = static_cast<T>(value_of(problem.dtype, bits_of(problem.dtype, static_cast<float>(value))));
    }
    return now;
  }

  /// Calls check(feature, sample, index, place) for each y.
  template <class Check>
  void for_each(const Check& check) const {
    const Problem& problem = one_.problem;
    const std::int64_t features =
        is_transposed(problem.operation) ? problem.chain.cols() : problem.chain.rows();
    for (std::int64_t feature = 0; feature < features; ++feature)
      for (std::int64_t sample = 0; sample < problem.batch; ++sample)
        check(feature, sample, static_cast<std::size_t>(feature * problem.batch + sample),
              place(y_matrix(problem), feature, sample));
  }

  void check_exact() const {
    const Problem& problem = one_.problem;
    const DType dtype = problem.dtype;
    const std::vector<float> expected_sums = one_by_one<float>(true, false);
    const bool has_merged =
        std::ranges::any_of(kernel_.links, [](const Link& link) { return link.factors > 1; });
    std::vector<bool> written(static_cast<std::size_t>(y_.elements()));
    for_each([&](std::int64_t feature, std::int64_t sample, std::size_t index, std::int64_t at) {
      float sum = expected_sums[index];
      if (problem.bias) sum += bias_.value(feature);
      const float expected = cuda::activate(sum, problem.activation);
      written[static_cast<std::size_t>(at)] = true;
      // Factors that are multiplied together may make an infinity of a NaN, and the reverse.
      const bool is_right = has_merged && !std::isfinite(sum) && problem.activation == Activation::none
                                ? !std::isfinite(y_.value(at))
                                : same(dtype, y_.bits(at), expected);
      if (!is_right && !(has_merged && !std::isfinite(sum)))
        throw EmulationError("feature " + std::to_string(feature) + " of sample " + std::to_string(sample) +
                             ": " + std::to_string(y_.value(at)) + " instead of " + std::to_string(expected));
      if (!is_right && problem.activation == Activation::none)
        throw EmulationError("feature " + std::to_string(feature) + " of sample " + std::to_string(sample) +
                             " is finite: " + std::to_string(y_.value(at)));
    });
    const std::uint32_t untouched = dtype == DType::f32 ? 0xffffffffu : 0xffffu;
    for (std::int64_t at = 0; at < y_.elements(); ++at)
      if (!written[static_cast<std::size_t>(at)] && y_.bits(at) != untouched)
        throw EmulationError("element " + std::to_string(at) + " of y, outside the matrix, was written");
    if (!y_.untouched_before()) throw EmulationError("memory before y was written");
  }

  [[nodiscard]] double worst_error() const {
    const std::vector<double> exact = one_by_one<double>(false, false),
                              sizes = one_by_one<double>(false, true);
    const DType dtype = one_.problem.dtype;
    // Half the distance of neighbouring numbers, and of the smallest ones; sums in f32 may cut off bits.
    const double unit = dtype == DType::f16 ? 0x1p-11 : dtype == DType::bf16 ? 0x1p-8 : 0x1p-20;
    const double smallest = dtype == DType::f16 ? 0x1p-25 : 0x1p-133;
    double worst = 0;
    for_each([&](std::int64_t, std::int64_t, std::size_t index, std::int64_t at) {
      const double bound = static_cast<double>(one_.problem.chain.size()) * unit * sizes[index] + smallest;
      const double error = std::abs(static_cast<double>(y_.value(at)) - exact[index]);
      if (!(error / bound <= worst)) worst = std::isfinite(error) ? error / bound : 1e9;
    });
    return worst;
  }

 private:
  [[nodiscard]] std::int64_t x_features() const {
    const Chain& chain = one_.problem.chain;
    return is_transposed(one_.problem.operation) ? chain.rows() : chain.cols();
  }
  [[nodiscard]] std::int64_t place(const MatrixShape& shape, std::int64_t feature,
                                   std::int64_t sample) const {
    return one_.problem.layout == Layout::batch_first ? sample * shape.stride + feature
                                                      : feature * shape.stride + sample;
  }

  const ProductCase& one_;
  const ChainKernel& kernel_;
  std::vector<Memory> weights_;
  Memory x_, y_, bias_;
};

/// Small whole numbers, times powers of two.
Source whole_numbers(const ProductCase& one, const std::vector<Link>& links, const Exponents& exponents,
                     Numbers& numbers) {
  const Problem& problem = one.problem;
  const bool transposed = is_transposed(problem.operation);
  // Products of factors need more bits than bf16 has, and no more than two numbers of it have.
  std::size_t most = 1;
  for (const Link& link : links) most = std::max(most, link.factors);
  const bool few_bits = problem.dtype == DType::f32 && problem.mode == Mode::tf32;
  const int range = most == 1 || few_bits ? 1 : most == 2 ? 19 : 3;
  const auto merged = std::ranges::find_if(links, [](const Link& link) { return link.factors > 1; });
  const bool is_last = merged != links.end() && merged + 1 == links.end();
  const auto exponent = [=, first = merged == links.end() ? problem.chain.size() : merged->factor,
                         count = merged == links.end() ? 0 : merged->factors](std::size_t factor,
                                                                              std::int64_t index) {
    if (factor < first || factor >= first + count) return 0;
    int sum = factor == first ? exponents.first : factor == first + 1 ? exponents.second : 0;
    const Pattern& p = problem.chain[factor];
    const std::int64_t j = index % p.d, l = index / p.d % p.c, k = index / (p.d * p.c) % p.b;
    if (is_last && factor == (transposed ? first + count - 1 : first))
      sum += exponents.outputs * static_cast<int>(((transposed ? l : k) + j) % 3 - 1);
    return sum;
  };
  const std::int64_t features = transposed ? problem.chain.rows() : problem.chain.cols();
  return {.weight =
              [=, &numbers](std::size_t factor, std::int64_t index) {
                if (exponents.infinite_weight && factor == 0 && index == problem.chain[0].nnz() / 2)
                  return std::numeric_limits<double>::infinity();
                return std::ldexp(static_cast<double>(numbers.next(range)), exponent(factor, index));
              },
          .x =
              [=, &numbers](std::int64_t feature, std::int64_t sample) {
                const double value = std::ldexp(static_cast<double>(numbers.next(2)), exponents.x);
                const bool is_infinite =
                    one.infinite && feature == features - 1 && sample == problem.batch - 1;
                return is_infinite ? std::numeric_limits<double>::infinity() : value;
              },
          .bias = [&numbers](std::int64_t) { return static_cast<double>(numbers.next(9)); }};
}

}  // namespace

void run_chain(const ProductCase& one, const ChainKernel& kernel, const Exponents& exponents) {
  Numbers numbers;
  Run run(one, kernel, whole_numbers(one, kernel.links, exponents, numbers));
  run.launch_all();
  run.check_exact();
}

double worst_error(const ProductCase& one, const ChainKernel& kernel, double least, double most) {
  std::mt19937_64 random(11);
  std::uniform_real_distribution<double> size(std::log(least), std::log(most)), x(0.25, 1);
  const auto sign = [&random] { return random() % 2 == 0 ? 1.0 : -1.0; };
  // One x for all of a case, so that intermediates and y stay in the range of half numbers: the largest
  // products of weights do not.
  const double steps = static_cast<double>(one.problem.chain.size());
  const double scale = std::clamp(std::pow(most, -steps) * 0x1p11, 0x1p-13, 0x1p13);
  Run run(one, kernel,
          {.weight = [&](std::size_t, std::int64_t) { return sign() * std::exp(size(random)); },
           .x = [&](std::int64_t, std::int64_t) { return sign() * scale * x(random); },
           .bias = [](std::int64_t) { return 0.0; }});
  run.launch_all();
  return run.worst_error();
}

}  // namespace kronsparse::emulation
