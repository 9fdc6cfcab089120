// The machine as the CPU backend sees it.
#pragma once

#include <cstddef>
#include <string>

namespace kronsparse {

struct CpuInfo {
  int threads;  ///< thread_count() of threads.hpp
  std::size_t l1_bytes;
  std::size_t l1_ways;  ///< associativity
  std::size_t l2_bytes;
  std::size_t l3_bytes;  ///< 0 when there is none or it is not known
  std::string isa;       ///< widest vector instructions: "avx512", "avx2", "sse2", "neon", ...
};

/// Caches and instructions are looked up once, threads at every call.
[[nodiscard]] CpuInfo cpu_info();

/// "2 threads, avx512, 48 KiB L1, 2 MiB L2".
[[nodiscard]] std::string to_string(const CpuInfo& info);

}  // namespace kronsparse
