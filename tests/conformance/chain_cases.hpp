// Problems of chains that every implementation is given.
#pragma once

#include <vector>

#include "cases.hpp"

namespace conformance {

/// Chains of one to four factors with all epilogues, strides and some batches.
[[nodiscard]] std::vector<Case> chain_cases(kronsparse::DType dtype, kronsparse::Layout layout,
                                            kronsparse::Operation operation, bool quick);

}  // namespace conformance
