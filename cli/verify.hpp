// Is a result right? Compared with the reference in double precision, within a bound from theory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kronsparse/problem.hpp"
#include "tensor.hpp"

namespace kronsparse::cli {

/// Which part of a result is compared: index lists along the batch and the
/// dimensions of the pattern, of a chain along the batch alone. The dimension that is summed over is
/// always whole, so every compared element is the full sum; for the gradient of a chain, see thin().
struct Sample {
  std::vector<std::int64_t> batch, i, k, l, j;
};

/// All of the result if the reference needs at most `reference_flops` for it;
/// otherwise a random part, spread over every dimension, that needs about that.
[[nodiscard]] Sample choose_sample(const Problem& problem, double reference_flops, std::uint64_t seed);

/// Every gradient of a chain needs the whole batch, which takes the reference long. As it is linear in g, a
/// sample of the batch is all that counts where g is zero for the others: thin() makes it so.
void thin(Inputs& inputs, const Problem& problem, const Sample& sample);
/// Whether it would change anything.
[[nodiscard]] bool needs_thinning(const Problem& problem, const Sample& sample);

/// The right values of the sampled elements, and how far off they may be.
class Expected {
 public:
  /// Runs the `reference` implementation in f64 (complex128), factor by factor, on the
  /// widened inputs and on their absolute values.
  Expected(const Problem& problem, const Inputs& inputs, Sample sample);

  struct Comparison {
    bool pass = false;
    double max_error = 0;       ///< largest absolute error of a compared element
    double error_at_worst = 0;  ///< error and bound where their ratio is largest
    double bound_at_worst = 0;
    std::int64_t compared = 0;  ///< elements compared, of `elements`
    std::int64_t elements = 0;
    double batch_share = 1;  ///< of the samples that count, where g was made zero for the others; see thin()
    std::string failure;     ///< one line; empty when it passes
  };
  /// Whether every element is compared.
  [[nodiscard]] bool complete() const noexcept { return sampled_.flops() == problem_.flops(); }
  /// Also fails when any element of y is NaN (none was written there) or when
  /// the memory around y was touched.
  [[nodiscard]] Comparison compare(const Tensor& y) const;

 private:
  Problem problem_;
  Sample sample_;
  Problem sampled_;  ///< the sampled elements as a problem of their own
  Tensor exact_;
  Tensor allowed_;  ///< the bound of each element's error
};

}  // namespace kronsparse::cli
