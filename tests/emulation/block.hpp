// A block of GPU threads on the CPU: everything that a kernel needs besides its arithmetic.
//
// Every thread is a fiber. It runs until it has to wait for others; then the scheduler continues with the
// next. Shared memory is a buffer that begins as NaNs; its addresses are numbers, as on the GPU. Asynchronous
// copies, bulk copies and bulk stores happen at one of two moments, and a kernel that synchronises correctly
// cannot tell which:
//   late   not before they are waited for, and copies not before every thread waits,
//          so that a missing wait reads NaNs or old numbers;
//   early  as soon as they are requested, so that they overwrite data that is still being read.
// wgmma is always late: it reads its registers and shared memory at the wait. The blocks of a cluster run
// together, each with shared memory of its own. Misuse (addresses outside, bad alignment, a deadlock) is an
// EmulationError.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace kronsparse::emulation {

struct EmulationError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// When copies arrive. late: when nothing else can happen, with threads in step. early: at once, with warps
/// that run ahead of each other.
enum class Timing { late, early };

/// A place where threads wait for each other: a warp, a numbered barrier, the block.
struct Meeting {
  int present = 0;
  unsigned round = 0;
};

struct Copy {
  std::uint32_t to;
  const std::byte* from;
  int bytes;   ///< bytes that are read
  int filled;  ///< bytes that are written; zeros after those that were read
};

struct BulkStore {
  std::byte* to;
  std::uint32_t from;
  int bytes;
};

/// One wgmma of one thread. It reads and writes registers when it completes, as the GPU may.
struct WgmmaIssue {
  enum class Kind { f16, bf16, tf32 } kind;
  /// The place of the left operand: in registers, or in shared memory as rows of terms or of samples.
  enum class Left { registers, rows, columns } left_form;
  int columns;
  float* sums;
  const std::uint32_t* left;  ///< if in registers
  std::uint64_t left_shared;  ///< else described like the right one
  std::uint64_t right;
  bool add;
  bool right_columns = false;  ///< a row of columns for each term, instead of a row of terms for each column
};

/// One mma.sync of 16 x 8 x 16 half numbers, or of 16 x 8 x 8 TF32 numbers, as one lane gives it.
struct MmaIssue {
  WgmmaIssue::Kind kind;
  float* sums;  ///< 4 of them
  std::array<std::uint32_t, 4> left;
  std::array<std::uint32_t, 2> right;
};

/// In the descriptor of an operand: rows of 128 bytes, swizzled.
inline constexpr std::uint64_t kSwizzled = std::uint64_t{1} << 62;

/// A tensor as the copy engine sees it; dimension 0 is contiguous.
struct Tensor {
  const std::byte* data;
  std::array<std::int64_t, 4> sizes;         ///< elements of 2 bytes
  std::array<std::int64_t, 4> stride_bytes;  ///< the first is not used
  std::array<int, 4> box;                    ///< elements
  bool swaps_halves = false;  ///< rows of 32 bytes: their halves change places in every other 128 bytes
};

class Fiber;

struct Thread {
  int index = 0;
  std::vector<Copy> copies;                         ///< asynchronous copies in no group yet
  std::vector<std::vector<Copy>> copy_groups;       ///< committed
  std::vector<BulkStore> stores;                    ///< in no group yet
  std::deque<std::vector<BulkStore>> store_groups;  ///< committed, and not waited for
  std::vector<WgmmaIssue> products;                 ///< not done, the oldest first
  std::deque<std::size_t> product_groups;           ///< products in each committed group
  std::size_t open_products = 0;                    ///< in no group yet
  // Values that the lanes of a warp show each other.
  std::uint32_t lane_address = 0;
  std::array<std::uint32_t, 4> lane_registers{};
  const MmaIssue* lane_product = nullptr;
  // The thread waits for nothing, for a phase of a barrier, or for the others of a meeting.
  enum class Wait { nothing, phase, meeting } wait = Wait::nothing;
  std::uint32_t barrier = 0;
  unsigned parity = 0;
  const Meeting* meeting = nullptr;
  unsigned round = 0;
  bool at_cluster_barrier = false;  ///< has arrived but not waited
  unsigned cluster_round = 0;       ///< when it arrived
  std::unique_ptr<Fiber> fiber;
};

/// The memory outside the block that kernels may read and write. AddressSanitizer checks plain accesses;
/// those of the copy engine are checked here.
struct GlobalMemory {
  struct Range {
    const std::byte* first;
    std::size_t bytes;
  };
  std::vector<Range> readable, writable;
};

class Block;

/// Blocks that run together, in the order of their ranks, and the meeting of all their threads.
struct Cluster {
  std::vector<std::unique_ptr<Block>> blocks;
  Meeting meeting;
};

