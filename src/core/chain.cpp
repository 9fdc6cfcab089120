#include "kronsparse/chain.hpp"

#include <algorithm>
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

namespace {

bool are_redundant(const Pattern& left, const Pattern& right) {
  const std::int64_t rank = left.rank_with(right);
  return rank != 0 && rank >= std::min(left.b, right.c);
}

}  // namespace

std::vector<std::int64_t> Chain::ranks() const {
  std::vector<std::int64_t> ranks;
  for (std::size_t right = 1; right < size(); ++right)
    ranks.push_back(factors_[right - 1].rank_with(factors_[right]));
  return ranks;
}

bool Chain::is_chainable() const {
  return std::ranges::all_of(ranks(), [](std::int64_t rank) { return rank != 0; });
}

bool Chain::is_redundant() const {
  return std::ranges::adjacent_find(factors_, are_redundant) != factors_.end();
}

Chain Chain::reduced() const {
  Chain chain = *this;
  for (;;) {
    const auto found = std::ranges::adjacent_find(chain.factors_, are_redundant);
    if (found == chain.factors_.end()) return chain;
    chain = chain.fuse(static_cast<std::size_t>(found - chain.factors_.begin()));
  }
}

std::optional<Pattern> Chain::product() const {
  std::optional<Pattern> product = factors_.front();
  for (std::size_t index = 1; index < size() && product; ++index) product = product->times(factors_[index]);
  return product;
}

Chain Chain::fuse(std::size_t index) const {
  if (index + 1 >= size())
    throw Error(ErrorCode::invalid_argument,
                message("index: {} given, must be that of a factor with a neighbour to its right, the chain "
                        "has {} factors",
                        index, size()));
  const std::optional<Pattern> product = factors_[index].times(factors_[index + 1]);
  if (!product)
    throw Error(
        ErrorCode::invalid_argument,
        message("index: {} given, but the product of factor {} ({}) and factor {} ({}) is not "
                "Kronecker-sparse",
                index, index, factors_[index].to_string(), index + 1, factors_[index + 1].to_string()));
  std::vector<Pattern> factors = factors_;
  const auto place = factors.begin() + static_cast<std::ptrdiff_t>(index);
  *place = *product;
  factors.erase(place + 1);
  return Chain(std::move(factors));
}

Chain Chain::transposed() const {
  std::vector<Pattern> factors;
  for (const Pattern& factor : factors_) factors.push_back(factor.transposed());
  std::ranges::reverse(factors);
  return Chain(std::move(factors));
}

Chain Chain::operator*(const Chain& right) const {
  std::vector<Pattern> factors = factors_;
  factors.insert(factors.end(), right.factors_.begin(), right.factors_.end());
  return Chain(std::move(factors));
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
