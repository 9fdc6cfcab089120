// Kernels through local memory (kernels/local.cl): the tiles there are, which one takes a problem, its cost.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "core/geometry.hpp"
#include "core/message.hpp"
#include "core/run_scope.hpp"
#include "opencl/backend.hpp"
#include "opencl/executor.hpp"
#include "opencl/runtime.hpp"

namespace kronsparse::opencl {
namespace {

/// A tile of a work-group.
struct Config {
  int j, m, n;             ///< of the tile
  int thread_m, thread_n;  ///< of a work-item
  int chunk;               ///< steps of the sum in local memory at a time
  int side_m, side_n;      ///< work-items beside each other that work on neighbouring sums
  int teams = 1;           ///< that share the steps of the sum

  [[nodiscard]] int threads_of_team() const { return j * (m / thread_m) * (n / thread_n); }
  [[nodiscard]] int threads() const { return teams * threads_of_team(); }
  [[nodiscard]] std::string to_string() const { return message("{}x{}x{}", j, m, n); }
  [[nodiscard]] int buffer_elements() const {
    return teams * 2 * j * (chunk * (m + 4) + 4 + chunk * (n + 4) + 4);
  }
  [[nodiscard]] int added_elements() const { return (teams - 1) * threads_of_team() * thread_m; }
  [[nodiscard]] int stage_elements(int pass) const {
    return m / thread_m * (pass * j * (n + (j > 8 ? 2 : 4)) + 1);
  }
  /// Rows of a work-item that leave at a time: as many as need no more local memory than the buffers.
  [[nodiscard]] int pass() const {
    int rows = 4;
    while (rows > 1 && stage_elements(rows) > buffer_elements()) rows /= 2;
    return rows;
  }
  [[nodiscard]] std::size_t local_bytes(std::size_t sum_bytes) const {
    return static_cast<std::size_t>(std::max({buffer_elements(), stage_elements(pass()), added_elements()})) *
           sum_bytes;
  }
};

/// From the largest to the one that every device has room for. Sums of 8 x 8 to a work-item reach the rate of
/// a GPU's FMA units; those with 96 and 48 outputs are there for patterns of the paper whose b are multiples
/// of 48. 16 neighbouring j of a half type fill a sector of 32 bytes. Teams are for gradients, whose tiles
/// may be few while the sums, over the batch, are long.
constexpr std::array configs = {
    Config{1, 128, 128, 8, 8, 16, 8, 4},  Config{1, 256, 64, 8, 8, 8, 8, 4},
    Config{1, 128, 96, 8, 8, 16, 8, 4},   Config{1, 256, 48, 8, 8, 8, 16, 2},
    Config{1, 64, 64, 8, 8, 8, 8, 4},     Config{1, 32, 32, 4, 4, 8, 8, 4},
    Config{2, 64, 128, 8, 8, 8, 8, 4},    Config{2, 64, 64, 8, 8, 8, 8, 4},
    Config{2, 64, 96, 8, 8, 8, 8, 4},     Config{4, 64, 64, 8, 8, 8, 8, 4},
    Config{4, 64, 48, 8, 8, 8, 8, 2},     Config{8, 32, 64, 8, 8, 4, 4, 8},
    Config{8, 32, 48, 8, 8, 4, 4, 2},     Config{8, 16, 32, 4, 4, 4, 4, 8},
    Config{16, 32, 32, 8, 8, 4, 4, 4},    Config{16, 16, 64, 8, 8, 4, 2, 8},
    Config{16, 16, 48, 8, 8, 4, 2, 2},    Config{16, 16, 32, 8, 8, 4, 2, 4},
    Config{1, 64, 64, 8, 8, 8, 8, 4, 4},  Config{1, 32, 32, 4, 4, 8, 8, 4, 8},
    Config{1, 16, 16, 4, 4, 8, 4, 4, 16}, Config{4, 32, 32, 8, 8, 4, 4, 4, 4},
    Config{4, 16, 16, 4, 4, 8, 4, 4, 4},  Config{8, 16, 16, 4, 4, 4, 4, 4, 4},
    Config{4, 16, 16, 4, 4, 8, 4, 4},     Config{1, 16, 16, 4, 4, 8, 4, 4},
};

std::size_t sum_bytes(DType dtype) { return std::max<std::size_t>(size_of(dtype), 4); }

bool fits(const Config& config, const DeviceFacts& facts, DType dtype) {
  // A CPU takes the work-items of a group in turn: their sums should fit its first cache.
  if (facts.is_cpu && config.j * config.m * config.n > 1024) return false;
  return config.threads() <= facts.work_group && config.local_bytes(sum_bytes(dtype)) <= facts.local_bytes;
}

/// Registers of a work-item's sums: more than 64 leave no room for the rest.
bool is_too_large(const Config& config, DType dtype) {
  return config.thread_m * config.thread_n * static_cast<int>(sum_bytes(dtype)) > 64 * 8;
}

double seconds_of(const Config& config, const Problem& problem, const DeviceFacts& facts) {
  const Args args = args_of(problem, 0);
  const double tiles =
      static_cast<double>(i_count(problem)) * static_cast<double>(tiles_of(args.js, config.j)) *
      static_cast<double>(tiles_of(args.m, config.m)) * static_cast<double>(tiles_of(args.n, config.n));
  // A work-group's turns on a compute unit; several share one, so that less than a full last turn counts.
  const double turns = std::max(tiles / facts.compute_units, 1.0);
  // A GPU's compute unit needs some 256 work-items to hide how long its instructions take.
  const double share = facts.is_cpu ? 1 : std::min(1.0, turns * config.threads() / 256);
  // Fewer sums per work-item, more of its instructions are loads; fewer in a tile, its operands come more
  // often from the device's cache. Fitted to the H200's times (docs/notes/opencl.md).
  const double bytes = static_cast<double>(size_of(problem.dtype));
  const double loads = 0.25 + 2.0 * (1.0 / config.thread_m + 1.0 / config.thread_n) +
                       29.0 / 4 * std::min(bytes, 4.0) * (1.0 / config.m + 1.0 / config.n);
  const bool is_wide = problem.dtype == DType::f64 || problem.dtype == DType::complex128;
  const double rate = facts.clock_hz * (is_wide ? 64 : 128);  // sums of a compute unit
  const double sums = (is_complex(problem.dtype) ? 4 : 1) * turns * config.j * config.m * config.n *
                      padded(args.depth, config.chunk * config.teams);
  // Runs of j shorter than both the row and a sector of 32 bytes are read more than once.
  const double run = config.j * bytes;
  const bool batch_first = problem.layout == Layout::batch_first;
  const double sectors = !batch_first || config.j >= args.js || run >= 32 ? 1 : 32 / run;
  constexpr double memory_rate = 2e12;
  const double work = sums * loads / share / rate * (1 + 0.1 * (sectors - 1));
  const double traffic = sectors * problem.bytes() / memory_rate;
  const double cpu = facts.is_cpu ? 50 : 1;  // a copy more, by work-items that are run one after the other
  // One hides most of the other, not all: of tiles that wait for the same bytes the one that wastes less
  // wins.
  return 10e-6 + cpu * (std::max(work, traffic) + 0.2 * std::min(work, traffic));
}

std::string options_for(const Problem& problem, Device device, const Config& config);

/// For experiments: "JxMxN", the only tile that is taken; empty for all.
std::string only_tile() {
  const char* const text = std::getenv("KRONSPARSE_OPENCL_TILE");
  return text == nullptr ? "" : text;
}

/// Null where none fits, or, for a run, none that does is built.
const Config* choose(const Problem& problem, Device device, const DeviceFacts& facts) {
  const Problem rounded = with_rounded_batch(problem);
  const bool has_runs = problem.layout == Layout::batch_first;
  const std::string only = only_tile();
  const Config* best = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const Config& config : configs) {
    if (!fits(config, facts, problem.dtype) || is_too_large(config, problem.dtype)) continue;
    if (config.j > 1 && !has_runs) continue;  // neighbouring j are not neighbours in memory
    if (config.teams > 1 && problem.operation != Operation::gradient) continue;
    if (!only.empty() && only != config.to_string()) continue;
    if (RunScope::is_active() &&
        !are_built(device, Source::local_memory, options_for(problem, device, config)))
      continue;
    const double seconds = seconds_of(config, rounded, facts);
    if (seconds < least) best = &config;
    least = std::min(least, seconds);
  }
  return best;
}

/// All outputs: tiles of all widths read the same.
std::int64_t panel_for(const Problem& problem) { return args_of(problem, 0).n; }

enum class Order : int {
  rows = 1,
  steps = 2,
  j_then_steps = 3,
  j_then_rows = 4
};  // as kernels/local.cl has them

struct Orders {
  Order a, b;
};

Orders orders_of(const Problem& problem, const Config& config) {
  const bool batch_first = problem.layout == Layout::batch_first;
  if (problem.operation == Operation::gradient) {
    if (!batch_first) return {Order::steps, Order::steps};
    const Order order = config.j > 1 ? Order::j_then_rows : Order::rows;
    return {order, order};
  }
  const Order a = !batch_first ? Order::rows : config.j > 1 ? Order::j_then_steps : Order::steps;
  return {a, Order::rows};
}

/// Whether all places of a tile lie within 2^31 elements of its beginning.
bool has_short_offsets(const Args& args, const Config& config) {
  const auto reach = [&](std::int64_t row, std::int64_t rows, std::int64_t step, std::int64_t j) {
    return static_cast<double>(row) * static_cast<double>(rows) + static_cast<double>(step) * config.chunk +
           static_cast<double>(j) * config.j;
  };
  constexpr double most = 1 << 29;  // complex numbers are two
  const double c_reach = static_cast<double>(args.c_m) * config.m + static_cast<double>(args.c_n) * config.n +
                         static_cast<double>(args.c_j) * config.j;
  return reach(args.a_row, config.m, args.a_depth, args.a_j) < most &&
         reach(args.b_row, config.n, args.b_depth, args.b_j) < most && c_reach < most;
}

/// NVIDIA's compiler gives a work-item some 150 registers, which leaves room for one large work-group on a
/// multiprocessor; two hide each other's loads and stores. Sums of 8 x 8 floats fit the limit: at most some
/// 20 numbers that change in no loop go to memory (docs/notes/opencl.md).
std::string register_limit(const DeviceFacts& facts, const Config& config, DType dtype) {
  constexpr int registers = 65536;  // of a multiprocessor, on all of its GPUs that run OpenCL 1.2
  const bool is_large = config.threads() >= 192 && config.thread_m * config.thread_n == 64;
  if (facts.platform.find("NVIDIA") == std::string::npos || !is_large || sum_bytes(dtype) > 4) return {};
  return message(" -D LIMITS_REGISTERS=1 -cl-nv-maxrregcount={}",
                 std::min(registers / (2 * config.threads()) / 8 * 8, 248));
}

std::string options_for(const Problem& problem, Device device, const Config& config) {
  const bool is_gradient = problem.operation == Operation::gradient;
  const Orders orders = orders_of(problem, config);
  const bool is_short = has_short_offsets(args_of(problem, is_gradient ? 0 : panel_for(problem)), config);
  return message(
             "{} -D TILE_J={} -D TILE_M={} -D TILE_N={} -D THREAD_M={} -D THREAD_N={} -D CHUNK={} -D "
             "SIDE_M={} "
             "-D SIDE_N={} -D PASS={} -D A_ORDER={} -D B_ORDER={} -D STORES_M_FIRST={:d} -D OFFSET={} "
             "-D TEAMS={} -D GROUP={}",
             common_options(problem, device), config.j, config.m, config.n, config.thread_m, config.thread_n,
             config.chunk, config.side_m, config.side_n, config.pass(), static_cast<int>(orders.a),
             static_cast<int>(orders.b), stores_m_first(problem), is_short ? "int" : "long", config.teams,
             config.threads()) +
         register_limit(facts_of(device), config, problem.dtype);
}

std::shared_ptr<const Kernels> kernels_for(const Problem& problem, Device device, const Config& config) {
  return kernels_of(device, Source::local_memory, options_for(problem, device, config), config.threads(),
                    problem.to_string());
}

Along along(Order order, const Config& config) {
  if (order == Order::rows) return Along::rows;
  if (order == Order::steps) return Along::depth;
  return config.j > 1 ? Along::j : Along::nothing;
}

Launch launch_of(const Problem& problem, const Config& config, const DeviceFacts& facts) {
  // In batch_first as many groups of j run side by side as leave their values in the cache: they share the
  // lines of x and y.
  const double values =
      static_cast<double>(problem.pattern().nnz()) * static_cast<double>(size_of(problem.dtype));
  const double of_group = values * config.j / static_cast<double>(problem.pattern().a * problem.pattern().d);
  const double room =
      0.4 * static_cast<double>(std::max<std::size_t>(facts.cache_bytes, std::size_t{1} << 20));
  const bool batch_first = problem.layout == Layout::batch_first;
  return {.tile = {.j = config.j, .m = config.m, .n = config.n},
          .is_of_item = false,
          .j_inner = batch_first ? static_cast<std::int64_t>(std::max(room / of_group, 1.0)) : 1,
          .a = along(orders_of(problem, config).a, config),
          .b = along(orders_of(problem, config).b, config),
          .j_vector = std::min(config.j, 4)};
}

Proposal propose(const Problem& problem, Device device, const PackedOrder* packed_as) {
  const DeviceFacts facts = facts_of(device);
  if (std::string reason = dtype_refusal(problem, facts); !reason.empty())
    return {.refusal = std::move(reason)};
  const Config* const config = choose(problem, device, facts);
  if (config == nullptr && RunScope::is_active()) return {.refusal = not_built};
  if (config == nullptr && !only_tile().empty())
    return {.refusal = message("KRONSPARSE_OPENCL_TILE={} leaves no tile for {}", only_tile(), facts.name)};
  if (config == nullptr)
    return {.refusal = message("needs {} bytes of local memory and work-groups of {}; {} has {} and {}",
                               configs.back().local_bytes(sum_bytes(problem.dtype)), configs.back().threads(),
                               facts.name, facts.local_bytes, facts.work_group)};
  const PackedOrder order = problem.operation == Operation::gradient
                                ? no_order
                                : packed_order(problem, "local", panel_for(problem));
  if (packed_as != nullptr && *packed_as != order) return {.refusal = other_order};
  return {.refusal = {},
          .seconds = seconds_of(*config, problem, facts),
          .packing_seconds = packing_seconds(problem, facts),
          .make = [problem, device, config, order, facts]() -> std::unique_ptr<Executor> {
            return std::make_unique<ContractionExecutor>(problem, device, order,
                                                         kernels_for(problem, device, *config),
                                                         launch_of(problem, *config, facts));
          }};
}

}  // namespace

Implementation local_implementation() {
  return {
      .name = "local",
      .backend = Backend::opencl,
      .summary = "register tiles fed through local memory, every dtype, X and Y read and written in place",
      .propose = propose};
}

}  // namespace kronsparse::opencl
