// Times that were measured for problems on this machine's devices: kept for the user, found when plans
// decide.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/choice.hpp"
#include "kronsparse/device.hpp"
#include "kronsparse/problem.hpp"

namespace kronsparse {

/// The time of one implementation for a problem with one factor, or for a chain in one pass.
struct TunedTime {
  std::string implementation;
  double seconds = 0;            ///< of a run with packed values
  double packing_seconds = 0;    ///< of packing them
  double predicted_seconds = 0;  ///< by the cost model, when it was measured

  friend bool operator==(const TunedTime&, const TunedTime&) = default;
};

/// The times of a problem; none where it was not measured. The files of a device are read once.
[[nodiscard]] std::vector<TunedTime> tuned_times(const Problem& problem, Device device);

/// Replaces the times of a problem, in this process and, if `keeps`, in the user's file.
void set_tuned_times(const Problem& problem, Device device, std::vector<TunedTime> times, bool keeps);

/// The key of a device's files: its description, and the version of the library.
[[nodiscard]] std::string device_key(Device device);
[[nodiscard]] std::string device_key(const std::string& description, Device device);

/// The file of a device; empty where files are switched off.
[[nodiscard]] std::string tuned_times_file(Device device);

/// Forgets what was read, so that files are read again: for tests.
void forget_tuned_times();

/// Puts measured times in the place of predictions. What was not measured comes behind what was: predictions
/// and measurements do not compare. With `packed_as`, a kernel may run otherwise than when it was measured:
/// its prediction is then scaled by what the measurement said of it.
void apply_tuned_times(std::vector<Assessment>& all, const Problem& problem, Device device,
                       const PackedOrder* packed_as);

}  // namespace kronsparse
