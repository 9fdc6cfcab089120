// The picture that `kronsparse demo` leaves behind.
#pragma once

#include <span>
#include <string>

#include "kronsparse/chain.hpp"

namespace kronsparse::cli {

/// One layer of the demonstration: a bar for the dense product, a bar for ours.
struct LayerBars {
  std::string title;    ///< "Monarch 4096 x 4096"
  std::string details;  ///< "f32, batch_first"
  double dense_seconds;
  double sparse_seconds;
};

/// Left: the supports of the two factors of `monarch` and of their product, to
/// scale. Right: time per layer. `caption` says where it was measured.
[[nodiscard]] std::string draw_demo(const Chain& monarch, std::span<const LayerBars> layers,
                                    const std::string& caption);

}  // namespace kronsparse::cli
