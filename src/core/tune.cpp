#include "kronsparse/tune.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <utility>

#include "core/choice.hpp"
#include "core/geometry.hpp"
#include "core/message.hpp"
#include "core/run_scope.hpp"
#include "core/steps.hpp"
#include "core/text.hpp"
#include "core/tune.hpp"
#include "core/tuned_times.hpp"
#include "kronsparse/buffer.hpp"
#include "kronsparse/error.hpp"
#include "kronsparse/plan.hpp"

namespace kronsparse {
namespace {

thread_local int pauses = 0;

/// Numbers of magnitude 1 to 2 and either sign, by their bits: zeros would make a GPU faster.
std::vector<std::byte> random_bytes(DType dtype, std::size_t bytes) {
  std::vector<std::byte> all(bytes);
  std::minstd_rand random(1);
  const auto fill = [&]<class Bits>(Bits sign, Bits one, Bits mantissa) {
    for (std::size_t at = 0; at + sizeof(Bits) <= bytes; at += sizeof(Bits)) {
      const std::uint64_t drawn = std::uint64_t{random()} << 31 ^ random();
      const auto bits = static_cast<Bits>(one | (drawn & mantissa) | ((drawn & 1) != 0 ? sign : Bits{0}));
      std::memcpy(all.data() + at, &bits, sizeof(bits));
    }
  };
  switch (dtype) {
    case DType::f16:
      fill(std::uint16_t{0x8000}, std::uint16_t{0x3c00}, std::uint16_t{0x03ff});
      break;
    case DType::bf16:
      fill(std::uint16_t{0x8000}, std::uint16_t{0x3f80}, std::uint16_t{0x007f});
      break;
    case DType::f32:
    case DType::complex64:
      fill(std::uint32_t{0x80000000}, std::uint32_t{0x3f800000}, std::uint32_t{0x007fffff});
      break;
    case DType::f64:
    case DType::complex128:
      fill(std::uint64_t{1} << 63, std::uint64_t{0x3ff0000000000000}, (std::uint64_t{1} << 52) - 1);
      break;
  }
  return all;
}

/// Memory of random numbers; empty for no elements.
Buffer random_buffer(std::int64_t elements, DType dtype, Device device) {
  const std::size_t bytes = static_cast<std::size_t>(elements) * size_of(dtype);
  Buffer buffer(bytes, device);
  if (bytes == 0) return buffer;
  std::size_t filled = std::min<std::size_t>(bytes, std::size_t{1} << 20);
  buffer.copy_from_host(random_bytes(dtype, filled).data(), filled);
  const MemoryOps& memory = backend_of(device).memory;
  auto* const begin = static_cast<std::byte*>(buffer.data());
  for (; filled < bytes; filled = std::min(2 * filled, bytes))
    memory.copy(device, begin + filled, begin, std::min(filled, bytes - filled), nullptr);
  return buffer;
}

/// The operands of a run.
struct TuneOperands {
  TuneOperands(const Problem& problem, Device device)
      : values(random_buffer(has_values(problem) ? problem.chain.nnz() : 0, problem.dtype, device)),
        x(random_buffer(x_matrix(problem).extent(), problem.dtype, device)),
        g(random_buffer(has_values(problem) ? 0 : rows_matrix(problem).extent(), problem.dtype, device)),
        bias(random_buffer(problem.bias ? problem.chain.rows() : 0, problem.dtype, device)),
        y(static_cast<std::size_t>(y_matrix(problem).extent()) * size_of(problem.dtype), device) {}

  [[nodiscard]] static bool has_values(const Problem& problem) {
    return problem.operation != Operation::gradient;
  }
  [[nodiscard]] Operands operands() const {
    Operands all{.x = x.data(), .y = y.data()};
    all.g = g.data();
    all.bias = bias.data();
    return all;
  }
  [[nodiscard]] std::size_t bytes() const {
    return values.bytes() + x.bytes() + g.bytes() + bias.bytes() + y.bytes();
  }

  Buffer values, x, g, bias, y;
};

/// Half a millisecond of copying on a GPU: what is enqueued behind it follows without gaps.
class Plug {
 public:
  explicit Plug(Device device) : device_(device) {}
  void enqueue() {
    constexpr std::size_t bytes = std::size_t{64} << 20;
    if (from_.bytes() == 0) {
      from_ = Buffer(bytes, device_);
      to_ = Buffer(bytes, device_);
    }
    for (int repeat = 0; repeat < 16; ++repeat) to_.copy_from(from_);
  }

