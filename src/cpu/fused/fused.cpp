#include "cpu/fused/fused.hpp"

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/geometry.hpp"
#include "core/steps.hpp"
#include "cpu/fused/search.hpp"
#include "cpu/packing.hpp"
#include "cpu/simd/drivers.hpp"
#include "cpu/simd/one_thread.hpp"
#include "cpu/threads.hpp"
#include "kronsparse/error.hpp"

namespace kronsparse {
namespace fused {
namespace {

constexpr std::string_view family = "fused";

std::size_t aligned_to_line(std::size_t bytes) { return (bytes + cache_line - 1) / cache_line * cache_line; }

/// One product of a chunk.
struct Product {
  std::unique_ptr<TaskExecutor> executor;
  std::size_t link;  ///< its place in Cut::links
  bool has_bias;
};

/// The orders of the links' values, with how many factors each link has: the left one first.
using Orders = std::vector<std::pair<std::size_t, PackedOrder>>;

/// The products of all links for one number of samples, in the order in which they are computed; of drivers
/// that read values in these orders, if they are given. Nothing where there is none.
std::vector<Product> products_of(const Problem& chunk, const Orders* orders) {
  std::vector<Product> all;
  for (Step& step : make_steps(chunk)) {
    auto executor = orders == nullptr
                        ? simd::make_for_one_thread(step.problem)
                        : simd::make_for_one_thread(step.problem, (*orders)[step.factor].second);
    if (executor == nullptr) return {};
    all.push_back({std::move(executor), step.factor, step.problem.bias});
  }
  return all;
}

/// All orders that chains were packed in, in this process: an order is told by its number.
class KnownOrders {
 public:
  static KnownOrders& get() {
    static KnownOrders once;
    return once;
  }
  std::int64_t number_of(const Orders& orders) {
    const std::scoped_lock lock(changing_);
    const auto found = std::ranges::find(all_, orders);
    if (found != all_.end()) return found - all_.begin();
    all_.push_back(orders);
    return static_cast<std::int64_t>(all_.size()) - 1;
  }
  Orders orders_of(std::int64_t number) {
    const std::scoped_lock lock(changing_);
    return all_.at(static_cast<std::size_t>(number));
  }

 private:
  std::mutex changing_;
  std::vector<Orders> all_;
};

/// Room for the values of a product before they are packed.
Scratch& merging_scratch() {
  thread_local Scratch scratch;
  return scratch;
}

class FusedExecutor final : public ChainExecutor {
 public:
  /// In these orders, if they are given; Error unsupported where no driver reads one of them.
  FusedExecutor(const Problem& problem, Cut cut, const Orders* wanted)
      : problem_(problem), cut_(std::move(cut)), is_widened_(arithmetic_of(problem.dtype) != problem.dtype) {
    make_products(wanted);
    threads_ = threads_of(problem_, cut_);
    const Orders orders = orders_of(full_);
    order_ = {.family = family, .numbers = {KnownOrders::get().number_of(orders)}};
    for (const auto& [factors, order] : orders) {
      offsets_.push_back(order_.bytes);
      order_.bytes += aligned_to_line(order.bytes);
    }
    for (const Merging& link : cut_.links)
      if (needs_merging(link))
        merging_bytes_ = std::max(merging_bytes_, static_cast<std::size_t>(link.product().nnz()) *
                                                      size_of(arithmetic_of(problem_.dtype)));
    set_scratch();
    reserve_scratch(scratch_bytes(), threads_);
    static_cast<void>(merging_scratch().at_least(merging_bytes_));
  }

  [[nodiscard]] const PackedOrder& order() const noexcept override { return order_; }
  void pack(const void* /*values*/, void* /*packed*/, Stream /*stream*/) const override {
    throw Error(ErrorCode::internal, "fused: packs the values of all factors at once");
  }

  void pack_chain(const void* const* values, void* packed) const override {
    std::byte* const merged = merging_scratch().at_least(merging_bytes_);
    for (const Product& product : full_) {
      std::size_t first = 0;
      for (std::size_t link = 0; link < product.link; ++link) first += cut_.links[link].size();
      const Merging& link = cut_.links[product.link];
      const void* from = values[first];
      if (needs_merging(link)) {
        link.merge(problem_.dtype, values + first, merged);
        from = merged;
      }
      product.executor->pack(from, static_cast<std::byte*>(packed) + offsets_[product.link], nullptr);
    }
  }

