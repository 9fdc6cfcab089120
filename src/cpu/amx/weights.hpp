// Weights as strips of outputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/implementation.hpp"
#include "cpu/amx/kernel_set.hpp"
#include "cpu/simd/parallel.hpp"
#include "cpu/simd/weights.hpp"
#include "kronsparse/problem.hpp"

namespace kronsparse::amx {

/// How a dtype lies in tiles.
struct Format {
  int terms;   ///< of a tile of X
  int pieces;  ///< tiles of weights for each of X
};
[[nodiscard]] constexpr Format format_of(DType dtype) {
  return dtype == DType::f16 ? Format{tile_terms / 2, 2} : Format{tile_terms, 1};
}

/// The places of weights in packed memory.
class PackedWeights {
 public:
  PackedWeights(const simd::Shape& shape, DType dtype, Operation operation, std::string_view implementation)
      : shape_(shape),
        format_(format_of(dtype)),
        tiles_((shape.depth + format_.terms - 1) / format_.terms),
        strips_((shape.outs + tile_rows - 1) / tile_rows),
        order_{.family = implementation,
               .numbers = {static_cast<int>(shape.layout), static_cast<int>(operation)},
               .bytes = simd::count_of({shape.a, shape.d, strips_, tiles_, format_.pieces, tile_bytes})} {}

  /// As rows of tiles where samples are columns (batch_last), as columns otherwise.
  void pack(const Problem& problem, const void* values, std::byte* packed) const;

  [[nodiscard]] std::int64_t strips() const noexcept { return strips_; }  ///< of one product
  [[nodiscard]] int pieces() const noexcept { return format_.pieces; }    ///< tiles for each of X
  [[nodiscard]] std::int64_t strip_bytes() const noexcept { return x_strip_bytes() * pieces(); }
  [[nodiscard]] std::int64_t x_tiles() const noexcept { return tiles_; }  ///< of a strip
  [[nodiscard]] std::int64_t x_strip_bytes() const noexcept { return tiles_ * tile_bytes; }
  [[nodiscard]] const std::byte* strip(const void* packed, std::int64_t product,
                                       std::int64_t strip) const noexcept {
    return static_cast<const std::byte*>(packed) + (product * strips_ + strip) * strip_bytes();
  }
  [[nodiscard]] const PackedOrder& order() const noexcept { return order_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return order_.bytes; }

 private:
  simd::Shape shape_;
  Format format_;
  std::int64_t tiles_;
  std::int64_t strips_;
  PackedOrder order_;
};

}  // namespace kronsparse::amx
