// Table entries of the simd family: which driver takes a problem, on which
// instruction set, at what predicted cost.

#include "cpu/simd/simd.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <vector>

#include "cpu/cpu_info.hpp"
#include "cpu/packing.hpp"
#include "cpu/simd/cost.hpp"
#include "cpu/simd/drivers.hpp"
#include "cpu/simd/one_thread.hpp"
#include "cpu/simd/weights.hpp"
#include "cpu/threads.hpp"

namespace kronsparse {
namespace simd {

#if defined(__x86_64__)
bool cpu_has_f16c() {
  // Asked once: a virtual machine leaves the processor for each answer, which takes microseconds.
  static const bool has = [] {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
  }();
  return has;
}
#endif

bool writes_around_caches(const Problem& problem) {
  return problem.bytes() > 4.0 * static_cast<double>(cpu_info().l2_bytes) * thread_count();
}

Driver driver_of(const Problem& problem, int lanes) {
  if (problem.operation == Operation::gradient) return Driver::gradient;
  const std::int64_t columns = problem.batch * (is_complex(problem.dtype) ? 2 : 1);
  return problem.layout == Layout::batch_first || columns < lanes ? Driver::rows : Driver::columns;
}

namespace {

/// One column without gaps is also one row.
Problem with_one_column_as_row(Problem problem) {
  if (problem.operation != Operation::gradient && problem.layout == Layout::batch_last &&
      problem.batch == 1 && problem.x_stride() == 1 && problem.y_stride() == 1) {
    problem.layout = Layout::batch_first;
    problem.cols_stride = 0;
    problem.rows_stride = 0;
  }
  return problem;
}

template <class Real>
std::unique_ptr<Executor> make_with(const Problem& given, const KernelSet<Real>& kernels,
                                    std::string_view implementation) {
  const Problem problem = with_one_column_as_row(given);
  // Far beyond any memory, and near enough to 63 bits for sizes computed of it to overflow: packing
  // fills up vectors or tiles, and writes a complex value as four reals.
  const std::int64_t most_padding = std::max(kernels.lanes, max_tile_rows);
  static_cast<void>(count_of({problem.pattern().nnz(), 4, most_padding, sizeof(Real)}));
  if (is_faster_turned(problem, kernels)) {
    return make_turned(problem, seconds_alone(problem, kernels), [&](const Problem& part) {
      return make_columns(part, kernels, implementation, true);
    });
  }
  switch (driver_of(problem, kernels.lanes)) {
    case Driver::rows:
      return make_rows(problem, kernels, implementation);
    case Driver::columns:
      return make_columns(problem, kernels, implementation);
    case Driver::gradient:
      return make_gradient(problem, kernels);
  }
  return nullptr;
}

/// Whether arithmetic is done in f64.
bool is_wide(DType dtype) { return dtype == DType::f64 || dtype == DType::complex128; }

std::unique_ptr<Executor> make_on(const Isa& isa, const Problem& problem) {
  return is_wide(problem.dtype) ? make_with(problem, *isa.f64, isa.name)
                                : make_with(problem, *isa.f32, isa.name);
}

double predict_on(const Isa& isa, const Problem& given) {
  const Problem problem = with_one_column_as_row(given);
  return seconds_on_threads(is_wide(problem.dtype) ? seconds_alone(problem, *isa.f64)
                                                   : seconds_alone(problem, *isa.f32));
}

template <const Isa& isa>
Proposal propose(const Problem& problem, Device /*device*/, const PackedOrder* packed_as) {
  if (!isa.usable()) return {.refusal = isa.missing};
  const auto make = [problem] { return make_on(isa, problem); };
  if (packed_as != nullptr && make()->order() != *packed_as) return {.refusal = other_order};
  return {.seconds = predict_on(isa, problem), .packing_seconds = packing_seconds(problem), .make = make};
}

template <const Isa& isa>
Implementation entry(std::string_view summary) {
  return {isa.name, Backend::cpu, summary, propose<isa>};
}

const std::vector<Implementation>& table() {
  static const std::vector<Implementation> all = {
#if defined(__x86_64__)
    entry<isa_avx512>("register tiles of 64-byte vectors, X read in place"),
    entry<isa_avx2>("register tiles of 32-byte vectors, X read in place"),
#endif
    entry<isa_baseline>("register tiles of 16-byte vectors, X read in place"),
  };
  return all;
}

/// The instruction sets of this CPU, widest first.
const std::vector<const Isa*>& usable_isas() {
  static const std::vector<const Isa*> usable = [] {
    std::vector<const Isa*> all;
    for (const Isa* isa : {
#if defined(__x86_64__)
           &isa_avx512, &isa_avx2,
#endif
               &isa_baseline
         })
      if (isa->usable()) all.push_back(isa);
    return all;
  }();
  return usable;
}

double seconds_alone_on(const Isa& isa, const Problem& problem) {
  return is_wide(problem.dtype) ? seconds_alone(problem, *isa.f64) : seconds_alone(problem, *isa.f32);
}

const Isa& fastest_isa(const Problem& problem) {
  return **std::ranges::min_element(usable_isas(), {},
                                    [&](const Isa* isa) { return seconds_alone_on(*isa, problem); });
}

template <class Real>
std::unique_ptr<TaskExecutor> make_tasks(Driver driver, const Problem& problem,
                                         const KernelSet<Real>& kernels, std::string_view implementation) {
  if (driver == Driver::rows) return make_rows(problem, kernels, implementation);
  return make_columns(problem, kernels, implementation, true);
}

std::unique_ptr<TaskExecutor> make_tasks(Driver driver, const Problem& problem, const Isa& isa) {
  return is_wide(problem.dtype) ? make_tasks(driver, problem, *isa.f64, isa.name)
                                : make_tasks(driver, problem, *isa.f32, isa.name);
}

Driver driver_on(const Isa& isa, const Problem& problem) {
  return driver_of(problem, is_wide(problem.dtype) ? isa.f64->lanes : isa.f32->lanes);
}

Storage storage_of(DType dtype) { return dtype == DType::f16 ? Storage::f16 : Storage::bf16; }

}  // namespace

double seconds_on_one_thread(const Problem& given) {
  const Problem problem = with_one_column_as_row(given);
  return seconds_alone_on(fastest_isa(problem), problem);
}

std::unique_ptr<TaskExecutor> make_for_one_thread(const Problem& given) {
  const Problem problem = with_one_column_as_row(given);
  const Isa& isa = fastest_isa(problem);
  return make_tasks(driver_on(isa, problem), problem, isa);
}

std::unique_ptr<TaskExecutor> make_for_one_thread(const Problem& problem, const PackedOrder& order) {
  if (auto fastest = make_for_one_thread(problem); fastest->order() == order) return fastest;
  for (const Isa* isa : usable_isas())
    for (const Driver driver : {Driver::rows, Driver::columns}) {
      if (driver == Driver::columns && problem.layout == Layout::batch_first) continue;
      if (auto other = make_tasks(driver, problem, *isa); other->order() == order) return other;
    }
  return nullptr;
}

void widen(const void* from, DType dtype, float* to, std::int64_t count) {
  usable_isas().front()->f32->widen(from, storage_of(dtype), to, count);
}

void narrow(float* from, DType dtype, void* to, std::int64_t count) {
  const KernelSet<float>& kernels = *usable_isas().front()->f32;
  constexpr std::int64_t most = std::int64_t{1} << 20;  // rows are counted in ints
  FinishArgs<float> finish{};
  finish.rows = 1;
  finish.storage = storage_of(dtype);
  finish.unit = 1;
  finish.unit_stride = 1;
  auto* out = static_cast<std::uint16_t*>(to);
  while (count > 0) {
    // Whole vectors, then the lanes that are left.
    const bool is_whole = count >= kernels.lanes;
    finish.lanes_valid =
        static_cast<int>(is_whole ? std::min(count, most) / kernels.lanes * kernels.lanes : count);
    finish.row_length = is_whole ? finish.lanes_valid : kernels.lanes;
    finish.piece = finish.row_length;
    finish.tile = from;
    finish.out = out;
    kernels.finish(finish);
    from += finish.lanes_valid;
    out += finish.lanes_valid;
    count -= finish.lanes_valid;
  }
}

}  // namespace simd

std::span<const Implementation> simd_implementations() { return simd::table(); }

}  // namespace kronsparse
