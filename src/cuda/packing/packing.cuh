// One item of a packing task: the places of its units, and the path of its values through registers. It also
// compiles for the CPU, for tests.
#pragma once

#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>

#include "cuda/large_batch/wgmma/weights.cuh"
#include "cuda/packing/forms.hpp"
#include "cuda/packing/mixed_terms.hpp"
#include "cuda/packing/packing.hpp"

/// For loops of functions that also run on the CPU, whose compiler does not know the pragma.
#if defined(__CUDA_ARCH__)
#define KRONSPARSE_UNROLL _Pragma("unroll")
#else
#define KRONSPARSE_UNROLL
#endif

namespace kronsparse::cuda::packing {

struct alignas(16) Unit {
  std::uint32_t words[4];
};

/// The place of an item: its first element among the values, its first unit, and the indices of its first
/// weight. The indices count where some weights do not exist.
template <class Index>
struct Place {
  Index k = 0, l = 0, j = 0, from = 0, to = 0;

  __host__ __device__ void add(const PackTask::UnitStep& step, Index count) {
    k += count * step.step.k;
    l += count * step.step.l;
    j += count * step.step.j;
    from += count * step.from;
    to += count * step.to;
  }
  /// Whether the weight `step` away from this one exists.
  [[nodiscard]] __host__ __device__ bool has(const PackTask& task, const PackTask::Step& step) const {
    return k + step.k < task.b && l + step.l < task.c && j + step.j < task.d;
  }
};

template <bool is_padded, class Index>
[[nodiscard]] __host__ __device__ inline Place<Index> place_of(const PackTask& task, Index item) {
  const auto divided = [](Index number, const Divisor& by) -> Index {
    if constexpr (sizeof(Index) == 8)
      return number / by.value();
    else
      return by.quotient(number);
  };
  Place<Index> place;
  Index row = 0;
  KRONSPARSE_UNROLL
  for (int n = 0; n < PackTask::most_digits; ++n) {
    if (n >= task.digit_count) break;
    const PackTask::Digit& digit = task.digits[n];
    const Index rest = divided(item, digit.count), number = item - rest * digit.count.value();
    item = rest;
    place.from += number * static_cast<Index>(digit.from);
    place.to += number * static_cast<Index>(digit.to);
    if (task.has_rows) row += number * digit.row;
    if constexpr (is_padded) {
      place.k += number * digit.step.k;
      place.l += number * digit.step.l;
      place.j += number * digit.step.j;
    }
  }
  if (task.has_rows) {
    const Index k = divided(row, task.rows_of_k), j = row - k * task.rows_of_k.value();
    place.from += k * static_cast<Index>(task.row_k_from) + j * static_cast<Index>(task.row_j_from);
    if constexpr (is_padded) {
      place.k += k * task.row_k;
      place.j += j * task.row_j;
    }
  }
  place.from += item * static_cast<Index>(task.i_from);
  place.to += item * static_cast<Index>(task.i_to);
  return place;
}

template <class Index>
[[nodiscard]] __host__ __device__ inline Unit* unit_at(const PackTask& task, Index to) {
  if (task.swizzled) to ^= to >> 3 & 7;
  return reinterpret_cast<Unit*>(task.packed) + to;
}

[[nodiscard]] __host__ __device__ inline std::uint32_t rest_of_float(std::uint32_t bits) {
  const std::uint32_t high = tf32_part(bits);
#if defined(__CUDA_ARCH__)
  const float rest = __uint_as_float(bits) - __uint_as_float(high);
  return isfinite(rest) ? __float_as_uint(rest) : 0u;
#else
  const float rest = std::bit_cast<float>(bits) - std::bit_cast<float>(high);
  return rest - rest == 0 ? std::bit_cast<std::uint32_t>(rest) : 0u;
#endif
}

__host__ __device__ inline void store_unit(Unit* to, const Unit& unit) {
#if defined(__CUDA_ARCH__)
  *reinterpret_cast<uint4*>(to) = make_uint4(unit.words[0], unit.words[1], unit.words[2], unit.words[3]);
#else
  std::memcpy(to, &unit, sizeof(unit));
#endif
}

/// The unit with its eight half numbers exchanged: the one at n goes to n ^ by.
[[nodiscard]] __host__ __device__ inline Unit exchanged(const Unit& unit, int by) {
  Unit result;
  KRONSPARSE_UNROLL
  for (int word = 0; word < 4; ++word) {
    // Chosen from words with numbers known to the compiler, so that they stay in registers.
    const std::uint32_t near = (by & 2) != 0 ? unit.words[word ^ 1] : unit.words[word];
    const std::uint32_t far = (by & 2) != 0 ? unit.words[word ^ 3] : unit.words[word ^ 2];
    const std::uint32_t from = (by & 4) != 0 ? far : near;
    result.words[word] = (by & 1) != 0 ? from << 16 | from >> 16 : from;
  }
  return result;
}

template <class Index>
__host__ __device__ inline void store(const PackTask& task, Index to, Unit unit) {
  Unit* const at = unit_at(task, to);
  if (task.mixing != 0) {
    const auto block = task.units_of_j.quotient(static_cast<std::uint32_t>(to));
    unit = exchanged(unit, exchange_of(static_cast<int>(block % task.d), task.mixing));
  }
  if (task.splits_floats) {
    Unit rest;
    KRONSPARSE_UNROLL
    for (int word = 0; word < 4; ++word) {
      rest.words[word] = rest_of_float(unit.words[word]);
      unit.words[word] = tf32_part(unit.words[word]);
    }
    store_unit(at + task.to_rest, rest);
  }
  store_unit(at, unit);
}

/// A vector of 2 to 16 bytes, as words. A vector of 2 bytes has zeros in the upper half.
template <int bytes>
struct Vector {
  std::uint32_t words[bytes < 4 ? 1 : bytes / 4];
};

template <int bytes>
[[nodiscard]] __host__ __device__ inline Vector<bytes> load(const std::byte* from) {
  Vector<bytes> vector;
#if defined(__CUDA_ARCH__)
  if constexpr (bytes == 16) {
    const uint4 words = *reinterpret_cast<const uint4*>(from);
    vector.words[0] = words.x;
    vector.words[1] = words.y;
    vector.words[2] = words.z;
    vector.words[3] = words.w;
  } else if constexpr (bytes == 8) {
    const uint2 words = *reinterpret_cast<const uint2*>(from);
    vector.words[0] = words.x;
    vector.words[1] = words.y;
  } else if constexpr (bytes == 4) {
    vector.words[0] = *reinterpret_cast<const std::uint32_t*>(from);
  } else {
    vector.words[0] = *reinterpret_cast<const std::uint16_t*>(from);
  }
#else
  vector.words[0] = 0;
  std::memcpy(vector.words, from, bytes);
#endif
  return vector;
}

/// A word made of two halves, each the lower or the upper half of a word.
template <bool upper_low, bool upper_high>
[[nodiscard]] __host__ __device__ inline std::uint32_t word_of_halves(std::uint32_t low, std::uint32_t high) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(low, high, (upper_low ? 0x32u : 0x10u) | (upper_high ? 0x7600u : 0x5400u));
#else
  return (upper_low ? low >> 16 : low & 0xffffu) | (upper_high ? high & 0xffff0000u : high << 16);
#endif
}

