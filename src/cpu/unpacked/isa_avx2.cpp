// Compiled with the flags of simd/isa_avx2.cpp, entered only where the CPU has it.
#define KRONSPARSE_ISA avx2
#define KRONSPARSE_VECTOR_BYTES 32
#include "cpu/unpacked/kernel.hpp"

namespace kronsparse::unpacked {

const Isa isa_avx2 = {"unpacked-avx2", &simd::isa_avx2, &simd::avx2::unpacked_kernels<float>,
                      &simd::avx2::unpacked_kernels<double>};

}  // namespace kronsparse::unpacked
