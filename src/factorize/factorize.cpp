#include "kronsparse/factorize.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <numeric>

#include "core/message.hpp"
#include "core/text.hpp"
#include "factorize/dense.hpp"
#include "factorize/hierarchy.hpp"
#include "factorize/reflector.hpp"
#include "kronsparse/error.hpp"

namespace kronsparse {

using namespace factorization;

namespace {

constexpr std::array<std::string_view, 3> order_names{"left", "right", "balanced"};

void check_matrix(const ConstMatrix& w, const Chain& chain) {
  if (w.data == nullptr) throw Error(ErrorCode::bad_pointer, "w: the pointer is null");
  if (w.dtype == DType::f16 || w.dtype == DType::bf16)
    throw Error(ErrorCode::unsupported,
                message("w: dtype {} given, must be f32, f64, complex64 or complex128", name(w.dtype)));
  if (w.rows != chain.rows() || w.cols != chain.cols())
    throw Error(ErrorCode::size_mismatch,
                message("w: sizes {} x {} given, must be those of the chain {}, {} x {}", w.rows, w.cols,
                        chain.to_string(), chain.rows(), chain.cols()));
  if (w.stride < w.cols)
    throw Error(ErrorCode::size_mismatch,
                message("w: a stride of {} given, must be at least cols, {}", w.stride, w.cols));
}

void check_chain(const Chain& chain) {
  const std::vector<std::int64_t> ranks = chain.ranks();
  for (std::size_t index = 0; index < ranks.size(); ++index)
    if (ranks[index] == 0)
      throw Error(
          ErrorCode::unsupported,
          message("chain: factor {} ({}) and factor {} ({}) are not chainable, so there may be no best "
                  "product; a of the first must divide that of the second, d of the second that of "
                  "the first, and a·c of the first must be a multiple of a of the second",
                  index, chain[index].to_string(), index + 1, chain[index + 1].to_string()));
}

/// Places of the splits in their order.
std::vector<std::size_t> splits_of(std::size_t factors, const FactorizeOptions& options) {
  std::vector<std::size_t> splits(factors - 1);
  std::iota(splits.begin(), splits.end(), 1);
  if (!options.splits.empty()) {
    if (!std::ranges::is_permutation(options.splits, splits))
      throw Error(ErrorCode::invalid_argument,
                  message("splits: {} given, must be each of 1 to {} once, those of the reduced chain",
                          options.splits.size(), factors - 1));
    return options.splits;
  }
  if (options.order == SplitOrder::right) std::ranges::reverse(splits);
  if (options.order == SplitOrder::balanced) {
    // Halves, then quarters: breadth first.
    splits.clear();
    std::vector<std::pair<std::size_t, std::size_t>> parts{{0, factors}};
    for (std::size_t index = 0; index < parts.size(); ++index) {
      const auto [begin, end] = parts[index];
      if (end - begin < 2) continue;
      const std::size_t middle = begin + ((end - begin) / 2);
      splits.push_back(middle);
      parts.emplace_back(begin, middle);
      parts.emplace_back(middle, end);
    }
  }
  return splits;
}

/// The redundant neighbours of a chain as it is reduced: indices and the chains before.
struct Reduction {
  Chain chain;
  std::vector<std::pair<std::size_t, Chain>> steps;
};
Reduction reduce(const Chain& chain) {
  Reduction reduction{chain, {}};
  while (reduction.chain.is_redundant()) {
    const Chain before = reduction.chain;
    std::size_t index = 0;
    while (!Chain{before[index], before[index + 1]}.is_redundant()) ++index;
    reduction.chain = before.fuse(index);
    reduction.steps.emplace_back(index, before);
  }
  return reduction;
}

/// Counts work, and says how far it is.
class Progress {
 public:
  Progress(const std::function<void(double)>& tell, double work) : tell_(tell), work_(work) {}
  void operator()(double work) {
    done_ += work;
    if (tell_) tell_(std::min(1.0, done_ / work_));
  }
  void end() {
    if (tell_ && done_ < work_) tell_(1.0);
  }

