#include "opencl/program_cache.hpp"

#include <cstdint>
#include <filesystem>

#include "core/message.hpp"
#include "core/user_cache.hpp"

namespace kronsparse::opencl {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view magic = "kronsparse program 1\n";

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

std::string cache_folder() { return user_cache_folder("opencl"); }

std::optional<std::vector<unsigned char>> read_cached(std::string_view key) {
  const std::string folder = cache_folder();
  if (folder.empty()) return std::nullopt;
  const std::optional<std::string> file = read_cache_file(file_of(folder, key).string());
  if (!file) return std::nullopt;
  const std::string& all = *file;
  const std::size_t begin = header_of(key, {}).size();
  if (all.size() <= begin) return std::nullopt;
  const std::string_view program = std::string_view(all).substr(begin);
  if (std::string_view(all).substr(0, begin) != header_of(key, program)) return std::nullopt;
  return std::vector<unsigned char>(program.begin(), program.end());
}

void write_cached(std::string_view key, const std::vector<unsigned char>& program) {
  const std::string folder = cache_folder();
  if (folder.empty()) return;
  std::string all = header_of(key, as_text(program));
  all += as_text(program);
  write_cache_file(file_of(folder, key).string(), all);
}

}  // namespace kronsparse::opencl
