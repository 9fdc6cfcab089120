// wgmma with the left operand in registers: d += a b for 64 rows (a's, over the four
// warps of a warpgroup), N columns and 16 terms of a half type or 8 of TF32.
//
// PTX wants every register by name, so each N has its own text; nothing else differs.
#pragma once

#include <cstdint>

namespace kronsparse::cuda::ptx {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define KRONSPARSE_WGMMA(...) asm volatile(__VA_ARGS__)
#else
#define KRONSPARSE_WGMMA(...) __trap()
#endif

/// Instruction suffixes, as PTX spells them.
#define KRONSPARSE_WGMMA_F16(n) "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.f16.f16 "
#define KRONSPARSE_WGMMA_BF16(n) "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 "
#define KRONSPARSE_WGMMA_TF32(n) "wgmma.mma_async.sync.aligned.m64n" #n "k8.f32.tf32.tf32 "

/// Sixteen accumulators as operands.
#define KRONSPARSE_WGMMA_16(d, i)                                                                       \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]),           \
      "+f"(d[i + 6]), "+f"(d[i + 7]), "+f"(d[i + 8]), "+f"(d[i + 9]), "+f"(d[i + 10]), "+f"(d[i + 11]), \
      "+f"(d[i + 12]), "+f"(d[i + 13]), "+f"(d[i + 14]), "+f"(d[i + 15])
#define KRONSPARSE_WGMMA_8(d, i)                                                              \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])

#define KRONSPARSE_WGMMA_TEXT_32(instruction, tail) \
  "{\n.reg .pred p;\nsetp.ne.b32 p, %21, 0;\n" instruction(32) \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, " \
  "{%16, %17, %18, %19}, %20, p, 1, 1" tail ";\n}\n"
#define KRONSPARSE_WGMMA_SUMS_32(d) KRONSPARSE_WGMMA_16(d, 0)
#define KRONSPARSE_WGMMA_TEXT_48(instruction, tail) \
  "{\n.reg .pred p;\nsetp.ne.b32 p, %29, 0;\n" instruction(48) \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23}, " \
  "{%24, %25, %26, %27}, %28, p, 1, 1" tail ";\n}\n"
#define KRONSPARSE_WGMMA_SUMS_48(d) KRONSPARSE_WGMMA_16(d, 0), KRONSPARSE_WGMMA_8(d, 16)
#define KRONSPARSE_WGMMA_TEXT_64(instruction, tail) \
  "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n" instruction(64) \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, " \
  "{%32, %33, %34, %35}, %36, p, 1, 1" tail ";\n}\n"
#define KRONSPARSE_WGMMA_SUMS_64(d) KRONSPARSE_WGMMA_16(d, 0), KRONSPARSE_WGMMA_16(d, 16)
#define KRONSPARSE_WGMMA_TEXT_96(instruction, tail) \
  "{\n.reg .pred p;\nsetp.ne.b32 p, %53, 0;\n" instruction(96) \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, " \
  "{%48, %49, %50, %51}, %52, p, 1, 1" tail ";\n}\n"
#define KRONSPARSE_WGMMA_SUMS_96(d) \
  KRONSPARSE_WGMMA_16(d, 0), KRONSPARSE_WGMMA_16(d, 16), KRONSPARSE_WGMMA_16(d, 32)
#define KRONSPARSE_WGMMA_TEXT_128(instruction, tail) \
  "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n" instruction(128) \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, " \
  "{%64, %65, %66, %67}, %68, p, 1, 1" tail ";\n}\n"
#define KRONSPARSE_WGMMA_SUMS_128(d)                                                 \
  KRONSPARSE_WGMMA_16(d, 0), KRONSPARSE_WGMMA_16(d, 16), KRONSPARSE_WGMMA_16(d, 32), \
      KRONSPARSE_WGMMA_16(d, 48)
#define KRONSPARSE_WGMMA_TEXT_192(instruction, tail) \
  "{\n.reg .pred p;\nsetp.ne.b32 p, %101, 0;\n" instruction(192) \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}, " \
  "{%96, %97, %98, %99}, %100, p, 1, 1" tail ";\n}\n"
#define KRONSPARSE_WGMMA_SUMS_192(d)                                                 \
  KRONSPARSE_WGMMA_16(d, 0), KRONSPARSE_WGMMA_16(d, 16), KRONSPARSE_WGMMA_16(d, 32), \
      KRONSPARSE_WGMMA_16(d, 48), KRONSPARSE_WGMMA_16(d, 64), KRONSPARSE_WGMMA_16(d, 80)
#define KRONSPARSE_WGMMA_TEXT_256(instruction, tail) \
  "{\n.reg .pred p;\nsetp.ne.b32 p, %133, 0;\n" instruction(256) \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, " \
  "{%128, %129, %130, %131}, %132, p, 1, 1" tail ";\n}\n"
