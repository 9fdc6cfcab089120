#include "opencl/executor.hpp"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <utility>

#include "core/geometry.hpp"
#include "core/message.hpp"
#include "opencl/memory.hpp"
#include "opencl/runtime.hpp"

namespace kronsparse::opencl {
namespace {

/// A direction of an operand: elements between neighbours, and how many there are.
struct Direction {
  std::int64_t stride, count;
};

/// Whether `width` neighbours along a direction always lie side by side and begin at a multiple of their
/// number, whatever the place in the other directions is.
bool are_aligned(std::int64_t begin, Direction along, std::initializer_list<Direction> others,
                 int width = 4) {
  return along.stride == 1 && begin % width == 0 && std::ranges::all_of(others, [=](const Direction& other) {
           return other.count == 1 || other.stride % width == 0;
         });
}

/// Which vectors of four elements the kernel may load and store. Of those that it loads none is cut off.
void set_vectors(Args& args, const Problem& problem, const Launch& launch) {
  const std::int64_t is = i_count(problem);
  const auto loads = [&](Along along, std::int64_t begin, Direction i, Direction j, Direction row,
                         Direction depth) {
    switch (along) {
      case Along::rows:
        return row.count % 4 == 0 && are_aligned(begin, row, {i, j, depth});
      case Along::depth:
        return depth.count % 4 == 0 && are_aligned(begin, depth, {i, j, row});
      case Along::j:
        return j.count % launch.j_vector == 0 && are_aligned(begin, j, {i, row, depth}, launch.j_vector);
      default:
        return false;
    }
  };
  args.loads_a_vectors = loads(launch.a, args.a_at, {args.a_i, is}, {args.a_j, args.js}, {args.a_row, args.m},
                               {args.a_depth, args.depth});
  args.loads_b_vectors = loads(launch.b, args.b_at, {args.b_i, is}, {args.b_j, args.js}, {args.b_row, args.n},
                               {args.b_depth, args.depth});
  const Direction i{args.c_i, is};
  const Direction j{args.c_j, args.js};
  const Direction m{args.c_m, args.m};
  const Direction n{args.c_n, args.n};
  args.stores_vectors =
      stores_m_first(problem) ? are_aligned(args.c_at, m, {i, j, n}) : are_aligned(args.c_at, n, {i, j, m});
  args.stores_runs = are_aligned(args.c_at, j, {i, m, n});
}

}  // namespace

std::string common_options(const Problem& problem, Device device) {
  // The variable is for experiments with a driver's own options.
  const char* const more = std::getenv("KRONSPARSE_OPENCL_OPTIONS");
  return message("-cl-std=CL1.2 -w -D DTYPE={} -D IS_CPU={:d} {}", name(problem.dtype),
                 facts_of(device).is_cpu, more == nullptr ? "" : more);
}

ContractionExecutor::ContractionExecutor(const Problem& problem, Device device, const PackedOrder& order,
                                         std::shared_ptr<const Kernels> kernels, const Launch& launch)
    : problem_(problem),
      device_(device),
      order_(order),
      args_(args_of(problem, panel_of(order_))),
      launch_(launch),
      kernels_(std::move(kernels)) {
  const std::int64_t groups_of_j = tiles_of(args_.js, launch.tile.j);
  args_.n_tiles = tiles_of(args_.n, launch.tile.n);
  args_.m_tiles = tiles_of(args_.m, launch.tile.m);
  args_.j_inner = std::clamp<std::int64_t>(launch.j_inner, 1, groups_of_j);
  while (groups_of_j % args_.j_inner != 0) --args_.j_inner;
  args_.j_outer = groups_of_j / args_.j_inner;
  args_.tiles = i_count(problem) * groups_of_j * args_.n_tiles * args_.m_tiles;
}

void ContractionExecutor::pack(const void* values, void* packed, Stream stream) const {
  const std::size_t part = alignment_of(problem_.dtype);
  const Placed from = place_of(device_, values, given_order(problem_).bytes, "values");
  const Placed to = place_of(device_, packed, order_.bytes, "workspace");
  cl_command_queue queue = state_of(device_).queue(stream);
  if (order_.is_as_given()) {
    check(api().enqueue_copy_buffer(queue, from.buffer, to.buffer, from.offset, to.offset, order_.bytes, 0,
                                    nullptr, nullptr),
          message("copying values of {}", problem_.to_string()));
    return;
  }
  const Args given = args_of(problem_, 0);
  const std::int64_t panel = panel_of(order_);
  const std::int64_t count = i_count(problem_) * args_.b_i;
  const Kernel& kernel = kernels_->pack;
  const std::int64_t most = most_groups * kernel.group();
  for (std::int64_t first = 0; first < count; first += most)
    kernel.enqueue(queue, static_cast<std::size_t>(tiles_of(std::min(most, count - first), kernel.group())),
                   from.buffer, to.buffer, static_cast<std::int64_t>(from.offset / part),
                   static_cast<std::int64_t>(to.offset / part), given.js, given.depth, given.n, panel,
                   given.b_i, given.b_depth, given.b_row, first, count);
}

void ContractionExecutor::run(const Operands& operands, const Weights& weights) const {
  const std::size_t element = size_of(problem_.dtype);
  const auto extent = [&](const MatrixShape& shape) {
    return static_cast<std::size_t>(shape.extent()) * element;
  };
  const bool is_gradient = problem_.operation == Operation::gradient;
  const Placed x = place_of(device_, operands.x, extent(x_matrix(problem_)), "x");
  const Placed y = place_of(device_, operands.y, extent(y_matrix(problem_)), "y");
  const Placed other = is_gradient ? place_of(device_, operands.g, extent(rows_matrix(problem_)), "g")
                                   : place_of(device_, weights.data, order_.bytes, "values");
  const Placed bias = problem_.bias
                          ? place_of(device_, operands.bias,
                                     static_cast<std::size_t>(problem_.chain.rows()) * element, "bias")
                          : x;  // never read, but some drivers want a buffer
  const Placed& a = is_gradient ? other : x;
  const Placed& b = is_gradient ? x : other;
  cl_command_queue queue = state_of(device_).queue(operands.stream);

  // An address is a multiple of the real part's size, not of that of a complex number.
  const auto parts = [&](const Placed& place) {
    return static_cast<std::int64_t>(place.offset / alignment_of(problem_.dtype));
  };
  Args args = args_;
  args.a_at = parts(a);
  args.b_at = parts(b);
  args.c_at = parts(y);
  args.bias_at = parts(bias);
  set_vectors(args, problem_, launch_);
  const Kernel& kernel = kernels_->contract;
  const std::int64_t items = launch_.is_of_item ? kernel.group() : 1;
  const std::int64_t most = most_groups * items;
  for (; args.first_tile < args.tiles; args.first_tile += most)
    kernel.enqueue(queue,
                   static_cast<std::size_t>(tiles_of(std::min(most, args.tiles - args.first_tile), items)),
                   a.buffer, b.buffer, y.buffer, bias.buffer, args);
}

}  // namespace kronsparse::opencl
