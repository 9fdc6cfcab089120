#include "core/message.hpp"
#include "kronsparse/error.hpp"
#include "kronsparse/opencl.hpp"
#include "opencl/memory.hpp"
#include "opencl/runtime.hpp"

namespace kronsparse {
namespace {

void check_backend(Device device) {
  if (device.backend != Backend::opencl)
    throw Error(ErrorCode::invalid_argument,
                message("device: {} given, must be one of OpenCL", device.to_string()));
}

void check_not_null(std::string_view argument, const void* handle) {
  if (handle == nullptr) throw Error(ErrorCode::bad_pointer, message("{}: null given", argument));
}

}  // namespace

OpenclHandles opencl_handles(Device device) {
  check_backend(device);
  opencl::DeviceState& state = opencl::state_of(device);
  return {.context = state.context(), .device_id = state.id(), .queue = state.queue(nullptr)};
}

Device opencl_device(void* context, void* device_id) {
  check_not_null("context", context);
  check_not_null("device_id", device_id);
  return opencl::device_of_context(static_cast<cl_context>(context), static_cast<cl_device_id>(device_id));
}

void* opencl_address(Device device, void* buffer) {
  check_backend(device);
  check_not_null("buffer", buffer);
  return opencl::address_of(device, static_cast<cl_mem>(buffer));
}

void opencl_forget(Device device, void* address) {
  check_backend(device);
  opencl::forget(device, address);
}

}  // namespace kronsparse
