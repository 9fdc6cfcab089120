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
    : host_y_(y), x_(inputs.x, device), g_(inputs.g, device), bias_(inputs.bias, device), y_(y, device) {
  for (Tensor& one : inputs.values) values_.emplace_back(one, device);
}

std::vector<const void*> DeviceOperands::values() const {
  std::vector<const void*> all;
  for (const Mirror& one : values_) all.push_back(one.data());
  return all;
}

void DeviceOperands::make_workspace(const Plan& plan) {
  const Problem& problem = plan.problem();
  const Batch batch{problem.batch, problem.cols_stride, problem.rows_stride};
  workspace_ = Buffer(plan.workspace_bytes(batch, operands()), plan.device());
}

Operands DeviceOperands::operands() const noexcept {
  return {.x = x_.data(),
          .y = y_.data(),
          .bias = bias_.data(),
          .g = g_.data(),
          .workspace = workspace_.data(),
          .workspace_bytes = workspace_.bytes()};
}

std::size_t DeviceOperands::bytes() const noexcept {
  return x_.bytes() + g_.bytes() + bias_.bytes() + y_.bytes() + workspace_.bytes();
}

void DeviceOperands::clear_output() {
  host_y_.clear();
  y_.upload();
}

}  // namespace kronsparse::cli