 private:
  const std::function<void(double)>& tell_;
  double work_;
  double done_ = 0;
};

double work_of_splits(const Chain& chain, const std::vector<std::size_t>& splits, bool certify) {
  double work = 0;
  for (const std::size_t split : splits) {
    const Chain left(std::vector<Pattern>(chain.factors().begin(),
                                          chain.factors().begin() + static_cast<std::ptrdiff_t>(split)));
    const Chain right(std::vector<Pattern>(chain.factors().begin() + static_cast<std::ptrdiff_t>(split),
                                           chain.factors().end()));
    work += work_of(*left.product(), *right.product()) * (certify ? 2 : 1);
  }
  return std::max(work, 1.0);
}

template <class T>
class Run {
 public:
  Run(const ConstMatrix& w, const Chain& chain, const FactorizeOptions& options)
      : options_(options),
        reduction_(reduce(chain)),
        splits_(splits_of(reduction_.chain.size(), options)),
        progress_(options.progress, work_of_splits(reduction_.chain, splits_, options.certify)),
        matrix_(w) {}

  Factorization operator()(const Chain& chain) {
    Factorization found{chain, dtype_of<T>, {}, 0, 0, std::numeric_limits<double>::infinity(), {}};
    const Chain& reduced = reduction_.chain;
    const Pattern whole = reduced.product().value();
    Values<T> copy;
    const Values<T>& values = matrix_.values_of(whole, copy);
    const double norm = matrix_.norm();
    const double outside = matrix_.squared_norm_outside(whole);
    const auto relative = [&](double squared_error) {
      return norm == 0 ? 0 : std::sqrt(squared_error) / norm;
    };
    if (options_.certify) {
      for (std::size_t split = 1; split < reduced.size(); ++split)  // the first is found on the way
        found.split_errors.push_back(split == splits_[0] ? 0 : relative(outside + error_at(split, values)));
    }
    Hierarchy<T> hierarchy(reduced, values, options_.orthonormal, [&](double work) { progress_(work); });
    double first_error = 0;
    for (std::size_t index = 0; index < splits_.size(); ++index) {
      const bool goes_right = index + 1 == splits_.size() ? splits_[index] > 1 || splits_.size() == 1
                                                          : splits_[index + 1] > splits_[index];
      const double error = hierarchy.split(splits_[index], goes_right);
      if (index == 0) first_error = error;  // on the matrix itself: a bound for all
    }
    found.lower_bound = relative(outside + first_error);
    if (!found.split_errors.empty()) found.split_errors[splits_[0] - 1] = found.lower_bound;
    for (const double error : found.split_errors) found.lower_bound = std::max(found.lower_bound, error);
    if (options_.certify && options_.orthonormal)
      found.upper_bound = upper_bound(found.split_errors, relative(outside));

    std::vector<Values<T>> factors = hierarchy.factors();
    double error = relative(matrix_.squared_error_of(reduced, factors));
    for (int sweep = 0; sweep < options_.polish; ++sweep) {
      if (!options_.orthonormal && sweep == 0) hierarchy.make_centre(reduced.size() - 1);
      const bool goes_left = sweep % 2 == 0;
      for (std::size_t step = 0; step < reduced.size(); ++step) {
        const std::size_t factor = goes_left ? reduced.size() - 1 - step : step;
        hierarchy.move_centre(factor);
        hierarchy.factors()[factor] = matrix_.best_factor(reduced, hierarchy.factors(), factor);
        progress_(0);
      }
      const double polished = relative(matrix_.squared_error_of(reduced, hierarchy.factors()));
      if (polished >= error) break;  // rounding, from here on
      error = polished;
      factors = hierarchy.factors();
    }
    progress_.end();
    matrix_.unscale(factors);
    found.error = error;
    found.values = as_bytes(lifted(std::move(factors)));
    return found;
  }

 private:
  /// The products of the factors before and behind a split.
  [[nodiscard]] std::pair<Pattern, Pattern> parts_at(std::size_t split) const {
    const auto& factors = reduction_.chain.factors();
    const auto middle = factors.begin() + static_cast<std::ptrdiff_t>(split);
    return {Chain(std::vector<Pattern>(factors.begin(), middle)).product().value(),
            Chain(std::vector<Pattern>(middle, factors.end())).product().value()};
  }

