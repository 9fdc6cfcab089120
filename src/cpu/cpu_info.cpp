#include "cpu/cpu_info.hpp"

#include <unistd.h>

#include <fstream>
#include <string_view>

#include "core/message.hpp"

#ifdef _OPENMP
#include <omp.h>
#endif

namespace kronsparse {
namespace {

// The kernel's description of a data cache of this level ("48K"), 0 if there is none.
std::size_t cache_bytes_from_sysfs(int level) {
  for (int index = 0; index < 8; ++index) {
    const std::string directory = message("/sys/devices/system/cpu/cpu0/cache/index{}/", index);
    int found_level = 0;
    std::string type;
    std::ifstream(directory + "level") >> found_level;
    std::ifstream(directory + "type") >> type;
    if (found_level != level || type == "Instruction") continue;
    std::size_t size = 0;
    char unit = 'B';
    std::ifstream(directory + "size") >> size >> unit;
    return unit == 'K' ? size << 10 : unit == 'M' ? size << 20 : size;
  }
  return 0;
}

// sysconf knows caches on x86; on aarch64 it says 0 and the kernel's files know.
std::size_t cache_bytes(int level, int sysconf_name, std::size_t fallback) {
  const long from_sysconf = sysconf(sysconf_name);
  if (from_sysconf > 0) return static_cast<std::size_t>(from_sysconf);
  const std::size_t from_sysfs = cache_bytes_from_sysfs(level);
  return from_sysfs > 0 ? from_sysfs : fallback;
}

std::string_view widest_instructions() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return "avx512";
  if (__builtin_cpu_supports("avx2")) return "avx2";
  return "sse2";
#elif defined(__aarch64__)
  return "neon";
#else
  return "scalar";
#endif
}

int thread_count() {
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}

std::string size_text(std::size_t bytes) {
  if (bytes % (1U << 20) == 0) return message("{} MiB", bytes >> 20);
  return message("{} KiB", bytes >> 10);
}

}  // namespace

CpuInfo cpu_info() {
  static const CpuInfo fixed{0, cache_bytes(1, _SC_LEVEL1_DCACHE_SIZE, 32U << 10),
                             cache_bytes(2, _SC_LEVEL2_CACHE_SIZE, 512U << 10),
                             cache_bytes(3, _SC_LEVEL3_CACHE_SIZE, 0), std::string(widest_instructions())};
  CpuInfo info = fixed;
  info.threads = thread_count();
  return info;
}

std::string to_string(const CpuInfo& info) {
  return message("{} thread{}, {}, {} L1, {} L2", info.threads, info.threads == 1 ? "" : "s", info.isa,
                 size_text(info.l1_bytes), size_text(info.l2_bytes));
}

}  // namespace kronsparse
