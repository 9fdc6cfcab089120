// Compiled with the flags of cpu/simd/isa_avx512.cpp, entered only where the CPU has it.
#define KRONSPARSE_ISA avx512
#define KRONSPARSE_VECTOR_BYTES 64
#include "factorize/rank_one/kernel.hpp"

namespace kronsparse::factorization {

const RankOneKernels rank_one_avx512 = KRONSPARSE_RANK_ONE_KERNELS(isa_avx512);

}  // namespace kronsparse::factorization
