// Samples as rows, computed as columns: blocks of x are turned (transposed) in L2, multiplied by a driver for
// batch_last, and the results turned back.
//
// The order of j does not matter to such a driver: every (i, j) is a product whose lanes are samples. So any
// d, and blocks of any size, run as fast as in batch_last but for two passes over x and y in the cache. It
// pays where d is odd or small and storage has 16 bits, so that x is copied anyway.
#pragma once

#include <functional>
#include <memory>

#include "cpu/task_executor.hpp"

namespace kronsparse {

/// A driver for batch_last. Its packed values lie product by product, (i, j) in order, each in as many bytes.
class ColumnsDriver : public TaskExecutor {};
using MakeColumns = std::function<std::unique_ptr<ColumnsDriver>(const Problem&)>;

/// Whether a problem may be turned: products of 16-bit numbers in batch_first, of enough samples.
[[nodiscard]] bool can_be_turned(const Problem& problem);

/// The same product in batch_last, without strides: what the driver is asked to do in all, on all samples.
[[nodiscard]] Problem turned(Problem problem);

/// Predicted, on one thread: of the two passes alone.
[[nodiscard]] double turning_seconds(const Problem& problem);

/// `seconds_alone`: predicted of all of it, on one thread. `make` makes drivers for parts of the problem.
[[nodiscard]] std::unique_ptr<Executor> make_turned(const Problem& problem, double seconds_alone,
                                                    const MakeColumns& make);

}  // namespace kronsparse
