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
    sort.to_sample = blocks_i * p.d * p.c;
    unsort = sort_job(count, blocks_i, p.b, p.d);
    unsort.from_sample = blocks_i * p.d * p.b;
    unsort.to_sample = p.y_sample;
  }
  std::int64_t samples;
  Problem problem;
  GemmConfig config;
  SortJob sort, unsort;
};

/// A level and the parts that its chunks consist of: whole chunks, and the last one.
struct StagedLevelParts {
  StagedLevelParts(const Problem& problem, const StagedLevel& one, const GpuFacts& gpu)
      : p(planned_product_of(problem)),
        level(one),
        scratch(staged_scratch(problem, one)),
        whole(problem, one.chunk, one.blocks_i, gpu),
        last(problem, one.count % one.chunk == 0 ? one.chunk : one.count % one.chunk, one.blocks_i, gpu),
        bias(sort_job(1, p.a, p.b, p.d)),
        sorting{.unsort = {},
                .sort = {},
                .d = Divisor(static_cast<std::uint32_t>(p.d)),
                .eights_log2 = sort_eights_log2(p.d)} {}
  Product p;
  StagedLevel level;
  StagedScratch scratch;
  StagedPart whole, last;
  SortJob bias;
  SortArguments sorting;  ///< without jobs
};

/// All launches of one level of a run. `Launcher` has sort(const SortArguments&) and multiply(const
/// GemmConfig&, const GemmArguments&).
template <class Launcher>
class StagedSteps {
 public:
  /// `weights` are packed in staged_order.
  StagedSteps(const StagedLevelParts& parts, const void* weights, const Operands& operands,
              Launcher& launcher)
      : p_(parts.p),
        parts_(parts),
        level_(parts.level),
        weights_(static_cast<const std::byte*>(weights)),
        operands_(operands),
        launcher_(launcher) {
    auto* behind = static_cast<std::byte*>(operands.y) + (level_.first + level_.count) * p_.y_sample * 2;
    const auto over = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(behind) % kScratchAlignment);
    x_ = behind + (kScratchAlignment - over) % kScratchAlignment;
    y_ = x_ + parts.scratch.y;
    bias_ = x_ + parts.scratch.bias;
  }

  void all() {
    const GemmArguments whole = arguments_of(parts_.whole);
    const GemmArguments last = arguments_of(parts_.last);
    if (operands_.bias != nullptr) sort({}, bias_job());
    SortJob leaving;
    for (std::int64_t i = 0; i < p_.a; i += level_.blocks_i)
      for (std::int64_t n = 0; n < level_.count; n += level_.chunk) {
        const bool is_last = n + level_.chunk >= level_.count;
        const StagedPart& part = is_last ? parts_.last : parts_.whole;
        sort(leaving, x_job(part, i, level_.first + n));
        multiply(part.config, is_last ? last : whole, i);
        leaving = y_job(part, i, level_.first + n);
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
    job.in_pieces = is_in_pieces(job.from, p_.x_sample);
    return job;
  }

  [[nodiscard]] SortJob y_job(const StagedPart& part, std::int64_t i, std::int64_t n) const {
    SortJob job = part.unsort;
    job.from = reinterpret_cast<const std::uint16_t*>(y_);
    job.to = static_cast<std::uint16_t*>(operands_.y) + n * p_.y_sample + i * p_.b * p_.d;
    job.in_pieces = is_in_pieces(job.to, p_.y_sample);
    return job;
  }

  [[nodiscard]] SortJob bias_job() const {
    SortJob job = parts_.bias;
    job.from = static_cast<const std::uint16_t*>(operands_.bias);
    job.to = reinterpret_cast<std::uint16_t*>(bias_);
    job.in_pieces = is_in_pieces(job.from, 0);
    return job;
  }

  [[nodiscard]] static bool is_in_pieces(const void* data, std::int64_t stride) {
    return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && stride % kRunFeatures == 0;
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
    if (operands_.bias != nullptr) arguments.bias = bias_ + products * p_.b * 2;
    launcher_.multiply(config, arguments);
  }

  const Product& p_;
  const StagedLevelParts& parts_;
  const StagedLevel& level_;
  const std::byte* weights_;
  const Operands& operands_;
  Launcher& launcher_;
  std::byte *x_, *y_, *bias_;
};

}  // namespace kronsparse::cuda
