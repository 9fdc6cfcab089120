#include "mirror.hpp"

namespace kronsparse::cli {

Mirror::Mirror(std::span<std::byte> memory, std::size_t offset, Device device)
    : host_(memory), offset_(offset) {
  if (device.backend == Backend::cpu || memory.empty()) return;
  copy_ = Buffer(memory.size(), device);
  upload();
}

void* Mirror::data() const noexcept {
  if (host_.empty()) return nullptr;
  std::byte* begin = is_copy() ? static_cast<std::byte*>(copy_.data()) : host_.data();
  return begin + offset_;
}

void Mirror::upload() {
  if (is_copy()) copy_.copy_from_host(host_.data(), host_.size());
}

void Mirror::download() {
  if (is_copy()) copy_.copy_to_host(host_.data(), host_.size());
}

DeviceOperands::DeviceOperands(Inputs& inputs, Tensor& y, Device device)
    : host_y_(y),
      values_(inputs.values, device),
      x_(inputs.x, device),
      g_(inputs.g, device),
      bias_(inputs.bias, device),
      y_(y, device) {}

Operands DeviceOperands::operands() const noexcept {
  return {.x = x_.data(), .y = y_.data(), .bias = bias_.data(), .g = g_.data()};
}

std::size_t DeviceOperands::bytes() const noexcept {
  return x_.bytes() + g_.bytes() + bias_.bytes() + y_.bytes();
}

void DeviceOperands::clear_output() {
  host_y_.clear();
  y_.upload();
}

}  // namespace kronsparse::cli
