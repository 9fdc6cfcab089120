// Measurements of the kernels, as data: for each architecture the constants of every cost model, and
// where they came from.
//
// Formulas lie beside the kernels (search.cu, plan.cu) and have no fitted numbers; these lie here, a file for
// each architecture. Times are those of the GPU of the fit, as the fit gave them, and that GPU's own rates
// lie beside them: their quotient is the efficiency that a kernel reached. On another GPU a model scales
// times by its rates over these (host/speeds.hpp). Written as efficiencies the constants would be longer and
// rounded.
//
// A new architecture is a new file: a Tuning that begins as a copy of another, with the rates of its GPU and
// what tools/sweeps/refit prints, and a line in tuning.cpp. All kernels that run on it are measured on one
// GPU.
#pragma once

#include <array>
#include <span>

#include "cuda/host/runtime.hpp"
#include "cuda/tuning/chain.hpp"
#include "cuda/tuning/gradient.hpp"
#include "cuda/tuning/large_batch.hpp"
#include "cuda/tuning/packing.hpp"
#include "cuda/tuning/small_batch.hpp"

namespace kronsparse::cuda {

namespace tuning {

/// The GPU of the fits, and its rates.
struct FittedGpu {
  const char* name;
  int compute_capability;
  int multiprocessors;
  double clock;  ///< the highest
  double copy;   ///< bytes per second, read plus written
  double l2;     ///< bytes per second, as `kronsparse profile` measures it; 0: it was not measured
  /// Clusters of 1, 2, ... 16 blocks that it runs at once, with one block per multiprocessor
  /// (cudaOccupancyMaxActiveClusters): its parts (GPC) have 16 and 18, not all of which large clusters can
  /// use.
  std::array<int, 16> clusters_at_once;
};

/// The origin of constants.
struct Evidence {
  const char* date;       ///< of the fit
  const char* fitted_to;  ///< what was measured
  const char* rows;       ///< the file with the measurements; empty: they were not kept
  const char* error;      ///< of the fit, as far as it is known
};

/// The constants of a kernel.
template <class Constants>
struct Entry {
  Evidence evidence;
  Constants costs;
};

}  // namespace tuning

struct Tuning {
  tuning::FittedGpu gpu;
  tuning::Entry<tuning::Gemm> gemm;
  tuning::Entry<tuning::Wgmma> wgmma;
  tuning::Entry<tuning::Staged> staged;
  tuning::Entry<tuning::Mma> mma;
  tuning::Entry<tuning::Simt> simt;
  tuning::Entry<tuning::Direct> direct;
  tuning::Entry<tuning::Unpacked> unpacked;
  tuning::Entry<tuning::Resident> resident;
  tuning::Entry<tuning::Narrow> narrow;
  tuning::Entry<tuning::Stream> stream;
  tuning::Entry<tuning::Skinny> skinny;
  tuning::Entry<tuning::GradientWgmma> gradient_wgmma;
  tuning::Entry<tuning::GradientMma> gradient_mma;
  tuning::Entry<tuning::GradientSimt> gradient_simt;
  tuning::Entry<tuning::Fused> fused;
  tuning::Entry<tuning::FusedWgmma> fused_wgmma;
  tuning::Entry<tuning::Packing> packing;
};

/// The constants for a GPU: those of its architecture, or else of the H200, the only GPU measured so far.
[[nodiscard]] const Tuning& tuning_of(const GpuFacts& facts);
/// All that there are.
[[nodiscard]] std::span<const Tuning* const> tunings();

/// For tests, and for programs that fit constants: while it lives, tuning_of() returns these for every GPU.
/// One at a time.
class PretendedTuning {
 public:
  explicit PretendedTuning(const Tuning& tuning);
  ~PretendedTuning();
  PretendedTuning(const PretendedTuning&) = delete;
  PretendedTuning& operator=(const PretendedTuning&) = delete;
};

}  // namespace kronsparse::cuda
