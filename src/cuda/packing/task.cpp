// Turns the order of packed weights into the work of threads: which units a thread takes at once, in which
// form it reads their values, and which units neighbouring threads take.
#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <vector>

#include "cuda/packing/forms.hpp"
#include "cuda/packing/packing.hpp"
#include "kronsparse/error.hpp"

namespace kronsparse::cuda {
namespace {

PackStep times(const PackStep& step, std::int64_t count) {
  return {step.k * count, step.l * count, step.j * count, step.row * count};
}

/// Replaces rows by steps of k and j, if each digit of rows is a step of one of them. A digit that is both is
/// split into two.
std::vector<PackDigit> without_rows(const PackLayout& layout) {
  std::vector<PackDigit> digits;
  const std::int64_t by = layout.rows_of_k;
  for (std::size_t n = 0; n < layout.digit_count; ++n) {
    const PackDigit& digit = layout.digits[n];
    const std::int64_t step = digit.step.row, end = step * digit.count;
    if (step == 0) {
      digits.push_back(digit);
    } else if (step % by == 0) {
      digits.push_back({digit.count, digit.to, times(layout.of_quotient, step / by)});
    } else if (by % end == 0) {
      digits.push_back({digit.count, digit.to, times(layout.of_rest, step)});
    } else if (by % step == 0 && end % by == 0) {
      digits.push_back({by / step, digit.to, times(layout.of_rest, step)});
      digits.push_back({end / by, digit.to * (by / step), layout.of_quotient});
    } else {
      digits.push_back(digit);
    }
  }
  return digits;
}

/// How an order can be read in a form.
struct Fit {
  const PackForm* form = nullptr;
  std::vector<PackDigit> units;   ///< bits of a unit's number
  std::vector<PackDigit> digits;  ///< the remaining digits
};

/// Takes digits that make up `count` neighbours, `step` elements apart.
bool take_neighbours(const PackLayout& layout, Fit& fit, std::int64_t step, std::int64_t count) {
  while (count > 1) {
    const auto found = std::ranges::find_if(fit.digits, [&](const PackDigit& digit) {
      return digit.step.row == 0 && layout.source(digit.step) == step &&
             (digit.count % count == 0 || count % digit.count == 0);
    });
    if (found == fit.digits.end()) return false;
    const std::int64_t taken = std::min(found->count, count);
    for (std::int64_t bit = 1; bit < taken; bit *= 2)
      fit.units.push_back({2, found->to * bit, times(found->step, bit)});
    if (found->count == taken)
      fit.digits.erase(found);
    else
      *found = {found->count / taken, found->to * taken, times(found->step, taken)};
    count /= taken;
    step *= taken;
  }
  return true;
}

/// Whether k, l or j runs past its last value at some places.
struct Padding {
  bool k, l, j;
};

/// Whether either all weights of a vector exist or none. In a direction in which vectors extend, that holds
/// if every vector begins at a multiple of its extent, and the padding does, too.
bool pads_whole_vectors(const PackLayout& layout, const Fit& fit, int bits_in_vector,
                        const Padding& padding) {
  const PackForm& form = *fit.form;
  const auto bit_of = [&](int place) -> const PackStep& {
    return layout.bits[static_cast<std::size_t>(form.at[static_cast<std::size_t>(place)])];
  };
  const auto holds = [&](std::int64_t PackStep::*index, bool is_padded, std::int64_t size) {
    std::int64_t extent = 1;
    for (int place = 0; place < bits_in_vector; ++place) extent += bit_of(place).*index;
    for (const PackDigit& unit : fit.units) extent += unit.step.*index;
    if (!is_padded || extent == 1) return true;
    const auto is_multiple = [&](const PackStep& step) { return step.*index % extent == 0; };
    for (int place = bits_in_vector; place < form.bits(); ++place)
      if (!is_multiple(bit_of(place))) return false;
    for (const PackDigit& digit : fit.digits)
      if (digit.step.row == 0 ? !is_multiple(digit.step)
                              : !is_multiple(layout.of_quotient) || !is_multiple(layout.of_rest))
        return false;
    return size % extent == 0;
  };
  return holds(&PackStep::k, padding.k, layout.b) && holds(&PackStep::l, padding.l, layout.c) &&
         holds(&PackStep::j, padding.j, layout.d);
}

std::optional<Fit> fitted(const PackLayout& layout, const std::vector<PackDigit>& digits,
                          const PackForm& form, int alignment, const Padding& padding) {
  if (form.bytes != static_cast<int>(size_of(layout.dtype)) || form.bits() != layout.bit_count) return {};
  const auto step_of = [&](int place) {
    return layout.source(layout.bits[static_cast<std::size_t>(form.at[static_cast<std::size_t>(place)])]);
  };
  int place = 0;
  for (int low = 1; low < form.low; low *= 2)
    if (step_of(place++) != low) return {};
  for (int high = 1; high < form.high; high *= 2)
    if (step_of(place++) != std::int64_t{high} * form.units * form.low) return {};
  Fit fit{.form = &form, .units = {}, .digits = digits};
  if (!take_neighbours(layout, fit, form.low, form.units)) return {};
  if (!pads_whole_vectors(layout, fit, place, padding)) return {};
  // Loads require aligned vectors.
  const std::int64_t elements = form.vector_elements();
  const auto is_aligned = [&](std::int64_t step) { return step % elements == 0; };
  if (alignment % form.vector_bytes() != 0) return {};
  if (layout.a > 1 && !is_aligned(layout.b * layout.c * layout.d)) return {};
  for (; place < form.bits(); ++place)
    if (!is_aligned(step_of(place))) return {};
  for (const PackDigit& digit : fit.digits)
    if (digit.step.row == 0
            ? !is_aligned(layout.source(digit.step))
            : !is_aligned(layout.source(layout.of_quotient)) || !is_aligned(layout.source(layout.of_rest)))
      return {};
  return fit;
}

/// Moves a part of a digit, `count` of its steps, to another place among the digits.
void move_part(std::vector<PackDigit>& digits, std::size_t from, std::int64_t count, std::size_t to) {
  PackDigit part = digits[from];
  if (part.count == count) {
    digits.erase(digits.begin() + static_cast<std::ptrdiff_t>(from));
  } else {
    digits[from] = {part.count / count, part.to * count, times(part.step, count)};
    part.count = count;
  }
  digits.insert(digits.begin() + static_cast<std::ptrdiff_t>(to), part);
}

/// Lets neighbouring threads write neighbouring units. The first few threads read neighbouring vectors: at
/// least 64 bytes of values, so that no sector is fetched for a part of it alone.
void order_threads(const PackLayout& layout, Fit& fit) {
  const std::int64_t vector = fit.form->vector_elements();
  constexpr std::int64_t most = 4;
  for (std::size_t n = 0; n < fit.digits.size(); ++n) {
    const PackDigit& digit = fit.digits[n];
    if (digit.step.row != 0 || layout.source(digit.step) != vector) continue;
    const std::int64_t count = digit.count <= most ? digit.count : digit.count % 4 == 0 ? 4 : 2;
    if (digit.count % count == 0) move_part(fit.digits, n, count, 0);
    return;
  }
}

/// Takes out the digit, or the part of one, that a thread repeats, so that it computes its place only once.
/// It comes after the digits of a warp.
std::optional<PackDigit> repeated(Fit& fit, std::int64_t items) {
  // For little work, more threads are better than repeats.
  constexpr std::int64_t enough_items = 132 * 768, warp = 32;
  std::int64_t before = 1;
  for (std::size_t n = 0; n < fit.digits.size(); before *= fit.digits[n++].count) {
    const std::int64_t of_warp = before < warp ? warp / before : 1;
    if (before < warp && fit.digits[n].count > of_warp && warp % before == 0 &&
        fit.digits[n].count % of_warp == 0)
      move_part(fit.digits, n, of_warp, n);
    const PackDigit digit = fit.digits[n];
    if (before < warp || digit.step.row != 0) continue;
    for (const std::int64_t count : {8, 4, 7, 6, 5, 3, 2}) {
      if (count * fit.form->units > 8 || digit.count % count != 0 || items / count < enough_items) continue;
      move_part(fit.digits, n, count, n);
      const PackDigit part = fit.digits[n];
      fit.digits.erase(fit.digits.begin() + static_cast<std::ptrdiff_t>(n));
      return part;
    }
  }
  return {};
}

/// Merges neighbouring digits that advance as one.
void merge(std::vector<PackDigit>& digits) {
  for (std::size_t n = 0; n + 1 < digits.size();) {
    const PackDigit& next = digits[n + 1];
    if (next.step == times(digits[n].step, digits[n].count) && next.to == digits[n].to * digits[n].count) {
      digits[n].count *= next.count;
      digits.erase(digits.begin() + static_cast<std::ptrdiff_t>(n) + 1);
    } else {
      ++n;
    }
  }
}

}  // namespace

PackTask pack_task(const PackLayout& layout, int alignment) {
  const std::vector<PackDigit> digits = without_rows(layout);
  // The ends of k, l and j, padding included, decide whether 32 bits suffice.
  std::int64_t k_end = 1, l_end = 1, j_end = 1;
  const auto grow = [&](const PackStep& step, std::int64_t count) {
    k_end += step.k * (count - 1);
    l_end += step.l * (count - 1);
    j_end += step.j * (count - 1);
  };
  for (const PackDigit& digit : digits) {
    grow(digit.step, digit.count);
    grow(times(layout.of_quotient, digit.step.row), digit.count);
    grow(times(layout.of_rest, digit.step.row), digit.count);
  }
  for (const PackStep& bit : layout.bits) grow(bit, 2);
  constexpr std::int64_t limit = std::numeric_limits<std::int32_t>::max();
  const std::int64_t values = layout.a * layout.b * layout.c * layout.d;
  const bool is_wide =
      layout.all_units() > limit || values > limit || k_end > limit || l_end > limit || j_end > limit;

  const Padding padding{k_end > layout.b, l_end > layout.c, j_end > layout.d};
  std::optional<Fit> best;
  for (const PackForm& form : pack_forms) {
    if (is_wide && form.vector_elements() > 1) continue;
    if (best && form.vector_bytes() <= best->form->vector_bytes()) continue;
    if (std::optional<Fit> fit = fitted(layout, digits, form, alignment, padding)) best = std::move(fit);
  }
  if (!best) throw Error(ErrorCode::internal, "packing: no form takes the order");
  const PackForm& form = *best->form;
  order_threads(layout, *best);
  std::int64_t items = layout.a;
  for (const PackDigit& digit : best->digits) items *= digit.count;
  const std::optional<PackDigit> repeat = repeated(*best, items);
  merge(best->digits);
  if (best->digits.size() > PackTask::most_digits)
    throw Error(ErrorCode::internal, "packing: an order has too many digits");

  const auto narrowed = [&](const PackStep& step, std::int64_t to) -> PackTask::UnitStep {
    return {{static_cast<std::uint32_t>(step.k), static_cast<std::uint32_t>(step.l),
             static_cast<std::uint32_t>(step.j)},
            static_cast<std::uint32_t>(layout.source(step)),
            static_cast<std::uint32_t>(to)};
  };
  PackTask task;
  task.form = static_cast<int>(best->form - pack_forms.data());
  task.units = static_cast<std::uint64_t>(layout.all_units());
  task.is_wide = is_wide;
  task.is_padded = padding.k || padding.l || padding.j;
  task.swizzled = layout.swizzled;
  task.splits_floats = layout.elements == PackElements::split_floats;
  task.b = static_cast<std::uint32_t>(layout.b);
  task.c = static_cast<std::uint32_t>(layout.c);
  task.d = static_cast<std::uint32_t>(layout.d);
  task.i_from = static_cast<std::uint64_t>(layout.b * layout.c * layout.d);
  task.i_to = static_cast<std::uint64_t>(layout.units);
  task.to_rest = static_cast<std::uint32_t>(layout.to_rest);
  task.mixing = layout.mixing;
  if (task.mixing != 0) {
    if (is_wide) throw Error(ErrorCode::internal, "packing: terms are mixed in small factors only");
    task.units_of_j = Divisor(static_cast<std::uint32_t>(layout.units / layout.d));
  }
  for (std::size_t bit = 0; bit < best->units.size(); ++bit)
    task.unit_bits[bit] = static_cast<std::uint32_t>(best->units[bit].to);
  for (int vector = 0; vector < form.vectors(); ++vector) {
    PackStep all;
    for (int bit = 0; 1 << bit < form.vectors(); ++bit) {
      if ((vector >> bit & 1) == 0) continue;
      const int place = form.bits() - std::countr_zero(static_cast<unsigned>(form.vectors())) + bit;
      const PackStep& step = layout.bits[static_cast<std::size_t>(form.at[static_cast<std::size_t>(place)])];
      all = {all.k + step.k, all.l + step.l, all.j + step.j};
    }
    task.vectors[vector] = form.bytes * layout.source(all);
    task.vector_steps[vector] = narrowed(all, 0).step;
  }
  if (repeat) {
    task.repeats = static_cast<std::uint32_t>(repeat->count);
    task.repeat = narrowed(repeat->step, repeat->to);
  }
  task.items = static_cast<std::uint64_t>(items) / task.repeats;
  for (const PackDigit& digit : best->digits) {
    task.digits[task.digit_count++] = {.count = Divisor(static_cast<std::uint32_t>(digit.count)),
                                       .row = static_cast<std::uint32_t>(digit.step.row),
                                       .step = narrowed(digit.step, 0).step,
                                       .from = static_cast<std::uint64_t>(layout.source(digit.step)),
                                       .to = static_cast<std::uint64_t>(digit.to)};
    task.has_rows = task.has_rows || digit.step.row != 0;
  }
  if (task.has_rows) {
    task.rows_of_k = Divisor(static_cast<std::uint32_t>(layout.rows_of_k));
    task.row_k = static_cast<std::uint32_t>(layout.of_quotient.k);
    task.row_j = static_cast<std::uint32_t>(layout.of_rest.j);
    task.row_k_from = static_cast<std::uint64_t>(layout.source(layout.of_quotient));
    task.row_j_from = static_cast<std::uint64_t>(layout.source(layout.of_rest));
  }
  return task;
}

WidenTask widen_task(const Problem& problem, std::int64_t tiles, std::int64_t k_width, std::int64_t groups,
                     std::int64_t j_width) {
  const Product p = product_of(problem);
  const bool transposed = is_transposed(problem.operation);
  WidenTask task{.values = nullptr,
                 .packed = nullptr,
                 .dtype = problem.dtype,
                 .conjugated = problem.operation == Operation::adjoint,
                 .elements = static_cast<std::uint64_t>(p.a * groups * tiles * p.c * j_width * k_width),
                 .b = p.b,
                 .c = p.c,
                 .d = p.d,
                 .k_stride = transposed ? p.d : p.c * p.d,
                 .l_stride = transposed ? p.b * p.d : p.d,
                 .tiles = static_cast<std::uint64_t>(tiles),
                 .groups = static_cast<std::uint64_t>(groups),
                 .k_width = static_cast<std::uint32_t>(k_width),
                 .j_width = static_cast<std::uint32_t>(j_width),
                 .k_digit = {},
                 .j_digit = {},
                 .l_digit = {},
                 .tile_digit = {},
                 .group_digit = {}};
  task.is_wide = task.elements > std::numeric_limits<std::int32_t>::max();
  if (task.is_wide) return task;
  task.k_digit = Divisor(task.k_width);
  task.j_digit = Divisor(task.j_width);
  task.l_digit = Divisor(static_cast<std::uint32_t>(p.c));
  task.tile_digit = Divisor(static_cast<std::uint32_t>(tiles));
  task.group_digit = Divisor(static_cast<std::uint32_t>(groups));
  return task;
}

}  // namespace kronsparse::cuda
