// A device's own rates, which cost models are shares of.
#pragma once

#include <string>
#include <vector>

#include "kronsparse/device.hpp"
#include "kronsparse/export.h"

namespace kronsparse {

/// One thing that a device does, and how fast.
struct Rate {
  std::string name;  ///< "copy", "l2", "shared", "f16", "fma32", "launch", ...
  double value = 0;
  std::string unit;  ///< "B/s", "FLOP/s" or "s"
};

/// Measures the device, for about two seconds, and keeps the result for the user, beside the times that
/// tune() measures. Cost models of an NVIDIA GPU take these rates in place of estimates in processes that
/// start later; a rate that is within 10 % of its estimate changes nothing. Other devices have a copy rate
/// alone.
///
///     using namespace kronsparse;
///     const std::vector<Rate> rates = measure_profile({}, false);  // not kept
///     assert(rates.front().name == "copy" && rates.front().value > 0);
KRONSPARSE_API std::vector<Rate> measure_profile(Device device = {}, bool keeps = true);

/// The rates that were measured and kept for the user; none where nothing was.
[[nodiscard]] KRONSPARSE_API std::vector<Rate> kept_profile(Device device = {});

}  // namespace kronsparse
