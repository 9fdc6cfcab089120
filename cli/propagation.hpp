// The right result of a problem in double precision, and how far an implementation may be from it.
#pragma once

#include <cstdint>
#include <vector>

#include "kronsparse/problem.hpp"
#include "tensor.hpp"

namespace kronsparse::cli {

/// Calls visit(row, col) for every element.
template <class Visit>
void for_each_element(const Tensor& tensor, const Visit& visit) {
  for (std::int64_t row = 0; row < tensor.rows(); ++row)
    for (std::int64_t col = 0; col < tensor.cols(); ++col) visit(row, col);
}

/// Numbers in double precision, and how far those that an implementation holds in their place may be from
/// them, in either part; no errors at all where there is no tensor of them.
struct Approximate {
  Tensor exact;
  Tensor errors;

  [[nodiscard]] double error(std::int64_t row, std::int64_t col) const {
    return errors.data() == nullptr ? 0.0 : errors.get(row, col).real();
  }
};

/// The factors one after the other, each by the reference in double precision, with a bound on the error of
/// every element.
///
/// One product. A sum of n products in precision u is off by at most n·u·S, S being the sum of the
/// products' absolute values (Higham, Accuracy and Stability, 3.1). For long sums that is so pessimistic that
/// a missing term would pass, so n is replaced by 8·sqrt(n) from n = 64 on, which independent roundings
/// exceed with a probability below n·1e-13 (Higham and Mary, SIAM J. Sci. Comput. 41, 2019). 2u instead of u
/// allows hardware that truncates, and for f64 the reference's own error. A complex product counts as two
/// terms of each part. Activations have slopes up to 1.13 and are evaluated to a few units of their argument.
/// The result is rounded once, to the dtype.
///
/// A chain. What a factor hands on was rounded to the dtype, so the next one reads x + e instead of x, where
/// |e| <= E, the bound of the product before. Its exact product is then off by K e, which is at most |K| E,
/// and its sums are of products of absolute values up to S = |K| (|x| + E). Hence with r(S, y) for the bound
/// of one product above,
///
///     E' = |K| E + r(|K| (|x| + E), |y| + |K| E),
///
/// times the slope of the activation where there is one. In the gradient, x and g may both be off, by
/// E_x and E_g: there |K| E becomes the sum over the batch of (|g| + E_g) E_x + E_g |x|. All these sums are
/// computed by the reference, on absolute values. The bound of a complex number is that of either part,
/// so its absolute value may be off by sqrt(2) of it.
[[nodiscard]] Approximate propagated(const Problem& problem, const Problem& sampled, const Inputs& inputs);

}  // namespace kronsparse::cli