 private:
  Device device_;
  Buffer from_, to_;
};

double median_of(std::vector<double> all) {
  std::ranges::nth_element(all, all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2));
  return all[all.size() / 2];
}

/// The median of `work`'s seconds, measured for `budget` seconds and three times at least.
template <class Work>
double measured_seconds(const Work& work, double budget, Device device, Plug& plug) {
  const auto seconds_of = [&](std::size_t runs) {
    Timer timer(device);
    timer.mark();
    for (std::size_t run = 0; run < runs; ++run) work();
    timer.mark();
    return timer.seconds().front() / static_cast<double>(runs);
  };
  const double estimate = std::max(seconds_of(1), 1e-9);
  // Marks take a GPU a microsecond or two, and enqueueing takes longer than a short run.
  constexpr double between_marks = 100e-6;
  const bool is_host = device.backend == Backend::cpu;
  const auto group =
      is_host ? std::size_t{1}
              : static_cast<std::size_t>(std::clamp(std::ceil(between_marks / estimate), 1.0, 32.0));
  const double wanted = budget / (estimate * static_cast<double>(group));
  const auto groups = static_cast<std::size_t>(std::clamp(wanted, 3.0, 100.0));
  const bool plugs = device.backend == Backend::cuda && estimate < between_marks;
  std::vector<double> seconds;
  while (seconds.size() < groups) {
    if (plugs) plug.enqueue();
    Timer timer(device);
    timer.mark();
    for (std::size_t index = 0; index < std::min<std::size_t>(groups, 8); ++index) {
      for (std::size_t run = 0; run < group; ++run) work();
      timer.mark();
    }
    for (const double one : timer.seconds()) seconds.push_back(one / static_cast<double>(group));
  }
  return median_of(std::move(seconds));
}

/// One implementation on copies of the operands, which take turns.
class Contestant {
 public:
  Contestant(const Problem& problem, Device device, std::string name, double predicted, bool packs,
             std::span<const TuneOperands> operands)
      : device_(device), name_(std::move(name)), predicted_(predicted), packs_(packs), operands_(operands) {
    for (const TuneOperands& one : operands) {
      plans_.push_back(TuneOperands::has_values(problem) ? Plan(problem, one.values.data(), device, name_)
                                                         : Plan(problem, device, name_));
      const Batch batch{problem.batch, problem.cols_stride, problem.rows_stride};
      workspaces_.emplace_back(plans_.back().workspace_bytes(batch), device);
    }
    run();
    synchronise(device);
  }

  void measure(double budget, Plug& plug) {
    seconds_ = std::min(seconds_, measured_seconds([&] { run(); }, budget, device_, plug));
  }
  void measure_packing(double budget, Plug& plug) {
    if (packs_)
      packing_ =
          measured_seconds([&] { plans_.front().set_values(operands_.front().values.data(), nullptr); },
                           budget, device_, plug);
  }

  [[nodiscard]] double seconds() const noexcept { return seconds_; }
  [[nodiscard]] double predicted() const noexcept { return predicted_; }
  [[nodiscard]] TunedTime time() const { return {name_, seconds_, packing_, predicted_}; }

 private:
  void run() {
    Operands operands = operands_[next_].operands();
    operands.workspace = workspaces_[next_].data();
    operands.workspace_bytes = workspaces_[next_].bytes();
    plans_[next_].run(operands);
    next_ = (next_ + 1) % plans_.size();
  }

  Device device_;
  std::string name_;
  double predicted_;
  bool packs_;
  std::span<const TuneOperands> operands_;
  std::vector<Plan> plans_;
  std::vector<Buffer> workspaces_;
  std::size_t next_ = 0;
  double seconds_ = std::numeric_limits<double>::infinity(), packing_ = 0;
};

/// Copies that together exceed a GPU's cache; one on the CPU, and where memory allows no more.
std::vector<TuneOperands> copies_of_operands(const Problem& problem, Device device) {
  std::vector<TuneOperands> all;
  all.emplace_back(problem, device);
  if (device.backend == Backend::cpu) return all;
  std::size_t cache = 0;
  for (const DeviceInfo& info : backend_of(device).devices())
    if (info.device == device) cache = info.cache_bytes;
  const double wanted = 4.0 * static_cast<double>(cache) / static_cast<double>(all.front().bytes() + 1);
  constexpr double most = 32;
  try {
    while (static_cast<double>(all.size()) < std::min(wanted, most)) all.emplace_back(problem, device);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::out_of_memory) throw;
  }
  return all;
}

