// Runs cases and keeps how each was cut up, so that a last test can say that nothing was left out.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "picker.hpp"
#include "product_run.hpp"

namespace kronsparse::emulation {

/// Rows of both matrices without gaps, or apart by whole units of 8 elements, or by any number.
inline void pick_strides(Problem& problem, Picker& pick) {
  const std::size_t apart = pick.next(3);
  if (apart == 0) return;
  const bool first = problem.layout == Layout::batch_first;
  const auto stride = [&](std::int64_t dense) {
    return dense + (apart == 1 ? 8 : 1) * static_cast<std::int64_t>(pick.next(4));
  };
  problem.cols_stride = stride(first ? problem.pattern.cols() : problem.batch);
  problem.rows_stride = stride(first ? problem.pattern.rows() : problem.batch);
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
