#include "core/user_cache.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "core/message.hpp"

namespace kronsparse {
namespace {

namespace fs = std::filesystem;

/// The one thing that the library prints: silence would leave a user with slow kernels and no reason.
void mention_once(const std::string& path) {
  static std::atomic_flag was_said;
  if (was_said.test_and_set()) return;
  static_cast<void>(std::fprintf(
      stderr, "kronsparse: %s is damaged or was not written by this version; it is ignored\n", path.c_str()));
}

}  // namespace

std::string user_cache_folder(std::string_view kind) {
  if (const char* given = std::getenv("KRONSPARSE_CACHE_DIR"))
    return *given == '\0' ? std::string() : (fs::path(given) / kind).string();
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/')
    return (fs::path(cache) / "kronsparse" / kind).string();
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/')
    return (fs::path(home) / ".cache" / "kronsparse" / kind).string();
  return {};
}

std::uint64_t hash_of(std::string_view bytes) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3U;
  return hash;
}

std::optional<std::string> read_cache_file(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  return std::string{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

bool write_cache_file(const std::string& path, std::string_view bytes) {
  static std::atomic<unsigned> count{0};
  std::error_code failed;
  fs::create_directories(fs::path(path).parent_path(), failed);
  const fs::path beside = path + message(".{}.{}", getpid(), count++);
  std::ofstream file(beside, std::ios::binary);
  if (!file) return false;
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  const bool is_written = !file.fail();
  failed.clear();
  if (is_written) fs::rename(beside, path, failed);
  if (is_written && !failed) return true;
  fs::remove(beside, failed);
  return false;
}

UserCacheLock::UserCacheLock(std::string_view kind) {
  const std::string folder = user_cache_folder(kind);
  if (folder.empty()) return;
  std::error_code ignored;
  fs::create_directories(folder, ignored);
  folder_ = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_ >= 0) static_cast<void>(::flock(folder_, LOCK_EX));
}

UserCacheLock::~UserCacheLock() {
  if (folder_ >= 0) static_cast<void>(::close(folder_));  // which unlocks
}

KeyedFile::KeyedFile(std::string_view kind, std::string_view version, std::string key)
    : kind_(kind), version_(version), key_(std::move(key)) {
  const std::string folder = user_cache_folder(kind);
  if (!folder.empty()) path_ = (fs::path(folder) / message("{:016x}.txt", hash_of(header()))).string();
}

std::string KeyedFile::header() const { return message("kronsparse {} {}\n{}\n", kind_, version_, key_); }

std::optional<std::string> KeyedFile::read() const {
  if (path_.empty()) return std::nullopt;
  std::optional<std::string> all = read_cache_file(path_);
  if (!all) return std::nullopt;
  // The last line is the hash of what is before it.
  const std::string beginning = header();
  const std::size_t end_size = message("end {:016x}\n", hash_of({})).size();
  if (all->size() >= beginning.size() + end_size && all->starts_with(beginning)) {
    const std::string_view before = std::string_view(*all).substr(0, all->size() - end_size);
    if (all->ends_with(message("end {:016x}\n", hash_of(before))))
      return std::string(before.substr(beginning.size()));
  }
  mention_once(path_);
  return std::nullopt;
}

bool KeyedFile::write(std::string_view lines) const {
  if (path_.empty()) return false;
  std::string all = header();
  all += lines;
  all += message("end {:016x}\n", hash_of(all));
  return write_cache_file(path_, all);
}

}  // namespace kronsparse
