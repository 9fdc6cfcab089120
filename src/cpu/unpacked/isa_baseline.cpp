// The 16-byte vectors that every CPU of the architecture has.
#define KRONSPARSE_ISA baseline
#define KRONSPARSE_VECTOR_BYTES 16
#include "cpu/unpacked/kernel.hpp"

namespace kronsparse::unpacked {

#if defined(__aarch64__)
constexpr const char* baseline_name = "unpacked-neon";
#else
constexpr const char* baseline_name = "unpacked-baseline";
#endif
const Isa isa_baseline = {baseline_name, &simd::isa_baseline, &simd::baseline::unpacked_kernels<float>,
                          &simd::baseline::unpacked_kernels<double>};

}  // namespace kronsparse::unpacked
