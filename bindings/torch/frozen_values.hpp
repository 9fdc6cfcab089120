// Values that a layer has frozen: packed as kernels want them, found by a number, until they are released.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "kronsparse/plan.hpp"
#include "tensor.hpp"

namespace kronsparse::binding {

/// Safe to use from several threads and streams.
class FrozenValues {
 public:
  /// The factors' memory is kept. Versions are torch's counts of their changes.
  FrozenValues(std::vector<Tensor> factors, std::vector<std::int64_t> versions);
  ~FrozenValues();
  FrozenValues(const FrozenValues&) = delete;
  FrozenValues& operator=(const FrozenValues&) = delete;

  /// Whether these tensors lie where the frozen ones do: hooks of autograd, and CUDA graphs of compiled code,
  /// may hand on copies.
  [[nodiscard]] bool are(std::span<const Tensor> factors) const;
  /// Error invalid_argument when torch counted changes since.
  void check_versions(std::span<const Tensor> factors) const;
  struct Ready {
    const PackedValues* packed;  ///< null while a stream is captured that they were not packed before
    bool is_complete;            ///< whether a run needs no values besides
  };
  /// For a run that comes next on the stream, in the plan's dtype.
  [[nodiscard]] Ready prepare(const Plan& plan, const Batch& batch, Stream stream);
  /// Whether a CUDA graph was captured with what is packed.
  [[nodiscard]] bool is_captured() const noexcept { return is_captured_; }
  [[nodiscard]] std::size_t bytes() const;

 private:
  struct OfDtype {
    DType dtype;
    PackedValues packed;
  };

  [[nodiscard]] OfDtype& of_dtype(const Plan& plan);
  void remember(Stream stream);

  std::vector<Tensor> factors_;
  std::vector<const void*> addresses_;
  std::vector<std::int64_t> versions_;
  Device device_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<OfDtype>> packed_;  ///< one for each dtype that x had
  std::vector<Stream> streams_;                   ///< with runs
  std::atomic<Stream> last_stream_;
  std::atomic<bool> is_captured_ = false;  ///< a CUDA graph holds addresses of what is packed
};

/// Gives values a number, from 1 on, that is never given again.
[[nodiscard]] std::int64_t freeze(std::vector<Tensor> factors, std::vector<std::int64_t> versions);
/// Error invalid_argument for a number that is none, or that was released.
[[nodiscard]] std::shared_ptr<FrozenValues> find_frozen(std::int64_t number);
/// Gives packed values up. Those that a CUDA graph was captured with stay until the process ends.
void release(std::int64_t number);

struct FrozenInfo {
  std::int64_t count;  ///< frozen and not released
  std::int64_t bytes;  ///< packed for them, and for CUDA graphs
};
[[nodiscard]] FrozenInfo frozen_info();

}  // namespace kronsparse::binding
