// The launches of a `staged` product, in order. Host code only; a Launcher does the launching.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/large_batch/staged/search.hpp"

namespace kronsparse::cuda {

/// The multiplication of a chunk and the sorting before and after it, without addresses.
struct StagedPart {
  StagedPart(const Problem& whole, std::int64_t count, std::int64_t blocks_i, const GpuFacts& gpu)
      : samples(count), problem(staged_part(whole, count, blocks_i)), config(gemm_config(problem, gpu)) {
    const Product p = planned_product_of(whole);
    sort = sort_job(count, blocks_i, p.c, p.d);
    sort.from_sample = p.x_sample;
    sort.to_sample = blocks_i * p.d * sorted_length(p.c);
    unsort = sort_job(count, blocks_i, p.b, p.d);
    unsort.from_sample = blocks_i * p.d * sorted_length(p.b);
    unsort.to_sample = p.y_sample;
  }
  std::int64_t samples;
  Problem problem;
  GemmConfig config;
  SortJob sort, unsort;
};

/// The parts that a run consists of: whole chunks, and the last one.
struct StagedParts {
  StagedParts(const Problem& problem, const StagedConfig& one, const GpuFacts& gpu)
      : p(planned_product_of(problem)),
        config(one),
        scratch(staged_scratch(problem, one)),
        whole(problem, one.chunk, one.blocks_i, gpu),
        last(problem, p.batch % one.chunk == 0 ? one.chunk : p.batch % one.chunk, one.blocks_i, gpu),
        bias(sort_job(1, p.a, p.b, p.d)),
        sorting{.unsort = {},
                .sort = {},
                .d = Divisor(static_cast<std::uint32_t>(p.d)),
                .eights_log2 = sort_eights_log2(p.d)} {}
  Product p;
  StagedConfig config;
  StagedScratch scratch;
  StagedPart whole, last;
  SortJob bias;
  SortArguments sorting;  ///< without jobs
};

/// All launches of a run. `Launcher` has sort(const SortArguments&) and multiply(const GemmConfig&, const
/// GemmArguments&).
template <class Launcher>
class StagedSteps {
 public:
  /// `weights` are packed in staged_order. The operands' workspace is used.
  StagedSteps(const StagedParts& parts, const void* weights, const Operands& operands, Launcher& launcher)
      : p_(parts.p),
        parts_(parts),
        weights_(static_cast<const std::byte*>(weights)),
        operands_(operands),
        launcher_(launcher),
        x_(static_cast<std::byte*>(operands.workspace)),
        y_(x_ + parts.scratch.y),
        bias_(x_ + parts.scratch.bias) {}

  void all() {
    const GemmArguments whole = arguments_of(parts_.whole);
    const GemmArguments last = arguments_of(parts_.last);
    if (operands_.bias != nullptr) sort({}, bias_job());
    SortJob leaving;
    const StagedConfig& config = parts_.config;
    for (std::int64_t i = 0; i < p_.a; i += config.blocks_i)
      for (std::int64_t n = 0; n < p_.batch; n += config.chunk) {
        const bool is_last = n + config.chunk >= p_.batch;
        const StagedPart& part = is_last ? parts_.last : parts_.whole;
        sort(leaving, x_job(part, i, n));
        multiply(part.config, is_last ? last : whole, i);
        leaving = y_job(part, i, n);
      }
    sort(leaving, {});
  }

 private:
  [[nodiscard]] GemmArguments arguments_of(const StagedPart& part) const {
    return gemm_arguments(part.problem, part.config, {.x = x_, .y = y_}, weights_);
  }

  [[nodiscard]] SortJob x_job(const StagedPart& part, std::int64_t i, std::int64_t n) const {
    SortJob job = part.sort;
    job.from = static_cast<const std::uint16_t*>(operands_.x) + n * p_.x_sample + i * p_.c * p_.d;
    job.to = reinterpret_cast<std::uint16_t*>(x_);
    job.in_pairs = are_in_pairs(job.from, p_.x_sample);
    return job;
  }

  [[nodiscard]] SortJob y_job(const StagedPart& part, std::int64_t i, std::int64_t n) const {
    SortJob job = part.unsort;
    job.from = reinterpret_cast<const std::uint16_t*>(y_);
    job.to = static_cast<std::uint16_t*>(operands_.y) + n * p_.y_sample + i * p_.b * p_.d;
    job.in_pairs = are_in_pairs(job.to, p_.y_sample);
    return job;
  }

  [[nodiscard]] SortJob bias_job() const {
    SortJob job = parts_.bias;
    job.from = static_cast<const std::uint16_t*>(operands_.bias);
    job.to = reinterpret_cast<std::uint16_t*>(bias_);
    job.in_pairs = are_in_pairs(job.from, 0);
    return job;
  }

  [[nodiscard]] bool are_in_pairs(const void* data, std::int64_t stride) const {
    return p_.d % 2 == 0 && stride % 2 == 0 && reinterpret_cast<std::uintptr_t>(data) % 4 == 0;
  }

  void sort(const SortJob& unsort, const SortJob& sort) {
    SortArguments arguments = parts_.sorting;
    arguments.unsort = unsort;
    arguments.sort = sort;
    launcher_.sort(arguments);
  }

  void multiply(const GemmConfig& config, GemmArguments arguments, std::int64_t i) {
    const std::int64_t products = i * p_.d;
    arguments.weights += products * config.order.k_tiles * config.order.group_elements() * 2;
    if (operands_.bias != nullptr) arguments.bias = bias_ + products * sorted_length(p_.b) * 2;
    launcher_.multiply(config, arguments);
  }

  const Product& p_;
  const StagedParts& parts_;
  const std::byte* weights_;
  const Operands& operands_;
  Launcher& launcher_;
  std::byte *x_, *y_, *bias_;
};

}  // namespace kronsparse::cuda
