// A test that needs a process of its own.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

namespace kronsparse {

/// Whether test() is true in a child forked now; one that hangs is ended by its alarm.
template <class Test>
bool holds_in_child(const Test& test) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    bool holds = false;
    try {
      holds = test();
    } catch (...) {  // the parent's to report
    }
    _exit(holds ? 0 : 1);
  }
  int status = -1;
  return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace kronsparse
