#include "files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "kronsparse/error.hpp"
#include "removed_on_signal.hpp"

namespace kronsparse::cli {
namespace {

std::string system_reason() { return std::strerror(errno); }

[[noreturn]] void cannot(std::string_view verb, const std::filesystem::path& path,
                         const std::string& reason) {
  throw Error(ErrorCode::io, fmt::format("{}: cannot be {}: {}", path.string(), verb, reason));
}

/// A temporary file beside its target that is removed unless it was renamed into place, whatever ends the
/// command.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::filesystem::path target) : target_(std::move(target)) {
    struct stat old {};
    const bool replaces = ::stat(target_.c_str(), &old) == 0;
    // The permissions of what it replaces, else of an ordinary new file, unlike mkstemp's 0600.
    const mode_t mode = replaces ? old.st_mode & 0777U : 0666U;
    for (int attempt = 0; descriptor_ < 0; ++attempt) {
      name_ = fmt::format("{}.{}-{}.tmp", target_.string(), ::getpid(), attempt);
      const bool is_open = removal_.create(name_, [&] {
        descriptor_ = ::open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        return descriptor_ >= 0;
      });
      if (is_open || (errno == EEXIST && attempt < 100)) continue;
      const bool is_protected = errno == EACCES || errno == EPERM || errno == EROFS;
      if (replaces && is_protected) return;
      cannot("written", target_, system_reason());
    }
    is_made_ = true;
    // Given back the bits that the umask took; a file system without permissions has none to keep.
    if (replaces) static_cast<void>(::fchmod(descriptor_, mode));
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (is_made_ && !renamed_) ::unlink(name_.c_str());
  }

  /// Whether there is one: a file may be writable in a directory that is not.
  [[nodiscard]] bool is_made() const noexcept { return is_made_; }
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
  RemovedOnSignal removal_;
  int descriptor_ = -1;
  bool is_made_ = false;
  bool renamed_ = false;
};

void write_all(int descriptor, std::span<const std::byte> bytes, const std::filesystem::path& path) {
  // The system finishes a write before it delivers a signal: not gigabytes, or the user waits for seconds.
  constexpr std::size_t most_at_once = std::size_t{16} << 20;
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), std::min(bytes.size(), most_at_once));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) cannot("written", path, system_reason());
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

bool is_same_file(const std::filesystem::path& path, int descriptor) {
  struct stat left {};
  struct stat right {};
  return ::stat(path.c_str(), &left) == 0 && ::fstat(descriptor, &right) == 0 &&
         left.st_dev == right.st_dev && left.st_ino == right.st_ino;
}

/// The file that links from `path` lead to, which need not exist yet. Nothing where a link on the way is
/// the system's own name of an open file (/dev/stdout, /proc/self/fd/1): that file is not to be replaced,
/// for whoever opened it would never see the new one.
std::optional<std::filesystem::path> replaceable_file(std::filesystem::path path) {
  constexpr int most_links = 40;  // as many as the kernel follows
  std::error_code error;
  for (int links = 0; links < most_links; ++links) {
    if (!std::filesystem::is_symlink(std::filesystem::symlink_status(path, error))) return path;
    const std::filesystem::path directory =
        std::filesystem::canonical(path.has_parent_path() ? path.parent_path() : ".", error);
    const std::string place = directory.string() + "/";
    if (place.starts_with("/dev/") || place.starts_with("/proc/")) return std::nullopt;
    const std::filesystem::path target = std::filesystem::read_symlink(path, error);
    if (error) cannot("written", path, error.message());
    path = directory / target;
  }
  cannot("written", path, std::strerror(ELOOP));
}

void write_through(const std::filesystem::path& path,
                   std::initializer_list<std::span<const std::byte>> pieces) {
  // Opened once more, a redirected stdout would be written from its beginning again.
  const bool is_stdout = is_same_file(path, STDOUT_FILENO);
  std::fflush(stdout);
  const int descriptor = is_stdout ? ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0)
                                   : ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) cannot("written", path, system_reason());
  try {
    for (const auto piece : pieces) write_all(descriptor, piece, path);
  } catch (...) {
    ::close(descriptor);
    throw;
  }
  if (::close(descriptor) != 0) cannot("written", path, system_reason());
}

}  // namespace

// Not to wait for the other end of a pipe, which is refused a line later.
InputFile::InputFile(const std::filesystem::path& path)
    : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
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
  const bool is_special = std::filesystem::exists(status) && !std::filesystem::is_regular_file(status);
  const std::optional<std::filesystem::path> target = is_special ? std::nullopt : replaceable_file(path);
  if (!target) return write_through(path, pieces);
  TemporaryFile temporary(*target);
  if (!temporary.is_made()) return write_through(path, pieces);
  for (const auto piece : pieces) write_all(temporary.descriptor(), piece, path);
  temporary.rename_into_place();
}

void write_atomically(const std::filesystem::path& path, std::string_view text) {
  write_atomically(path, {std::as_bytes(std::span(text))});
}

}  // namespace kronsparse::cli
