#include "cpu/cpu_info.hpp"

#include <unistd.h>

#include <fstream>
#include <string_view>

#include "core/message.hpp"
#include "cpu/threads.hpp"

namespace kronsparse {
namespace {

/// One property ("size": "48K") of the data cache of this level, as the kernel
/// describes it; 0 if it does not.
std::size_t from_sysfs(int level, const char* property) {
  for (int index = 0; index < 8; ++index) {
    const std::string directory = message("/sys/devices/system/cpu/cpu0/cache/index{}/", index);
    int found_level = 0;
    std::string type;
    std::ifstream(directory + "level") >> found_level;
    std::ifstream(directory + "type") >> type;
    if (found_level != level || type == "Instruction") continue;
    std::size_t number = 0;
    char unit = 'B';
    std::ifstream(directory + property) >> number >> unit;
    return unit == 'K' ? number << 10 : unit == 'M' ? number << 20 : number;
  }
  return 0;
}

// sysconf knows caches on x86; on aarch64 it says 0 and the kernel's files know.
std::size_t cache_property(int level, int sysconf_name, const char* property, std::size_t fallback) {
  const long found = sysconf(sysconf_name);
  if (found > 0) return static_cast<std::size_t>(found);
  const std::size_t told = from_sysfs(level, property);
  return told > 0 ? told : fallback;
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

std::string size_text(std::size_t bytes) {
  if (bytes % (1U << 20) == 0) return message("{} MiB", bytes >> 20);
  return message("{} KiB", bytes >> 10);
}

}  // namespace

CpuInfo cpu_info() {
  static const CpuInfo fixed{0,
                             cache_property(1, _SC_LEVEL1_DCACHE_SIZE, "size", 32U << 10),
                             cache_property(1, _SC_LEVEL1_DCACHE_ASSOC, "ways_of_associativity", 8),
                             cache_property(2, _SC_LEVEL2_CACHE_SIZE, "size", 512U << 10),
                             cache_property(3, _SC_LEVEL3_CACHE_SIZE, "size", 0),
                             std::string(widest_instructions())};
  CpuInfo info = fixed;
  info.threads = thread_count();
  return info;
}

std::string to_string(const CpuInfo& info) {
  return message("{} thread{}, {}, {} L1, {} L2", info.threads, info.threads == 1 ? "" : "s", info.isa,
                 size_text(info.l1_bytes), size_text(info.l2_bytes));
}

}  // namespace kronsparse
