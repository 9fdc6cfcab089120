// Runs cases and records how each was cut, so that a last test can check that nothing was left out.
#pragma once

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "picker.hpp"
#include "product_run.hpp"

namespace kronsparse::emulation {

/// Makes some problems transposed, and gives others a bias or an activation.
inline void pick_operation(Problem& problem, Picker& pick) {
  const Activation activations[] = {Activation::none, Activation::none, Activation::relu, Activation::gelu};
  if (pick.next(4) == 0) {
    problem.operation = Operation::transposed;
    problem.chain = problem.pattern().transposed();
  } else {
    problem.bias = pick.next(2) == 0;
    problem.activation = pick.of(activations);
  }
}

/// Picks a pattern and a batch, until the plain loop that results are compared with takes no longer than
/// `most_work` products.
template <class PickPattern, class PickBatch>
void pick_sizes(Problem& problem, double most_work, const PickPattern& pattern, const PickBatch& batch) {
  do {
    problem.chain = pattern();
    problem.batch = batch();
  } while (static_cast<double>(problem.pattern().nnz()) * static_cast<double>(problem.batch) > most_work);
}

/// Picks the addresses and contents of x and y, and when copies arrive.
inline void pick_surroundings(ProductCase& one, Picker& pick) {
  const int offsets[] = {0, 0, 0, 4, 3};
  one.x_offset = pick.of(offsets);
  one.y_offset = pick.of(offsets);
  one.infinite = pick.next(6) == 0;
  one.timing = pick.next(2) == 0 ? Timing::late : Timing::early;
}

/// Picks strides of both matrices: without gaps, or with gaps of whole units of 8 elements, or of any number.
inline void pick_strides(Problem& problem, Picker& pick) {
  const std::size_t apart = pick.next(3);
  if (apart == 0) return;
  const bool first = problem.layout == Layout::batch_first;
  const auto stride = [&](std::int64_t dense) {
    return dense + (apart == 1 ? 8 : 1) * static_cast<std::int64_t>(pick.next(4));
  };
  problem.cols_stride = stride(first ? problem.pattern().cols() : problem.batch);
  problem.rows_stride = stride(first ? problem.pattern().rows() : problem.batch);
}

template <class Cut>
class Cases {
 public:
  using Run = Cut (*)(const ProductCase&);
  explicit Cases(Run kernel) : run_(kernel) {}

  void run(const ProductCase& one) {
    try {
      cuts_.push_back(run_(one));
    } catch (const std::exception& error) {
      ADD_FAILURE() << one.text() << ": " << error.what();
    }
  }
  [[nodiscard]] const std::vector<Cut>& cuts() const { return cuts_; }

 private:
  Run run_;
  std::vector<Cut> cuts_;
};

}  // namespace kronsparse::emulation
