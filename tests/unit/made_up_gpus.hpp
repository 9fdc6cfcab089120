// Facts of GPUs that this machine does not have, as CUDA reports them.
#pragma once

#include <string>
#include <vector>

#include "cuda/host/runtime.hpp"

namespace kronsparse::cuda {

/// The architectures of a build with KRONSPARSE_CUDA_ARCHITECTURES=all.
inline constexpr const char* every_architecture = "75-real 80-real 86-real 89-real 90a-real 100-real 120";

/// A GPU with code that such a build would have for it.
inline GpuFacts made_up(std::string name, int compute_capability, int multiprocessors, int shared_kib,
                        int l2_mib, int memory_gib, double clock_ghz, double memory_gb_per_second,
                        const char* architectures = every_architecture) {
  GpuFacts facts;
  facts.name = std::move(name);
  facts.compute_capability = compute_capability;
  facts.code = code_for(parse_architectures(architectures), compute_capability).value();
  facts.multiprocessors = multiprocessors;
  facts.memory_bytes = static_cast<std::size_t>(memory_gib) << 30;
  facts.shared_bytes = static_cast<std::size_t>(shared_kib) << 10;
  facts.l2_bytes = static_cast<std::size_t>(l2_mib) << 20;
  facts.clock_hz = 1e9 * clock_ghz;
  facts.memory_rate = 0.87e9 * memory_gb_per_second;  // as runtime.cpp estimates a copy
  return facts;
}

inline std::vector<GpuFacts> made_up_gpus(const char* architectures = every_architecture) {
  return {
      made_up("NVIDIA A100-SXM4-80GB", 80, 108, 163, 40, 80, 1.41, 2039, architectures),
      made_up("NVIDIA L40S", 89, 142, 99, 96, 45, 2.52, 864, architectures),
      made_up("NVIDIA GeForce RTX 4090", 89, 128, 99, 72, 24, 2.52, 1008, architectures),
      made_up("NVIDIA GeForce RTX 5090", 120, 170, 99, 96, 32, 2.41, 1792, architectures),
      made_up("NVIDIA B200", 100, 148, 227, 126, 179, 1.965, 8000, architectures),
      made_up("NVIDIA GB200", 100, 152, 227, 126, 186, 2.062, 8000, architectures),
      made_up("Orin", 87, 16, 163, 4, 61, 1.3, 205, architectures),
  };
}

}  // namespace kronsparse::cuda
