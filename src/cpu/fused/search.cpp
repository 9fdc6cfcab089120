#include "cpu/fused/search.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>

#include "core/geometry.hpp"
#include "core/steps.hpp"
#include "cpu/cpu_info.hpp"
#include "cpu/simd/drivers.hpp"
#include "cpu/simd/one_thread.hpp"
#include "cpu/threads.hpp"

namespace kronsparse::fused {
namespace {

/// Packed values may take so many times the bytes of those that they are made of.
constexpr double most_growth = 3;

bool is_half(DType dtype) { return size_of(dtype) == 2; }

double value_bytes(const Pattern& pattern, DType dtype) {
  return static_cast<double>(pattern.nnz()) * static_cast<double>(size_of(dtype));
}

/// One product of a chunk, as the cost model sees it.
double link_seconds(const Problem& problem, const Pattern& pattern, std::int64_t samples) {
  Problem link{.chain = pattern, .batch = samples, .dtype = arithmetic_of(problem.dtype)};
  link.layout = problem.layout;
  link.operation = problem.operation;
  return simd::seconds_on_one_thread(link);
}

/// The neighbours from `begin` on that may be a link: one factor, and products that take few enough bytes.
std::vector<Merging> links_from(const Problem& problem, std::size_t begin) {
  const std::vector<Pattern>& factors = problem.chain.factors();
  std::vector<Merging> all{Merging(factors[begin])};
  std::optional<Merging> link = all.front();
  double given = value_bytes(factors[begin], problem.dtype);
  for (std::size_t next = begin + 1; next < factors.size(); ++next) {
    given += value_bytes(factors[next], problem.dtype);
    link = link->times(factors[next]);
    if (!link) break;
    if (value_bytes(link->product(), arithmetic_of(problem.dtype)) <= most_growth * given)
      all.push_back(*link);
  }
  return all;
}

/// The links that take a chunk of so many samples the least time: of all ways to cut the chain, the best one
/// of each of its ends. Nothing where no neighbours may be multiplied together.
std::vector<Merging> best_links(const Problem& problem, std::int64_t samples) {
  const std::size_t factors = problem.chain.size();
  std::vector<std::vector<Merging>> possible;
  for (std::size_t begin = 0; begin < factors; ++begin) possible.push_back(links_from(problem, begin));
  if (std::ranges::all_of(possible, [](const auto& links) { return links.size() == 1; })) return {};
  struct End {
    double seconds = std::numeric_limits<double>::infinity();
    const Merging* first = nullptr;
  };
  std::vector<End> ends(factors + 1);
  ends.back().seconds = 0;
  for (std::size_t begin = factors; begin-- > 0;)
    for (const Merging& link : possible[begin]) {
      const double seconds =
          link_seconds(problem, link.product(), samples) + ends[begin + link.size()].seconds;
      if (seconds < ends[begin].seconds) ends[begin] = {seconds, &link};
    }
  std::vector<Merging> links;
  for (std::size_t at = 0; at < factors; at += ends[at].first->size()) links.push_back(*ends[at].first);
  return links;
}

/// One thread's seconds for a chunk.
double chunk_seconds(const Problem& problem, const std::vector<Merging>& links, std::int64_t samples) {
  constexpr double seconds_per_chunk = 2e-7;
  constexpr double bytes_per_second = 9e9;  // of conversions
  double seconds = seconds_per_chunk;
  for (const Merging& link : links) seconds += link_seconds(problem, link.product(), samples);
  if (is_half(problem.dtype))
    seconds += static_cast<double>(problem.chain.rows() + problem.chain.cols()) *
               static_cast<double>(samples) * sizeof(float) / bytes_per_second;
  return seconds;
}

/// The bytes of a sample between two products, with both its neighbours.
double sample_bytes(const Problem& problem, const std::vector<Merging>& links) {
  std::int64_t most = 0;
  for (const Merging& link : links) most = std::max(most, link.product().rows() + link.product().cols());
  return static_cast<double>(most) * static_cast<double>(size_of(arithmetic_of(problem.dtype)));
}

}  // namespace

Problem chunk_of(const Problem& problem, const Cut& cut, std::int64_t samples) {
  Problem chunk = problem;
  std::vector<Pattern> patterns;
  for (const Merging& link : cut.links) patterns.push_back(link.product());
  chunk.chain = Chain(std::move(patterns));
  chunk.batch = samples;
  chunk.dtype = arithmetic_of(problem.dtype);
  const bool is_copied = is_half(problem.dtype);
  chunk.cols_stride = is_copied ? 0 : cols_matrix(problem).stride;
  chunk.rows_stride = is_copied ? 0 : rows_matrix(problem).stride;
  return chunk;
}

int threads_of(const Problem& problem, const Cut& cut) {
  const std::int64_t chunks = parts(problem.batch, cut.samples);
  const double alone = chunk_seconds(problem, cut.links, cut.samples) * static_cast<double>(chunks);
  return static_cast<int>(std::clamp<std::int64_t>(chunks, 1, threads_for(alone)));
}

std::optional<Cut> best_cut(const Problem& problem) {
  std::vector<Merging> links = best_links(problem, std::clamp<std::int64_t>(problem.batch, 1, 64));
  // Factors one by one share their work among threads better, and are written around the caches.
  if (std::ranges::all_of(links, [](const Merging& link) { return link.size() == 1; })) return {};
  return best_cut(problem, std::move(links));
}

Cut best_cut(const Problem& problem, std::vector<Merging> links) {
  // In batch_first a chunk stays in half of L2. In batch_last it is a part of each line of x and y, and long
  // parts are worth more (docs/notes/cpu.md).
  constexpr std::array<std::int64_t, 6> sizes = {16, 32, 64, 128, 256, 512};
  const bool batch_first = problem.layout == Layout::batch_first;
  const double room = static_cast<double>(cpu_info().l2_bytes) * (batch_first ? 0.5 : 4);
  const std::int64_t fewest = batch_first ? 16 : 128;
  const std::int64_t batch = std::max<std::int64_t>(problem.batch, 1);
  Cut best;
  best.seconds = std::numeric_limits<double>::infinity();
  best.links = std::move(links);
  const double bytes = sample_bytes(problem, best.links);
  for (const std::int64_t size : sizes) {
    if (size < fewest) continue;
    if (size > fewest && bytes * static_cast<double>(size) > room) break;
    Cut cut{best.links, simd::even_block(batch, size, 8)};
    const std::int64_t chunks = parts(batch, cut.samples);
    const double alone = chunk_seconds(problem, cut.links, cut.samples) * static_cast<double>(chunks);
    const int threads = threads_of(problem, cut);
    // All threads wait for the one that has the last chunk.
    const auto rounds = static_cast<double>(parts(chunks, threads));
    cut.seconds =
        threads == 1 ? alone : seconds_on_threads(alone) * rounds * threads / static_cast<double>(chunks);
    if (cut.seconds < best.seconds) best = cut;
    if (size >= batch) break;
  }
  return best;
}

}  // namespace kronsparse::fused
