// The families of chains by name.

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <numeric>
#include <string_view>
#include <utility>

#include "core/message.hpp"
#include "kronsparse/chain.hpp"
#include "kronsparse/error.hpp"

namespace kronsparse {
namespace {

using Sizes = std::initializer_list<std::pair<std::string_view, std::int64_t>>;

void check_sizes(std::string_view family, Sizes sizes) {
  for (const auto& [name, size] : sizes)
    if (size < 1)
      throw Error(ErrorCode::invalid_argument,
                  message("{}: {} is {}, must be at least 1", family, name, size));
}

void check_power_of_two(std::string_view family, std::int64_t n) {
  if (n < 2 || (n & (n - 1)) != 0)
    throw Error(ErrorCode::invalid_argument,
                message("{}: n is {}, must be a power of two, at least 2", family, n));
}

void check_blocks(std::string_view family, std::int64_t blocks, std::int64_t rows, std::int64_t cols) {
  if (rows % blocks != 0 || cols % blocks != 0)
    throw Error(ErrorCode::invalid_argument,
                message("{}: blocks {} must divide rows {} and cols {}", family, blocks, rows, cols));
}

}  // namespace

Chain Chain::dense(std::int64_t rows, std::int64_t cols) {
  check_sizes("dense", {{"rows", rows}, {"cols", cols}});
  return Pattern{1, rows, cols, 1};
}

Chain Chain::low_rank(std::int64_t rows, std::int64_t cols, std::int64_t rank) {
  check_sizes("low_rank", {{"rows", rows}, {"cols", cols}, {"rank", rank}});
  return {{1, rows, rank, 1}, {1, rank, cols, 1}};
}

Chain Chain::monarch(std::int64_t rows, std::int64_t cols, std::int64_t blocks, std::int64_t rank) {
  if (rows < 1 || cols < 1 || blocks < 1)
    throw Error(
        ErrorCode::invalid_argument,
        message("monarch: rows {}, cols {} and blocks {} must each be at least 1", rows, cols, blocks));
  check_sizes("monarch", {{"rank", rank}});
  check_blocks("monarch", blocks, rows, cols);
  return {{1, rows / blocks, blocks * rank, blocks}, {blocks, blocks * rank, cols / blocks, 1}};
}

Chain Chain::butterfly(std::int64_t n) {
  check_power_of_two("butterfly", n);
  std::vector<Pattern> factors;
  for (std::int64_t left = 1; left < n; left *= 2) factors.push_back({left, 2, 2, n / 2 / left});
  return Chain(std::move(factors));
}

Chain Chain::butterfly(const std::vector<std::int64_t>& row_radices,
                       const std::vector<std::int64_t>& col_radices, const std::vector<std::int64_t>& ranks) {
  const std::size_t levels = row_radices.size();
  if (levels == 0 || col_radices.size() != levels || (!ranks.empty() && ranks.size() != levels - 1))
    throw Error(ErrorCode::invalid_argument,
                message("butterfly: {} row_radices, {} col_radices and {} ranks given, must be at least one "
                        "of row_radices, as many col_radices, and ranks none or one less",
                        levels, col_radices.size(), ranks.size()));
  for (const auto* sizes : {&row_radices, &col_radices, &ranks})
    for (const std::int64_t size : *sizes) check_sizes("butterfly", {{"a radix or rank", size}});
  const auto rank = [&](std::size_t split) {
    return split == 0 || split == levels || ranks.empty() ? 1 : ranks[split - 1];
  };
  std::vector<Pattern> factors(levels);
  std::int64_t before = 1;
  std::int64_t after = 1;
  for (std::size_t level = 0; level < levels; ++level) {
    factors[level].a = before;
    factors[level].b = row_radices[level] * rank(level);
    factors[level].c = col_radices[level] * rank(level + 1);
    before *= col_radices[level];
    factors[levels - 1 - level].d = after;
    after *= row_radices[levels - 1 - level];
  }
  return Chain(std::move(factors));
}

Chain Chain::kaleidoscope(std::int64_t n) {
  check_power_of_two("kaleidoscope", n);
  const Chain half = butterfly(n);
  return half * half.transposed();
}

Chain Chain::block_butterfly(std::int64_t n, std::int64_t t) {
  check_sizes("block_butterfly", {{"n", n}, {"t", t}});
  const std::int64_t size = n / t;
  if (n % t != 0 || size < 2 || (size & (size - 1)) != 0)
    throw Error(ErrorCode::invalid_argument,
                message("block_butterfly: n is {}, must be t = {} times a power of two", n, t));
  std::vector<Pattern> factors;
  for (std::int64_t left = 1; left < size; left *= 2)
    factors.push_back({left, 2 * t, 2 * t, size / 2 / left});
  return Chain(std::move(factors));
}

Chain Chain::blast(std::int64_t rows, std::int64_t cols, std::int64_t blocks, std::int64_t rank) {
  check_sizes("blast", {{"rows", rows}, {"cols", cols}, {"blocks", blocks}, {"rank", rank}});
  check_blocks("blast", blocks, rows, cols);
  return {{blocks, rows / blocks, rank, 1}, {1, blocks, blocks, rank}, {blocks, rank, cols / blocks, 1}};
}

Chain Chain::btt(std::int64_t m1, std::int64_t m2, std::int64_t n1, std::int64_t n2, std::int64_t rank) {
  return butterfly({m1, m2}, {n1, n2}, {rank});
}

Chain Chain::boft(std::int64_t n, std::int64_t b, std::int64_t m) {
  check_sizes("boft", {{"n", n}, {"b", b}, {"m", m}});
  if (m > 62 || n % b != 0 || n / b % (std::int64_t{1} << (m - 1)) != 0)
    throw Error(ErrorCode::invalid_argument,
                message("boft: n is {}, must be a multiple of b·2^(m-1), b being {} and m {}", n, b, m));
  std::vector<Pattern> factors;
  for (std::int64_t stride = std::int64_t{1} << (m - 1); stride >= 1; stride /= 2)
    factors.push_back({n / (b * stride), b, b, stride});
  return Chain(std::move(factors));
}

Chain Chain::for_budget(std::int64_t rows, std::int64_t cols, std::int64_t parameters) {
  check_sizes("for_budget", {{"rows", rows}, {"cols", cols}, {"parameters", parameters}});
  if (rows <= parameters / cols) return dense(rows, cols);
  // Monarch with blocks and rank has blocks·rank·(rows + cols) parameters.
  const std::int64_t width = parameters / (rows + cols);
  if (width < 1)
    throw Error(ErrorCode::invalid_argument,
                message("for_budget: parameters is {}, must be at least {}, those of a matrix of rank 1",
                        parameters, rows + cols));
  const std::int64_t common = std::gcd(rows, cols);
  std::int64_t blocks = 1;
  for (std::int64_t one = 1; one <= width && one <= std::min(rows, cols) / one; ++one)
    if (common % one == 0 && 4 * (width / one * one) >= 3 * width) blocks = one;
  return monarch(rows, cols, blocks, width / blocks);
}

}  // namespace kronsparse
