// A GPU's own rates, measured: what cost models are shares of.
#pragma once

#include <string>
#include <vector>

#include "kronsparse/profile.hpp"

namespace kronsparse::cuda {

/// Measures on the default stream, for about two seconds. What the GPU or its code lacks is left out.
[[nodiscard]] std::vector<Rate> measure_rates(Device device);

/// Gives cost models the measured rates of GPUs of this name.
void use_rates(const std::string& name, const std::vector<Rate>& rates);

}  // namespace kronsparse::cuda
