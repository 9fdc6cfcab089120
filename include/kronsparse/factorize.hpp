// Dense matrices as products of Kronecker-sparse factors, with a number that says how good they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kronsparse/chain.hpp"
#include "kronsparse/dtype.hpp"
#include "kronsparse/export.h"
#include "kronsparse/multiply.hpp"

namespace kronsparse {

/// In which order the chain's L-1 splits are made.
enum class SplitOrder : std::uint8_t {
  left,     ///< the first factor first: the cheapest, and the one with the best bound
  right,    ///< the last factor first
  balanced  ///< in the middle first
};
/// "left", "right", "balanced".
[[nodiscard]] KRONSPARSE_API std::string_view name(SplitOrder order);
/// The inverse of name(); Error parse otherwise.
[[nodiscard]] KRONSPARSE_API SplitOrder parse_split_order(std::string_view text);

/// Options of `factorize`.
struct FactorizeOptions {
  SplitOrder order = SplitOrder::left;
  /// Splits of given places instead, each of 1 to L-1 once: place s is between factors s-1 and s.
  std::vector<std::size_t> splits = {};
  /// Keeps the factors around the one that is split orthonormal, so that its error is the product's.
  bool orthonormal = true;
  /// Sweeps over the factors, each of which is made the best that it can be beside the others.
  int polish = 0;
  /// Computes lower and upper bound, which takes an SVD of the whole matrix' blocks for each split.
  bool certify = true;
  /// Called now and then, on the calling thread, with the share of the work that is done. What it throws
  /// ends the factorisation and goes to the caller.
  std::function<void(double)> progress = {};
};

/// Factors of a matrix. Errors are Frobenius norms over that of the matrix.
struct Factorization {
  Chain chain;
  DType dtype = DType::f64;
  std::vector<std::vector<std::byte>> values;  ///< (a,b,c,d) arrays, left factor first
  double error = 0;                            ///< of the product of these values
  /// No product of the chain, whatever its values, has a smaller error: every such product is one of two
  /// factors at each split, and the largest of the best errors of those is this bound.
  double lower_bound = 0;
  /// The algorithm's error is at most this: sqrt of the sum of the splits' squared errors for the orders left
  /// and right, at most sqrt(L-1) times the lower bound; what rounding may add is counted in. Infinite
  /// without `certify`, or without `orthonormal`.
  double upper_bound = 0;
  std::vector<double>
      split_errors;  ///< the best error with two factors, for each split; empty without certify

  /// The values of factor `index` as elements of their type.
  template <class T>
  [[nodiscard]] std::span<const T> factor(std::size_t index) const {
    check_dtype(dtype_of<T>, index);
    const std::vector<std::byte>& bytes = values[index];
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }

 private:
  KRONSPARSE_API void check_dtype(DType asked, std::size_t index) const;
};

/// Factors of W that are close to the best there are: the hierarchical algorithm with orthonormalisation of
/// Le, Zheng, Riccietti and Gribonval (2025). Two factors are the best, exactly. W is of f32, f64, complex64
/// or complex128, has finite elements, and lies in the memory of the CPU. The chain must be chainable
/// (Chain::is_chainable); what is redundant in it is reduced, and the factors are lifted back.
///
///     using namespace kronsparse;
///     std::vector<double> hadamard{1, 1, 1, 1, 1, -1, 1, -1, 1, 1, -1, -1, 1, -1, -1, 1};
///     const Factorization found = factorize({hadamard.data(), 4, 4}, Chain::butterfly(4));
///     assert(found.error < 1e-15 && found.lower_bound <= found.error + 1e-15);
///     assert(found.factor<double>(0).size() == 8);
[[nodiscard]] KRONSPARSE_API Factorization factorize(ConstMatrix w, const Chain& chain,
                                                     const FactorizeOptions& options = {});

}  // namespace kronsparse