  double error_at(std::size_t split, const Values<T>& values) {
    const auto [left, right] = parts_at(split);
    return error_of_split(left, right, values.data(), [&](double work) { progress_(work); });
  }

  /// What rounding makes of a split's error: what is taken off for the lower bound, and what factors have.
  [[nodiscard]] double rounding_at(std::size_t split) const {
    const auto [left, right] = parts_at(split);
    return (4 * static_cast<double>(left.b + right.c) * std::numeric_limits<double>::epsilon()) +
           (16 * static_cast<double>(std::numeric_limits<RealOf<T>>::epsilon()));
  }

  /// From left to right, or right to left, errors of splits are orthogonal to each other, and each is at most
  /// that of the matrix itself. In other orders the best error of what earlier splits left differs from that
  /// of the matrix by at most their error: e becomes 2·e + E. Rounding is counted in.
  [[nodiscard]] double upper_bound(const std::vector<double>& errors, double outside) const {
    const bool is_in_line =
        std::ranges::is_sorted(splits_) || std::ranges::is_sorted(splits_, std::ranges::greater{});
    double bound = is_in_line ? outside * outside : outside;
    for (const std::size_t split : splits_) {
      const double error = errors[split - 1] + rounding_at(split);
      bound = is_in_line ? bound + ((error * error) - (outside * outside)) : (2 * bound) + error;
    }
    return is_in_line ? std::sqrt(std::clamp(bound, 0.0, 1.0)) : bound;
  }

  std::vector<Values<T>> lifted(std::vector<Values<T>> factors) const {
    for (std::size_t step = reduction_.steps.size(); step-- > 0;) {
      const auto& [index, before] = reduction_.steps[step];
      Values<T> left;
      Values<T> right;
      lift(before[index], before[index + 1], factors[index], left, right);
      factors[index] = std::move(right);
      factors.insert(factors.begin() + static_cast<std::ptrdiff_t>(index), std::move(left));
    }
    return factors;
  }

  static std::vector<std::vector<std::byte>> as_bytes(const std::vector<Values<T>>& factors) {
    std::vector<std::vector<std::byte>> all;
    for (const Values<T>& values : factors) {
      std::vector<std::byte>& bytes = all.emplace_back(values.size() * sizeof(T));
      std::memcpy(bytes.data(), values.data(), bytes.size());
    }
    return all;
  }

  const FactorizeOptions& options_;
  Reduction reduction_;
  std::vector<std::size_t> splits_;
  Progress progress_;
  Dense<T> matrix_;
};

}  // namespace

std::string_view name(SplitOrder order) { return enum_name(order, order_names, "order"); }
SplitOrder parse_split_order(std::string_view text) {
  return parse_enum<SplitOrder>(text, order_names, "order");
}

void Factorization::check_dtype(DType asked, std::size_t index) const {
  if (index >= values.size())
    throw Error(ErrorCode::invalid_argument,
                message("index: {} given, must be below the number of factors, {}", index, values.size()));
  if (asked != dtype)
    throw Error(ErrorCode::size_mismatch,
                message("factor: elements of {} asked for, must be those of {}", name(asked), name(dtype)));
}

Factorization factorize(ConstMatrix w, const Chain& chain, const FactorizeOptions& options) {
  check_matrix(w, chain);
  check_chain(chain);
  if (options.polish < 0)
    throw Error(ErrorCode::invalid_argument, message("polish: {} given, must be at least 0", options.polish));
  static_cast<void>(name(options.order));
  switch (w.dtype) {
    case DType::f32:
      return Run<float>(w, chain, options)(chain);
    case DType::f64:
      return Run<double>(w, chain, options)(chain);
    case DType::complex64:
      return Run<std::complex<float>>(w, chain, options)(chain);
    default:
      return Run<std::complex<double>>(w, chain, options)(chain);
  }
}

}  // namespace kronsparse
