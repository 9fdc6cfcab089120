// Kernels without local memory (kernels/private.cl): which vectors and tiles take a problem, and their cost.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/message.hpp"
#include "core/run_scope.hpp"
#include "opencl/backend.hpp"
#include "opencl/executor.hpp"
#include "opencl/runtime.hpp"

namespace kronsparse::opencl {
namespace {

enum class Axis : int { m = 1, n = 2, j = 3, depth = 4 };  // as kernels/private.cl has them

/// How a problem is computed.
struct Choice {
  Axis axis = Axis::j;
  int width = 1;  ///< of the vectors
  int tile_m = 4, tile_n = 4;
  bool is_packed = false;
  int m_tiles = 1, n_tiles = 1;  ///< that a work-item takes one after the other
  double seconds = 0;

  [[nodiscard]] Tile tile() const {
    return {.j = axis == Axis::j ? width : 1,
            .m = tile_m * (axis == Axis::m ? width : 1),
            .n = tile_n * (axis == Axis::n ? width : 1)};
  }
  [[nodiscard]] Tile tile_of_item() const {
    Tile all = tile();
    all.m *= m_tiles;
    all.n *= n_tiles;
    return all;
  }
};

/// Vectors of whole registers. Complex numbers are computed one by one.
int width_for(const DeviceFacts& facts, DType dtype) {
  if (is_complex(dtype)) return 1;
  return std::max(facts.vector_bytes / (dtype == DType::f64 ? 8 : 4), 1);
}

std::vector<Choice> choices_for(const Problem& problem, const DeviceFacts& facts) {
  const int width = width_for(facts, problem.dtype);
  const bool is_gradient = problem.operation == Operation::gradient;
  const bool batch_first = problem.layout == Layout::batch_first;
  std::vector<Choice> all;
  if (batch_first || width == 1) {
    all.push_back({.axis = Axis::j, .width = width});
    all.push_back({.axis = Axis::j, .width = width, .m_tiles = 8});
  }
  if (batch_first && width > 1 && width <= 4)
    all.push_back({.axis = Axis::j, .width = 4 * width, .tile_m = 3, .tile_n = 2});
  if (width == 1) return all;
  if (!batch_first && !is_gradient)
    all.push_back({.axis = Axis::m, .width = width, .is_packed = true, .n_tiles = 16});
  if (!batch_first && is_gradient) all.push_back({.axis = Axis::depth, .width = width});
  if (batch_first || !is_gradient)
    for (const int tile_n : {4, 3})  // vectors: three for outputs that are multiples of 48
      all.push_back({.axis = Axis::n, .width = width, .tile_n = tile_n, .is_packed = !is_gradient});
  return all;
}

constexpr double cache_of_core = 1 << 20;  // as on most CPUs of servers

/// Neighbouring j that run side by side: with vectors along n they share the lines of x and y, and all of
/// them if their values stay in the cache.
std::int64_t j_inner_of(const Choice& choice, const Problem& problem) {
  const Pattern& pattern = problem.pattern();
  const double values =
      static_cast<double>(pattern.b * pattern.c * pattern.d) * static_cast<double>(size_of(problem.dtype));
  const bool shares = choice.axis == Axis::n && problem.layout == Layout::batch_first;
  return shares && values <= cache_of_core ? pattern.d : 1;
}

/// Bytes that come more than once, since no cache of a core's own holds them until they are needed again.
double bytes_again(const Choice& choice, const Args& args, const Problem& problem) {
  if (choice.axis == Axis::n && problem.layout == Layout::batch_first) {
    constexpr std::int64_t line = 64;
    const std::int64_t of_line = std::min(args.js, line / static_cast<std::int64_t>(size_of(problem.dtype)));
    return j_inner_of(choice, problem) > 1 ? 0 : problem.bytes() * static_cast<double>(of_line - 1);
  }
  // Values of a vector of j, which every work-item along m reads.
  const double values =
      static_cast<double>(problem.pattern().nnz()) * static_cast<double>(size_of(problem.dtype));
  const double of_tile = values / static_cast<double>(i_count(problem) * tiles_of(args.js, choice.width));
  if (choice.axis != Axis::j || problem.operation == Operation::gradient || of_tile <= cache_of_core)
    return 0;
  return values * static_cast<double>(tiles_of(args.m, choice.tile_of_item().m) - 1);
}

double seconds_of(const Choice& choice, const Problem& problem, const DeviceFacts& facts) {
  const Tile tile = choice.tile();
  const Args args = args_of(problem, choice.is_packed ? tile.n : 0);
  const double depth =
      choice.axis == Axis::depth ? padded(args.depth, choice.width) : static_cast<double>(args.depth);
  // Multiplications and additions with all that is padded; vectors in part, and those that are gathered, are
  // loaded one by one.
  double work = 2.0 * (is_complex(problem.dtype) ? 4 : 1) * static_cast<double>(i_count(problem)) * depth *
                padded(args.js, tile.j) * padded(args.m, tile.m) * padded(args.n, tile.n);
  const bool in_part = args.js % tile.j != 0 || (choice.axis == Axis::m && args.m < tile.m) ||
                       (choice.axis == Axis::n && !choice.is_packed && (args.n < tile.n || args.b_row != 1));
  if (in_part) work *= 8;
  if (choice.axis == Axis::n) work *= 1 + 0.5 / choice.tile_n;  // fewer sums for what is loaded
  const double rate = facts.compute_units * facts.clock_hz * choice.width * 2;
  const Tile item = choice.tile_of_item();
  const double items = static_cast<double>(i_count(problem)) *
                       static_cast<double>(tiles_of(args.js, item.j) * tiles_of(args.m, item.m)) *
                       static_cast<double>(tiles_of(args.n, item.n));
  const double share = std::min(1.0, items / (4.0 * facts.compute_units));
  constexpr double memory_rate = 1e10;
  const double gpu = facts.is_cpu ? 1 : 8;  // neighbours in a GPU's work-group do not read neighbours
  return 20e-6 + gpu * std::max(work / share / rate,
                                (problem.bytes() + bytes_again(choice, args, problem)) / memory_rate);
}

PackedOrder order_of(const Problem& problem, const Choice& choice) {
  if (problem.operation == Operation::gradient) return no_order;
  return choice.is_packed ? packed_order(problem, "private", choice.tile().n) : given_order(problem);
}

std::string options_for(const Problem& problem, Device device, const Choice& choice);

Choice choose(const Problem& problem, Device device, const DeviceFacts& facts, const PackedOrder* packed_as) {
  const Problem rounded = with_rounded_batch(problem);
  Choice best;
  bool is_first = true;
  for (Choice choice : choices_for(problem, facts)) {
    if (packed_as != nullptr && *packed_as != order_of(problem, choice)) continue;
    if (RunScope::is_active() &&
        !are_built(device, Source::private_memory, options_for(problem, device, choice)))
      continue;
    choice.seconds = seconds_of(choice, rounded, facts);
    if (is_first || choice.seconds < best.seconds) best = choice;
    is_first = false;
  }
  return is_first ? Choice{.width = 0} : best;
}

int group_of(const DeviceFacts& facts) { return facts.is_cpu ? 1 : std::min(64, facts.work_group); }

std::string options_for(const Problem& problem, Device device, const Choice& choice) {
  return message(
      "{} -D AXIS={} -D WIDTH={} -D TILE_M={} -D TILE_N={} -D M_TILES={} -D N_TILES={} -D IS_PACKED={:d} -D "
      "GROUP={}",
      common_options(problem, device), static_cast<int>(choice.axis), choice.width, choice.tile_m,
      choice.tile_n, choice.m_tiles, choice.n_tiles, choice.is_packed, group_of(facts_of(device)));
}

std::shared_ptr<const Kernels> kernels_for(const Problem& problem, Device device, const Choice& choice) {
  return kernels_of(device, Source::private_memory, options_for(problem, device, choice),
                    group_of(facts_of(device)), problem.to_string());
}

Proposal propose(const Problem& problem, Device device, const PackedOrder* packed_as) {
  const DeviceFacts facts = facts_of(device);
  if (std::string reason = dtype_refusal(problem, facts); !reason.empty())
    return {.refusal = std::move(reason)};
  const Choice choice = choose(problem, device, facts, packed_as);
  if (choice.width == 0) return {.refusal = RunScope::is_active() ? not_built : other_order};
  const PackedOrder order = order_of(problem, choice);
  return {.refusal = {},
          .seconds = seconds_of(choice, problem, facts),
          .packing_seconds = choice.is_packed ? packing_seconds(problem, facts) : 0,
          .make = [problem, device, choice, order]() -> std::unique_ptr<Executor> {
            return std::make_unique<ContractionExecutor>(problem, device, order,
                                                         kernels_for(problem, device, choice),
                                                         Launch{.tile = choice.tile_of_item(),
                                                                .is_of_item = true,
                                                                .j_inner = j_inner_of(choice, problem)});
          }};
}

}  // namespace

Implementation private_implementation() {
  return {.name = "private",
          .backend = Backend::opencl,
          .summary = "vectors in registers, operands straight from global memory; accepts everything",
          .propose = propose};
}

}  // namespace kronsparse::opencl
