// kronsparse_conformance_tests [--quick | --full] [--large] [GoogleTest flags]
//   runs all tests: a fifth of the cases, all cases, also what takes minutes
// kronsparse_conformance_tests --problem='...' [--device=cpu] --impl=NAME [--seed=N]
//   runs the conformance body on one problem: what a failure prints
#include <gtest/gtest.h>

#include <cstdio>

#include "body.hpp"
#include "chain_body.hpp"
#include "kronsparse/error.hpp"
#include "targets.hpp"

namespace {

int run_one_problem(const conformance::Options& options) {
  const auto device = conformance::make_test_device(options.target.device);
  if (device == nullptr) {
    std::fprintf(stderr, "no tests for %s\n", options.target.device.to_string().c_str());
    return 2;
  }
  std::string wrong = options.target.refusal(*options.problem);
  if (!wrong.empty()) {
    std::fprintf(stderr, "%s refuses the problem: %s\n", options.target.implementation.c_str(),
                 wrong.c_str());
    return 2;
  }
  if (options.problem->chain.size() == 1)
    wrong = conformance::check_problem(*device, options.target, *options.problem, options.seed);
  if (wrong.empty())
    wrong = conformance::check_chain(*device, options.target, *options.problem, options.seed);
  std::puts(wrong.empty() ? "ok" : wrong.c_str());
  return wrong.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  conformance::install_crash_note();
  try {
    conformance::read_options(argc, argv);
  } catch (const kronsparse::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
  if (conformance::options().problem) return run_one_problem(conformance::options());
  testing::InitGoogleTest(&argc, argv);
  if (argc > 1) {
    std::fprintf(stderr, "unknown argument '%s'\n", argv[1]);
    return 2;
  }
  return RUN_ALL_TESTS();
}
