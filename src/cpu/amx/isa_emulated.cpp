// Arrays in place of tile registers: on any CPU, for tests of everything around them.
#define KRONSPARSE_ISA tile_arrays
#define KRONSPARSE_VECTOR_BYTES 64
#define KRONSPARSE_EMULATES_TILES
#include "cpu/amx/make_kernels.hpp"

namespace kronsparse::amx {
constinit const KernelSet emulated_tiles =
    simd::tile_arrays::make_kernels("amx-emulated", "", [] { return true; });
}  // namespace kronsparse::amx