  void run(const Operands& operands, const Weights& weights) const override {
    const std::int64_t chunks = parts(problem_.batch, cut_.samples);
    simd::parallel_ranges(
        chunks, threads_, scratch_bytes(), [&](std::int64_t first, std::int64_t last, std::byte* scratch) {
          for (std::int64_t chunk = first; chunk < last; ++chunk)
            run_chunk(operands, static_cast<const std::byte*>(weights.data), chunk * cut_.samples, scratch);
        });
  }

 private:
  [[nodiscard]] bool needs_merging(const Merging& link) const { return is_widened_ || link.size() > 1; }

  /// By links, left one first.
  [[nodiscard]] Orders orders_of(const std::vector<Product>& products) const {
    Orders all(cut_.links.size());
    for (const Product& product : products)
      all[product.link] = {cut_.links[product.link].size(), product.executor->order()};
    return all;
  }

  /// The last chunk's drivers read the weights in the order of the others. Where there are none for so few
  /// samples, there is one chunk less.
  void make_products(const Orders* wanted) {
    const std::int64_t batch = std::max<std::int64_t>(problem_.batch, 1);
    for (;; cut_.samples = parts(batch, parts(batch, cut_.samples) - 1)) {
      full_ = products_of(chunk_of(problem_, cut_, cut_.samples), wanted);
      if (full_.empty()) throw Error(ErrorCode::unsupported, other_order);
      rest_.clear();
      const std::int64_t rest = batch % cut_.samples;
      if (rest == 0) return;
      const Orders orders = orders_of(full_);
      rest_ = products_of(chunk_of(problem_, cut_, rest), &orders);
      if (!rest_.empty()) return;
    }
  }

  void set_scratch() {
    const std::size_t size = size_of(arithmetic_of(problem_.dtype));
    std::int64_t features = is_widened_ ? std::max(problem_.chain.rows(), problem_.chain.cols()) : 0;
    for (std::size_t link = 1; link < cut_.links.size(); ++link)
      features = std::max(features, cut_.links[link].product().rows());
    buffer_bytes_ = aligned_to_line((static_cast<std::size_t>(features * cut_.samples) * size) +
                                    simd::floats_beyond * sizeof(float));
    if (is_widened_ && problem_.bias)
      bias_bytes_ = aligned_to_line(static_cast<std::size_t>(problem_.chain.rows()) * sizeof(float));
    for (const std::vector<Product>* products : {&full_, &rest_})
      for (const Product& product : *products)
        driver_bytes_ = std::max(driver_bytes_, product.executor->scratch_bytes());
  }
  [[nodiscard]] std::size_t scratch_bytes() const { return 2 * buffer_bytes_ + bias_bytes_ + driver_bytes_; }

  void run_chunk(const Operands& operands, const std::byte* weights, std::int64_t first,
                 std::byte* scratch) const {
    const std::int64_t samples = std::min(cut_.samples, problem_.batch - first);
    const std::vector<Product>& products = samples < cut_.samples ? rest_ : full_;
    std::byte* const buffers[] = {scratch, scratch + buffer_bytes_};
    std::byte* const driver_scratch = scratch + (scratch_bytes() - driver_bytes_);
    const Lines x = lines_of(x_matrix(problem_), first, samples),
                y = lines_of(y_matrix(problem_), first, samples);

    RunOperands of_product(operands, Weights{});
    of_product.x = static_cast<const std::byte*>(operands.x) + x.offset;
    int next = 0;
    if (is_widened_) {
      widen(x, of_product.x, buffers[0]);
      of_product.x = buffers[0];
      next = 1;
    }
    for (std::size_t at = 0; at < products.size(); ++at, next ^= 1) {
      const Product& product = products[at];
      const bool is_last = at + 1 == products.size();
      of_product.y = is_last && !is_widened_ ? static_cast<std::byte*>(operands.y) + y.offset : buffers[next];
      of_product.bias = product.has_bias ? bias_of(operands, scratch + 2 * buffer_bytes_) : nullptr;
      of_product.weights = weights + offsets_[product.link];
      product.executor->run_tasks(of_product, 0, product.executor->tasks(), driver_scratch);
      of_product.x = of_product.y;
    }
    if (is_widened_) narrow(y, of_product.y, static_cast<std::byte*>(operands.y) + y.offset);
  }

