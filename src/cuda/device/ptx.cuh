// The PTX instructions of the tensor-core kernels, one function each.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace kronsparse::cuda::ptx {

__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

/// The block's number. Each call reads it anew, so that numbers computed from it need not stay in registers.
__device__ inline std::uint32_t block_number() {
  std::uint32_t number;
  asm volatile("mov.u32 %0, %%ctaid.x;\n" : "=r"(number));
  return number;
}

/// Makes the compiler compute an address here, not at its first use or at each use.
template <class T>
__device__ inline void settle(T*& address) {
  asm volatile("" : "+l"(address));
}
__device__ inline void settle(std::uint32_t& address) { asm volatile("" : "+r"(address)); }

/// Stores neighbouring words with one instruction. The compiler may split such stores otherwise.
__device__ inline void store_words(void* to, const std::uint32_t (&words)[4]) {
  asm volatile("st.global.v4.b32 [%0], {%1,%2,%3,%4};\n" ::"l"(to), "r"(words[0]), "r"(words[1]),
               "r"(words[2]), "r"(words[3])
               : "memory");
}
__device__ inline void store_words(void* to, const std::uint32_t (&words)[2]) {
  asm volatile("st.global.v2.b32 [%0], {%1,%2};\n" ::"l"(to), "r"(words[0]), "r"(words[1]) : "memory");
}
__device__ inline void store_words(void* to, const std::uint32_t (&words)[1]) {
  asm volatile("st.global.b32 [%0], %1;\n" ::"l"(to), "r"(words[0]) : "memory");
}

/// The same if `is_there`, without a branch.
__device__ inline void store_words_if(bool is_there, void* to, const std::uint32_t (&words)[4]) {
  asm volatile(
      "{\n.reg .pred there;\nsetp.ne.s32 there, %5, 0;\n@there st.global.v4.b32 [%0], {%1,%2,%3,%4};\n}\n" ::
          "l"(to),
      "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]), "r"(static_cast<int>(is_there))
      : "memory");
}
__device__ inline void store_words_if(bool is_there, void* to, const std::uint32_t (&words)[2]) {
  asm volatile(
      "{\n.reg .pred there;\nsetp.ne.s32 there, %3, 0;\n@there st.global.v2.b32 [%0], {%1,%2};\n}\n" ::"l"(
          to),
      "r"(words[0]), "r"(words[1]), "r"(static_cast<int>(is_there))
      : "memory");
}
__device__ inline void store_words_if(bool is_there, void* to, const std::uint32_t (&words)[1]) {
  asm volatile(
      "{\n.reg .pred there;\nsetp.ne.s32 there, %2, 0;\n@there st.global.b32 [%0], %1;\n}\n" ::"l"(to),
      "r"(words[0]), "r"(static_cast<int>(is_there))
      : "memory");
}

// The host refuses these kernels before sm_80; their bodies only have to compile.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define KRONSPARSE_SM80_ASM(...) asm volatile(__VA_ARGS__)
#define KRONSPARSE_SM80_PURE_ASM(...) asm(__VA_ARGS__)
#else
#define KRONSPARSE_SM80_ASM(...) __trap()
#define KRONSPARSE_SM80_PURE_ASM(...) __trap()
#endif

/// Copies 4 bytes to shared memory, or writes zeros when `valid` is false.
__device__ inline void copy_async_4(std::uint32_t to, const void* from, bool valid) {
  KRONSPARSE_SM80_ASM("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(to), "l"(from),
                      "r"(valid ? 4 : 0));
}

/// Copies the first `bytes` (0 to 16) of 16 and writes zeros for the others.
__device__ inline void copy_async_16(std::uint32_t to, const void* from, int bytes) {
  KRONSPARSE_SM80_ASM("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(bytes));
}

/// The same for 8 or 16 bytes.
template <int size>
__device__ inline void copy_async(std::uint32_t to, const void* from, int bytes) {
  if constexpr (size == 16)
    copy_async_16(to, from, bytes);
  else
    KRONSPARSE_SM80_ASM("cp.async.ca.shared.global [%0], [%1], 8, %2;\n" ::"r"(to), "l"(from), "r"(bytes));
}

/// The same for 4, 8 or 16 bytes of a line of 128, which L2 fetches as a whole: the rest is wanted soon.
template <int size>
__device__ inline void copy_async_of_line(std::uint32_t to, const void* from, int bytes) {
  if constexpr (size == 16)
    KRONSPARSE_SM80_ASM("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                        "r"(bytes)
                        : "memory");
  else
    KRONSPARSE_SM80_ASM("cp.async.ca.shared.global.L2::128B [%0], [%1], %2, %3;" ::"r"(to), "l"(from),
                        "n"(size), "r"(bytes)
                        : "memory");
}

__device__ inline void commit_copies() { KRONSPARSE_SM80_ASM("cp.async.commit_group;\n" ::); }

/// Waits until at most `Pending` of the committed groups are still under way.
template <int Pending>
__device__ inline void wait_copies() {
  KRONSPARSE_SM80_ASM("cp.async.wait_group %0;\n" ::"n"(Pending) : "memory");
}

__device__ inline uint4 load_shared_16(std::uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address));
  return v;
}

__device__ inline uint2 load_shared_8(std::uint32_t address) {
  uint2 v;
  asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];\n" : "=r"(v.x), "=r"(v.y) : "r"(address));
  return v;
}

__device__ inline std::uint32_t load_shared_4(std::uint32_t address) {
  std::uint32_t v;
  asm volatile("ld.shared.u32 %0, [%1];\n" : "=r"(v) : "r"(address));
  return v;
}

__device__ inline void store_shared_4(std::uint32_t address, std::uint32_t value) {
  asm volatile("st.shared.u32 [%0], %1;\n" ::"r"(address), "r"(value) : "memory");
}

/// Loads four 8x8 matrices of 16-bit elements. The lanes give the addresses of the rows.
__device__ inline uint4 load_matrices(std::uint32_t address) {
  uint4 v;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address));
  return v;
}

/// The same, transposed.
__device__ inline uint4 load_matrices_transposed(std::uint32_t address) {
  uint4 v;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address));
  return v;
}

/// d += a b for a 16x16 and b 16x8 of 16-bit elements.
__device__ inline void mma_f16(float (&d)[4], const uint4& a, std::uint32_t b0, std::uint32_t b1) {
  KRONSPARSE_SM80_PURE_ASM(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

__device__ inline void mma_bf16(float (&d)[4], const uint4& a, std::uint32_t b0, std::uint32_t b1) {
  KRONSPARSE_SM80_PURE_ASM(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

/// d += a b for a 16x8 and b 8x8 of f32 numbers. The tensor core ignores their low 13 bits.
__device__ inline void mma_tf32(float (&d)[4], const uint4& a, std::uint32_t b0, std::uint32_t b1) {
  KRONSPARSE_SM80_PURE_ASM(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

/// The nearest number with 10 bits of mantissa; NaN stays NaN.
__device__ inline std::uint32_t round_to_tf32(std::uint32_t bits) {
  std::uint32_t rounded = 0;
  KRONSPARSE_SM80_PURE_ASM("cvt.rna.tf32.f32 %0, %1;\n" : "=r"(rounded) : "f"(__uint_as_float(bits)));
  return rounded;
}

#undef KRONSPARSE_SM80_ASM
#undef KRONSPARSE_SM80_PURE_ASM

}  // namespace kronsparse::cuda::ptx
