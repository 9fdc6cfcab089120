// A GPU that is made up, and what the table says of it.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "core/implementation.hpp"
#include "cuda/host/runtime.hpp"
#include "kronsparse/plan.hpp"

namespace kronsparse::cuda {

inline GpuFacts h200() {
  return {.index = 0,
          .name = "NVIDIA H200",
          .compute_capability = 90,
          .code = {.compute_capability = 90, .kind = 'a'},
          .multiprocessors = 132,
          .memory_bytes = std::size_t{140} << 30,
          .shared_bytes = 227 << 10,
          .l2_bytes = std::size_t{50} << 20,
          .clock_hz = 1.98e9,
          .memory_rate = 4.26e12,
          .unusable = {}};
}

inline constexpr Device first_gpu{Backend::cuda, 0};

inline std::string refusal(const char* implementation, const std::string& text) {
  for (const Candidate& candidate : candidates(Problem::parse(text), first_gpu))
    if (candidate.implementation == implementation) return candidate.refusal;
  return "not in the table";
}

inline void expect_mentions(const std::string& refusal, const char* part) {
  EXPECT_NE(refusal.find(part), std::string::npos) << "'" << refusal << "' lacks " << part;
}

}  // namespace kronsparse::cuda
