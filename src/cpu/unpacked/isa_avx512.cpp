// Compiled with the flags of simd/isa_avx512.cpp, entered only where the CPU has it.
#define KRONSPARSE_ISA avx512
#define KRONSPARSE_VECTOR_BYTES 64
#include "cpu/unpacked/kernel.hpp"

namespace kronsparse::unpacked {

const Isa isa_avx512 = {"unpacked-avx512", &simd::isa_avx512, &simd::avx512::unpacked_kernels<float>,
                        &simd::avx512::unpacked_kernels<double>};

}  // namespace kronsparse::unpacked
