// wgmma computes d += a b. a has 64 rows, 16 for each warp of a warpgroup; b has N columns; both have 16
// terms of a half type or 8 of TF32. a lies in registers or in shared memory.
//
// PTX names every register, so each N has its own text. Nothing else differs.
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

/// One instruction. `add` is the number of the operand that says whether to add to the sums.
#define KRONSPARSE_WGMMA_TEXT(instruction, sums, operands, add, tail)                                   \
  "{\n.reg .pred p;\nsetp.ne.b32 p, " add ", 0;\n" instruction "{" sums "}, " operands ", p, 1, 1" tail \
  ";\n}\n"
// For each N: the sums by number and as operands. Then, by number, the factors and `add`: with the left
// factor in registers (RS), and with both in shared memory (SS).
#define KRONSPARSE_WGMMA_LIST_8 "%0, %1, %2, %3"
#define KRONSPARSE_WGMMA_SUMS_8(d) "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
#define KRONSPARSE_WGMMA_RS_8 "{%4, %5, %6, %7}, %8", "%9"
#define KRONSPARSE_WGMMA_SS_8 "%4, %5", "%6"
#define KRONSPARSE_WGMMA_LIST_16 "%0, %1, %2, %3, %4, %5, %6, %7"
#define KRONSPARSE_WGMMA_SUMS_16(d) KRONSPARSE_WGMMA_8(d, 0)
#define KRONSPARSE_WGMMA_RS_16 "{%8, %9, %10, %11}, %12", "%13"
#define KRONSPARSE_WGMMA_SS_16 "%8, %9", "%10"
#define KRONSPARSE_WGMMA_LIST_24 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11"
#define KRONSPARSE_WGMMA_SUMS_24(d) KRONSPARSE_WGMMA_8(d, 0), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11])
#define KRONSPARSE_WGMMA_RS_24 "{%12, %13, %14, %15}, %16", "%17"
#define KRONSPARSE_WGMMA_SS_24 "%12, %13", "%14"
#define KRONSPARSE_WGMMA_LIST_32 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define KRONSPARSE_WGMMA_SUMS_32(d) KRONSPARSE_WGMMA_16(d, 0)
#define KRONSPARSE_WGMMA_RS_32 "{%16, %17, %18, %19}, %20", "%21"
#define KRONSPARSE_WGMMA_SS_32 "%16, %17", "%18"
#define KRONSPARSE_WGMMA_LIST_40 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19"
#define KRONSPARSE_WGMMA_SUMS_40(d) \
  KRONSPARSE_WGMMA_16(d, 0), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19])
#define KRONSPARSE_WGMMA_RS_40 "{%20, %21, %22, %23}, %24", "%25"
#define KRONSPARSE_WGMMA_SS_40 "%20, %21", "%22"
#define KRONSPARSE_WGMMA_LIST_48                                           \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23"
#define KRONSPARSE_WGMMA_SUMS_48(d) KRONSPARSE_WGMMA_16(d, 0), KRONSPARSE_WGMMA_8(d, 16)
#define KRONSPARSE_WGMMA_RS_48 "{%24, %25, %26, %27}, %28", "%29"
#define KRONSPARSE_WGMMA_SS_48 "%24, %25", "%26"
#define KRONSPARSE_WGMMA_LIST_64                                           \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define KRONSPARSE_WGMMA_SUMS_64(d) KRONSPARSE_WGMMA_16(d, 0), KRONSPARSE_WGMMA_16(d, 16)
#define KRONSPARSE_WGMMA_RS_64 "{%32, %33, %34, %35}, %36", "%37"
#define KRONSPARSE_WGMMA_SS_64 "%32, %33", "%34"
#define KRONSPARSE_WGMMA_LIST_96                                                     \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define KRONSPARSE_WGMMA_SUMS_96(d) \
  KRONSPARSE_WGMMA_16(d, 0), KRONSPARSE_WGMMA_16(d, 16), KRONSPARSE_WGMMA_16(d, 32)
