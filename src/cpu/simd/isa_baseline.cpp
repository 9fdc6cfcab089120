// The 16-byte vectors every CPU of the architecture has: NEON, SSE2, or whatever
// the compiler lowers them to.
#define KRONSPARSE_ISA baseline
#define KRONSPARSE_VECTOR_BYTES 16
#include "cpu/simd/tile.hpp"

namespace kronsparse::simd {
namespace baseline {
#if defined(__aarch64__)
// 32 registers: 8x3 or 6x4 accumulators leave room for the panel and a group.
constexpr int tile_rows(int vectors) { return vectors == 4 ? 6 : 8; }
constexpr int widest_panel = 4;
constexpr int widest_full = 6;
constexpr int column_panel = 3;
constexpr double flops_per_second = 3.3e10;
constexpr bool repeats = true;  // a pair of floats is a load and a dup, which takes a product's place
#else
// 16 registers.
constexpr int tile_rows(int vectors) { return vectors <= 2 ? 6 : 4; }
constexpr int widest_panel = 2;
constexpr int widest_full = 3;
constexpr int column_panel = 2;
constexpr double flops_per_second = 1.2e10;
constexpr bool repeats = false;
#endif
constexpr KernelSet<float> f32 =
    MakeKernelSet<float, tile_rows, repeats>::make<column_panel>(widest_panel, widest_full, flops_per_second);
constexpr KernelSet<double> f64 =
    MakeKernelSet<double, tile_rows>::make<column_panel>(widest_panel, widest_full, flops_per_second / 2);
bool usable() { return true; }
}  // namespace baseline

#if defined(__aarch64__)
constexpr const char* baseline_name = "simd-neon";
#else
constexpr const char* baseline_name = "simd-baseline";
#endif
const Isa isa_baseline = {baseline_name, "", baseline::usable, &baseline::f32, &baseline::f64};

}  // namespace kronsparse::simd
