// The command `kronsparse`: reads the arguments, runs one subcommand, turns
// every failure into one line on stderr and an exit code.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <system_error>

#include "arguments.hpp"
#include "commands.hpp"
#include "kronsparse/error.hpp"
#include "kronsparse/version.hpp"
#include "terminal.hpp"

namespace {

using kronsparse::Error;
using kronsparse::ErrorCode;
using kronsparse::cli::ExitCode;

constexpr const char* footer = R"(Examples:
  kronsparse info --problem "f16 batch_first B=25088 8x64x64x16 +bias +gelu"
  kronsparse run --values values.npy --x x.npy --out y.npy
  kronsparse check "f32 batch_last B=100 2x48x48x4"
  kronsparse bench "f32 batch_first B=4096 1x64x64x64" --all
  kronsparse check "f16 batch_first B=1024 1x64x64x64*64x64x64x1 +bias +gelu"
  kronsparse demo

A pattern axbxcxd is the (a·b·d) x (a·c·d) matrix with the support of
I_a (x) ones(b,c) (x) I_d. Its a·b·c·d values are a row-major (a,b,c,d) array.
Several patterns joined by '*' are their product, left factor first.

Environment:
  KRONSPARSE_IMPL  name of the implementation or family to use for every factor, where --impl is not given
  KRONSPARSE_TUNE  k: plans measure the k best predictions of each problem that was not measured before
  KRONSPARSE_CACHE_DIR  folder of what is kept for the user (default: ~/.cache/kronsparse); empty: nothing
  OMP_NUM_THREADS  number of threads that the CPU may use (default: as many as there are CPUs)
  NO_COLOR         set to anything: no colours, even on a terminal

Exit codes:
  0  success
  1  a result was wrong (check, bench, demo)
  2  wrong usage: an option, the text of a problem, shapes or dtypes that do not fit, or a problem
     that the implementation asked for does not accept
  3  failure: a file that cannot be read or written, or is malformed; memory or a device that is
     missing or failed; an internal error
A command that a signal ends leaves no file half written.)";

ExitCode exit_code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::io:
    case ErrorCode::out_of_memory:
    case ErrorCode::device:
    case ErrorCode::internal:
      return ExitCode::failure;
    default:
      return ExitCode::bad_input;
  }
}

constexpr std::string_view stdout_failed = "standard output cannot be written";

ExitCode report(ExitCode exit_code, std::string_view message) {
  std::fflush(stdout);  // what came before the failure comes before its message
  kronsparse::cli::print_to_stderr(fmt::format("kronsparse: {}\n", message));
  return exit_code;
}

/// A standard stream that came closed gets a descriptor that cannot be written: the
/// next file opened would otherwise take its number, and the messages meant for it.
void occupy_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) < 0 && errno == EBADF) static_cast<void>(::open("/dev/null", O_RDONLY));
  }
}

ExitCode run(int argc, char** argv) {
  kronsparse::cli::Arguments arguments("Multiplies dense batches by Kronecker-sparse matrices.",
                                       KRONSPARSE_VERSION, footer);
  ExitCode exit_code = ExitCode::ok;
  kronsparse::cli::add_info_command(arguments, exit_code);
  kronsparse::cli::add_run_command(arguments, exit_code);
  kronsparse::cli::add_check_command(arguments, exit_code);
  kronsparse::cli::add_bench_command(arguments, exit_code);
  kronsparse::cli::add_tune_command(arguments, exit_code);
  kronsparse::cli::add_profile_command(arguments, exit_code);
  kronsparse::cli::add_demo_command(arguments, exit_code);
  try {
    return arguments.run(argc, argv) ? exit_code : ExitCode::bad_input;
  } catch (const Error& error) {
    return report(exit_code_of(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return report(ExitCode::failure, "out of memory");
  } catch (const std::system_error& error) {
    // fmt::print throws this where output is longer than stdout's buffer; a shorter one fails in main().
    if (std::ferror(stdout) != 0) return report(ExitCode::failure, stdout_failed);
    return report(ExitCode::failure, fmt::format("internal error: {}", error.what()));
  } catch (const std::exception& error) {
    return report(ExitCode::failure, fmt::format("internal error: {}", error.what()));
  }
}

}  // namespace

int main(int argc, char** argv) try {
  occupy_closed_streams();
  // A file beyond the user's limit is one that cannot be written, not the end.
  static_cast<void>(std::signal(SIGXFSZ, SIG_IGN));
  ExitCode exit_code = run(argc, argv);
  // A full disk behind a redirected stdout is a failure too.
  if ((std::fflush(stdout) != 0 || std::ferror(stdout) != 0) && exit_code == ExitCode::ok) {
    exit_code = report(ExitCode::failure, stdout_failed);
  }
  return static_cast<int>(exit_code);
} catch (...) {  // not even a message could be made: memory has run out
  return static_cast<int>(ExitCode::failure);
}
