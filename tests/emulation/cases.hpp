// Runs cases and keeps how each was cut up, so that a last test can say that nothing was left out.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "product_run.hpp"

namespace kronsparse::emulation {

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