#define KRONSPARSE_WGMMA_RS_96 "{%48, %49, %50, %51}, %52", "%53"
#define KRONSPARSE_WGMMA_SS_96 "%48, %49", "%50"
#define KRONSPARSE_WGMMA_LIST_128                                                    \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define KRONSPARSE_WGMMA_SUMS_128(d)                                                 \
  KRONSPARSE_WGMMA_16(d, 0), KRONSPARSE_WGMMA_16(d, 16), KRONSPARSE_WGMMA_16(d, 32), \
      KRONSPARSE_WGMMA_16(d, 48)
#define KRONSPARSE_WGMMA_RS_128 "{%64, %65, %66, %67}, %68", "%69"
#define KRONSPARSE_WGMMA_SS_128 "%64, %65", "%66"
#define KRONSPARSE_WGMMA_LIST_192                                                    \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define KRONSPARSE_WGMMA_SUMS_192(d)                                                 \
  KRONSPARSE_WGMMA_16(d, 0), KRONSPARSE_WGMMA_16(d, 16), KRONSPARSE_WGMMA_16(d, 32), \
      KRONSPARSE_WGMMA_16(d, 48), KRONSPARSE_WGMMA_16(d, 64), KRONSPARSE_WGMMA_16(d, 80)
#define KRONSPARSE_WGMMA_RS_192 "{%96, %97, %98, %99}, %100", "%101"
#define KRONSPARSE_WGMMA_SS_192 "%96, %97", "%98"
#define KRONSPARSE_WGMMA_LIST_256                                                                \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                       \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "             \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "             \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "             \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "             \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "             \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define KRONSPARSE_WGMMA_SUMS_256(d)                                                      \
  KRONSPARSE_WGMMA_16(d, 0), KRONSPARSE_WGMMA_16(d, 16), KRONSPARSE_WGMMA_16(d, 32),      \
      KRONSPARSE_WGMMA_16(d, 48), KRONSPARSE_WGMMA_16(d, 64), KRONSPARSE_WGMMA_16(d, 80), \
      KRONSPARSE_WGMMA_16(d, 96), KRONSPARSE_WGMMA_16(d, 112)
#define KRONSPARSE_WGMMA_RS_256 "{%128, %129, %130, %131}, %132", "%133"
#define KRONSPARSE_WGMMA_SS_256 "%128, %129", "%130"

template <int N>
struct Wgmma;

// This step expands the factors' macro, so that the preprocessor sees its comma.
#define KRONSPARSE_WGMMA_EXPAND(instruction, sums, factors, tail) \
  KRONSPARSE_WGMMA_TEXT(instruction, sums, factors, tail)

