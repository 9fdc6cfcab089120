// Files read by position and files written atomically.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace kronsparse::cli {

/// A regular file open for reading. Every failure is Error io; messages of the
/// constructor name the path, those of read() leave that to the caller.
class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path);
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile();

  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// Fills `target` from byte `offset` on.
  void read(std::uint64_t offset, std::span<std::byte> target) const;

 private:
  int descriptor_;
  std::uint64_t size_ = 0;
};

/// The whole of a text file.
[[nodiscard]] std::string read_text(const std::filesystem::path& path);

/// Writes the pieces one after the other to a temporary file beside `path` and
/// renames it, so that `path` is never seen half written; on failure nothing is
/// left behind. Links stay, what they lead to is replaced, and keeps its
/// permissions. A device, a pipe, an open file by its number (/dev/null,
/// /dev/stdout) or a file in a directory that cannot be written is written directly.
void write_atomically(const std::filesystem::path& path,
                      std::initializer_list<std::span<const std::byte>> pieces);
void write_atomically(const std::filesystem::path& path, std::string_view text);

}  // namespace kronsparse::cli
