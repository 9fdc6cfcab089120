// Weights as strips of outputs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/amx/kernel_set.hpp"
#include "cpu/simd/parallel.hpp"
#include "cpu/simd/weights.hpp"
#include "kronsparse/problem.hpp"

namespace kronsparse::amx {

class Weights {
 public:
  explicit Weights(const simd::Shape& shape)
      : shape_(shape),
        tiles_((shape.depth + tile_terms - 1) / tile_terms),
        strips_((shape.outs + tile_rows - 1) / tile_rows),
        bytes_(simd::count_of({shape.a, shape.d, strips_, tiles_, tile_bytes})),
        packed_(simd::make_aligned<std::byte>(bytes_)) {}

  /// As rows of tiles where samples are columns (batch_last), as columns otherwise.
  void pack(const Problem& problem, const void* values);

  [[nodiscard]] std::int64_t strips() const noexcept { return strips_; }  ///< of one product
  [[nodiscard]] std::int64_t tiles() const noexcept { return tiles_; }    ///< of a strip, of X as well
  [[nodiscard]] std::int64_t strip_bytes() const noexcept { return tiles_ * tile_bytes; }
  [[nodiscard]] const std::byte* strip(std::int64_t product, std::int64_t strip) const noexcept {
    return packed_.get() + (product * strips_ + strip) * strip_bytes();
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  simd::Shape shape_;
  std::int64_t tiles_;
  std::int64_t strips_;
  std::size_t bytes_;
  simd::AlignedArray<std::byte> packed_;
};

}  // namespace kronsparse::amx
