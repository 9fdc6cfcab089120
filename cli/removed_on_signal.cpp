#include "removed_on_signal.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>

namespace kronsparse::cli {
namespace {

// The handler reads these: no memory that could be freed meanwhile.
std::array<char, PATH_MAX> file_name;
std::atomic<bool> is_there{false};
static_assert(std::atomic<bool>::is_always_lock_free);

constexpr int last_signal = 64;
std::array<bool, last_signal + 1> is_handled;

/// Whether a signal that nobody handles ends the process.
bool ends_process(int signal) {
  constexpr std::array others = {SIGCHLD, SIGCONT, SIGURG,  SIGWINCH, SIGSTOP,
                                 SIGTSTP, SIGTTIN, SIGTTOU, SIGKILL};
  return std::find(others.begin(), others.end(), signal) == others.end();
}

/// Only calls that POSIX allows here. The default action is back (SA_RESETHAND); raised once more, the signal
/// waits until this returns, and ends the process.
void remove_and_end(int signal) {
  const int error = errno;
  if (is_there.exchange(false)) ::unlink(file_name.data());
  static_cast<void>(::raise(signal));
  errno = error;
}

}  // namespace

RemovedOnSignal::RemovedOnSignal() {
  struct sigaction ours {};
  ours.sa_handler = remove_and_end;
  ours.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigfillset(&ours.sa_mask);
  for (int signal = 1; signal <= last_signal; ++signal) {
    struct sigaction now {};
    // Fails for the numbers that the C library keeps to itself.
    is_handled[static_cast<std::size_t>(signal)] =
        ends_process(signal) && ::sigaction(signal, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) == 0 &&
        now.sa_handler == SIG_DFL && ::sigaction(signal, &ours, nullptr) == 0;
  }
}

RemovedOnSignal::~RemovedOnSignal() {
  is_there = false;
  for (int signal = 1; signal <= last_signal; ++signal)
    if (is_handled[static_cast<std::size_t>(signal)]) static_cast<void>(std::signal(signal, SIG_DFL));
}

bool RemovedOnSignal::create(const std::string& path, const std::function<bool()>& create) {
  if (path.size() >= file_name.size()) {
    errno = ENAMETOOLONG;
    return false;
  }
  std::copy_n(path.c_str(), path.size() + 1, file_name.begin());
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const bool is_created = create();
  const int error = errno;
  is_there = is_created;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return is_created;
}

}  // namespace kronsparse::cli
