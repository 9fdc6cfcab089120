// AVX-512: compiled with its flags, entered only where the CPU has it.
#define KRONSPARSE_ISA avx512
#define KRONSPARSE_VECTOR_BYTES 64
#include "cpu/simd/tile.hpp"

namespace kronsparse::simd {
namespace avx512 {
// 32 registers: 8x3 or 6x4 accumulators leave room for the panel and a group.
constexpr int tile_rows(int vectors) { return vectors == 4 ? 6 : 8; }
constexpr KernelSet<float> f32 = MakeKernelSet<float, tile_rows>::make<4>(4, 6, 1.2e11);
constexpr KernelSet<double> f64 = MakeKernelSet<double, tile_rows>::make<4>(4, 6, 6.0e10);
bool usable() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("fma") && cpu_has_f16c();
}
}  // namespace avx512

const Isa isa_avx512 = {"simd-avx512", "this CPU has no AVX-512 (F, DQ, BW, VL)", avx512::usable,
                        &avx512::f32, &avx512::f64};

}  // namespace kronsparse::simd
