#include <algorithm>
#include <bit>
#include <cmath>

#include "cuda/stream_config.hpp"

namespace kronsparse::cuda::stream {
namespace {

constexpr std::int64_t max_blocks = std::int64_t{1} << 27;  // of weights
constexpr int vector = 8;                                   // elements of 16 bytes

/// Seconds of a run, by what an SM takes in and what its blocks wait for; fitted to an H200 (720 runs of 36
/// problems: the cut it prefers takes 1.03 times as long as the best of those tried, in the mean).
double predict_cut(const Cut& cut, const Product& p, const GpuFacts& facts) {
  constexpr double clock = 1.7e9, registers = 96;
  constexpr double start = 1.12e-6;                              // of a kernel that does little
  constexpr double l2_rate_of_one = 44e9, all_l2_rate = 3.4e12;  // to each SM, to all together
  constexpr double box_latency = 0.46e-6, load_latency = 0.5e-6;
  constexpr double exchange_rate = 19e9;  // of an SM to others of its cluster

  const double samples = static_cast<double>(std::min<std::int64_t>(p.batch, cut.samples));
  const double sample_blocks = std::ceil(static_cast<double>(p.batch) / cut.samples);
  const double blocks = static_cast<double>(blocks_of_weights(cut, p)) * sample_blocks;
  const double threads = cut.threads;
  const double resident =
      std::max(1.0, std::floor(std::min((facts.shared_bytes + 1024.0) / (shared_layout(cut).total + 1024.0),
                                        65536 / ((threads + producer_threads) * registers))));
  const double usable = cut.cluster == 8 ? 0.72 : cut.cluster == 4 ? 0.9 : 1.0;  // of the SMs, by clusters
  const double sms = std::floor(facts.multiprocessors * usable);
  const double rounds = std::ceil(blocks / sms), turns = std::ceil(rounds / resident);
  const double l2_rate = std::min(all_l2_rate / std::min(blocks, sms), l2_rate_of_one);

  const double weight_bytes = static_cast<double>(block_chunks(cut)) * chunk_bytes;
  const double weights =
      std::max(blocks / sample_blocks * weight_bytes / facts.memory_rate, rounds * weight_bytes / l2_rate);

  // x: whole sectors of 32 bytes; threads that stage it wait for what they have in flight.
  const bool is_copied = cut.bytes != 0 && cut.run == vector;
  const double fetched_j =
      cut.bytes != 0 || p.x_feature != 1
          ? cut.j_group
          : std::max<double>(cut.j_group, std::min<double>(static_cast<double>(p.d), 16));
  const double x_elements = samples * cut.positions();
  const double loads = x_elements * cut.j_group / vector / threads;
  const double waits = is_copied ? 0 : std::max(1.0, cut.bytes != 0 ? loads / vector : loads) - 1;
  const double staging = 1.42e-6 + turns * (waits * load_latency + loads * (cut.bytes != 0 ? 37e-9 : 300e-9));
  const double x = rounds * x_elements * fetched_j * 2 / l2_rate + (cut.boxes ? box_latency : staging);

  const double steps = static_cast<double>(block_chunks(cut)) * chunk_steps;
  const double multiplying = rounds * steps * std::max(16 + cut.samples / 4.0, cut.samples / 2.0) / clock +
                             turns * cut.rows * 0.24e-6;
  const double outputs = cut.block_outputs() * samples;
  const double exchange = cut.cluster == 1 ? 0
                                           : 1.26e-6 + outputs * 4 * (1 - 1.0 / cut.cluster) / exchange_rate +
                                                 outputs / threads * 8e-9;
  const double storing = cut.rows * cut.samples / 2 * 5.5e-9 +
                         (cut.collects ? 1.04e-6 + outputs / cut.cluster / threads / vector * 20e-9
                          : p.d > 1    ? cut.rows * samples * 50e-9
                                       : 0);
  // Where two blocks fit on an SM, a kernel's weights come while the one before it still runs.
  const double body = resident >= 2 * rounds ? std::max(weights, x + multiplying)
                                             : 0.28e-6 + std::max(0.16e-6 + weights, x) + 0.3 * multiplying;
  // Not explained: with many samples and several j it takes up to 1.7 times as long, with one j and short
  // sums three quarters of it.
  const double margin = p.batch <= 32 ? 1 : p.d > 1 ? 1.3 : p.c < 512 ? 0.76 : 1;
  return margin * (start + body + turns * (exchange + storing) + (turns - 1) * 1.5e-6);
}

/// x by chunks of terms, where d = 1.
TensorView x_view(const Product& p, const Cut& cut, const void* x) {
  return {.data = x,
          .sizes = {p.c, p.a, p.batch, 1},
          .strides = {p.c, p.x_sample, 0},
          .box = {chunk_steps * step_l, 1, cut.samples, 1}};
}

/// Visits the ways to complete a cut: every number of warpgroups, and of rows for each.
template <class Visitor>
void for_each_completion(Cut cut, const Product& p, const GpuFacts& facts, Visitor&& visit) {
  const std::int64_t chunk_l = std::int64_t{chunk_steps} * step_l;
  const std::int64_t chunks = divided_up(divided_up(p.c, chunk_l), cut.cluster);
  if (chunks > (1 << 16) || (cut.cluster > 1 && (cut.cluster - 1) * chunks * chunk_l >= p.c)) return;
  cut.chunks = static_cast<int>(chunks);
  const std::int64_t rows = divided_up(p.b, tile_k) * cut.j_group;

  for (cut.warpgroups = 1; cut.warpgroups <= max_warpgroups; cut.warpgroups *= 2)
    for (const int per_warpgroup : {1, 2, 3, 4, 6, 8, 11, 16, 32}) {
      cut.rows = per_warpgroup;
      const bool splits_j =
          std::has_single_bit(static_cast<unsigned>(cut.j_group)) && cut.j_group % cut.block_rows() == 0;
      if (cut.block_rows() % cut.j_group != 0 && !splits_j) continue;
      if (cut.rows > 1 && std::int64_t{cut.warpgroups} * cut.rows > rows) break;
      const std::int64_t k_blocks = divided_up(rows, cut.block_rows());
      if (p.a * cut.j_groups * cut.cluster > max_blocks / k_blocks) continue;
      cut.k_blocks = static_cast<int>(k_blocks);
      cut.stages = 0;
      if (std::int64_t{cut.j_group} * cut.positions() * cut.samples > (1 << 17)) continue;
      const std::int64_t room = static_cast<std::int64_t>(facts.shared_bytes) - shared_layout(cut).total;
      const std::int64_t all = std::int64_t{cut.rows} * cut.chunks;
      const std::int64_t stages =
          std::min(all, room / (cut.warpgroups * std::int64_t{chunk_bytes + barrier_bytes}));
      if (stages < std::min<std::int64_t>(all, 3)) continue;
      cut.stages = static_cast<int>(stages);
      for (cut.threads = cut.warpgroups * 128; cut.threads <= max_warpgroups * 128; cut.threads *= 2)
        visit(cut);
    }
}

/// Visits every cut worth considering; none where x does not fit into shared memory.
template <class Visitor>
void for_each_cut(const Product& p, const GpuFacts& facts, Visitor&& visit) {
  const auto fits = [&](int elements) {
    return p.x_feature == 1 && (p.batch == 1 || p.x_sample % elements == 0);
  };
  const bool fits_vectors =
      fits(vector) && (p.d < vector ? vector % p.d == 0 && p.c % (vector / p.d) == 0 : p.d % vector == 0);
  const bool fits_halves = fits(vector / 2) && p.d == 1 && p.c % (vector / 2) == 0;
  for (const int j_group : {1, 2, 3, 4, 5, 6, 7, 8, 16}) {
    const bool is_whole = j_group == p.d, is_part = j_group == vector || j_group == 2 * vector;
    if (j_group > p.d || (j_group > 1 && !is_whole && !is_part)) continue;
    for (int samples = 8; samples <= max_batch; samples *= 2) {
      for (int cluster = 1; cluster <= std::min(8, samples / 4); cluster *= 2) {
        // Half of the samples would do, and for half of the cluster.
        if (samples > 8 && samples / 2 >= p.batch && cluster != samples / 4) continue;
        Cut cut;
        cut.samples = samples;
        cut.j_group = j_group;
        cut.j_groups = static_cast<int>(std::min<std::int64_t>(divided_up(p.d, j_group), max_blocks));
        cut.cluster = cluster;
        // Few results are stored as they are: to collect them takes longer.
        cut.collects = p.y_feature == 1 && p.batch > (p.d == 1 ? 8 : 2);
        cut.boxes = p.d == 1 && p.x_feature == 1 && x_view(p, cut, nullptr).strides_fit();
        cut.bytes = fits_vectors && (p.d < vector ? is_whole : j_group % vector == 0) ? 16
                    : fits_halves                                                     ? 8
                                                                                      : 0;
        cut.run = cut.bytes != 0 && p.d < vector ? vector / static_cast<int>(p.d) : 1;
        for_each_completion(cut, p, facts, visit);
      }
    }
  }
}

/// Features that lie together in y, in shared memory and in every block, and so are stored at once.
int y_vector_of(const Product& p, const Cut& cut) {
  if (!cut.collects) return 0;
  for (const int width : {8, 4}) {
    const bool in_rows =
        cut.block_j() == p.d ? (p.b * p.d) % width == 0 : cut.block_j() % width == 0 && p.d % width == 0;
    if (in_rows && (p.batch == 1 || p.y_sample % width == 0)) return width;
  }
  return 1;
}

}  // namespace

std::int64_t blocks_of_weights(const Cut& cut, const Product& p) {
  return p.a * cut.j_groups * cut.k_blocks * cut.cluster;
}

std::int64_t weight_bytes(const Cut& cut, const Product& p) {
  return blocks_of_weights(cut, p) * block_chunks(cut) * chunk_bytes;
}

Choice choose(const Problem& problem, const GpuFacts& facts) {
  const Product p = planned_product_of(problem);
  Choice best;
  for_each_cut(p, facts, [&](const Cut& cut) {
    const double seconds = predict_cut(cut, p, facts);
    if (seconds < best.seconds) best = {cut, seconds};
  });
  return best;
}

Arguments arguments_of(const Problem& problem, const Cut& cut, const void* weights) {
  const Product p = product_of(problem);
  const SharedLayout shared = shared_layout(cut);
  return {.x_map = {},
          .weights = static_cast<const std::byte*>(weights),
          .x = nullptr,
          .y = nullptr,
          .bias = nullptr,
          .cut = cut,
          .place = {.sample = p.x_sample,
                    .feature = p.x_feature,
                    .d = p.d,
                    .j_group = cut.j_group,
                    .shared_j = shared.plane,
                    .shared_sample = 16,
                    .shared_vector = shared.vector,
                    .bytes = cut.bytes},
          .batch = static_cast<int>(p.batch),
          .activation = problem.activation,
          .b = p.b,
          .c = p.c,
          .d = p.d,
          .y_sample = p.y_sample,
          .y_feature = p.y_feature,
          .y_vector = y_vector_of(p, cut),
          .blocks_of_weights = Divisor(static_cast<std::uint32_t>(blocks_of_weights(cut, p))),
          .cluster = Divisor(static_cast<std::uint32_t>(cut.cluster)),
          .k_blocks = Divisor(static_cast<std::uint32_t>(cut.k_blocks)),
          .j_groups = Divisor(static_cast<std::uint32_t>(cut.j_groups)),
          .j_group = Divisor(static_cast<std::uint32_t>(cut.j_group))};
}

Arguments with_operands(Arguments arguments, const Product& p, const Operands& operands) {
  const auto is_aligned = [](const void* data, int bytes) {
    return reinterpret_cast<std::uintptr_t>(data) % static_cast<unsigned>(bytes) == 0;
  };
  arguments.x = operands.x;
  arguments.y = operands.y;
  arguments.bias = operands.bias;
  if (arguments.cut.boxes) {
    const TensorView x = x_view(p, arguments.cut, operands.x);
    arguments.cut.boxes = x.fits();
    if (arguments.cut.boxes) arguments.x_map = tensor_map(x);
  }
  int& bytes = arguments.place.bytes;
  if (bytes != 0 && !is_aligned(operands.x, bytes)) bytes = 0;
  int& width = arguments.y_vector;
  while (width > 1 && !is_aligned(operands.y, 2 * width)) width = width == 8 ? 4 : 1;
  return arguments;
}

}  // namespace kronsparse::cuda::stream
