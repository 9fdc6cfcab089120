// A run that is repeated allocates nothing, and a plan no more than it says.
#include <gtest/gtest.h>

#include <atomic>
#include <complex>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "kronsparse/plan.hpp"

namespace {

std::atomic<long> allocations{0};
std::atomic<std::size_t> bytes_allocated{0};

void* counted_or_null(std::size_t size, std::size_t alignment) noexcept {
  ++allocations;
  bytes_allocated += size;
  const std::size_t rounded = (size + alignment - 1) / alignment * alignment;
  return std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
}

void* counted(std::size_t size, std::size_t alignment) {
  if (void* pointer = counted_or_null(size, alignment)) return pointer;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t size) { return counted(size, alignof(std::max_align_t)); }
void* operator new[](std::size_t size) { return counted(size, alignof(std::max_align_t)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return counted(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return counted(size, static_cast<std::size_t>(alignment));
}
// AddressSanitizer's own nothrow versions would not go with the deletes below.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return counted_or_null(size, alignof(std::max_align_t));
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return counted_or_null(size, alignof(std::max_align_t));
}
void operator delete(void* pointer) noexcept { std::free(pointer); }
void operator delete[](void* pointer) noexcept { std::free(pointer); }
void operator delete(void* pointer, std::size_t) noexcept { std::free(pointer); }
void operator delete[](void* pointer, std::size_t) noexcept { std::free(pointer); }
void operator delete(void* pointer, std::align_val_t) noexcept { std::free(pointer); }
void operator delete[](void* pointer, std::align_val_t) noexcept { std::free(pointer); }
void operator delete(void* pointer, std::size_t, std::align_val_t) noexcept { std::free(pointer); }
void operator delete[](void* pointer, std::size_t, std::align_val_t) noexcept { std::free(pointer); }

namespace kronsparse {
namespace {

TEST(Allocation, RepeatedRunsAllocateNothing) {
  constexpr int allowed_dtypes = 6;
  for (int dtype = 0; dtype < allowed_dtypes; ++dtype)
    for (const char* rest :
         {"batch_first B=37 2x9x17x5 +bias", "batch_last B=37 2x9x17x5", "batch_first B=64 4x48x48x1",
          "transposed batch_first B=37 1x9x17x32", "batch_first B=37 1x2x2x8*2x2x2x4*4x2x2x2*8x2x2x1 +bias",
          "gradient batch_last B=37 2x9x17x5"}) {
      const Problem problem = Problem::parse(std::string(name(static_cast<DType>(dtype))) + " " + rest);
      // The widest element, zeros, for every operand.
      const std::vector<std::complex<double>> input(1 << 16);
      std::vector<std::complex<double>> output(1 << 16);
      const bool is_gradient = problem.operation == Operation::gradient;
      const Operands operands{.x = input.data(),
                              .y = output.data(),
                              .bias = problem.bias ? input.data() : nullptr,
                              .g = is_gradient ? input.data() : nullptr};
      for (const Candidate& candidate : candidates(problem)) {
        if (!candidate.refusal.empty()) continue;
        const Plan plan(problem, input.data(), {}, candidate.implementation);
        plan.run(operands);  // threads and their scratch may start now
        const long before = allocations;
        for (int repeat = 0; repeat < 10; ++repeat) plan.run(operands);
        EXPECT_EQ(allocations, before) << candidate.implementation << ": " << problem.to_string();
      }
    }
}

TEST(Allocation, PackedBytesAreWhatAPlanAllocates) {
  // With one term a sum, a table of the parts of the work would be larger than the weights.
  for (const char* text :
       {"f32 batch_first B=1 1x1x1x8000000", "f32 batch_first B=1 1x1x1x8000003",
        "f64 batch_first B=1 1x4000000x1x1", "transposed f32 batch_first B=1 1x1x1x8000000",
        "gradient f32 batch_first B=1 1x1x1x8000000", "f32 batch_last B=8 1x1x1x1000000"}) {
    const Problem problem = Problem::parse(text);
    const std::vector<double> values(8'000'003);
    const bool is_gradient = problem.operation == Operation::gradient;
    const void* const given = is_gradient ? nullptr : values.data();
    for (const Candidate& candidate : candidates(problem)) {
      if (!candidate.refusal.empty()) continue;
      // The second plan finds the threads' scratch memory.
      const Plan first(problem, given, {}, candidate.implementation);
      const std::size_t before = bytes_allocated;
      const Plan plan(problem, given, {}, candidate.implementation);
      const std::size_t grown = bytes_allocated - before;
      constexpr std::size_t small_change = 32768;
      EXPECT_LE(grown, plan.packed_bytes() + small_change) << candidate.implementation << ": " << text;
      EXPECT_LE(plan.packed_bytes(), grown) << candidate.implementation << ": " << text;
    }
  }
}

}  // namespace
}  // namespace kronsparse
