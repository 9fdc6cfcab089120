// AVX2 with FMA and F16C: compiled with those flags, entered only where the CPU has them.
#define KRONSPARSE_ISA avx2
#define KRONSPARSE_VECTOR_BYTES 32
#include "cpu/simd/tile.hpp"

namespace kronsparse::simd {
namespace avx2 {
// 16 registers: 6x2 accumulators, the panel and a group.
constexpr int tile_rows(int vectors) { return vectors <= 2 ? 6 : 4; }
constexpr KernelSet<float> f32 = MakeKernelSet<float, tile_rows>::make<2>(2, 3, 6.0e10);
constexpr KernelSet<double> f64 = MakeKernelSet<double, tile_rows>::make<2>(2, 3, 3.0e10);
bool usable() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && cpu_has_f16c(); }
}  // namespace avx2

const Isa isa_avx2 = {"simd-avx2", "this CPU has no AVX2 with FMA and F16C", avx2::usable, &avx2::f32,
                      &avx2::f64};

}  // namespace kronsparse::simd