  /// The part of a stored matrix that a chunk has.
  struct Lines {
    std::size_t offset;  ///< bytes
    std::int64_t lines, length, stride;
  };
  [[nodiscard]] Lines lines_of(const MatrixShape& matrix, std::int64_t first, std::int64_t samples) const {
    const bool batch_first = problem_.layout == Layout::batch_first;
    const std::int64_t offset = batch_first ? first * matrix.stride : first;
    return {static_cast<std::size_t>(offset) * size_of(problem_.dtype), batch_first ? samples : matrix.rows,
            batch_first ? matrix.cols : samples, matrix.stride};
  }
  void widen(const Lines& x, const void* from, void* to) const {
    for (std::int64_t line = 0; line < x.lines; ++line)
      simd::widen(static_cast<const std::uint16_t*>(from) + line * x.stride, problem_.dtype,
                  static_cast<float*>(to) + line * x.length, x.length);
  }
  void narrow(const Lines& y, void* from, void* to) const {
    for (std::int64_t line = 0; line < y.lines; ++line)
      simd::narrow(static_cast<float*>(from) + line * y.length, problem_.dtype,
                   static_cast<std::uint16_t*>(to) + line * y.stride, y.length);
  }
  [[nodiscard]] const void* bias_of(const Operands& operands, std::byte* room) const {
    if (!is_widened_) return operands.bias;
    simd::widen(operands.bias, problem_.dtype, reinterpret_cast<float*>(room), problem_.chain.rows());
    return room;
  }

  Problem problem_;
  Cut cut_;
  bool is_widened_;  ///< half types: x and y go through floats
  int threads_ = 1;
  std::vector<Product> full_, rest_;  ///< for whole chunks, and for a last one with fewer samples
  std::vector<std::size_t> offsets_;  ///< of packed values, by link
  std::size_t buffer_bytes_ = 0;      ///< of each of two buffers between products
  std::size_t bias_bytes_ = 0;
  std::size_t driver_bytes_ = 0;
  std::size_t merging_bytes_ = 0;
  PackedOrder order_;
};

/// The links that were packed in these orders; nothing where they are not of this chain.
std::vector<Merging> links_of(const Chain& chain, const Orders& orders) {
  std::vector<Merging> links;
  std::size_t at = 0;
  for (const auto& [factors, order] : orders) {
    if (at + factors > chain.size()) return {};
    std::optional<Merging> link(chain[at++]);
    for (std::size_t more = 1; more < factors && link; ++more) link = link->times(chain[at++]);
    if (!link) return {};
    links.push_back(*link);
  }
  return at == chain.size() ? links : std::vector<Merging>();
}

/// An answer for values that are packed already: any batch may have them, if not at its best speed.
Proposal propose_for(const Problem& problem, const PackedOrder& packed_as) {
  // Drivers that would not have been chosen for the batch are up to so many times slower.
  constexpr double slower = 4;
  if (packed_as.family != family) return {.refusal = other_order};
  const Orders orders = KnownOrders::get().orders_of(packed_as.numbers[0]);
  std::vector<Merging> links = links_of(problem.chain, orders);
  if (links.empty()) return {.refusal = other_order};
  const Cut cut = best_cut(problem, std::move(links));
  const auto make = [problem, cut, orders] { return std::make_unique<FusedExecutor>(problem, cut, &orders); };
  try {
    if (make()->order() != packed_as) return {.refusal = other_order};
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    return {.refusal = other_order};
  }
  const bool is_best = FusedExecutor(problem, cut, nullptr).order() == packed_as;
  return {.seconds = (is_best ? 1 : slower) * cut.seconds, .make = make};
}

Proposal propose(const Problem& problem, Device /*device*/, const PackedOrder* packed_as) {
  if (problem.operation == Operation::gradient)
    return {.refusal = "multiplies only, the gradient goes factor by factor"};
  if (packed_as != nullptr) return propose_for(problem, *packed_as);
  const std::optional<Cut> found = best_cut(problem);
  if (!found)
    return {
        .refusal =
            "no neighbours whose product is predicted to be faster than they are, and small enough to keep"};
  const Cut& cut = *found;
  const auto make = [problem, cut] { return std::make_unique<FusedExecutor>(problem, cut, nullptr); };
  double packing = 0;
  for (const Merging& link : cut.links) {
    packing += packing_seconds(link.product());
    if (link.size() > 1) packing += seconds_on_threads(link.seconds());
  }
  return {.seconds = cut.seconds, .packing_seconds = packing, .make = make};
}

}  // namespace
}  // namespace fused

Implementation fused_on_cpu() {
  return {.name = fused::family,
          .backend = Backend::cpu,
          .summary = "chains of two or more factors in one pass, a chunk of samples at a time",
          .propose = fused::propose,
          .takes_chains = true};
}

}  // namespace kronsparse
