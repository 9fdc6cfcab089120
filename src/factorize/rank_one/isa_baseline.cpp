// The 16-byte vectors that every CPU of the architecture has.
#define KRONSPARSE_ISA baseline
#define KRONSPARSE_VECTOR_BYTES 16
#include "factorize/rank_one/kernel.hpp"

namespace kronsparse::factorization {

const RankOneKernels rank_one_baseline = KRONSPARSE_RANK_ONE_KERNELS(isa_baseline);

}  // namespace kronsparse::factorization