#define KRONSPARSE_WGMMA_SUMS_256(d)                                                      \
  KRONSPARSE_WGMMA_16(d, 0), KRONSPARSE_WGMMA_16(d, 16), KRONSPARSE_WGMMA_16(d, 32),      \
      KRONSPARSE_WGMMA_16(d, 48), KRONSPARSE_WGMMA_16(d, 64), KRONSPARSE_WGMMA_16(d, 80), \
      KRONSPARSE_WGMMA_16(d, 96), KRONSPARSE_WGMMA_16(d, 112)

template <int N>
struct Wgmma;

#define KRONSPARSE_WGMMA_FUNCTION(name, n, instruction, tail)                                           \
  __device__ static void name(float(&d)[n / 2], const std::uint32_t(&a)[4], std::uint64_t b, int add) { \
    KRONSPARSE_WGMMA(KRONSPARSE_WGMMA_TEXT_##n(instruction, tail)                                       \
                     : KRONSPARSE_WGMMA_SUMS_##n(d)                                                     \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));                   \
  }

/// `b` describes the right operand in shared memory; the sums start anew when `add` is 0.
#define KRONSPARSE_WGMMA_STRUCT(n)                                   \
  template <>                                                        \
  struct Wgmma<n> {                                                  \
    KRONSPARSE_WGMMA_FUNCTION(f16, n, KRONSPARSE_WGMMA_F16, ", 0")   \
    KRONSPARSE_WGMMA_FUNCTION(bf16, n, KRONSPARSE_WGMMA_BF16, ", 0") \
    KRONSPARSE_WGMMA_FUNCTION(tf32, n, KRONSPARSE_WGMMA_TF32, "")    \
  };

KRONSPARSE_WGMMA_STRUCT(32)
KRONSPARSE_WGMMA_STRUCT(48)
KRONSPARSE_WGMMA_STRUCT(64)
KRONSPARSE_WGMMA_STRUCT(96)
KRONSPARSE_WGMMA_STRUCT(128)
KRONSPARSE_WGMMA_STRUCT(192)
KRONSPARSE_WGMMA_STRUCT(256)

#undef KRONSPARSE_WGMMA_STRUCT
#undef KRONSPARSE_WGMMA_FUNCTION
#undef KRONSPARSE_WGMMA_F16
#undef KRONSPARSE_WGMMA_BF16
#undef KRONSPARSE_WGMMA_TF32
#undef KRONSPARSE_WGMMA_16
#undef KRONSPARSE_WGMMA_8
#undef KRONSPARSE_WGMMA_TEXT_32
#undef KRONSPARSE_WGMMA_TEXT_48
#undef KRONSPARSE_WGMMA_TEXT_64
#undef KRONSPARSE_WGMMA_TEXT_96
#undef KRONSPARSE_WGMMA_TEXT_128
#undef KRONSPARSE_WGMMA_TEXT_192
#undef KRONSPARSE_WGMMA_TEXT_256
#undef KRONSPARSE_WGMMA_SUMS_32
#undef KRONSPARSE_WGMMA_SUMS_48
#undef KRONSPARSE_WGMMA_SUMS_64
#undef KRONSPARSE_WGMMA_SUMS_96
#undef KRONSPARSE_WGMMA_SUMS_128
#undef KRONSPARSE_WGMMA_SUMS_192
#undef KRONSPARSE_WGMMA_SUMS_256

/// Orders this warpgroup's writes of registers before the wgmma that follow.
__device__ inline void wgmma_fence() { KRONSPARSE_WGMMA("wgmma.fence.sync.aligned;\n" ::: "memory"); }
__device__ inline void wgmma_commit() { KRONSPARSE_WGMMA("wgmma.commit_group.sync.aligned;\n" ::: "memory"); }
/// Waits until at most `Pending` committed groups are still under way.
template <int Pending>
__device__ inline void wgmma_wait() {
  KRONSPARSE_WGMMA("wgmma.wait_group.sync.aligned %0;\n" ::"n"(Pending) : "memory");
}

#undef KRONSPARSE_WGMMA

/// The right operand as 8x16-byte blocks: `next_terms` bytes to the block of the
/// following terms, `next_columns` to that of the following 8 columns.
__device__ inline std::uint64_t wgmma_operand(std::uint32_t address, int next_terms, int next_columns) {
  return static_cast<std::uint64_t>((address & 0x3ffff) >> 4) |
         static_cast<std::uint64_t>(next_terms >> 4) << 16 |
         static_cast<std::uint64_t>(next_columns >> 4) << 32;
}

}  // namespace kronsparse::cuda::ptx
