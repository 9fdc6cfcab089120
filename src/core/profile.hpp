// Rates that are kept for a user, as backends read them.
#pragma once

#include <string>
#include <vector>

#include "kronsparse/profile.hpp"

namespace kronsparse {

/// The rates of a device by its description; none where none are kept.
[[nodiscard]] std::vector<Rate> read_rates(const std::string& description, Device device);

}  // namespace kronsparse
