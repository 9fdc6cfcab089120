// Tile registers of the CPU, beside AVX-512: compiled for the latter, entered only where there are both.
#define KRONSPARSE_ISA amx_tiles
#define KRONSPARSE_VECTOR_BYTES 64
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cpu/amx/make_kernels.hpp"

namespace kronsparse {
namespace simd::amx_tiles {
namespace {

/// A process must ask the kernel for the tile registers, once, before it touches them.
bool are_tiles_granted() {
  constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

bool has_tiles() {
  constexpr unsigned bf16_products = 1U << 22U, tile_registers = 1U << 24U;
  // Rounding of vectors to bf16: every such CPU has it, but a virtual one may not.
  constexpr unsigned bf16_rounding = 1U << 5U;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool has_products = __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 &&
                            (edx & bf16_products) != 0 && (edx & tile_registers) != 0;
  return has_products && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & bf16_rounding) != 0;
}

bool usable() {
  static const bool is_usable = isa_avx512.usable() && has_tiles() && are_tiles_granted();
  return is_usable;
}

}  // namespace
}  // namespace simd::amx_tiles

namespace amx {
constinit const KernelSet tiles_of_cpu = simd::amx_tiles::make_kernels(
    "amx", "this CPU has no AMX (tiles, bf16), or the system does not allow it", simd::amx_tiles::usable);
}  // namespace amx
}  // namespace kronsparse
