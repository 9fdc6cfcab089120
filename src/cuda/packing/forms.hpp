// The ways in which a thread of the packing kernel reads values and makes units of them.
//
// Neighbours in the values' array go to several units, as often as not: neighbouring j, or, where
// the product is transposed, neighbouring k. So a thread takes `units` units at once. It loads vectors of
// [high][units][low] elements, as they lie, and makes units of them in registers: of a unit's elements, `low`
// are neighbours, and `high` of these lie apart by what the other units' take.
#pragma once

#include <array>
#include <cstddef>

namespace kronsparse::cuda {

struct PackForm {
  int bytes;              ///< of an element: 2 or 4
  int high, units, low;   ///< powers of two; of a vector of at most 16 bytes
  std::array<int, 3> at;  ///< which bit of an element's number are those of low, of high and of the vector's

  [[nodiscard]] constexpr int elements() const { return 16 / bytes; }
  [[nodiscard]] constexpr int bits() const { return bytes == 2 ? 3 : 2; }
  [[nodiscard]] constexpr int vector_elements() const { return high * units * low; }
  [[nodiscard]] constexpr int vector_bytes() const { return vector_elements() * bytes; }
  [[nodiscard]] constexpr int vectors() const { return elements() / (high * low); }
  /// That are read before any is written, so that enough is on its way.
  [[nodiscard]] constexpr int repeats_at_once() const { return vectors() >= 4 ? 1 : 4 / vectors(); }

  /// The bits of an element's number in its unit, in the order of `at`, as one number.
  [[nodiscard]] constexpr int ordered(int element) const {
    int number = 0;
    for (int bit = 0; bit < bits(); ++bit)
      number |= (element >> at[static_cast<std::size_t>(bit)] & 1) << bit;
    return number;
  }
  /// Its vector, and its place there for one of the units.
  [[nodiscard]] constexpr int vector_of(int element) const { return ordered(element) / (high * low); }
  [[nodiscard]] constexpr int place_in_vector(int element, int unit) const {
    const int number = ordered(element) % (high * low);
    return (number / low * units + unit) * low + number % low;
  }
};

/// The widest first of those that fit are taken, so that the order matters for equals alone.
inline constexpr std::array pack_forms{
    PackForm{2, 1, 1, 8, {0, 1, 2}}, PackForm{2, 1, 1, 8, {0, 2, 1}}, PackForm{2, 2, 4, 1, {0, 1, 2}},
    PackForm{2, 1, 8, 1, {0, 1, 2}}, PackForm{2, 4, 2, 1, {0, 1, 2}}, PackForm{2, 4, 2, 1, {0, 2, 1}},
    PackForm{2, 2, 2, 2, {2, 0, 1}}, PackForm{2, 1, 4, 2, {2, 0, 1}}, PackForm{2, 2, 2, 2, {0, 1, 2}},
    PackForm{2, 1, 1, 4, {0, 1, 2}}, PackForm{2, 1, 1, 4, {0, 2, 1}}, PackForm{2, 2, 2, 1, {0, 1, 2}},
    PackForm{2, 1, 4, 1, {0, 1, 2}}, PackForm{2, 1, 2, 2, {2, 0, 1}}, PackForm{2, 1, 1, 2, {0, 1, 2}},
    PackForm{2, 1, 2, 1, {0, 1, 2}}, PackForm{2, 1, 1, 1, {0, 1, 2}},  //
    PackForm{4, 1, 1, 4, {0, 1}},    PackForm{4, 1, 4, 1, {0, 1}},    PackForm{4, 2, 2, 1, {0, 1}},
    PackForm{4, 2, 2, 1, {1, 0}},    PackForm{4, 1, 2, 2, {1, 0}},    PackForm{4, 1, 1, 2, {0, 1}},
    PackForm{4, 1, 1, 2, {1, 0}},    PackForm{4, 1, 2, 1, {0, 1}},    PackForm{4, 1, 1, 1, {0, 1}},
};

}  // namespace kronsparse::cuda
