#include "kronsparse/chain.hpp"

#include <algorithm>
#include <bit>
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

std::int64_t Chain::bytes(DType dtype) const { return nnz() * static_cast<std::int64_t>(size_of(dtype)); }

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

double Chain::density() const {
  if (const std::optional<Pattern> pattern = product()) return pattern->density();
  // Rows of the product's support, a bit for each column, from the last factor on.
  constexpr std::int64_t bits = 64;
  const std::int64_t words = (cols() + bits - 1) / bits;
  std::vector<std::uint64_t> support(static_cast<std::size_t>(cols() * words));
  for (std::int64_t col = 0; col < cols(); ++col)
    support[static_cast<std::size_t>((col * words) + (col / bits))] |= std::uint64_t{1} << (col % bits);
  for (std::size_t index = size(); index-- > 0;) {
    const Pattern& f = factors_[index];
    std::vector<std::uint64_t> larger(static_cast<std::size_t>(f.rows() * words));
    for (std::int64_t row = 0; row < f.rows(); ++row)
      for (std::int64_t l = 0; l < f.c; ++l) {
        const std::int64_t col = (((row / (f.b * f.d) * f.c) + l) * f.d) + (row % f.d);
        for (std::int64_t word = 0; word < words; ++word)
          larger[static_cast<std::size_t>((row * words) + word)] |=
              support[static_cast<std::size_t>((col * words) + word)];
      }
    support = std::move(larger);
  }
  double entries = 0;
  for (const std::uint64_t word : support) entries += std::popcount(word);
  return entries / (static_cast<double>(rows()) * static_cast<double>(cols()));
}

std::string Chain::table() const {
  std::string text = "factor   pattern         rows      cols       nnz   density   rank\n";
  const std::vector<std::int64_t> rank_of = ranks();
  for (std::size_t index = 0; index < size(); ++index) {
    const Pattern& f = factors_[index];
    text += message("{:>6}   {:<12}{:>8}{:>10}{:>10}{:>10.3f}", index, f.to_string(), f.rows(), f.cols(),
                    f.nnz(), f.density());
    if (index < rank_of.size())
      text += message("{:>7}", rank_of[index] == 0 ? "none" : std::to_string(rank_of[index]));
    text += '\n';
  }
  return text + message("product  {:<12}{:>8}{:>10}{:>10}{:>10.3f}\n", "", rows(), cols(), nnz(), density());
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
