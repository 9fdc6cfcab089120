#include "files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "kronsparse/error.hpp"

namespace kronsparse::cli {
namespace {

std::string system_reason() { return std::strerror(errno); }

[[noreturn]] void cannot(std::string_view verb, const std::filesystem::path& path,
                         const std::string& reason) {
  throw Error(ErrorCode::io, fmt::format("{}: cannot be {}: {}", path.string(), verb, reason));
}

/// A temporary file that is removed unless it was renamed into place.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::filesystem::path target) : target_(std::move(target)) {
    for (int attempt = 0; descriptor_ < 0; ++attempt) {
      name_ = fmt::format("{}.{}-{}.tmp", target_.string(), ::getpid(), attempt);
      // Created with the permissions of an ordinary new file, unlike mkstemp's 0600.
      descriptor_ = ::open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (descriptor_ < 0 && (errno != EEXIST || attempt == 100)) cannot("written", target_, system_reason());
    }
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (!renamed_) ::unlink(name_.c_str());
  }

  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }

  void rename_into_place() {
    const int closed = ::close(std::exchange(descriptor_, -1));  // a network file system reports errors here
    if (closed != 0 || std::rename(name_.c_str(), target_.c_str()) != 0)
      cannot("written", target_, system_reason());
    renamed_ = true;
  }

 private:
  std::filesystem::path target_;
  std::string name_;
  int descriptor_ = -1;
  bool renamed_ = false;
};

void write_all(int descriptor, std::span<const std::byte> bytes, const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) cannot("written", path, system_reason());
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

}  // namespace

InputFile::InputFile(const std::filesystem::path& path)
    : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (descriptor_ < 0) cannot("read", path, system_reason());
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    cannot("read", path, "it is not a regular file");
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::read(std::uint64_t offset, std::span<std::byte> target) const {
  while (!target.empty()) {
    const ssize_t got = ::pread(descriptor_, target.data(), target.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Error(ErrorCode::io, fmt::format("cannot be read: {}", system_reason()));
    if (got == 0) throw Error(ErrorCode::io, "became shorter while it was read");
    offset += static_cast<std::uint64_t>(got);
    target = target.subspan(static_cast<std::size_t>(got));
  }
}

std::string read_text(const std::filesystem::path& path) {
  const InputFile file(path);
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  try {
    file.read(0, std::as_writable_bytes(std::span(text)));
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", path.string(), error.what()));
  }
  return text;
}

void write_atomically(const std::filesystem::path& path,
                      std::initializer_list<std::span<const std::byte>> pieces) {
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  if (std::filesystem::is_directory(status)) cannot("written", path, "it is a directory");
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    const int descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (descriptor < 0) cannot("written", path, system_reason());
    try {
      for (const auto piece : pieces) write_all(descriptor, piece, path);
    } catch (...) {
      ::close(descriptor);
      throw;
    }
    ::close(descriptor);
    return;
  }
  TemporaryFile temporary(path);
  for (const auto piece : pieces) write_all(temporary.descriptor(), piece, path);
  temporary.rename_into_place();
}

void write_atomically(const std::filesystem::path& path, std::string_view text) {
  write_atomically(path, {std::as_bytes(std::span(text))});
}

}  // namespace kronsparse::cli