#define KRONSPARSE_WGMMA_FUNCTION(name, n, instruction, tail)                                             \
  __device__ static void name(float(&d)[n / 2], const std::uint32_t(&a)[4], std::uint64_t b, int add) {   \
    KRONSPARSE_WGMMA(                                                                                     \
        KRONSPARSE_WGMMA_EXPAND(instruction(n), KRONSPARSE_WGMMA_LIST_##n, KRONSPARSE_WGMMA_RS_##n, tail) \
        : KRONSPARSE_WGMMA_SUMS_##n(d)                                                                    \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));                                  \
  }
#define KRONSPARSE_WGMMA_SHARED_FUNCTION(name, n, instruction, tail)                                      \
  __device__ static void name(float(&d)[n / 2], std::uint64_t a, std::uint64_t b, int add) {              \
    KRONSPARSE_WGMMA(                                                                                     \
        KRONSPARSE_WGMMA_EXPAND(instruction(n), KRONSPARSE_WGMMA_LIST_##n, KRONSPARSE_WGMMA_SS_##n, tail) \
        : KRONSPARSE_WGMMA_SUMS_##n(d)                                                                    \
        : "l"(a), "l"(b), "r"(add));                                                                      \
  }

/// `b` describes the right operand in shared memory. The sums start at zero if `add` is 0. `_shared`: `a`
/// describes the left operand in shared memory, with a row of terms for each sample. `_columns`: the left
/// operand has a row of samples for each term. `_both_columns`: in addition, the right operand has a row of
/// columns for each term.
#define KRONSPARSE_WGMMA_STRUCT(n)                                                          \
  template <>                                                                               \
  struct Wgmma<n> {                                                                         \
    KRONSPARSE_WGMMA_FUNCTION(f16, n, KRONSPARSE_WGMMA_F16, ", 0")                          \
    KRONSPARSE_WGMMA_FUNCTION(bf16, n, KRONSPARSE_WGMMA_BF16, ", 0")                        \
    KRONSPARSE_WGMMA_FUNCTION(tf32, n, KRONSPARSE_WGMMA_TF32, "")                           \
    KRONSPARSE_WGMMA_SHARED_FUNCTION(f16_shared, n, KRONSPARSE_WGMMA_F16, ", 0, 0")         \
    KRONSPARSE_WGMMA_SHARED_FUNCTION(bf16_shared, n, KRONSPARSE_WGMMA_BF16, ", 0, 0")       \
    KRONSPARSE_WGMMA_SHARED_FUNCTION(f16_columns, n, KRONSPARSE_WGMMA_F16, ", 1, 0")        \
    KRONSPARSE_WGMMA_SHARED_FUNCTION(bf16_columns, n, KRONSPARSE_WGMMA_BF16, ", 1, 0")      \
    KRONSPARSE_WGMMA_SHARED_FUNCTION(f16_both_columns, n, KRONSPARSE_WGMMA_F16, ", 1, 1")   \
    KRONSPARSE_WGMMA_SHARED_FUNCTION(bf16_both_columns, n, KRONSPARSE_WGMMA_BF16, ", 1, 1") \
  };

KRONSPARSE_WGMMA_STRUCT(8)
KRONSPARSE_WGMMA_STRUCT(16)
KRONSPARSE_WGMMA_STRUCT(24)
KRONSPARSE_WGMMA_STRUCT(32)
KRONSPARSE_WGMMA_STRUCT(40)
KRONSPARSE_WGMMA_STRUCT(48)
KRONSPARSE_WGMMA_STRUCT(64)
KRONSPARSE_WGMMA_STRUCT(96)
KRONSPARSE_WGMMA_STRUCT(128)
KRONSPARSE_WGMMA_STRUCT(192)
KRONSPARSE_WGMMA_STRUCT(256)

#undef KRONSPARSE_WGMMA_STRUCT
#undef KRONSPARSE_WGMMA_FUNCTION
#undef KRONSPARSE_WGMMA_SHARED_FUNCTION
#undef KRONSPARSE_WGMMA_EXPAND
#undef KRONSPARSE_WGMMA_TEXT
#undef KRONSPARSE_WGMMA_F16
#undef KRONSPARSE_WGMMA_BF16
#undef KRONSPARSE_WGMMA_TF32
#undef KRONSPARSE_WGMMA_16
#undef KRONSPARSE_WGMMA_8
#undef KRONSPARSE_WGMMA_LIST_8
#undef KRONSPARSE_WGMMA_SUMS_8
#undef KRONSPARSE_WGMMA_RS_8
#undef KRONSPARSE_WGMMA_SS_8
#undef KRONSPARSE_WGMMA_LIST_16
#undef KRONSPARSE_WGMMA_SUMS_16
#undef KRONSPARSE_WGMMA_RS_16
#undef KRONSPARSE_WGMMA_SS_16
#undef KRONSPARSE_WGMMA_LIST_24
#undef KRONSPARSE_WGMMA_SUMS_24
#undef KRONSPARSE_WGMMA_RS_24
#undef KRONSPARSE_WGMMA_SS_24
#undef KRONSPARSE_WGMMA_LIST_32
#undef KRONSPARSE_WGMMA_SUMS_32
#undef KRONSPARSE_WGMMA_RS_32
#undef KRONSPARSE_WGMMA_SS_32
#undef KRONSPARSE_WGMMA_LIST_40
#undef KRONSPARSE_WGMMA_SUMS_40
#undef KRONSPARSE_WGMMA_RS_40
#undef KRONSPARSE_WGMMA_SS_40
#undef KRONSPARSE_WGMMA_LIST_48
#undef KRONSPARSE_WGMMA_SUMS_48
#undef KRONSPARSE_WGMMA_RS_48
#undef KRONSPARSE_WGMMA_SS_48
#undef KRONSPARSE_WGMMA_LIST_64
#undef KRONSPARSE_WGMMA_SUMS_64
#undef KRONSPARSE_WGMMA_RS_64
#undef KRONSPARSE_WGMMA_SS_64
#undef KRONSPARSE_WGMMA_LIST_96
#undef KRONSPARSE_WGMMA_SUMS_96
#undef KRONSPARSE_WGMMA_RS_96
#undef KRONSPARSE_WGMMA_SS_96
#undef KRONSPARSE_WGMMA_LIST_128
#undef KRONSPARSE_WGMMA_SUMS_128
#undef KRONSPARSE_WGMMA_RS_128
#undef KRONSPARSE_WGMMA_SS_128
#undef KRONSPARSE_WGMMA_LIST_192
#undef KRONSPARSE_WGMMA_SUMS_192
#undef KRONSPARSE_WGMMA_RS_192
#undef KRONSPARSE_WGMMA_SS_192
#undef KRONSPARSE_WGMMA_LIST_256
#undef KRONSPARSE_WGMMA_SUMS_256
#undef KRONSPARSE_WGMMA_RS_256
#undef KRONSPARSE_WGMMA_SS_256

/// Makes the compiler write an operand's registers here, not later between the wgmma instructions.
__device__ inline void wgmma_settle(std::uint32_t (&a)[4]) {
  KRONSPARSE_WGMMA("" : "+r"(a[0]), "+r"(a[1]), "+r"(a[2]), "+r"(a[3]));
}
/// The same for the registers that sums begin with.
template <int count>
__device__ inline void wgmma_settle(float (&sums)[count]) {
#pragma unroll
  for (float& sum : sums) KRONSPARSE_WGMMA("" : "+f"(sum));
}
/// Orders this warpgroup's writes of registers before the next wgmma.
__device__ inline void wgmma_fence() { KRONSPARSE_WGMMA("wgmma.fence.sync.aligned;\n" ::: "memory"); }
__device__ inline void wgmma_commit() { KRONSPARSE_WGMMA("wgmma.commit_group.sync.aligned;\n" ::: "memory"); }
/// Waits until at most `Pending` committed groups are still under way.
template <int Pending>
__device__ inline void wgmma_wait() {
  KRONSPARSE_WGMMA("wgmma.wait_group.sync.aligned %0;\n" ::"n"(Pending) : "memory");
}

#undef KRONSPARSE_WGMMA

/// Describes an operand that a tensor copy has laid out in swizzled rows of 128 bytes. Eight rows are 1024
/// bytes, and the next eight follow. A row holds terms of one sample, or samples of one term. In the second
/// case it holds 64 columns, and the next 64 lie `next_columns` bytes further on.
__device__ inline std::uint64_t wgmma_swizzled_operand(std::uint32_t address, int next_columns = 1024) {
  constexpr std::uint64_t next_eight = 1024 >> 4;
  constexpr std::uint64_t swizzle_128 = std::uint64_t{1} << 62;
  return static_cast<std::uint64_t>((address & 0x3ffff) >> 4) |
         static_cast<std::uint64_t>(next_columns >> 4) << 16 | next_eight << 32 | swizzle_128;
}

/// Describes an operand that consists of 8x16-byte blocks: 8 columns by 16 bytes of terms, or
/// (`_both_columns`) 8 terms by 16 bytes of columns. The block of the next terms lies `next_terms` bytes
/// further on, that of the next 8 columns `next_columns` bytes.
__device__ inline std::uint64_t wgmma_operand(std::uint32_t address, int next_terms, int next_columns) {
  return static_cast<std::uint64_t>((address & 0x3ffff) >> 4) |
         static_cast<std::uint64_t>(next_terms >> 4) << 16 |
         static_cast<std::uint64_t>(next_columns >> 4) << 32;
}

}  // namespace kronsparse::cuda::ptx
