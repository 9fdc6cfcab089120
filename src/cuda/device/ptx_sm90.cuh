// Hopper's barriers, bulk copies and register budgets, one function each.
#pragma once

#include <cstdint>

#include "cuda/device/ptx.cuh"

namespace kronsparse::cuda::ptx {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define KRONSPARSE_SM90_ASM(...) asm volatile(__VA_ARGS__)
#else
#define KRONSPARSE_SM90_ASM(...) __trap()
#endif
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define KRONSPARSE_SM90A_ASM(...) asm volatile(__VA_ARGS__)
#else
#define KRONSPARSE_SM90A_ASM(...) __trap()
#endif

__device__ inline void barrier_init(std::uint32_t barrier, int arrivals) {
  KRONSPARSE_SM90_ASM("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(barrier), "r"(arrivals) : "memory");
}
/// Makes initialised barriers visible to the copy engine.
__device__ inline void barrier_init_fence() {
  KRONSPARSE_SM90_ASM("fence.mbarrier_init.release.cluster;\n" ::: "memory");
}
__device__ inline void barrier_arrive(std::uint32_t barrier) {
  KRONSPARSE_SM90_ASM("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(barrier) : "memory");
}
/// Arrives, and keeps the phase open until `bytes` more have been copied.
__device__ inline void barrier_arrive_expecting(std::uint32_t barrier, int bytes) {
  KRONSPARSE_SM90_ASM("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(barrier), "r"(bytes)
                      : "memory");
}
/// Arrives when all asynchronous copies that the thread has started so far have landed.
__device__ inline void barrier_arrive_after_copies(std::uint32_t barrier) {
  KRONSPARSE_SM90_ASM("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];\n" ::"r"(barrier) : "memory");
}
/// Waits for the end of the phase with this parity.
__device__ inline void barrier_wait(std::uint32_t barrier, int parity) {
  KRONSPARSE_SM90_ASM(
      "{\n.reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra finished;\n"
      "bra again;\n"
      "finished:\n}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

/// Copies a multiple of 16 bytes. They count towards the barrier's phase.
__device__ inline void copy_bulk(std::uint32_t to, const void* from, int bytes, std::uint32_t barrier) {
  KRONSPARSE_SM90_ASM(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

/// Asks for a multiple of 16 bytes to be brought to L2.
__device__ inline void prefetch_bulk(const void* from, int bytes) {
  KRONSPARSE_SM90_ASM("cp.async.bulk.prefetch.L2.global [%0], %1;\n" ::"l"(from), "r"(bytes) : "memory");
}

/// Brings a tensor map, which is an argument of the kernel, into the cache that the copy engine reads it
/// from.
__device__ inline void prefetch_map(const void* map) {
  KRONSPARSE_SM90_ASM("prefetch.tensormap [%0];\n" ::"l"(map) : "memory");
}

/// Copies a box of a tensor. Its bytes count towards the barrier's phase. Elements outside the tensor become
/// zeros.
__device__ inline void copy_box(std::uint32_t to, const void* map, int at0, int at1, int at2, int at3,
                                std::uint32_t barrier) {
  KRONSPARSE_SM90_ASM(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4, %5}], [%6];\n" ::"r"(to),
      "l"(map), "r"(at0), "r"(at1), "r"(at2), "r"(at3), "r"(barrier)
      : "memory");
}
/// Stores a box of a tensor, without the elements outside the tensor. wait_bulk_stores() waits for it.
__device__ inline void store_box(const void* map, int at0, int at1, int at2, int at3, std::uint32_t from) {
  KRONSPARSE_SM90_ASM(
      "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4}], [%5];\n" ::"l"(map),
      "r"(at0), "r"(at1), "r"(at2), "r"(at3), "r"(from)
      : "memory");
}

/// Copies a multiple of 16 bytes from shared memory to global memory. The copies up to commit_bulk_stores()
/// are one group, which wait_bulk_stores() waits for.
__device__ inline void store_bulk(void* to, std::uint32_t from, int bytes) {
  KRONSPARSE_SM90_ASM("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n" ::"l"(to), "r"(from),
                      "r"(bytes)
                      : "memory");
}
__device__ inline void commit_bulk_stores() {
  KRONSPARSE_SM90_ASM("cp.async.bulk.commit_group;\n" ::: "memory");
}
/// Waits until all but the last `Pending` groups of the thread's bulk stores have read shared memory.
template <int Pending = 0>
__device__ inline void wait_bulk_stores() {
  KRONSPARSE_SM90_ASM("cp.async.bulk.wait_group.read %0;\n" ::"n"(Pending) : "memory");
}
/// Makes ordinary writes of shared memory visible to the copy engine.
__device__ inline void fence_for_bulk() {
  KRONSPARSE_SM90_ASM("fence.proxy.async.shared::cta;\n" ::: "memory");
}

/// Waits until the earlier kernels that this one overlaps (launch.hpp) have ended and their writes are
/// visible.
__device__ inline void wait_for_earlier_kernels() {
  KRONSPARSE_SM90_ASM("griddepcontrol.wait;\n" ::: "memory");
}
/// Lets the next kernel start where there is room. It waits in the same way.
__device__ inline void let_later_kernels_start() {
  KRONSPARSE_SM90_ASM("griddepcontrol.launch_dependents;\n" ::: "memory");
}

/// Arrives at the cluster's barrier. Every thread does, and waits before it arrives again.
__device__ inline void cluster_arrive() {
  KRONSPARSE_SM90_ASM("barrier.cluster.arrive.release.aligned;\n" ::: "memory");
}
/// The same without making writes visible. It saves the wait until they are visible to the whole GPU.
__device__ inline void cluster_arrive_relaxed() {
  KRONSPARSE_SM90_ASM("barrier.cluster.arrive.relaxed.aligned;\n" ::: "memory");
}
/// Waits for every thread of the cluster. Their earlier writes are then visible.
__device__ inline void cluster_wait() {
  KRONSPARSE_SM90_ASM("barrier.cluster.wait.acquire.aligned;\n" ::: "memory");
}
__device__ inline void cluster_barrier() {
  cluster_arrive();
  cluster_wait();
}

/// The address, in block `rank` of the cluster, of the memory that lies at `address` in this block.
__device__ inline std::uint32_t cluster_address(std::uint32_t address, std::uint32_t rank) {
  std::uint32_t there = 0;
  KRONSPARSE_SM90_ASM("mapa.shared::cluster.u32 %0, %1, %2;\n" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}
/// Copies a multiple of 16 bytes from shared memory to that of another block of the cluster. They count
/// towards a barrier there.
__device__ inline void copy_bulk_to_cluster(std::uint32_t to, std::uint32_t from, int bytes,
                                            std::uint32_t barrier) {
  KRONSPARSE_SM90_ASM(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::"r"(
          to),
      "r"(from), "r"(bytes), "r"(barrier)
      : "memory");
}
__device__ inline uint4 load_cluster_16(std::uint32_t address) {
  uint4 v{};
  KRONSPARSE_SM90_ASM("ld.shared::cluster.v4.u32 {%0,%1,%2,%3}, [%4];\n"
                      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                      : "r"(address)
                      : "memory");
  return v;
}
/// Takes floats, not their bits: the compiler might read the bits before the wgmma that writes them is waited
/// for.
__device__ inline void store_cluster_floats(std::uint32_t address, float v0, float v1) {
  KRONSPARSE_SM90_ASM("st.shared::cluster.v2.f32 [%0], {%1,%2};\n" ::"r"(address), "f"(v0), "f"(v1)
                      : "memory");
}

__device__ inline void store_cluster_16(std::uint32_t address, std::uint32_t v0, std::uint32_t v1,
                                        std::uint32_t v2, std::uint32_t v3) {
  KRONSPARSE_SM90_ASM("st.shared::cluster.v4.u32 [%0], {%1,%2,%3,%4};\n" ::"r"(address), "r"(v0), "r"(v1),
                      "r"(v2), "r"(v3)
                      : "memory");
}
__device__ inline void store_cluster_4(std::uint32_t address, std::uint32_t value) {
  KRONSPARSE_SM90_ASM("st.shared::cluster.u32 [%0], %1;\n" ::"r"(address), "r"(value) : "memory");
}

/// The same as store_cluster_floats, asynchronously. The bytes count towards a barrier of the other block, as
/// those of a copy do, and this block need not keep anything.
__device__ inline void store_async_floats(std::uint32_t address, float v0, float v1, std::uint32_t barrier) {
  KRONSPARSE_SM90_ASM(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1,%2}, [%3];\n" ::"r"(
          address),
      "f"(v0), "f"(v1), "r"(barrier)
      : "memory");
}
__device__ inline void store_async_floats(std::uint32_t address, float v0, float v1, float v2, float v3,
                                          std::uint32_t barrier) {
  KRONSPARSE_SM90_ASM(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1,%2,%3,%4}, [%5];\n" ::"r"(
          address),
      "f"(v0), "f"(v1), "f"(v2), "f"(v3), "r"(barrier)
      : "memory");
}

/// Waits at one of the block's 16 numbered barriers for `threads` threads, which are whole warps.
__device__ inline void barrier_of(int number, int threads) {
  asm volatile("bar.sync %0, %1;\n" ::"r"(number), "r"(threads) : "memory");
}

/// Arrives at such a barrier without waiting.
__device__ inline void barrier_signal(int number, int threads) {
  asm volatile("bar.arrive %0, %1;\n" ::"r"(number), "r"(threads) : "memory");
}

/// Stores four 8x8 matrices of 16-bit elements transposed. The lanes give the addresses of the rows.
__device__ inline void store_matrices_transposed(std::uint32_t address, std::uint32_t r0, std::uint32_t r1,
                                                 std::uint32_t r2, std::uint32_t r3) {
  KRONSPARSE_SM90_ASM("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};\n" ::"r"(address),
                      "r"(r0), "r"(r1), "r"(r2), "r"(r3)
                      : "memory");
}

/// The same without transposing.
__device__ inline void store_matrices(std::uint32_t address, std::uint32_t r0, std::uint32_t r1,
                                      std::uint32_t r2, std::uint32_t r3) {
  KRONSPARSE_SM90_ASM("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};\n" ::"r"(address),
                      "r"(r0), "r"(r1), "r"(r2), "r"(r3)
                      : "memory");
}

__device__ inline void store_shared_2(std::uint32_t address, std::uint16_t value) {
  asm volatile("st.shared.u16 [%0], %1;\n" ::"r"(address), "h"(value) : "memory");
}
__device__ inline std::uint16_t load_shared_2(std::uint32_t address) {
  std::uint16_t value;
  asm volatile("ld.shared.u16 %0, [%1];\n" : "=h"(value) : "r"(address) : "memory");
  return value;
}
/// Takes a float, not its bits: the compiler might read the bits before the wgmma that writes them is waited
/// for.
__device__ inline void store_shared_float(std::uint32_t address, float value) {
  asm volatile("st.shared.f32 [%0], %1;\n" ::"r"(address), "f"(value) : "memory");
}
__device__ inline void store_shared_floats(std::uint32_t address, float v0, float v1) {
  asm volatile("st.shared.v2.f32 [%0], {%1,%2};\n" ::"r"(address), "f"(v0), "f"(v1) : "memory");
}
__device__ inline void store_shared_floats(std::uint32_t address, float v0, float v1, float v2, float v3) {
  asm volatile("st.shared.v4.f32 [%0], {%1,%2,%3,%4};\n" ::"r"(address), "f"(v0), "f"(v1), "f"(v2), "f"(v3)
               : "memory");
}
__device__ inline void store_shared_8(std::uint32_t address, std::uint32_t v0, std::uint32_t v1) {
  asm volatile("st.shared.v2.u32 [%0], {%1,%2};\n" ::"r"(address), "r"(v0), "r"(v1) : "memory");
}
__device__ inline void store_shared_16(std::uint32_t address, std::uint32_t v0, std::uint32_t v1,
                                       std::uint32_t v2, std::uint32_t v3) {
  asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};\n" ::"r"(address), "r"(v0), "r"(v1), "r"(v2), "r"(v3)
               : "memory");
}

/// Gives registers of this warpgroup back; take_registers() takes some that another warpgroup gave.
template <int Registers>
__device__ inline void give_registers() {
  KRONSPARSE_SM90A_ASM("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(Registers));
}
template <int Registers>
__device__ inline void take_registers() {
  KRONSPARSE_SM90A_ASM("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(Registers));
}

#undef KRONSPARSE_SM90_ASM
#undef KRONSPARSE_SM90A_ASM

}  // namespace kronsparse::cuda::ptx
