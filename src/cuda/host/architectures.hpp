// Which GPUs the kernels of this build run on. Known without asking CUDA, which
// would have to start every GPU of the machine to answer.
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
  bool has_ptx = true;         ///< compiled by the driver on what has no machine code

  friend bool operator==(const Architecture&, const Architecture&) = default;
};

/// Reads CMake's words separated by spaces; what is none of them is left out.
[[nodiscard]] std::vector<Architecture> parse_architectures(std::string_view text);

/// "sm_80, sm_90a and PTX for 12.0 or later".
[[nodiscard]] std::string architectures_text(std::span<const Architecture> architectures);

/// The one whose code a GPU of this compute capability runs: machine code of its own major number, else PTX,
/// of either the latest. That may lack what the GPU could do.
[[nodiscard]] std::optional<Architecture> code_for(std::span<const Architecture> architectures,
                                                   int compute_capability);

/// Why none of them runs on this compute capability; empty when one does.
[[nodiscard]] std::string misfit(std::span<const Architecture> architectures, int compute_capability);

/// Those this library was compiled for.
[[nodiscard]] std::span<const Architecture> built_architectures();

}  // namespace kronsparse::cuda
