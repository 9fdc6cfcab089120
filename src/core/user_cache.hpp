// Files that the library keeps for a user: compiled programs, measured times, rates of devices.
//
// They lie in KRONSPARSE_CACHE_DIR, else $XDG_CACHE_HOME/kronsparse, else ~/.cache/kronsparse; an empty
// KRONSPARSE_CACHE_DIR means none. A file is written beside its place and renamed into it, so that readers
// see all of it or nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kronsparse {

/// The folder of one kind of files, such as "opencl"; empty where none is to be used.
[[nodiscard]] std::string user_cache_folder(std::string_view kind);

/// FNV-1a, which needs no library; it finds damage and names files, and guards against nobody.
[[nodiscard]] std::uint64_t hash_of(std::string_view bytes) noexcept;

/// The bytes of a file; nothing where it cannot be read.
[[nodiscard]] std::optional<std::string> read_cache_file(const std::string& path);

/// Writes a file by renaming; makes its folder. False where that cannot be done, which is no error.
bool write_cache_file(const std::string& path, std::string_view bytes);

/// Keeps other processes from changing the files of one kind while it lives, where the folder's file system
/// can do that: who adds to a file reads it first.
class UserCacheLock {
 public:
  explicit UserCacheLock(std::string_view kind);
  ~UserCacheLock();
  UserCacheLock(const UserCacheLock&) = delete;
  UserCacheLock& operator=(const UserCacheLock&) = delete;

 private:
  int folder_ = -1;
};

/// A file of lines that belong to a key. Damage and other versions are told from what was written here.
class KeyedFile {
 public:
  /// `kind` names the folder and the format: a number at its end is the format's version.
  KeyedFile(std::string_view kind, std::string_view version, std::string key);

  /// The lines as they were written; nothing where there is no file or it is not to be used. A file that is
  /// there but damaged, or not of this key, is mentioned on stderr, once in a process.
  [[nodiscard]] std::optional<std::string> read() const;
  bool write(std::string_view lines) const;
  /// Empty where none is to be used.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  [[nodiscard]] std::string header() const;
  std::string kind_, version_, key_, path_;
};

}  // namespace kronsparse
