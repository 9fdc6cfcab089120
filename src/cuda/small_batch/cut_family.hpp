// The cuts of a kernel as programs that measure cuts see them: the headers of some kernels only nvcc
// compiles.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "core/implementation.hpp"
#include "cuda/host/runtime.hpp"

namespace kronsparse::cuda {

struct CutWay {
  std::vector<int> numbers;  ///< that tell it from the others
  double seconds;            ///< predicted
};

struct CutFamily {
  std::vector<CutWay> (*ways)(const Problem& problem, const GpuFacts& facts);
  /// The executor of the way with this number.
  std::unique_ptr<Executor> (*make)(const Problem& problem, Device device, std::size_t way);
};

[[nodiscard]] CutFamily direct_cuts();
[[nodiscard]] CutFamily unpacked_cuts();
[[nodiscard]] CutFamily weights_stay_cuts();
[[nodiscard]] CutFamily sums_stay_cuts();
[[nodiscard]] CutFamily x_stays_wgmma_cuts();
[[nodiscard]] CutFamily x_stays_mma_cuts();

}  // namespace kronsparse::cuda
