// The two drivers: how blocks of X are brought to the tiles.
#pragma once

#include <cstdint>
#include <memory>

#include "core/implementation.hpp"
#include "cpu/amx/kernel_set.hpp"
#include "cpu/turned.hpp"

namespace kronsparse::amx {

/// The work that both drivers are made for. `seconds_alone`: predicted for one thread.
struct Job {
  Problem problem;
  const KernelSet& kernels;
  double seconds_alone;

  [[nodiscard]] const HalfKernels& halves() const {
    return problem.dtype == DType::f16 ? kernels.f16 : kernels.bf16;
  }
};

/// Outputs k are rows of tiles, samples are columns: batch_last, and what is turned into it.
[[nodiscard]] std::unique_ptr<ColumnsDriver> make_columns(const Job& job);

/// Samples are rows of tiles, outputs k are columns: batch_first.
[[nodiscard]] std::unique_ptr<Executor> make_rows(const Job& job);

/// Neighbouring j that batch_first takes together: all of d, or 16; 0 where it cannot.
[[nodiscard]] constexpr int j_block(std::int64_t d) {
  if (d % 16 == 0) return 16;
  return d == 1 || d == 2 || d == 4 || d == 8 ? static_cast<int>(d) : 0;
}

/// Tile registers are this thread's own while one of these lives.
class TileRegisters {
 public:
  explicit TileRegisters(const KernelSet& kernels) : kernels_(kernels) { kernels_.begin(); }
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;
  ~TileRegisters() { kernels_.end(); }

 private:
  const KernelSet& kernels_;
};

/// Tasks [first, last) one after the other on tile registers: run(block, next), where block_at(task, place)
/// makes a task's block in one of two places of scratch memory; `next` is empty after the last.
template <class BlockAt, class Run>
void run_in_turn(const KernelSet& kernels, std::int64_t first, std::int64_t last, const BlockAt& block_at,
                 const Run& run) {
  const TileRegisters registers(kernels);
  auto block = block_at(first, 0);
  for (std::int64_t task = first; task < last; ++task) {
    decltype(block) next;
    if (task + 1 < last) next = block_at(task + 1, (task + 1 - first) % 2);
    run(block, next);
    block = next;
  }
}

}  // namespace kronsparse::amx
