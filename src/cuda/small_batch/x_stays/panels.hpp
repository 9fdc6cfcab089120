// The panels of x that the kernels of x_stays/ may keep: neighbouring j that a block takes together. Host
// code only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/host/product.hpp"
#include "cuda/host/quotient.hpp"

namespace kronsparse::cuda::x_stays {

/// The share of the multiprocessors that clusters can use. Those of 4 and 8 leave some of each GPU cluster of
/// 16 or 18 multiprocessors idle: 128 blocks take two turns.
template <class Costs>
[[nodiscard]] double usable_share(const Costs& costs, int cluster) {
  return cluster == 8 ? costs.usable_of_8 : cluster == 4 ? costs.usable_of_4 : 1.0;
}

/// Whether samples of x lie multiples of `elements` apart, each with its features side by side.
[[nodiscard]] inline bool rows_fit(const Product& p, int elements) {
  return p.x_feature == 1 && (p.batch == 1 || p.x_sample % elements == 0);
}

struct Panel {
  int j_group, j_groups;
  bool takes_vectors;  ///< whether x can be read in vectors: of neighbouring j, or of terms with all their j
};

/// Visits the panels: of all j where these are few, else of the j of one or two vectors, or of one j. A
/// `packed_j_group` other than 0 allows no other.
template <class Visitor>
void for_each_panel(const Product& p, int vector, int packed_j_group, Visitor&& visit) {
  const bool fits = rows_fit(p, vector) &&
                    (p.d < vector ? vector % p.d == 0 && p.c % (vector / p.d) == 0 : p.d % vector == 0);
  for (const int j_group : {1, 2, 3, 4, 5, 6, 7, 8, 16}) {
    const bool is_whole = j_group == p.d, is_part = j_group == vector || j_group == 2 * vector;
    if (j_group > p.d || (j_group > 1 && !is_whole && !is_part)) continue;
    if (packed_j_group != 0 && packed_j_group != j_group) continue;
    constexpr std::int64_t most = std::int64_t{1} << 30;
    visit(Panel{.j_group = j_group,
                .j_groups = static_cast<int>(std::min(quotient_up(p.d, j_group), most)),
                .takes_vectors = fits && (p.d < vector ? is_whole : j_group % vector == 0)});
  }
}

}  // namespace kronsparse::cuda::x_stays
