#include "cuda/host/speeds.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "cuda/tuning/tuning.hpp"

namespace kronsparse::cuda {
namespace {

/// Noise of a measurement, and what drivers report differently, must not change a choice: what is this near
/// to the GPU of the fits is that GPU.
double as_fitted(double ratio) {
  constexpr double near = 0.05;
  return std::abs(ratio - 1) < near ? 1 : ratio;
}

/// The rates of GPUs by name. Few are set and many are read, from any thread.
struct Table {
  std::shared_mutex mutex;
  std::map<std::string, MeasuredRates> rates;
  std::atomic<bool> has_any = false;
};
Table& table() {
  static Table once;
  return once;
}

MeasuredRates measured(const GpuFacts& facts) {
  Table& all = table();
  if (!all.has_any) return {};
  const std::shared_lock reading(all.mutex);
  const auto found = all.rates.find(facts.name);
  return found == all.rates.end() ? MeasuredRates() : found->second;
}

/// The measured rate, unless it is near to the estimate, or was not measured.
double rate_of(double measured_rate, double estimate) {
  constexpr double near = 0.1;
  return measured_rate <= 0 || std::abs(measured_rate / estimate - 1) < near ? estimate : measured_rate;
}

double clock_of(const GpuFacts& facts) { return std::max(facts.clock_hz, 1e8); }
double copy_of(const GpuFacts& facts) { return std::max(copy_rate(facts), 1e9); }
double multiprocessors_of(const GpuFacts& facts) { return std::max(facts.multiprocessors, 1); }

}  // namespace

double clocks_per_byte(const GpuFacts& facts) {
  const tuning::FittedGpu& fitted = tuning_of(facts).gpu;
  return as_fitted(multiprocessors_of(facts) * clock_of(facts) / copy_of(facts) /
                   (fitted.multiprocessors * fitted.clock / fitted.copy));
}

// Each multiprocessor takes in about as many bytes of L2 in a clock, whatever the GPU. A measured rate of L2
// needs that of the GPU of the fits to be held against.
double l2_per_byte(const GpuFacts& facts) {
  const tuning::FittedGpu& fitted = tuning_of(facts).gpu;
  const double estimate = clocks_per_byte(facts);
  const double l2 = fitted.l2 > 0 ? measured(facts).l2 : 0;
  return l2 > 0 ? rate_of(l2 / copy_of(facts) / (fitted.l2 / fitted.copy), estimate) : estimate;
}

double relative_clock(const GpuFacts& facts) {
  return as_fitted(clock_of(facts) / tuning_of(facts).gpu.clock);
}

double relative_l2(const GpuFacts& facts) {
  return as_fitted(l2_per_byte(facts) * copy_of(facts) / tuning_of(facts).gpu.copy);
}

double relative_l2_of_one(const GpuFacts& facts) {
  const tuning::FittedGpu& fitted = tuning_of(facts).gpu;
  return as_fitted(l2_per_byte(facts) * copy_of(facts) / fitted.copy * fitted.multiprocessors /
                   multiprocessors_of(facts));
}

void set_measured_rates(const std::string& name, const MeasuredRates& rates) {
  Table& all = table();
  const std::unique_lock changing(all.mutex);
  all.rates[name] = rates;
  all.has_any = true;
}

void forget_measured_rates() {
  Table& all = table();
  const std::unique_lock changing(all.mutex);
  all.rates.clear();
  all.has_any = false;
}

double copy_rate(const GpuFacts& facts) { return rate_of(measured(facts).copy, facts.memory_rate); }

namespace {

double estimated_per_clock(const GpuFacts& facts, Units units) {
  const int cc = facts.compute_capability;
  // The rates of tensor cores: data centres' GPUs and Orin, then the others.
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

double measured_of(const MeasuredRates& rates, Units units) {
  switch (units) {
    case Units::f16:
      return rates.f16;
    case Units::bf16:
      return rates.bf16;
    case Units::tf32:
      return rates.tf32;
    case Units::fma32:
      return rates.fma32;
    case Units::fma64:
      return rates.fma64;
  }
  return 0;
}

}  // namespace

double multiply_adds_per_clock(const GpuFacts& facts, Units units) {
  const double estimate = estimated_per_clock(facts, units);
  const double per_second = multiprocessors_of(facts) * clock_of(facts);
  return rate_of(measured_of(measured(facts), units) / per_second, estimate);
}

double reached_rate(const GpuFacts& facts, Units units, double fitted, double products) {
  constexpr double most = 0.8;
  return std::min(fitted, most * multiply_adds_per_clock(facts, units) / products);
}

}  // namespace kronsparse::cuda
