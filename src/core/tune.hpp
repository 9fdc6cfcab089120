// Measuring behind a plan's decision, where the user asked for it.
#pragma once

#include "core/implementation.hpp"

namespace kronsparse {

/// With KRONSPARSE_TUNE=k: measures the k best predictions of a problem's steps that were not measured yet,
/// unless the thread is in a run, the stream is recorded, or TuningPause says no. A device that runs out of
/// memory for it measures nothing. Error invalid_argument where the variable is not a number.
void tune_if_asked(const Problem& problem, const BackendEntry& backend, Device device, Stream stream);

}  // namespace kronsparse
