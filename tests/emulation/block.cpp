#include "block.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "cuda/device/ptx.cuh"
#include "fiber.hpp"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace kronsparse::cuda {
std::byte shared_memory[1];
alignas(1024) unsigned char simt::shared_bytes[kEmulatedSharedBytes];
}  // namespace kronsparse::cuda

namespace kronsparse::emulation {
namespace {

Block* current_block = nullptr;

std::string text_of(const void* pointer) { return std::to_string(reinterpret_cast<std::uintptr_t>(pointer)); }

void require(bool right, const char* what) {
  if (!right) throw EmulationError(what);
}

/// The 8 bytes of a barrier in shared memory.
struct PhaseBarrier {
  std::uint16_t mark;      ///< kMark plus the parity of the phase
  std::uint16_t arrivals;  ///< arrivals that end a phase
  std::uint16_t pending;
  std::int16_t units;  ///< units of 8 bytes still to come from copies; below zero if they came early

  static constexpr std::uint16_t kMark = 0xba50;
  [[nodiscard]] unsigned parity() const { return mark % 2u; }
};
static_assert(sizeof(PhaseBarrier) == 8);

PhaseBarrier load_barrier(Block& block, std::uint32_t address) {
  PhaseBarrier barrier{};
  std::memcpy(&barrier, block.shared(address, 8, 8), 8);
  require(barrier.mark / 2 == PhaseBarrier::kMark / 2,
          "no barrier was initialised there, or it was overwritten");
  return barrier;
}

void check_range(const std::vector<GlobalMemory::Range>& ranges, const std::byte* first, int bytes,
                 int alignment) {
  if (reinterpret_cast<std::uintptr_t>(first) % static_cast<unsigned>(alignment) != 0)
    throw EmulationError("copy of global address " + text_of(first) + ", not aligned to " +
                         std::to_string(alignment));
  const auto inside = [&](const GlobalMemory::Range& range) {
    return first >= range.first && first + bytes <= range.first + range.bytes;
  };
  if (bytes != 0 && std::none_of(ranges.begin(), ranges.end(), inside))
    throw EmulationError("copy of " + std::to_string(bytes) + " bytes outside the operands, at " +
                         text_of(first));
}

}  // namespace

Block& Block::current() { return *current_block; }

std::byte* Block::reached_by_pointers() { return reinterpret_cast<std::byte*>(cuda::simt::shared_bytes); }

Block::Block(Cluster& cluster, unsigned number, int threads, int shared_bytes, bool is_alone, Timing timing,
             const GlobalMemory& memory)
    : cluster_(cluster),
      number_(number),
      timing_(timing),
      memory_(memory),
      shared_bytes_(shared_bytes),
      own_shared_(is_alone ? 0 : static_cast<std::size_t>(shared_bytes)),
      shared_(is_alone ? reached_by_pointers() : own_shared_.data()),
      warps_(static_cast<std::size_t>(threads / 32)),
      warpgroups_(static_cast<std::size_t>((threads + 127) / 128)) {
  require(shared_bytes <= cuda::kEmulatedSharedBytes, "more shared memory than a block may have");
  std::memset(shared_, 0xff, static_cast<std::size_t>(shared_bytes));  // NaN in every format
  for (int index = 0; index < threads; ++index) {
    threads_.push_back(std::make_unique<Thread>());
    threads_.back()->index = index;
  }
}

Block::~Block() = default;

void Block::enter(Thread& thread, const std::function<void()>& kernel) {
  Block& block = *current_block;
  try {
    kernel();
    require(thread.products.empty(), "a thread ended before its wgmma");
    require(thread.stores.empty() && thread.store_groups.empty(),
            "a thread ended before its stores had read shared memory");
    const bool has_arrived = std::all_of(thread.copy_groups.begin(), thread.copy_groups.end(),
                                         [](const auto& group) { return group.empty(); });
    require(thread.copies.empty() && has_arrived, "a thread ended before its copies");
  } catch (const std::exception& error) {
    block.failure_ = "thread " + std::to_string(thread.index) + ": " + error.what();
  }
}

void Block::start(const std::function<void()>& kernel) {
  for (const auto& thread : threads_)
    thread->fiber = std::make_unique<Fiber>([&kernel, &thread] { enter(*thread, kernel); });
  left_ = threads_.size();
}

bool Block::go_on() {
  current_block = this;
  blockIdx.x = number_;
  // Threads in step: each runs as far as it can, then the next.
  if (timing_ == Timing::late) return go_on(0, threads_.size());
  // Early copies should be requested early, too: producers come first. Each warp runs as far ahead of the
  // others as they let it, so that it does them as much harm as it can.
  bool progress = false;
  for (std::size_t first = 0; first < threads_.size(); first += 32)
    while (go_on(first, std::min(first + 32, threads_.size()))) progress = true;
  return progress;
}

bool Block::go_on(std::size_t first, std::size_t end) {
  bool progress = false;
  for (std::size_t at = first; at < end; ++at) {
    Thread& thread = *threads_[timing_ == Timing::early ? at : end - 1 - (at - first)];
    if (thread.fiber->done() || !can_go_on(thread)) continue;
    resume(thread);
    if (!failure_.empty()) throw EmulationError(failure_);
    progress = true;
    if (thread.fiber->done()) --left_;
  }
  return progress;
}

bool Block::let_copies_arrive() {
  if (events_.empty()) return false;
  for (bool phase_ended = false; !phase_ended && !events_.empty();) {
    phase_ended = happen(events_.front());
    events_.pop_front();
  }
  return true;
}

bool Block::can_go_on(const Thread& thread) {
  if (thread.wait == Thread::Wait::phase)
    return load_barrier(*this, thread.barrier).parity() != thread.parity;
  return thread.wait != Thread::Wait::meeting || thread.meeting->round != thread.round;
}

void Block::resume(Thread& thread) {
  running_ = thread.index;
  threadIdx.x = static_cast<unsigned>(thread.index);
  thread.wait = Thread::Wait::nothing;
  thread.fiber->resume();
}

void Block::suspend() { thread().fiber->suspend(); }

std::string Block::stuck_threads() const {
  std::string text;
  for (const auto& thread : threads_)
    if (!thread->fiber->done() && thread->index % 32 == 0)
      text += "thread " + std::to_string(thread->index) +
              (thread->wait == Thread::Wait::phase
                   ? " waits for barrier " + std::to_string(thread->barrier - cuda::ptx::kSharedBase) + "; "
                   : " waits for other threads; ");
  return text;
}

std::byte* Block::shared(std::uint32_t address, int bytes, int alignment) {
  const std::int64_t offset = std::int64_t{address} - cuda::ptx::kSharedBase;
  if (offset < 0 || offset + bytes > shared_bytes_)
    throw EmulationError("shared memory has no " + std::to_string(bytes) + " bytes at offset " +
                         std::to_string(offset));
  if (offset % alignment != 0)
    throw EmulationError("shared offset " + std::to_string(offset) + " is not aligned to " +
                         std::to_string(alignment));
  return shared_ + offset;
}

void Block::meet(Meeting& meeting, int threads, const std::function<void()>& action) {
  if (++meeting.present == threads) {
    if (action) action();  // the others still wait
    meeting.present = 0;
    ++meeting.round;
    return;
  }
  Thread& self = thread();
  self.wait = Thread::Wait::meeting;
  self.meeting = &meeting;
  self.round = meeting.round;
  suspend();
}

void Block::signal(Meeting& meeting, int threads) {
  if (++meeting.present < threads) return;
  meeting.present = 0;
  ++meeting.round;
}

void Block::arrive_at_cluster() {
  require(!thread().at_cluster_barrier, "two arrivals at the cluster's barrier without a wait");
  thread().at_cluster_barrier = true;
  thread().cluster_round = cluster_.meeting.round;
  signal(cluster_.meeting, size() * static_cast<int>(cluster_.blocks.size()));
}

void Block::wait_for_cluster() {
  Thread& self = thread();
  require(self.at_cluster_barrier, "a wait for the cluster's barrier without an arrival");
  self.at_cluster_barrier = false;
  self.wait = Thread::Wait::meeting;
  self.meeting = &cluster_.meeting;
  self.round = self.cluster_round;
  if (!can_go_on(self)) suspend();
  self.wait = Thread::Wait::nothing;
}

void Block::init_barrier(std::uint32_t barrier, int arrivals) {
  const auto count = static_cast<std::uint16_t>(arrivals);
  const PhaseBarrier fresh{PhaseBarrier::kMark, count, count, 0};
  std::memcpy(shared(barrier, 8, 8), &fresh, 8);
}

bool Block::settle(std::uint32_t barrier, int arrivals, int bytes) {
  PhaseBarrier state = load_barrier(*this, barrier);
  require(bytes % 8 == 0, "a barrier of bytes that are no multiple of 8");
  require(state.pending >= arrivals, "more arrivals at a barrier than it awaits");
  state.pending = static_cast<std::uint16_t>(state.pending - arrivals);
  state.units = static_cast<std::int16_t>(state.units + bytes / 8);
  // Bytes of another block may come before this one has told its barrier of them.
  require(state.units >= 0 || state.pending > 0, "more bytes for a barrier than it was told of");
  const bool phase_ends = state.pending == 0 && state.units == 0;
  if (phase_ends) {
    state.mark ^= 1;
    state.pending = state.arrivals;
  }
  std::memcpy(shared(barrier, 8, 8), &state, 8);
  return phase_ends;
}

void Block::arrive(std::uint32_t barrier, int expected_bytes) { settle(barrier, 1, expected_bytes); }

void Block::wait_phase(std::uint32_t barrier, unsigned parity) {
  require(parity <= 1, "a parity is 0 or 1");
  Thread& self = thread();
  self.wait = Thread::Wait::phase;
  self.barrier = barrier;
  self.parity = parity;
  if (!can_go_on(self)) suspend();
  self.wait = Thread::Wait::nothing;
}

void Block::perform(const Copy& copy) {
  std::byte* to = shared(copy.to, copy.filled, std::min(copy.filled, 16));
  std::memset(to, 0, static_cast<std::size_t>(copy.filled));
  if (copy.bytes > 0) std::memcpy(to, copy.from, static_cast<std::size_t>(copy.bytes));
}

void Block::perform(const BulkStore& store) {
  std::memcpy(store.to, shared(store.from, store.bytes, 16), static_cast<std::size_t>(store.bytes));
}

bool Block::happen(const Event& event) {
  for (const Copy& copy : event.copies) perform(copy);
  return settle(event.barrier, event.completed_bytes == 0 ? 1 : 0, -event.completed_bytes);
}

void Block::copy_async(std::uint32_t to, const void* from, int bytes, int filled) {
  const Copy copy{to, static_cast<const std::byte*>(from), bytes, filled};
  require(bytes >= 0 && bytes <= filled, "an asynchronous copy of more bytes than it fills");
  check_range(memory_.readable, copy.from, bytes, filled);
  shared(to, filled, filled);
  if (timing_ == Timing::early)
    perform(copy);
  else
    thread().copies.push_back(copy);
}

void Block::commit_copies() {
  Thread& self = thread();
  self.copy_groups.push_back(std::move(self.copies));
  self.copies.clear();
}

void Block::wait_copies(std::size_t pending) {
  auto& groups = thread().copy_groups;
  while (groups.size() > pending) {
    for (const Copy& copy : groups.front()) perform(copy);
    groups.erase(groups.begin());
  }
}

void Block::arrive_after_copies(std::uint32_t barrier) {
  Thread& self = thread();
  require(self.copy_groups.empty(), "groups of copies and arrivals after copies, together: not emulated");
  Event event{std::move(self.copies), barrier, 0};
  self.copies.clear();
  if (timing_ == Timing::early)
    happen(event);
  else
    events_.push_back(std::move(event));
}

void Block::copy_bulk(std::uint32_t to, const void* from, int bytes, std::uint32_t barrier) {
  const Copy copy{to, static_cast<const std::byte*>(from), bytes, bytes};
  require(bytes > 0 && bytes % 16 == 0, "a bulk copy of bytes that are no multiple of 16");
  check_range(memory_.readable, copy.from, bytes, 16);
  shared(to, bytes, 16);
  Event event{{copy}, barrier, bytes};
  if (timing_ == Timing::early)
    happen(event);
  else
    events_.push_back(std::move(event));
}

void Block::prefetch_bulk(const void* from, int bytes) {
  require(bytes > 0 && bytes % 16 == 0, "a bulk prefetch of bytes that are no multiple of 16");
  check_range(memory_.readable, static_cast<const std::byte*>(from), bytes, 16);
}

void Block::receive_bulk(std::uint32_t to, const std::byte* from, int bytes, std::uint32_t barrier) {
  require(bytes > 0 && bytes % 16 == 0, "a bulk copy of bytes that are no multiple of 16");
  shared(to, bytes, 16);
  Event event{{{to, from, bytes, bytes}}, barrier, bytes};
  if (timing_ == Timing::early)
    happen(event);
  else
    events_.push_back(std::move(event));
}

void Block::receive_stored(std::uint32_t to, std::span<const std::byte> values, std::uint32_t barrier) {
  const auto bytes = static_cast<int>(values.size());
  require(bytes == 8 || bytes == 16, "a store to another block of neither 8 nor 16 bytes");
  require(!done(), "a store to a block that has ended");
  shared(to, bytes, bytes);
  std::copy(values.begin(), values.end(), stored_.emplace_back().begin());
  Event event{{{to, stored_.back().data(), bytes, bytes}}, barrier, bytes};
  if (timing_ == Timing::early)
    happen(event);
  else
    events_.push_back(std::move(event));
}

void Block::store_bulk(void* to, std::uint32_t from, int bytes) {
  const BulkStore store{static_cast<std::byte*>(to), from, bytes};
  require(bytes > 0 && bytes % 16 == 0, "a bulk store of bytes that are no multiple of 16");
  check_range(memory_.writable, store.to, bytes, 16);
  shared(from, bytes, 16);
  thread().stores.push_back(store);
}

namespace {

/// Calls action(offset in the box, address in the tensor or null) for every 16 bytes of a box at
/// `shared_address`, whose bits say how rows are swizzled.
template <class Action>
void for_units(const Tensor& tensor, const std::array<int, 4>& at, std::uint32_t shared_address,
               const Action& action) {
  const int row_bytes = 2 * tensor.box[0];
  require(row_bytes <= 128 && row_bytes % 16 == 0, "a box with rows of no or too many units of 16 bytes");
  const bool swizzled = row_bytes == 128;
  require(!tensor.swaps_halves || row_bytes == 32, "only rows of 32 bytes have halves to swap");
  const auto first_row = static_cast<int>(shared_address / 128 % 8);
  int row = 0;
  std::array<int, 4> in{};
  for (in[3] = 0; in[3] < tensor.box[3]; ++in[3])
    for (in[2] = 0; in[2] < tensor.box[2]; ++in[2])
      for (in[1] = 0; in[1] < tensor.box[1]; ++in[1], ++row)
        for (in[0] = 0; in[0] < tensor.box[0]; in[0] += 8) {
          const std::byte* address = tensor.data + (at[0] + in[0]) * std::int64_t{2};
          bool inside = true;
          for (std::size_t dimension = 0; dimension < 4; ++dimension) {
            const std::int64_t place = at[dimension] + in[dimension];
            inside = inside && place >= 0 && place < tensor.sizes[dimension];
            if (dimension > 0) address += place * tensor.stride_bytes[dimension];
          }
          const int mask = swizzled ? (first_row + row) % 8 << 4 : tensor.swaps_halves ? row / 4 % 2 << 4 : 0;
          action(static_cast<std::uint32_t>(row * row_bytes + ((in[0] * 2) ^ mask)),
                 inside ? address : nullptr);
        }
}

}  // namespace

void Block::copy_box(std::uint32_t to, const Tensor& tensor, const std::array<int, 4>& at,
                     std::uint32_t barrier) {
  require(to % (tensor.swaps_halves ? 256 : 128) == 0, "a box at an address that is not aligned");
  Event event{{}, barrier, 0};
  for_units(tensor, at, to, [&](std::uint32_t distance, const std::byte* from) {
    if (from != nullptr) check_range(memory_.readable, from, 16, 16);
    shared(to + distance, 16, 16);
    event.copies.push_back({to + distance, from, from == nullptr ? 0 : 16, 16});
    event.completed_bytes += 16;
  });
  if (timing_ == Timing::early)
    happen(event);
  else
    events_.push_back(std::move(event));
}

void Block::store_box(const Tensor& tensor, const std::array<int, 4>& at, std::uint32_t from) {
  require(from % 1024 == 0, "a swizzled box at an address that 1024 does not divide");
  for_units(tensor, at, from, [&](std::uint32_t distance, const std::byte* to) {
    shared(from + distance, 16, 16);
    if (to == nullptr) return;
    check_range(memory_.writable, to, 16, 16);
    thread().stores.push_back({const_cast<std::byte*>(to), from + distance, 16});
  });
}

void Block::commit_stores() {
  Thread& self = thread();
  if (timing_ == Timing::early)
    for (const BulkStore& store : self.stores) perform(store);
  self.store_groups.push_back(std::move(self.stores));
  self.stores.clear();
}

void Block::wait_stores(std::size_t pending) {
  auto& groups = thread().store_groups;
  for (; groups.size() > pending; groups.pop_front())
    if (timing_ == Timing::late)
      for (const BulkStore& store : groups.front()) perform(store);
}

namespace {

void run(Cluster& cluster, const std::function<void()>& kernel) {
  const auto any = [&](const auto& of) {
    return std::any_of(cluster.blocks.begin(), cluster.blocks.end(), of);
  };
  for (const auto& block : cluster.blocks) block->start(kernel);
  while (any([](const auto& block) { return !block->done(); })) {
    bool progress = false;
    for (const auto& block : cluster.blocks) progress = block->go_on() || progress;
    if (progress) continue;
    // Nobody can continue before a phase ends.
    for (const auto& block : cluster.blocks) progress = block->let_copies_arrive() || progress;
    if (!progress) throw EmulationError("deadlock: " + cluster.blocks.front()->stuck_threads());
  }
  require(!any([](const auto& block) { return block->has_copies(); }), "a block ended before its copies");
}

}  // namespace

void launch(int blocks, int cluster_blocks, int threads, int shared_bytes, Timing timing,
            const GlobalMemory& memory, const std::function<void()>& kernel) {
  require(blocks % cluster_blocks == 0, "a grid of blocks that are no whole clusters");
  gridDim.x = static_cast<unsigned>(blocks);
  blockDim.x = static_cast<unsigned>(threads);
  for (int first = 0; first < blocks; first += cluster_blocks) {
    Cluster cluster;
    for (int rank = 0; rank < cluster_blocks; ++rank)
      cluster.blocks.push_back(std::make_unique<Block>(cluster, static_cast<unsigned>(first + rank), threads,
                                                       shared_bytes, cluster_blocks == 1, timing, memory));
    run(cluster, kernel);
  }
}

}  // namespace kronsparse::emulation
