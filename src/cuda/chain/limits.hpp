// What the kernels for chains have in common, for device code, too.
#pragma once

namespace kronsparse::cuda {

/// The products of a kernel, at most.
inline constexpr int most_links = 8;

}  // namespace kronsparse::cuda
