// A file that no signal leaves behind.
#pragma once

#include <csignal>
#include <functional>
#include <string>

namespace kronsparse::cli {

/// While it exists, a signal that ends the process removes one file first; the process then ends as it would
/// have, by a handler of somebody else's, too. Signals that are ignored (nohup, a shell's background) stay
/// so. One at a time.
class RemovedOnSignal {
 public:
  RemovedOnSignal();
  RemovedOnSignal(const RemovedOnSignal&) = delete;
  RemovedOnSignal& operator=(const RemovedOnSignal&) = delete;
  ~RemovedOnSignal();

  /// Calls create(), and if it returns true the file is `path` from then on. No signal comes between.
  /// Longer than any path the system takes: never created.
  bool create(const std::string& path, const std::function<bool()>& create);
};

}  // namespace kronsparse::cli
