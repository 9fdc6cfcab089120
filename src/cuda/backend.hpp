// The implementations of this backend, one function per kernel family; backend.cpp puts them into the table.
#pragma once

#include "core/implementation.hpp"

namespace kronsparse::cuda {

[[nodiscard]] Implementation gemm_implementation();            ///< multiply_gemm.cu
[[nodiscard]] Implementation wgmma_implementation();           ///< multiply_wgmma.cu
[[nodiscard]] Implementation mma_implementation();             ///< multiply_mma.cu
[[nodiscard]] Implementation direct_implementation();          ///< multiply_direct.cu
[[nodiscard]] Implementation unpacked_implementation();        ///< the same
[[nodiscard]] Implementation held_implementation();            ///< multiply_held.cu
[[nodiscard]] Implementation narrow_implementation();          ///< multiply_narrow.cu
[[nodiscard]] Implementation resident_implementation();        ///< multiply_resident.cu
[[nodiscard]] Implementation staged_implementation();          ///< multiply_staged.cu
[[nodiscard]] Implementation stream_implementation();          ///< multiply_stream.cu
[[nodiscard]] Implementation skinny_implementation();          ///< multiply_skinny.cu
[[nodiscard]] Implementation simt_implementation();            ///< multiply_simt.cu
[[nodiscard]] Implementation gradient_wgmma_implementation();  ///< gradient_wgmma.cu
[[nodiscard]] Implementation gradient_mma_implementation();    ///< gradient_mma.cu
[[nodiscard]] Implementation gradient_simt_implementation();   ///< gradient_simt.cu

}  // namespace kronsparse::cuda
