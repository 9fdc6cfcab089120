#include "removed_on_signal.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>

namespace kronsparse::cli {
namespace {

enum class File : int { none, being_created, is_there };

// The handler reads these: no memory that could be freed meanwhile.
std::array<char, PATH_MAX> file_name;
std::atomic<File> file{File::none};
static_assert(std::atomic<File>::is_always_lock_free);

constexpr int last_signal = 64;
std::array<bool, last_signal + 1> is_handled;
std::array<struct sigaction, last_signal + 1> before;  ///< what a signal did until now

/// Whether a signal that nobody handles ends the process.
bool ends_process(int signal) {
  constexpr std::array others = {SIGCHLD, SIGCONT, SIGURG,  SIGWINCH, SIGSTOP,
                                 SIGTSTP, SIGTTIN, SIGTTOU, SIGKILL};
  return std::find(others.begin(), others.end(), signal) == others.end();
}

/// Only calls that POSIX allows here. Raised once more, the signal waits until this returns, and does what it
/// did before: it ends the process.
void remove_and_end(int signal) {
  const int error = errno;
  // The thread that creates the file takes no signals meanwhile, so this is another one.
  while (file == File::being_created) {
  }
  if (file.exchange(File::none) == File::is_there) ::unlink(file_name.data());
  ::sigaction(signal, &before[static_cast<std::size_t>(signal)], nullptr);
  static_cast<void>(::raise(signal));
  errno = error;
}

/// Whether a signal of which somebody has asked `action` ends the process. Compilers inside of OpenCL's
/// drivers install handlers that remove files of their own, and then end it as these signals do by default.
/// Other handlers may go on.
bool ends_process_by(const struct sigaction& action, int signal) {
  constexpr std::array always = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGABRT, SIGXCPU, SIGXFSZ};
  if ((action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == SIG_IGN) return false;
  const bool is_default = (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == SIG_DFL;
  return is_default || std::find(always.begin(), always.end(), signal) != always.end();
}

}  // namespace

RemovedOnSignal::RemovedOnSignal() {
  struct sigaction ours {};
  ours.sa_handler = remove_and_end;
  ours.sa_flags = SA_RESTART;
  sigfillset(&ours.sa_mask);
  for (int signal = 1; signal <= last_signal; ++signal) {
    struct sigaction& now = before[static_cast<std::size_t>(signal)];
    // Fails for the numbers that the C library keeps to itself.
    is_handled[static_cast<std::size_t>(signal)] =
        ends_process(signal) && ::sigaction(signal, nullptr, &now) == 0 && ends_process_by(now, signal) &&
        ::sigaction(signal, &ours, nullptr) == 0;
  }
}

RemovedOnSignal::~RemovedOnSignal() {
  file = File::none;
  for (std::size_t signal = 1; signal <= last_signal; ++signal)
    if (is_handled[signal]) ::sigaction(static_cast<int>(signal), &before[signal], nullptr);
}

bool RemovedOnSignal::create(const std::string& path, const std::function<bool()>& create) {
  if (path.size() >= file_name.size()) {
    errno = ENAMETOOLONG;
    return false;
  }
  std::copy_n(path.c_str(), path.size() + 1, file_name.begin());
  sigset_t all;
  sigset_t mask;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &mask);
  file = File::being_created;
  const bool is_created = create();
  const int error = errno;
  file = is_created ? File::is_there : File::none;
  ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  errno = error;
  return is_created;
}

}  // namespace kronsparse::cli
