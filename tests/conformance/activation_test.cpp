// Activations at the ends of their range, where a formula can overflow on the
// way to a harmless result, and at infinity and NaN.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cases.hpp"
#include "combination.hpp"
#include "harness.hpp"

namespace conformance {
namespace {

class ActivationEnds : public testing::TestWithParam<Combination> {};

std::vector<Combination> real_multiplications() {
  std::vector<Combination> real;
  for (const Combination& item : combinations())
    if (item.operation == kronsparse::Operation::multiply && !is_complex(item.dtype)) real.push_back(item);
  return real;
}

TEST_P(ActivationEnds, AreAsTheFormulaSays) {
  const auto& [target, dtype, layout, operation] = GetParam();
  const auto device = make_test_device(target.device);
  with_element_type(dtype, [&, &target = target, dtype = dtype, layout = layout](auto element) {
    using T = typename decltype(element)::type;
    if constexpr (!complex_element<T>) {
      constexpr double kInfinity = std::numeric_limits<double>::infinity();
      const double most = std::is_same_v<T, double>             ? 1e300
                          : std::is_same_v<T, kronsparse::Half> ? 65504
                                                                : 0x1p126;
      const std::vector<double> inputs = {0.0,
                                          1.0,
                                          -1.0,
                                          9.0,
                                          -9.0,
                                          20.0,
                                          -20.0,
                                          89.0,
                                          -89.0,
                                          104.0,
                                          -104.0,
                                          800.0,
                                          -800.0,
                                          most,
                                          -most,
                                          kInfinity,
                                          std::numeric_limits<double>::quiet_NaN()};
      for (const Epilogue& epilogue : epilogues(dtype, kronsparse::Operation::multiply)) {
        // The identity: z is x itself, so that the activation is seen alone.
        const kronsparse::Problem problem{.chain = kronsparse::Pattern{1, 1, 1, 3},
                                          .batch = static_cast<std::int64_t>(inputs.size()),
                                          .dtype = dtype,
                                          .layout = layout,
                                          .bias = epilogue.bias,
                                          .activation = epilogue.activation};
        if (!target.refusal(problem).empty()) continue;
        SCOPED_TRACE(problem.to_string());
        const CrashNote note(test_reproduction());
        Data<double> data;
        data.values.assign(3, 1.0);
        for (int feature = 0; feature < 3; ++feature)
          for (const double input : inputs) data.x.push_back(decode(encode<T>(input)));
        if (epilogue.bias) data.bias.assign(3, 0.0);
        Harness<T> harness(*device, problem, 0);
        harness.load(data);
        const kronsparse::Plan plan(problem, harness.values(), target.device, target.implementation);
        ASSERT_EQ(harness.run(plan), "");
        const std::vector<double> got = harness.output();
        for (std::size_t at = 0; at < got.size(); ++at) {
          const double z = data.x[at];
          const double expected = activate(epilogue.activation, z);
          if (std::isnan(expected)) {
            EXPECT_TRUE(std::isnan(got[at])) << "of " << z << " is " << got[at];
          } else if (std::isinf(expected)) {
            EXPECT_EQ(got[at], expected) << "of " << z;
          } else {
            EXPECT_LE(std::abs(got[at] - expected), error_bound<T>(problem, z, 0))
                << "of " << z << " is " << got[at];
          }
        }
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(All, ActivationEnds, testing::ValuesIn(real_multiplications()), combination_name);

}  // namespace
}  // namespace conformance