/// Calls body with the integral constants 0 to count - 1.
template <int count, class Body>
__host__ __device__ inline void for_constants(const Body& body) {
  [&]<int... numbers>(std::integer_sequence<int, numbers...>) {
    (body(std::integral_constant<int, numbers>{}), ...);
  }
  (std::make_integer_sequence<int, count>{});
}

/// Makes one unit out of an item's vectors.
template <PackForm form, int unit>
[[nodiscard]] __host__ __device__ inline Unit unit_of(
    const Vector<form.vector_bytes()> (&vectors)[form.vectors()]) {
  Unit result;
  for_constants<4>([&](auto constant) {
    constexpr int word = decltype(constant)::value;
    if constexpr (form.bytes == 4) {
      result.words[word] = vectors[form.vector_of(word)].words[form.place_in_vector(word, unit)];
    } else {
      constexpr int low = form.place_in_vector(2 * word, unit),
                    high = form.place_in_vector(2 * word + 1, unit);
      result.words[word] =
          word_of_halves<low % 2 != 0, high % 2 != 0>(vectors[form.vector_of(2 * word)].words[low / 2],
                                                      vectors[form.vector_of(2 * word + 1)].words[high / 2]);
    }
  });
  return result;
}

/// Packs the item at `place`; zeros stand for weights that do not exist.
template <PackForm form, class Index>
__host__ __device__ __forceinline__ void pack_item(const PackTask& task, Place<Index> place) {
  constexpr int at_once = form.repeats_at_once();
  const auto pack = [&]<int count>(std::integral_constant<int, count>) {
    Vector<form.vector_bytes()> vectors[count][form.vectors()];  // (repeats, vectors of an item)
    KRONSPARSE_UNROLL
    for (int repeat = 0; repeat < count; ++repeat) {
      Place<Index> at = place;
      at.add(task.repeat, static_cast<Index>(repeat));
      const std::byte* const first = task.values + static_cast<std::size_t>(at.from) * form.bytes;
      KRONSPARSE_UNROLL
      for (int vector = 0; vector < form.vectors(); ++vector)
        vectors[repeat][vector] = !task.is_padded || at.has(task, task.vector_steps[vector])
                                      ? load<form.vector_bytes()>(first + task.vectors[vector])
                                      : Vector<form.vector_bytes()>{};
    }
    KRONSPARSE_UNROLL
    for (int repeat = 0; repeat < count; ++repeat)
      for_constants<form.units>([&](auto constant) {
        constexpr int unit = decltype(constant)::value;
        Index to = place.to + static_cast<Index>(repeat) * task.repeat.to;
        KRONSPARSE_UNROLL
        for (int bit = 0; 1 << bit < form.units; ++bit)
          if ((unit >> bit & 1) != 0) to += task.unit_bits[bit];
        store(task, to, unit_of<form, unit>(vectors[repeat]));
      });
  };
  std::uint32_t left = task.repeats;
  if constexpr (at_once > 1)
    for (; left >= at_once; left -= at_once) {
      pack(std::integral_constant<int, at_once>{});
      place.add(task.repeat, at_once);
    }
  for (; left > 0; --left) {
    pack(std::integral_constant<int, 1>{});
    place.add(task.repeat, 1);
  }
}

