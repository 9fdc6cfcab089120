// Cuts of a problem with their predicted times, for kernels that can cut it in many ways. Host code only.
#pragma once

#include <limits>
#include <vector>

namespace kronsparse::cuda {

template <class Cut>
struct CutChoice {
  Cut cut;
  double seconds = std::numeric_limits<double>::infinity();  ///< predicted; infinite where there is no way
};

/// The cheapest; of none, one that takes for ever.
template <class Cut>
[[nodiscard]] CutChoice<Cut> cheapest(const std::vector<CutChoice<Cut>>& choices) {
  CutChoice<Cut> best;
  for (const CutChoice<Cut>& choice : choices)
    if (choice.seconds < best.seconds) best = choice;
  return best;
}

}  // namespace kronsparse::cuda
