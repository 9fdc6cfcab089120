// The implementations of this backend, one function per kernel family; backend.cpp puts them into the table.
#pragma once

#include "core/implementation.hpp"

namespace kronsparse::cuda {

[[nodiscard]] Implementation gemm_implementation();            ///< large_batch/gemm
[[nodiscard]] Implementation wgmma_implementation();           ///< large_batch/wgmma
[[nodiscard]] Implementation mma_implementation();             ///< large_batch/mma
[[nodiscard]] Implementation direct_implementation();          ///< small_batch/direct
[[nodiscard]] Implementation unpacked_implementation();        ///< small_batch/direct, without packing
[[nodiscard]] Implementation narrow_implementation();          ///< small_batch/narrow
[[nodiscard]] Implementation resident_implementation();        ///< small_batch/resident
[[nodiscard]] Implementation staged_implementation();          ///< large_batch/staged
[[nodiscard]] Implementation stream_implementation();          ///< small_batch/stream
[[nodiscard]] Implementation skinny_implementation();          ///< small_batch/skinny
[[nodiscard]] Implementation simt_implementation();            ///< large_batch/simt
[[nodiscard]] Implementation fused_implementation();           ///< chain/fused
[[nodiscard]] Implementation fused_wgmma_implementation();     ///< chain/fused_wgmma
[[nodiscard]] Implementation gradient_wgmma_implementation();  ///< gradient/wgmma
[[nodiscard]] Implementation gradient_mma_implementation();    ///< gradient/mma
[[nodiscard]] Implementation gradient_simt_implementation();   ///< gradient/simt

}  // namespace kronsparse::cuda
