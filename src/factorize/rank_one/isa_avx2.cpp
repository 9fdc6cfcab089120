// Compiled with the flags of cpu/simd/isa_avx2.cpp, entered only where the CPU has it.
#define KRONSPARSE_ISA avx2
#define KRONSPARSE_VECTOR_BYTES 32
#include "factorize/rank_one/kernel.hpp"

namespace kronsparse::factorization {

const RankOneKernels rank_one_avx2 = KRONSPARSE_RANK_ONE_KERNELS(isa_avx2);

}  // namespace kronsparse::factorization