/// Calls body.operator()<form>() with the form of this number. A binary search finds it.
template <int first = 0, int end = static_cast<int>(pack_forms.size()), class Body>
__host__ __device__ __forceinline__ void with_form(int number, const Body& body) {
  if constexpr (end - first == 1) {
    body.template operator()<pack_forms[first]>();
  } else {
    constexpr int middle = (first + end) / 2;
    if (number < middle)
      with_form<first, middle>(number, body);
    else
      with_form<middle, end>(number, body);
  }
}

/// Packs every `step`th item from `first` on.
template <class Index>
__host__ __device__ __forceinline__ void pack_items(const PackTask& task, Index first, Index step) {
  const auto items = static_cast<Index>(task.items);
  for (Index item = first; item < items; item += step) {
    const Place<Index> place = task.is_padded ? place_of<true>(task, item) : place_of<false>(task, item);
    with_form(task.form, [&]<PackForm form>() {
      if constexpr (sizeof(Index) == 4 || form.vector_elements() == 1) pack_item<form>(task, place);
    });
  }
}

/// The place among the values of element `at` of the FMA kernels' weights, or -1 if there is none.
template <class Index>
[[nodiscard]] __host__ __device__ inline std::int64_t widened_source(const WidenTask& task, Index at) {
  const auto take = [&at](const Divisor& by, std::uint64_t count) -> Index {
    Index rest;
    if constexpr (sizeof(Index) == 8)
      rest = at / count;
    else
      rest = by.quotient(at);
    const Index digit = at - rest * static_cast<Index>(count);
    at = rest;
    return digit;
  };
  const Index k_in_tile = take(task.k_digit, task.k_width), j_in_group = take(task.j_digit, task.j_width),
              l = take(task.l_digit, static_cast<std::uint64_t>(task.c)),
              tile = take(task.tile_digit, task.tiles), group = take(task.group_digit, task.groups);
  const std::int64_t k = static_cast<std::int64_t>(tile) * task.k_width + k_in_tile,
                     j = static_cast<std::int64_t>(group) * task.j_width + j_in_group;
  if (k >= task.b || j >= task.d) return -1;
  return static_cast<std::int64_t>(at) * task.b * task.c * task.d + k * task.k_stride +
         static_cast<std::int64_t>(l) * task.l_stride + j;
}

}  // namespace kronsparse::cuda::packing
