// The ways in which a thread of the packing kernel reads values and makes units of them.
//
// Neighbours in the values' array (neighbouring j, or neighbouring k of a transposed product) often go to
// different units. So a thread makes several units at once. It loads vectors of [high][units][low] elements
// as they lie and sorts them in registers. Each unit takes `low` neighbours from each of `high` places in a
// vector.
#pragma once

#include <array>
#include <cstddef>

namespace kronsparse::cuda {

struct PackForm {
  int bytes;              ///< bytes of an element: 2 or 4
  int high, units, low;   ///< powers of two; a vector has at most 16 bytes
  std::array<int, 3> at;  ///< the bits of an element's number in its unit: first those of `low`, then of
                          ///< `high`, then of the vector's number

  [[nodiscard]] constexpr int elements() const { return 16 / bytes; }
  [[nodiscard]] constexpr int bits() const { return bytes == 2 ? 3 : 2; }
  [[nodiscard]] constexpr int vector_elements() const { return high * units * low; }
  [[nodiscard]] constexpr int vector_bytes() const { return vector_elements() * bytes; }
  [[nodiscard]] constexpr int vectors() const { return elements() / (high * low); }
  /// Repeats that are read before any is written, so that enough loads are under way.
  [[nodiscard]] constexpr int repeats_at_once() const { return vectors() >= 4 ? 1 : 4 / vectors(); }

  /// The bits of an element's number in its unit, rearranged by `at`.
  [[nodiscard]] constexpr int ordered(int element) const {
    int number = 0;
    for (int bit = 0; bit < bits(); ++bit)
      number |= (element >> at[static_cast<std::size_t>(bit)] & 1) << bit;
    return number;
  }
  /// An element's vector, and its place in that vector for one of the units.
  [[nodiscard]] constexpr int vector_of(int element) const { return ordered(element) / (high * low); }
  [[nodiscard]] constexpr int place_in_vector(int element, int unit) const {
    const int number = ordered(element) % (high * low);
    return (number / low * units + unit) * low + number % low;
  }
};

/// The widest form that fits is taken. So the order decides only between equally wide ones.
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
