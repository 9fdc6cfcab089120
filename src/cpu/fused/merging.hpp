// Neighbouring factors multiplied together before their values are packed.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "kronsparse/dtype.hpp"
#include "kronsparse/pattern.hpp"

namespace kronsparse::fused {

/// The type that products of a dtype are computed in: f32 for half types.
[[nodiscard]] inline DType arithmetic_of(DType dtype) noexcept {
  return dtype == DType::f16 || dtype == DType::bf16 ? DType::f32 : dtype;
}

/// Some neighbours of a chain, or one factor alone.
class Merging {
 public:
  explicit Merging(const Pattern& factor) : factors_{factor}, products_{factor} {}

  /// With one more factor on the right; nothing where the product has no pattern.
  [[nodiscard]] std::optional<Merging> times(const Pattern& factor) const;

  [[nodiscard]] std::size_t size() const noexcept { return factors_.size(); }
  [[nodiscard]] const Pattern& product() const noexcept { return products_.back(); }
  /// Predicted, of merge().
  [[nodiscard]] double seconds() const noexcept;

  /// Writes the product's values, given those of each factor in `dtype`. Sums are in double and rounded once,
  /// to arithmetic_of(dtype).
  void merge(DType dtype, const void* const* values, void* to) const;

 private:
  std::vector<Pattern> factors_;
  std::vector<Pattern> products_;  ///< of the first factor, of the first two, and so on
};

}  // namespace kronsparse::fused