class Block {
 public:
  /// `is_alone`: in its cluster; then pointers reach its shared memory, too.
  Block(Cluster& cluster, unsigned number, int threads, int shared_bytes, bool is_alone, Timing timing,
        const GlobalMemory& memory);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  /// Gives every thread of the block the kernel to run.
  void start(const std::function<void()>& kernel);
  /// Resumes every thread that can continue; false if none could.
  bool go_on();
  /// Lets copies arrive until a phase ends; false if there are none.
  bool let_copies_arrive();
  [[nodiscard]] bool done() const { return left_ == 0; }
  [[nodiscard]] bool has_copies() const { return !events_.empty(); }
  [[nodiscard]] std::string stuck_threads() const;

  /// The running thread and its block.
  static Block& current();
  Thread& thread() { return *threads_[static_cast<std::size_t>(running_)]; }
  Thread& thread(int index) { return *threads_[static_cast<std::size_t>(index)]; }

  /// The shared memory of a block that is alone.
  static std::byte* reached_by_pointers();
  /// Shared memory at an address, checked.
  std::byte* shared(std::uint32_t address, int bytes, int alignment);

  /// Waits until `threads` are there; the last of them calls `action` first.
  void meet(Meeting& meeting, int threads, const std::function<void()>& action = {});
  /// Counts as one of them and continues.
  static void signal(Meeting& meeting, int threads);
  /// The cluster's barrier, in two steps.
  void arrive_at_cluster();
  void wait_for_cluster();
  Meeting& warp_meeting() { return warps_[static_cast<std::size_t>(running_ / 32)]; }
  Meeting& warpgroup_meeting() { return warpgroups_[static_cast<std::size_t>(running_ / 128)]; }
  Meeting& numbered_meeting(int number) { return numbered_.at(static_cast<std::size_t>(number)); }
  [[nodiscard]] int size() const { return static_cast<int>(threads_.size()); }
  [[nodiscard]] unsigned number() const { return number_; }
  Cluster& cluster() { return cluster_; }

  // Barriers with phases, in shared memory as on the GPU.
  void init_barrier(std::uint32_t barrier, int arrivals);
  void arrive(std::uint32_t barrier, int expected_bytes = 0);
  void wait_phase(std::uint32_t barrier, unsigned parity);

  void copy_async(std::uint32_t to, const void* from, int bytes, int filled);
  void commit_copies();
  void wait_copies(std::size_t pending);
  void arrive_after_copies(std::uint32_t barrier);
  void copy_bulk(std::uint32_t to, const void* from, int bytes, std::uint32_t barrier);
  /// Copies nothing; the requested memory must exist.
  void prefetch_bulk(const void* from, int bytes);
  /// Takes bytes from the shared memory of another block.
  void receive_bulk(std::uint32_t to, const std::byte* from, int bytes, std::uint32_t barrier);
  /// Takes 8 or 16 bytes from the registers of another block's thread.
  void receive_stored(std::uint32_t to, std::span<const std::byte> values, std::uint32_t barrier);
  void store_bulk(void* to, std::uint32_t from, int bytes);
  /// Copies a box of a tensor, in swizzled rows of 128 bytes or in shorter rows.
  void copy_box(std::uint32_t to, const Tensor& tensor, const std::array<int, 4>& at, std::uint32_t barrier);
  void store_box(const Tensor& tensor, const std::array<int, 4>& at, std::uint32_t from);
  void commit_stores();
  void wait_stores(std::size_t pending);

  void issue(const WgmmaIssue& product);
  void commit_products();
  void wait_products(std::size_t pending);
  /// mma.sync: the lanes of a warp multiply together.
  void multiply_in_warp(const MmaIssue& product);

 private:
  /// Copies that complete an arrival at a barrier, or its count of bytes.
  struct Event {
    std::vector<Copy> copies;
    std::uint32_t barrier;
    int completed_bytes;  ///< bytes of a bulk copy; 0: an arrival
  };

  static void enter(Thread& thread, const std::function<void()>& kernel);
  /// Resumes some threads, each as far as it can; returns whether any could continue.
  bool go_on(std::size_t first, std::size_t end);
  bool can_go_on(const Thread& thread);
  void resume(Thread& thread);
  void suspend();
  /// Returns whether the event has ended a phase of its barrier.
  bool happen(const Event& event);
  void perform(const Copy& copy);
  void perform(const BulkStore& store);
  bool settle(std::uint32_t barrier, int arrivals, int bytes);
  void multiply_oldest_group(int first_thread);

  Cluster& cluster_;
  unsigned number_;
  Timing timing_;
  const GlobalMemory& memory_;
  int shared_bytes_;
  std::vector<std::byte> own_shared_;
  std::byte* shared_;
  std::size_t left_ = 0;  ///< threads that have not ended
  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<Meeting> warps_, warpgroups_;
  std::array<Meeting, 16> numbered_{};
  std::deque<Event> events_;
  std::deque<std::array<std::byte, 16>> stored_;  ///< values that threads of other blocks have stored here
  std::string failure_;
  int running_ = 0;
};

/// Runs a grid, one cluster after the other.
void launch(int blocks, int cluster_blocks, int threads, int shared_bytes, Timing timing,
            const GlobalMemory& memory, const std::function<void()>& kernel);

}  // namespace kronsparse::emulation
