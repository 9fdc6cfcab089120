#include "cpu/amx/weights.hpp"

#include <cstring>

#include "cpu/simd/values.hpp"

namespace kronsparse::amx {

void Weights::pack(const Problem& problem, const void* values) {
  const bool as_rows = shape_.layout == Layout::batch_last;
  const bool is_sorted = !as_rows && shape_.d > 1;
  const auto* bits = static_cast<const std::uint16_t*>(values);
  const simd::ValueStrides strides = simd::value_strides(problem);
  const auto pack_strip = [&](std::int64_t task) {
    const std::int64_t product = task / strips_;
    const std::int64_t first_out = task % strips_ * tile_rows;
    const std::uint16_t* block = bits + product / shape_.d * strides.i + product % shape_.d;
    std::byte* tile = packed_.get() + task * strip_bytes();
    for (std::int64_t first_term = 0; first_term < shape_.depth;
         first_term += tile_terms, tile += tile_bytes) {
      for (int out = 0; out < tile_rows; ++out) {
        for (int place = 0; place < tile_terms; ++place) {
          const int pair = place / 2;
          // The pairs that X has: neighbours, or 16 apart where it is sorted by j.
          const std::int64_t l = first_term + (is_sorted ? pair + place % 2 * 16 : place);
          const std::int64_t k = first_out + out;
          std::uint16_t value = 0;
          if (k < shape_.outs && l < shape_.depth) value = block[k * strides.k + l * strides.l];
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
