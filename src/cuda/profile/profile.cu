// Kernels that do one thing each, as fast as the GPU can, and the clock beside them.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "cuda/host/runtime.hpp"
#include "cuda/profile/profile.hpp"
#include "kronsparse/buffer.hpp"

namespace kronsparse::cuda {
namespace {

constexpr int threads = 256;

/// Reads `units` of 16 bytes `repeats` times, past L1.
__global__ void read_units(const uint4* data, std::size_t units, int repeats, unsigned* sink) {
  unsigned all = 0;
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (int repeat = 0; repeat < repeats; ++repeat)
#pragma unroll 4
    for (std::size_t at = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; at < units; at += step) {
      const uint4 unit = __ldcg(data + at);
      all ^= unit.x ^ unit.y ^ unit.z ^ unit.w;
    }
  if (all == 0x12345678U) *sink = all;  // never, but the compiler cannot know
}

/// 16 bytes of shared memory for each thread and step.
__global__ void read_shared(int steps, unsigned* sink) {
  __shared__ uint4 data[1024];
  for (int at = static_cast<int>(threadIdx.x); at < 1024; at += threads)
    data[at] = make_uint4(at, at + 1, at + 2, at + 3);
  __syncthreads();
  unsigned all = 0, at = threadIdx.x;
#pragma unroll 8
  for (int step = 0; step < steps; ++step) {
    const uint4 unit = data[(at + step * 32) & 1023];
    all ^= unit.x ^ unit.y ^ unit.z ^ unit.w;
  }
  if (all == 0x12345678U) *sink = all;
}

/// Eight chains of multiply-adds for each thread.
template <class T>
__global__ void multiply_add(int steps, T factor, T* sink) {
  T sums[8];
  for (int chain = 0; chain < 8; ++chain) sums[chain] = static_cast<T>(chain + threadIdx.x);
#pragma unroll 4
  for (int step = 0; step < steps; ++step)
#pragma unroll
    for (int chain = 0; chain < 8; ++chain) sums[chain] = sums[chain] * factor + factor;
  T all = 0;
  for (int chain = 0; chain < 8; ++chain) all += sums[chain];
  if (all == static_cast<T>(12345)) *sink = all;
}

enum class Product { f16, bf16, tf32 };

/// Four chains of products of 16 x 8 x 16 (tf32: 8) for each warp.
template <Product product>
__global__ void multiply_tiles(int steps, float* sink) {
#if __CUDA_ARCH__ >= 800
  float sums[4][4] = {};
  std::uint32_t a[4], b[2];
  for (int at = 0; at < 4; ++at) a[at] = threadIdx.x + at;
  for (int at = 0; at < 2; ++at) b[at] = threadIdx.x * 3 + at;
  for (int step = 0; step < steps; ++step)
#pragma unroll
    for (int chain = 0; chain < 4; ++chain) {
      float(&c)[4] = sums[chain];
      if constexpr (product == Product::f16)
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
            "{%0,%1,%2,%3};\n"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
      else if constexpr (product == Product::bf16)
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
            "{%0,%1,%2,%3};\n"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
      else
        asm volatile(
            "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
            "{%0,%1,%2,%3};\n"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
  float all = 0;
  for (int chain = 0; chain < 4; ++chain)
    for (int at = 0; at < 4; ++at) all += sums[chain][at];
  if (all == 12345.0F) *sink = all;
#else
  static_cast<void>(steps);
  static_cast<void>(sink);
#endif
}

/// A ring of places in which each names the next, a little more than 4 KiB on.
__global__ void make_ring(std::uint32_t* places, std::uint32_t count) {
  for (std::uint32_t at = blockIdx.x * blockDim.x + threadIdx.x; at < count; at += gridDim.x * blockDim.x)
    places[at] = (at + 1057) % count;
}
__global__ void follow(const std::uint32_t* places, int steps, std::uint32_t* sink) {
  std::uint32_t at = 0;
  for (int step = 0; step < steps; ++step) at = __ldcg(places + at);
  *sink = at;
}

__global__ void do_nothing() {}

/// The least seconds of several runs, the first of which is not counted.
template <class Work>
double least_seconds(Device device, const Work& work) {
  double least = std::numeric_limits<double>::infinity();
  for (int turn = 0; turn < 6; ++turn) {
    Timer timer(device);
    timer.mark();
    work();
    timer.mark();
    const double seconds = timer.seconds().front();
    check(cudaGetLastError(), "measuring a rate");
    if (turn > 0) least = std::min(least, seconds);
  }
  return std::max(least, 1e-9);
}

}  // namespace

std::vector<Rate> measure_rates(Device device) {
  const GpuFacts& facts = gpu(device);
  const DeviceGuard guard(device.index);
  const auto blocks = static_cast<unsigned>(8 * std::max(facts.multiprocessors, 1));
  std::vector<Rate> rates;
  const auto add = [&](const char* name, double value, const char* unit) {
    rates.push_back({name, value, unit});
  };

  const std::size_t bytes = std::min<std::size_t>(std::size_t{512} << 20, facts.memory_bytes / 8);
  Buffer from(bytes, device), to(bytes, device), sink(256, device);
  from.clear();
  to.clear();
  const double moved = static_cast<double>(bytes);
  add("copy", 2 * moved / least_seconds(device, [&] { to.copy_from(from); }), "B/s");
  const auto* units = static_cast<const uint4*>(from.data());
  auto* const sunk = static_cast<unsigned*>(sink.data());
  add("read",
      moved / least_seconds(device, [&] { read_units<<<blocks, threads>>>(units, bytes / 16, 1, sunk); }),
      "B/s");
  // A quarter of L2: more would not stay, and much less would not be on all of its slices.
  const std::size_t in_l2 =
      std::clamp<std::size_t>(facts.l2_bytes / 4, std::size_t{1} << 20, bytes) / 16 * 16;
  constexpr int again = 32;
  add("l2",
      again * static_cast<double>(in_l2) /
          least_seconds(device, [&] { read_units<<<blocks, threads>>>(units, in_l2 / 16, again, sunk); }),
      "B/s");
  constexpr int steps = 1 << 14;
  const double all_threads = static_cast<double>(blocks) * threads;
  add("shared",
      16.0 * steps * all_threads /
          least_seconds(device, [&] { read_shared<<<blocks, threads>>>(steps, sunk); }),
      "B/s");
  if (facts.code.compute_capability >= 80) {
    auto* const floats = static_cast<float*>(sink.data());
    constexpr int tile_steps = 1 << 12;
    const double tiles = all_threads / 32 * tile_steps * 4;  // chains
    add("f16",
        2 * tiles * 16 * 8 * 16 /
            least_seconds(device,
                          [&] { multiply_tiles<Product::f16><<<blocks, threads>>>(tile_steps, floats); }),
        "FLOP/s");
    add("bf16",
        2 * tiles * 16 * 8 * 16 /
            least_seconds(device,
                          [&] { multiply_tiles<Product::bf16><<<blocks, threads>>>(tile_steps, floats); }),
        "FLOP/s");
    add("tf32",
        2 * tiles * 16 * 8 * 8 /
            least_seconds(device,
                          [&] { multiply_tiles<Product::tf32><<<blocks, threads>>>(tile_steps, floats); }),
        "FLOP/s");
  }
  add("fma32",
      2.0 * 8 * steps * all_threads /
          least_seconds(device,
                        [&] {
                          multiply_add<float>
                              <<<blocks, threads>>>(steps, 0.999F, static_cast<float*>(sink.data()));
                        }),
      "FLOP/s");
  constexpr int few_steps = 1 << 10;  // GeForce cards have few units for f64
  add("fma64",
      2.0 * 8 * few_steps * all_threads /
          least_seconds(device,
                        [&] {
                          multiply_add<double>
                              <<<blocks, threads>>>(few_steps, 0.999, static_cast<double*>(sink.data()));
                        }),
      "FLOP/s");
  constexpr int launches = 1000;
  add("launch",
      least_seconds(device,
                    [&] {
                      for (int launch = 0; launch < launches; ++launch) do_nothing<<<1, 32>>>();
                    }) /
          launches,
      "s");
  auto* const places = static_cast<std::uint32_t*>(to.data());
  auto* const last = static_cast<std::uint32_t*>(sink.data());
  const auto latency = [&](std::size_t of_bytes, int hops) {
    make_ring<<<blocks, threads>>>(places, static_cast<std::uint32_t>(of_bytes / 4));
    return least_seconds(device, [&] { follow<<<1, 1>>>(places, hops, last); }) / hops;
  };
  add("l2 latency", latency(in_l2, 1 << 13), "s");
  add("memory latency", latency(bytes, 1 << 13), "s");
  return rates;
}

}  // namespace kronsparse::cuda
