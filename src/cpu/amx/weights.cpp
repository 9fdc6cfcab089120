#include "cpu/amx/weights.hpp"

#include <bit>
#include <cmath>
#include <cstring>

#include "cpu/amx/pieces.hpp"
#include "cpu/simd/values.hpp"

namespace kronsparse::amx {
namespace {

constexpr std::uint32_t upper_half = 0xffff0000U;

/// A piece of one weight, as pack.hpp makes them of vectors of X.
std::uint16_t piece_of(Half weight, int piece) {
  const auto number = static_cast<float>(weight);
  const auto first = std::bit_cast<float>(std::bit_cast<std::uint32_t>(number * first_piece) & upper_half);
  const float second = std::isinf(number) ? number : number - first;
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(piece == 0 ? first : second) >> 16U);
}

}  // namespace

void PackedWeights::pack(const Problem& problem, const void* values, std::byte* packed) const {
  const bool as_rows = shape_.layout == Layout::batch_last;
  const bool is_sorted = !as_rows && shape_.d > 1;
  const auto* bits = static_cast<const std::uint16_t*>(values);
  const simd::ValueStrides strides = simd::value_strides(problem);
  const auto weight_at = [&](const std::uint16_t* block, std::int64_t k, std::int64_t l) -> std::uint16_t {
    return k < shape_.outs && l < shape_.depth ? block[k * strides.k + l * strides.l] : 0;
  };
  // One of the 16 pairs of an output's line.
  const auto pair_at = [&](const std::uint16_t* block, std::int64_t k, std::int64_t first_term, int pair,
                           int piece) -> std::uint32_t {
    if (pieces() == 2) {
      const auto weight = std::bit_cast<Half>(weight_at(block, k, first_term + pair));
      const std::uint32_t both = piece_of(weight, piece);
      return both | both << 16U;
    }
    // The pairs that X has: neighbours, or 16 apart where it is sorted by j.
    const std::int64_t l = first_term + (is_sorted ? pair : 2 * pair);
    const std::uint32_t second = weight_at(block, k, l + (is_sorted ? 16 : 1));
    return weight_at(block, k, l) | second << 16U;
  };
  const auto pack_strip = [&](std::int64_t task) {
    const std::int64_t product = task / strips_;
    const std::int64_t first_out = task % strips_ * tile_rows;
    const std::uint16_t* block = bits + product / shape_.d * strides.i + product % shape_.d;
    std::byte* tile = packed + task * strip_bytes();
    for (std::int64_t number = 0; number < tiles_ * pieces(); ++number, tile += tile_bytes) {
      const std::int64_t first_term = number / pieces() * format_.terms;
      const int piece = static_cast<int>(number % pieces());
      for (int out = 0; out < tile_rows; ++out) {
        for (int pair = 0; pair < tile_terms / 2; ++pair) {
          const std::uint32_t both = pair_at(block, first_out + out, first_term, pair, piece);
          std::memcpy(tile + (as_rows ? out * 64 + pair * 4 : pair * 64 + out * 4), &both, sizeof both);
        }
      }
    }
  };
  const std::int64_t tasks = shape_.a * shape_.d * strips_;
  simd::parallel_each(tasks, simd::threads_to_pack(tasks * tile_rows * shape_.depth), pack_strip);
}

}  // namespace kronsparse::amx
