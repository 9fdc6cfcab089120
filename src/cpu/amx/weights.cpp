#include "cpu/amx/weights.hpp"

#include <bit>
#include <cmath>
#include <cstring>

#include "cpu/amx/pieces.hpp"
#include "cpu/simd/values.hpp"

namespace kronsparse::amx {
namespace {

constexpr std::uint32_t upper_half = 0xffff0000U;

/// What pack.hpp does to vectors of X, of one weight.
std::uint16_t piece_of(Half weight, int piece) {
  const auto number = static_cast<float>(weight);
  const auto first = std::bit_cast<float>(std::bit_cast<std::uint32_t>(number * first_piece) & upper_half);
  const float second = std::isinf(number) ? number : number - first;
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(piece == 0 ? first : second) >> 16U);
}

}  // namespace

void Weights::pack(const Problem& problem, const void* values) {
  const bool as_rows = shape_.layout == Layout::batch_last;
  const bool is_sorted = !as_rows && shape_.d > 1;
  const auto* bits = static_cast<const std::uint16_t*>(values);
  const simd::ValueStrides strides = simd::value_strides(problem);
  // What is at one of the 32 places of an output's line, or zero where there is no such weight.
  const auto value_at = [&](const std::uint16_t* block, std::int64_t k, std::int64_t first_term, int place,
                            int piece) -> std::uint16_t {
    const int pair = place / 2;
    std::int64_t l = first_term + pair;  // both places of a pair have the same piece
    // The pairs that X of bf16 has: neighbours, or 16 apart where it is sorted by j.
    if (pieces() == 1) l = first_term + (is_sorted ? pair + place % 2 * 16 : place);
    if (k >= shape_.outs || l >= shape_.depth) return 0;
    const std::uint16_t value = block[k * strides.k + l * strides.l];
    return pieces() == 1 ? value : piece_of(std::bit_cast<Half>(value), piece);
  };
  const auto pack_strip = [&](std::int64_t task) {
    const std::int64_t product = task / strips_;
    const std::int64_t first_out = task % strips_ * tile_rows;
    const std::uint16_t* block = bits + product / shape_.d * strides.i + product % shape_.d;
    std::byte* tile = packed_.get() + task * strip_bytes();
    for (std::int64_t number = 0; number < tiles_ * pieces(); ++number, tile += tile_bytes) {
      const std::int64_t first_term = number / pieces() * format_.terms;
      const int piece = static_cast<int>(number % pieces());
      for (int out = 0; out < tile_rows; ++out) {
        for (int place = 0; place < tile_terms; ++place) {
          const std::uint16_t value = value_at(block, first_out + out, first_term, place, piece);
          const int pair = place / 2;
          std::byte* line = tile + (as_rows ? out * 64 + pair * 4 : pair * 64 + out * 4);
          std::memcpy(line + place % 2 * 2, &value, sizeof value);
        }
      }
    }
  };
  const std::int64_t tasks = shape_.a * shape_.d * strips_;
  simd::parallel_each(tasks, simd::threads_to_pack(tasks * tile_rows * shape_.depth), pack_strip);
}

}  // namespace kronsparse::amx
