#include "kronsparse/chain.hpp"

#include <limits>

#include "core/message.hpp"
#include "core/text.hpp"
#include "kronsparse/error.hpp"

namespace kronsparse {
namespace {

void validate(const std::vector<Pattern>& factors) {
  if (factors.empty())
    throw Error(ErrorCode::invalid_argument, "chain: no factors given, must have at least one");
  constexpr std::int64_t widest_element = 16;
  std::int64_t nnz = 0;
  for (const Pattern& factor : factors) {
    factor.validate();
    if (__builtin_add_overflow(nnz, factor.nnz(), &nnz) ||
        nnz > std::numeric_limits<std::int64_t>::max() / widest_element)
      throw Error(ErrorCode::overflow,
                  "chain: the factors have too many values, their bytes must fit in 63 bits");
  }
  for (std::size_t right = 1; right < factors.size(); ++right) {
    const Pattern& left_factor = factors[right - 1];
    const Pattern& right_factor = factors[right];
    if (left_factor.cols() != right_factor.rows())
      throw Error(ErrorCode::size_mismatch,
                  message("chain: factor {} ({}) has {} columns, must have as many as factor {} ({}) has "
                          "rows, {}",
                          right - 1, left_factor.to_string(), left_factor.cols(), right,
                          right_factor.to_string(), right_factor.rows()));
  }
}

}  // namespace

Chain::Chain(std::vector<Pattern> factors) : factors_(std::move(factors)) { validate(factors_); }

Chain Chain::monarch(std::int64_t rows, std::int64_t cols, std::int64_t blocks) {
  if (rows < 1 || cols < 1 || blocks < 1)
    throw Error(
        ErrorCode::invalid_argument,
        message("monarch: rows {}, cols {} and blocks {} must each be at least 1", rows, cols, blocks));
  if (rows % blocks != 0 || cols % blocks != 0)
    throw Error(ErrorCode::invalid_argument,
                message("monarch: blocks {} must divide rows {} and cols {}", blocks, rows, cols));
  return Chain{{1, rows / blocks, blocks, blocks}, {blocks, blocks, cols / blocks, 1}};
}

Chain Chain::butterfly(std::int64_t n) {
  if (n < 2 || (n & (n - 1)) != 0)
    throw Error(ErrorCode::invalid_argument,
                message("butterfly: n is {}, must be a power of two, at least 2", n));
  std::vector<Pattern> factors;
  for (std::int64_t left = 1; left < n; left *= 2) factors.push_back({left, 2, 2, n / 2 / left});
  return Chain(std::move(factors));
}

const Pattern& Chain::operator[](std::size_t index) const {
  if (index >= factors_.size())
    throw Error(
        ErrorCode::invalid_argument,
        message("chain: index {} given, must be below the number of factors, {}", index, factors_.size()));
  return factors_[index];
}

std::int64_t Chain::nnz() const noexcept {
  std::int64_t sum = 0;
  for (const Pattern& factor : factors_) sum += factor.nnz();
  return sum;
}

std::string Chain::to_string() const {
  std::string text;
  for (const Pattern& factor : factors_) {
    if (!text.empty()) text += '*';
    text += factor.to_string();
  }
  return text;
}

Chain Chain::parse(std::string_view text) {
  std::vector<Pattern> factors;
  std::size_t begin = 0;
  while (true) {
    const std::size_t end = text.find('*', begin);
    factors.push_back(Pattern::parse(text.substr(begin, end - begin)));
    if (end == std::string_view::npos) break;
    begin = end + 1;
  }
  return Chain(std::move(factors));
}

}  // namespace kronsparse
