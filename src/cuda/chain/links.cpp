// The ways to divide a chain into products.
#include "cuda/chain/links.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include "cuda/host/divisor.hpp"
#include "cuda/packing/merging.hpp"
#include "cuda/tuning/tuning.hpp"

namespace kronsparse::cuda {
namespace {

/// The pattern of the product, if each factor has one together with all to its right, as merged_value()
/// needs.
std::optional<Pattern> product_of(std::span<const Pattern> factors) {
  std::optional<Pattern> tail = factors.back();
  for (std::size_t at = factors.size() - 1; tail && at-- > 0;) tail = factors[at].times(*tail);
  return tail;
}

/// Predicted, of multiplying the factors of a link together: a launch, and for each value of the product the
/// terms that its paths try.
double merging_seconds(const Chain& chain, const Link& link, const tuning::Fused& costs) {
  double terms = 0, paths = 1;
  for (std::size_t factor = link.factor; factor < link.factor + link.factors; ++factor) {
    terms += static_cast<double>(chain[factor].c);
    paths *= static_cast<double>(chain[factor].c);
  }
  paths = std::max(1.0, paths / static_cast<double>(link.pattern.c));
  return costs.merging + static_cast<double>(link.pattern.nnz()) * terms * paths / costs.merged_terms;
}

}  // namespace

std::vector<std::vector<Link>> ways_of(const Problem& problem) {
  const bool transposed = is_transposed(problem.operation);
  const std::vector<Pattern>& factors = problem.chain.factors();
  const std::size_t count = factors.size();
  const int k_step = 32 / static_cast<int>(size_of(problem.dtype));
  // The split of floats needs long sums, see tensor_core_refusal().
  const std::int64_t least_terms = problem.dtype == DType::f32 && problem.mode == Mode::fp32 ? 16 : 1;
  const auto link_of = [&](std::size_t first, std::size_t end, const Pattern& pattern) {
    Product product;
    product.batch = problem.batch;
    product.a = pattern.a;
    product.b = transposed ? pattern.c : pattern.b;
    product.c = transposed ? pattern.b : pattern.c;
    product.d = pattern.d;
    return Link{first, end - first, pattern, product, end - first > 1 ? merged_parts(problem.dtype) : 1};
  };
  /// Multiply-adds for a sample, padding included, and the time for its features as so many of them.
  const auto cost_of = [&](const Product& p, int repeats) {
    constexpr double of_feature = 32;
    const auto real = [](std::int64_t value) { return static_cast<double>(value); };
    return real(p.a * p.d) *
           (real(repeats * divided_up(p.b, 16) * 16) * real(divided_up(p.c, k_step) * k_step) +
            of_feature * real(p.b + p.c));
  };
  struct Way {
    double cost = 0;
    std::vector<Link> links = {};
  };
  /// For the factors before each, the cheapest way by its number of products.
  using Ways = std::array<std::optional<Way>, most_links + 1>;
  std::vector<Ways> up_to(count + 1);
  up_to[0][0].emplace();
  for (std::size_t first = 0; first < count; ++first)
    for (std::size_t end = first + 1; end <= std::min(count, first + MergeTask::most_factors); ++end) {
      const std::optional<Pattern> pattern = product_of(std::span(factors).subspan(first, end - first));
      if (!pattern) continue;
      const Link link = link_of(first, end, *pattern);
      if (link.product.c < least_terms) continue;
      const double cost = cost_of(link.product, link.repeats);
      for (std::size_t steps = 0; steps < most_links; ++steps) {
        const std::optional<Way>& before = up_to[first][steps];
        std::optional<Way>& best = up_to[end][steps + 1];
        if (!before || (best && best->cost <= before->cost + cost)) continue;
        best = {before->cost + cost, before->links};
        best->links.push_back(link);
      }
    }
  std::vector<Way> found;
  for (std::optional<Way>& way : up_to[count])
    if (way) found.push_back(*std::move(way));
  std::ranges::stable_sort(found, {}, &Way::cost);
  std::vector<std::vector<Link>> all;
  for (Way& way : found) {
    if (!transposed) std::ranges::reverse(way.links);
    all.push_back(std::move(way.links));
  }
  return all;
}

double merging_seconds(const GpuFacts& facts, const Problem& problem, std::span<const Link> links) {
  double seconds = 0;
  for (const Link& link : links)
    if (link.factors > 1) seconds += merging_seconds(problem.chain, link, tuning_of(facts).fused.costs);
  return seconds;
}

}  // namespace kronsparse::cuda
