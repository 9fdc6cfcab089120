#include "cuda/host/speeds.hpp"

#include <algorithm>
#include <cmath>

namespace kronsparse::cuda {
namespace {

/// The H200 of the fits.
constexpr double h200_multiprocessors = 132, h200_clock = 1.98e9, h200_copy = 4.26e12;

/// Noise of a measurement, and what drivers report differently, must not change a choice: what is this near
/// to the H200 is the H200.
double as_of_h200(double ratio) {
  constexpr double near = 0.05;
  return std::abs(ratio - 1) < near ? 1 : ratio;
}

double clock_of(const GpuFacts& facts) { return std::max(facts.clock_hz, 1e8); }
double copy_of(const GpuFacts& facts) { return std::max(facts.memory_rate, 1e9); }
double multiprocessors_of(const GpuFacts& facts) { return std::max(facts.multiprocessors, 1); }

}  // namespace

double clocks_per_byte(const GpuFacts& facts) {
  return as_of_h200(multiprocessors_of(facts) * clock_of(facts) / copy_of(facts) /
                    (h200_multiprocessors * h200_clock / h200_copy));
}

// Each multiprocessor takes in about as many bytes of L2 in a clock, whatever the GPU.
double l2_per_byte(const GpuFacts& facts) { return clocks_per_byte(facts); }

double relative_clock(const GpuFacts& facts) { return as_of_h200(clock_of(facts) / h200_clock); }

double relative_l2(const GpuFacts& facts) {
  return as_of_h200(l2_per_byte(facts) * copy_of(facts) / h200_copy);
}

double relative_l2_of_one(const GpuFacts& facts) {
  return as_of_h200(l2_per_byte(facts) * copy_of(facts) / h200_copy * h200_multiprocessors /
                    multiprocessors_of(facts));
}

double multiply_adds_per_clock(const GpuFacts& facts, Units units) {
  const int cc = facts.compute_capability;
  // Of tensor cores: data centres' GPUs and Orin, and the others.
  const bool is_large = cc == 80 || cc == 87 || (cc >= 90 && cc < 120);
  switch (units) {
    case Units::f16:
    case Units::bf16:
      return is_large ? 1024 : 256;
    case Units::tf32:
      return is_large ? 512 : 128;
    case Units::fma32:
      return cc < 86 ? 64 : 128;
    case Units::fma64:
      return cc == 80 ? 32 : cc == 90 || cc == 100 ? 64 : 2;
  }
  return 1;
}

double reached_rate(const GpuFacts& facts, Units units, double on_h200, double products) {
  constexpr double most = 0.8;
  return std::min(on_h200, most * multiply_adds_per_clock(facts, units) / products);
}

}  // namespace kronsparse::cuda
