// Which GPUs the kernels of this build run on. CUDA is not asked: to answer, it would have to start every GPU
// of the machine.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kronsparse::cuda {

/// One entry of CMake's list: 80-real, 90a, 120-virtual.
struct Architecture {
  int compute_capability = 0;  ///< 90 for 9.0
  char kind = ' ';             ///< 'a': runs on exactly this one; 'f': on its family; ' ': also on later ones
  bool has_code = true;        ///< machine code
  bool has_ptx = true;         ///< the driver compiles it for GPUs without machine code

  friend bool operator==(const Architecture&, const Architecture&) = default;
};

/// Reads CMake's words, separated by spaces, and skips any that are not architectures.
[[nodiscard]] std::vector<Architecture> parse_architectures(std::string_view text);

/// "sm_80, sm_90a and PTX for 12.0 or later".
[[nodiscard]] std::string architectures_text(std::span<const Architecture> architectures);

/// The architecture whose code a GPU of this compute capability runs: the latest machine code of its own
/// major number, else the latest PTX. The GPU may be able to do more than that code uses.
[[nodiscard]] std::optional<Architecture> code_for(std::span<const Architecture> architectures,
                                                   int compute_capability);

/// Why no architecture of these runs on this compute capability; empty when one does.
[[nodiscard]] std::string misfit(std::span<const Architecture> architectures, int compute_capability);

/// The architectures that this library was compiled for.
[[nodiscard]] std::span<const Architecture> built_architectures();

}  // namespace kronsparse::cuda
