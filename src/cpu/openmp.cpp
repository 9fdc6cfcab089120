#include "cpu/openmp.hpp"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace kronsparse {
namespace {

struct Runtime {
  int (*max_threads)() = nullptr;
  int (*in_parallel)() = nullptr;
};

/// Those of gcc, clang and Intel, also where a package has given them a name of its own
/// (libgomp-a34b3233.so).
bool is_runtime(std::string_view path) noexcept {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return name.starts_with("libgomp") || name.starts_with("libomp") || name.starts_with("libiomp");
}

/// Libraries loaded so far, which only grows.
unsigned long long loads() noexcept {
  unsigned long long count = 0;
  const auto take_first = [](dl_phdr_info* info, std::size_t, void* result) {
    *static_cast<unsigned long long*>(result) = info->dlpi_adds;
    return 1;
  };
  dl_iterate_phdr(take_first, &count);
  return count;
}

std::vector<std::string> loaded_runtimes() {
  std::vector<std::string> paths;
  const auto add = [](dl_phdr_info* info, std::size_t, void* result) {
    if (info->dlpi_name != nullptr && is_runtime(info->dlpi_name))
      static_cast<std::vector<std::string>*>(result)->emplace_back(info->dlpi_name);
    return 0;
  };
  dl_iterate_phdr(add, &paths);
  return paths;
}

template <class Function>
void find(void* library, const char* name, Function& function) noexcept {
  void* const found = dlsym(library, name);
  static_assert(sizeof found == sizeof function);
  std::memcpy(&function, &found, sizeof found);
}

/// The runtimes found so far. They stay loaded from then on, as they do anyway once they have threads.
class Runtimes {
 public:
  [[nodiscard]] int threads() noexcept {
    look_for_new_ones();
    int fewest = 0;
    for (int index = 0; index < count_.load(std::memory_order_acquire); ++index) {
      const Runtime& runtime = all_[static_cast<std::size_t>(index)];
      const int threads = runtime.in_parallel() != 0 ? 1 : runtime.max_threads();
      fewest = fewest == 0 ? threads : std::min(fewest, threads);
    }
    return fewest;
  }

 private:
  void look_for_new_ones() noexcept {
    const unsigned long long now = loads();
    if (now == seen_.load(std::memory_order_relaxed)) return;
    // Whoever comes second does without the news; a forked child may come for ever, if unluckily forked.
    const std::unique_lock lock(looking_, std::try_to_lock);
    if (!lock.owns_lock()) return;
    try {
      for (const std::string& path : loaded_runtimes()) add(path);
      seen_ = now;
    } catch (const std::bad_alloc&) {  // next time
    }
  }

  void add(const std::string& path) noexcept {
    const int count = count_.load(std::memory_order_relaxed);
    if (count == static_cast<int>(all_.size())) return;
    void* const library = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) return;
    Runtime runtime;
    find(library, "omp_get_max_threads", runtime.max_threads);
    find(library, "omp_in_parallel", runtime.in_parallel);
    const bool is_known = std::any_of(all_.begin(), all_.begin() + count, [&](const Runtime& known) {
      return known.max_threads == runtime.max_threads;
    });
    if (is_known || runtime.max_threads == nullptr || runtime.in_parallel == nullptr) {
      dlclose(library);
      return;
    }
    all_[static_cast<std::size_t>(count)] = runtime;
    count_.store(count + 1, std::memory_order_release);
  }

  std::atomic<unsigned long long> seen_{0};
  std::atomic<int> count_{0};
  std::mutex looking_;
  std::array<Runtime, 8> all_{};
};

constinit Runtimes runtimes;

}  // namespace

int openmp_threads() noexcept { return runtimes.threads(); }

}  // namespace kronsparse
