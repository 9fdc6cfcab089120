// Signals that end the command while it writes.
#include <sys/resource.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <thread>

#include "command_fixture.hpp"
#include "files.hpp"

/// Raised in the next write to a file; the linker puts this function before the system's.
static std::atomic<int> signal_of_next_write{0};
// NOLINTBEGIN(bugprone-reserved-identifier): the linker's names
extern "C" ssize_t __real_write(int descriptor, const void* bytes, std::size_t count);
extern "C" ssize_t __wrap_write(int descriptor, const void* bytes, std::size_t count) {
  const int signal = signal_of_next_write.exchange(0);
  if (signal != 0) static_cast<void>(kill(getpid(), signal));
  return __real_write(descriptor, bytes, count);
}
// NOLINTEND(bugprone-reserved-identifier)

namespace kronsparse::cli {
namespace {

class SignalTest : public CommandTest {
 protected:
  /// How a child ends that runs this.
  static int status_of(const std::function<void()>& work) {
    const pid_t child = fork();
    if (child == 0) {
      const rlimit no_core{0, 0};
      setrlimit(RLIMIT_CORE, &no_core);
      work();
      _exit(0);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return status;
  }

  /// How a child ends that gets this signal while it writes a file.
  [[nodiscard]] int status_of_write(int signal, void (*disposition)(int) = SIG_DFL) const {
    return status_of([&] {
      std::signal(signal, disposition);
      signal_of_next_write = signal;
      write_atomically(path("y.npy"), "much");
    });
  }
};

TEST_F(SignalTest, NoSignalLeavesATemporaryFile) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGALRM, SIGUSR1, SIGXCPU, SIGXFSZ,
                           SIGABRT, SIGRTMIN, SIGRTMAX}) {
    const int status = status_of_write(signal);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << signal;
    EXPECT_EQ(files(), 0U) << signal;
  }
}

TEST_F(SignalTest, WhatWasThereStays) {
  write("y.npy", "old");
  EXPECT_TRUE(WIFSIGNALED(status_of_write(SIGTERM)));
  EXPECT_EQ(read("y.npy"), "old");
  EXPECT_EQ(files(), 1U);
}

// Some libraries install one, which ends the process after it has tidied up its own files.
TEST_F(SignalTest, AnotherHandlerComesAfterwards) {
  const auto handler = [](int) { _exit(9); };
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const int status = status_of_write(signal, handler);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 9) << signal;
    EXPECT_EQ(files(), 0U) << signal;
  }
}

// As nohup and a shell's background ask for, and what ends nothing anyway.
TEST_F(SignalTest, IgnoredSignalsAreIgnored) {
  for (const int signal : {SIGINT, SIGHUP}) {
    EXPECT_EQ(status_of_write(signal, SIG_IGN), 0) << signal;
    EXPECT_EQ(read("y.npy"), "much");
  }
  EXPECT_EQ(status_of_write(SIGCHLD), 0);
  EXPECT_EQ(status_of_write(SIGWINCH), 0);
}

TEST_F(SignalTest, AfterwardsSignalsAreAsBefore) {
  write_atomically(path("y.npy"), "much");
  for (const int signal : {SIGINT, SIGTERM, SIGRTMAX}) {
    struct sigaction now {};
    ASSERT_EQ(sigaction(signal, nullptr, &now), 0);
    EXPECT_EQ(now.sa_handler, SIG_DFL) << signal;
  }
}

TEST_F(SignalTest, TheCommandLeavesNoTemporaryFile) {
  // 64 MiB from small files: the signal comes while they are written.
  save("values.npy", NpyType::f32, {1, 1024, 1, 64}, std::vector<float>(1024 * 64));
  save("x.npy", NpyType::f32, {256, 64}, std::vector<float>(256 * 64));
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    bool was_writing = false;
    for (int attempt = 0; attempt < 20 && !was_writing; ++attempt) {
      const pid_t child = fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        std::signal(signal, SIG_DFL);
        if (chdir(path("").c_str()) == 0)
          execl(KRONSPARSE_COMMAND, "kronsparse", "run", "--values", "values.npy", "--x", "x.npy", "--out",
                "y.npy", nullptr);
        _exit(127);
      }
      int status = 0;
      pid_t ended = 0;
      while (ended == 0 && files() < 3) ended = waitpid(child, &status, WNOHANG);
      if (ended == 0) {
        kill(child, signal);
        waitpid(child, &status, 0);
      }
      // It may have been done already.
      was_writing = WIFSIGNALED(status);
      ASSERT_EQ(was_writing ? WTERMSIG(status) : WEXITSTATUS(status), was_writing ? signal : 0);
      std::filesystem::remove(path("y.npy"));
      EXPECT_EQ(files(), 2U);
    }
    EXPECT_TRUE(was_writing) << signal;
  }
}

TEST_F(SignalTest, AFileBeyondTheLimitIsThree) {
  save("values.npy", NpyType::f32, {1, 1024, 1, 64}, std::vector<float>(1024 * 64));
  save("x.npy", NpyType::f32, {2, 64}, std::vector<float>(2 * 64));
  const std::string limited = "ulimit -f 64; exec ";
  const int status =
      std::system(("cd '" + path("").string() + "' && " + limited +
                   "'" KRONSPARSE_COMMAND "' run --values values.npy --x x.npy --out y.npy" + " 2>/dev/null")
                      .c_str());
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 3) << status;
  EXPECT_EQ(files(), 2U);
}

}  // namespace
}  // namespace kronsparse::cli