/// Measures a problem that one implementation computes as a whole, fastest first.
std::vector<TunedTime> measure(const Problem& problem, std::vector<Assessment> all, Device device,
                               const TuneOptions& options) {
  std::erase_if(all, [](const Assessment& one) { return !one.proposal.refusal.empty(); });
  if (options.most > 0 && all.size() > static_cast<std::size_t>(options.most))
    all.resize(static_cast<std::size_t>(options.most));
  if (all.empty()) return {};
  const std::vector<TuneOperands> operands = copies_of_operands(problem, device);
  Plug plug(device);
  constexpr int rounds = 3;
  const double budget = options.seconds / rounds;
  std::vector<std::unique_ptr<Contestant>> contestants;
  double best = std::numeric_limits<double>::infinity();
  constexpr double hopeless = 10, slower = 1.5;
  for (const Assessment& one : all) {
    const Proposal& proposal = one.proposal;
    if (proposal.seconds > hopeless * best) continue;
    try {
      contestants.push_back(std::make_unique<Contestant>(
          problem, device, std::string(one.implementation->name), proposal.seconds,
          TuneOperands::has_values(problem) && proposal.packing_seconds > 0, operands));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::out_of_memory && error.code() != ErrorCode::unsupported) throw;
      continue;
    }
    contestants.back()->measure(budget, plug);
    best = std::min(best, contestants.back()->seconds());
  }
  // In rounds, so that a slow moment of the machine is not one contestant's.
  for (int round = 1; round < rounds; ++round)
    for (const auto& one : contestants)
      if (one->seconds() <= slower * best) one->measure(budget, plug);
  std::vector<TunedTime> times;
  for (const auto& one : contestants) {
    one->measure_packing(budget, plug);
    times.push_back(one->time());
  }
  std::ranges::stable_sort(times, {}, &TunedTime::seconds);
  return times;
}

/// The problems that a plan's decision asks about, each once: the chain in one pass, and its steps.
std::vector<Problem> problems_of(const Problem& problem) {
  std::vector<Problem> all;
  std::set<std::string> seen;
  const auto add = [&](const Problem& one) {
    if (seen.insert(one.to_string()).second) all.push_back(one);
  };
  if (problem.chain.size() > 1 && problem.operation != Operation::gradient) add(problem);
  for (const Step& step : make_steps(problem)) add(step.problem);
  return all;
}

/// Others would disturb the measurement.
std::mutex& measuring() {
  static std::mutex once;
  return once;
}

/// How many predictions KRONSPARSE_TUNE asks to measure.
int asked_for() {
  const char* text = std::getenv("KRONSPARSE_TUNE");
  if (text == nullptr || *text == '\0') return 0;
  char* end = nullptr;
  const long number = std::strtol(text, &end, 10);
  if (*end != '\0' || number < 0 || number > 100)
    throw Error(ErrorCode::invalid_argument,
                message("KRONSPARSE_TUNE: {} given, must be a whole number from 0 to 100", quoted(text)));
  return static_cast<int>(number);
}

}  // namespace

TuningPause::TuningPause() noexcept { ++pauses; }
TuningPause::~TuningPause() { --pauses; }

std::string tuning_file(Device device) {
  static_cast<void>(backend_of(device));  // Error device where there is none
  return tuned_times_file(device);
}

std::vector<Measurement> tune(const Problem& problem, Device device, const TuneOptions& options) {
  problem.validate();
  const BackendEntry& backend = backend_of(device);
  if (problem.batch == 0)
    throw Error(ErrorCode::invalid_argument,
                message("problem: {} given, must have a batch to be measured", problem.to_string()));
  if (options.most < 0)
    throw Error(ErrorCode::invalid_argument, message("most: {} given, must be 0 or more", options.most));
  if (!(options.seconds > 0 && options.seconds <= 3600))
    throw Error(ErrorCode::invalid_argument,
                message("seconds: {} given, must be more than 0 and at most 3600", options.seconds));
  const std::scoped_lock alone(measuring());
  const TuningPause pause;
  std::vector<Measurement> all;
  for (const Problem& one : problems_of(problem)) {
    std::vector<TunedTime> times = options.again ? std::vector<TunedTime>() : tuned_times(one, device);
    if (times.empty()) {
      times = measure(one, assess_untuned(backend.implementations, one, device), device, options);
      if (times.empty()) continue;  // a chain that nobody takes as a whole
      set_tuned_times(one, device, times, options.keeps);
    }
    for (const TunedTime& time : times)
      all.push_back({one, time.implementation, time.seconds, time.packing_seconds, time.predicted_seconds});
  }
  return all;
}

void tune_if_asked(const Problem& problem, const BackendEntry& backend, Device device, Stream stream) {
  if (pauses > 0 || RunScope::is_active() || problem.batch == 0) return;
  const int most = asked_for();
  if (most == 0) return;
  const MemoryOps& memory = backend.memory;
  if (memory.is_capturing != nullptr && memory.is_capturing(device, stream)) return;
  if (memory.may_measure != nullptr && !memory.may_measure(device)) return;
  try {
    static_cast<void>(tune(problem, device, {.most = most, .seconds = 0.02, .again = false}));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::out_of_memory && error.code() != ErrorCode::unsupported) throw;
  }
}

}  // namespace kronsparse
