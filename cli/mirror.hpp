// Operands where a device can reach them: in its own memory, or the host's as they are.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kronsparse/buffer.hpp"
#include "kronsparse/plan.hpp"
#include "tensor.hpp"

namespace kronsparse::cli {

/// Host memory as a device sees it: for the CPU the memory itself, for others a
/// copy of all of it, guard bands included. The host's must outlive it.
class Mirror {
 public:
  Mirror() = default;
  /// Mirrors memory without guard bands.
  Mirror(std::span<std::byte> memory, Device device) : Mirror(memory, 0, device) {}
  /// An absent tensor has an absent mirror.
  Mirror(Tensor& tensor, Device device) : Mirror(tensor.memory(), tensor.guard_offset(), device) {}

  /// The address of the elements on the device; null when there are none.
  [[nodiscard]] void* data() const noexcept;
  [[nodiscard]] std::size_t bytes() const noexcept { return host_.size(); }
  /// Brings the device's copy up to date with the host, or the host with the device's.
  void upload();
  void download();

 private:
  Mirror(std::span<std::byte> memory, std::size_t offset, Device device);
  [[nodiscard]] bool is_copy() const noexcept { return copy_.data() != nullptr; }

  std::span<std::byte> host_;
  std::size_t offset_ = 0;
  Buffer copy_;
};

/// Everything that one problem reads and writes, on a device.
class DeviceOperands {
 public:
  DeviceOperands(Inputs& inputs, Tensor& y, Device device);

  /// An address for each factor's values; none for the gradient of one factor.
  [[nodiscard]] std::vector<const void*> values() const;
  /// Allocates what a run of a plan that keeps its values needs besides.
  void make_workspace(const Plan& plan);
  [[nodiscard]] Operands operands() const noexcept;
  /// Bytes of the device's memory that a run reads and writes, weights aside.
  [[nodiscard]] std::size_t bytes() const noexcept;

  /// Makes y all NaN, there and on the host.
  void clear_output();
  /// Waits for the default stream and brings y to the host.
  void fetch_output() { y_.download(); }

 private:
  Tensor& host_y_;
  std::vector<Mirror> values_;
  Mirror x_;
  Mirror g_;
  Mirror bias_;
  Mirror y_;
  Buffer workspace_;
};

}  // namespace kronsparse::cli
