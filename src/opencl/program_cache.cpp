#include "opencl/program_cache.hpp"

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/message.hpp"

namespace kronsparse::opencl {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view magic = "kronsparse program 1\n";

/// FNV-1a, which needs no library; it finds damage and names files, and guards against nobody.
std::uint64_t hash_of(std::string_view bytes) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3U;
  return hash;
}

std::string text_of(std::uint64_t value) { return message("{:016x}\n", value); }

fs::path file_of(const std::string& folder, std::string_view key) {
  return fs::path(folder) / message("{:016x}.program", hash_of(key));
}

/// All but the program itself: what the file begins with.
std::string header_of(std::string_view key, std::string_view program) {
  std::string header(magic);
  header += text_of(key.size());
  header += text_of(program.size());
  header += text_of(hash_of(program));
  header += key;
  return header;
}

std::string_view as_text(const std::vector<unsigned char>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

std::string cache_folder() {
  if (const char* given = std::getenv("KRONSPARSE_CACHE_DIR"))
    return *given == '\0' ? std::string() : (fs::path(given) / "opencl").string();
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/')
    return (fs::path(cache) / "kronsparse" / "opencl").string();
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/')
    return (fs::path(home) / ".cache" / "kronsparse" / "opencl").string();
  return {};
}

std::optional<std::vector<unsigned char>> read_cached(std::string_view key) {
  const std::string folder = cache_folder();
  if (folder.empty()) return std::nullopt;
  std::ifstream file(file_of(folder, key), std::ios::binary);
  if (!file) return std::nullopt;
  const std::string all{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::size_t begin = header_of(key, {}).size();
  if (all.size() <= begin) return std::nullopt;
  const std::string_view program = std::string_view(all).substr(begin);
  if (std::string_view(all).substr(0, begin) != header_of(key, program)) return std::nullopt;
  return std::vector<unsigned char>(program.begin(), program.end());
}

void write_cached(std::string_view key, const std::vector<unsigned char>& program) {
  const std::string folder = cache_folder();
  if (folder.empty()) return;
  static std::atomic<unsigned> count{0};
  std::error_code ignored;
  fs::create_directories(folder, ignored);
  const fs::path target = file_of(folder, key);
  const fs::path beside = target.string() + message(".{}.{}", getpid(), count++);
  bool is_written = false;
  if (std::ofstream file(beside, std::ios::binary); file) {
    const std::string header = header_of(key, as_text(program));
    file.write(header.data(), static_cast<std::streamsize>(header.size()));
    file.write(as_text(program).data(), static_cast<std::streamsize>(program.size()));
    file.close();
    is_written = !file.fail();
    if (is_written) fs::rename(beside, target, ignored);
    if (!is_written || ignored) fs::remove(beside, ignored);
  }
}

}  // namespace kronsparse::opencl
