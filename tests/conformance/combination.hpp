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

inline std::vector<Combination> combinations() {
  std::vector<Combination> all;
  for (const Target& target : targets()) {
    const std::vector<Combination> more = combinations_of(target);
    all.insert(all.end(), more.begin(), more.end());
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
