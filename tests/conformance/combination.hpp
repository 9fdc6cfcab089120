// The parameters of tests that run for every implementation.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "kronsparse/problem.hpp"
#include "targets.hpp"

namespace conformance {

struct Combination {
  Target target;
  kronsparse::DType dtype;
  kronsparse::Layout layout;
  kronsparse::Operation operation;
};

inline std::ostream& operator<<(std::ostream& out, const Combination& combination) {
  return out << combination.target << ", " << name(combination.operation) << " " << name(combination.dtype)
             << " " << name(combination.layout);
}

inline constexpr kronsparse::DType kDTypes[] = {kronsparse::DType::f32,       kronsparse::DType::f64,
                                                kronsparse::DType::f16,       kronsparse::DType::bf16,
                                                kronsparse::DType::complex64, kronsparse::DType::complex128};

inline std::vector<Combination> combinations_of(const Target& target) {
  using kronsparse::Layout;
  using kronsparse::Operation;
  std::vector<Combination> all;
  for (const Operation operation :
       {Operation::multiply, Operation::transposed, Operation::adjoint, Operation::gradient})
    for (const kronsparse::DType dtype : kDTypes)
      for (const Layout layout : {Layout::batch_first, Layout::batch_last})
        all.push_back({target, dtype, layout, operation});
  return all;
}

/// All targets of one dtype, layout and operation after each other: what is the same for them is computed
/// once (kept.hpp).
inline std::vector<Combination> combinations() {
  const std::vector<Target> everyone = targets();
  std::vector<Combination> all;
  for (Combination combination : combinations_of({}))
    for (const Target& target : everyone) {
      combination.target = target;
      all.push_back(combination);
    }
  return all;
}

/// "cpu_reference_multiply_f32_batch_first".
inline std::string combination_name(const testing::TestParamInfo<Combination>& info) {
  return info.param.target.label() + "_" + std::string(name(info.param.operation)) + "_" +
         std::string(name(info.param.dtype)) + "_" + std::string(name(info.param.layout));
}

/// "cpu_reference".
inline std::string target_name(const testing::TestParamInfo<Target>& info) { return info.param.label(); }

}  // namespace conformance
