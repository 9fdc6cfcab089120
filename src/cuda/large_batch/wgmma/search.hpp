// The shapes of `wgmma`, and the config that a problem gets. Host code only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "cuda/host/product.hpp"
#include "cuda/host/runtime.hpp"
#include "cuda/large_batch/wgmma/loads.cuh"
#include "kronsparse/plan.hpp"

namespace kronsparse::cuda {

// Every shape has its own kernel. A thread has products · N / 2 sums, at most 128; compensated floats need
// twice as many. Fewer products per warpgroup leave room for more outputs, and so fewer reads of x; d decides
// how many there must be.
inline constexpr std::array half_shapes = {
    WgmmaShape{XForm::planes, 8, true, 32, 1},    // d > 12: 32 bytes of j
    WgmmaShape{XForm::planes, 6, true, 32, 1},    // d from 9 to 12
    WgmmaShape{XForm::planes, 4, true, 64, 1},    // d = 8, 24, 40, ...
    WgmmaShape{XForm::planes, 4, true, 48, 1},    //
    WgmmaShape{XForm::planes, 6, false, 32, 1},   // d = 6
    WgmmaShape{XForm::planes, 4, false, 64, 2},   // d = 4
    WgmmaShape{XForm::planes, 4, false, 48, 2},   //
    WgmmaShape{XForm::planes, 2, false, 128, 2},  // d = 2
    WgmmaShape{XForm::planes, 2, false, 96, 2},   //
    WgmmaShape{XForm::planes, 2, false, 64, 2},   //
    WgmmaShape{XForm::lines, 7, false, 32, 1},    // d = 7
    WgmmaShape{XForm::lines, 5, false, 48, 1},    // d = 5
    WgmmaShape{XForm::lines, 3, false, 64, 1},    // d = 3
    WgmmaShape{XForm::rows, 1, false, 256, 4},    // d = 1
    WgmmaShape{XForm::rows, 1, false, 192, 4},    //
    WgmmaShape{XForm::rows, 1, false, 128, 4},    //
    WgmmaShape{XForm::rows, 1, false, 96, 4},     //
    WgmmaShape{XForm::rows, 1, false, 64, 4},     //
    WgmmaShape{XForm::columns, 1, false, 256, 4}, WgmmaShape{XForm::columns, 1, false, 192, 4},
    WgmmaShape{XForm::columns, 1, false, 128, 4}, WgmmaShape{XForm::columns, 1, false, 96, 4},
    WgmmaShape{XForm::columns, 1, false, 64, 4},
};

inline constexpr std::array float_shapes = {
    WgmmaShape{XForm::planes, 4, true, 32, 1},    // d > 6: 32 bytes of j
    WgmmaShape{XForm::planes, 3, true, 32, 1},    // d = 5, 6
    WgmmaShape{XForm::planes, 2, true, 64, 1},    // d = 4
    WgmmaShape{XForm::planes, 2, true, 48, 1},    //
    WgmmaShape{XForm::planes, 3, false, 32, 1},   // d = 3
    WgmmaShape{XForm::planes, 2, false, 64, 1},   // d = 2
    WgmmaShape{XForm::planes, 2, false, 48, 1},   //
    WgmmaShape{XForm::planes, 1, false, 128, 2},  // d = 1
    WgmmaShape{XForm::planes, 1, false, 96, 2},   //
    WgmmaShape{XForm::planes, 1, false, 64, 2},   //
    WgmmaShape{XForm::columns, 1, false, 128, 2}, WgmmaShape{XForm::columns, 1, false, 96, 2},
    WgmmaShape{XForm::columns, 1, false, 64, 2},
};

/// How a problem is divided: all that a launch needs besides pointers.
struct WgmmaConfig {
  Arithmetic arithmetic = Arithmetic::f16;
  std::size_t shape_index = 0;  ///< in the table of its element size
  WgmmaShape shape{};
  int tile_n = 64;  ///< samples
  int words = 1;    ///< words of j in a block
  int stages = 0;
  bool resident = false;  ///< the weights of a group stay in shared memory
  WgmmaOrder order{};
  int blocks = 0;
  int blocks_per_group = 0;  ///< resident weights: 0 if blocks cannot be shared out evenly
  int bundle_groups = 1;     ///< streamed weights: j groups whose weights stay in L2 together

  int x_stage_bytes = 0;
  int w_chunk_bytes = 0;
  int w_stage_bytes = 0;
  int w_region_offset = 0;
  int stages_offset = 0;
  int out_offset = 0;
  int out_pitch_bytes = 0;
  int shared_bytes = 0;
};

[[nodiscard]] WgmmaConfig wgmma_config(const Problem& problem, const GpuFacts& gpu);

/// The arguments for the kernel of `config`. `weights` are packed in its order.
[[nodiscard]] WgmmaArguments wgmma_arguments(const Problem& problem, const WgmmaConfig& config,
                                             const Operands& operands, const void* weights);

/// Seconds, by a cost model fitted to measurements.
[[nodiscard]] double wgmma_seconds(const Problem& problem, const WgmmaConfig& config, const GpuFacts& gpu);

}  // namespace kronsparse::cuda
