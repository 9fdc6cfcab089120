// OpenCL's own objects beside ours: contexts, queues and buffers of the caller's, or ours for the caller.
//
// An OpenCL buffer has no address, and this library computes with addresses. So each buffer has a range of
// addresses that stand for its bytes: Buffer::data() of an OpenCL device is the first of them, and
// opencl_address() gives them to a cl_mem of the caller's. Offsets are added to them as to any address;
// whatever is read and written must lie in one buffer. They cannot be dereferenced. Two addresses of one
// cl_mem, or of buffers that share memory, are not known to overlap.
//
// Streams are cl_command_queues, in order. Queues and buffers must be of the device's context: take ours from
// opencl_handles(), or bring your own with opencl_device(). Handles are passed as void*, so that this header
// needs none of OpenCL's.
//
// All of these are an Error device in a build without OpenCL.
#pragma once

#include "kronsparse/device.hpp"
#include "kronsparse/export.h"

namespace kronsparse {

/// OpenCL's names of a device: cl_context, cl_device_id, and the cl_command_queue that stands for a null
/// Stream. They live as long as the process, and belong to the library.
struct OpenclHandles {
  void* context;
  void* device_id;
  void* queue;
};
[[nodiscard]] KRONSPARSE_API OpenclHandles opencl_handles(Device device);

/// A device that works in a context of the caller's, which is retained for good. The same context and
/// cl_device_id give the same device. Error invalid_argument where the context does not have the
/// cl_device_id.
///
///     using namespace kronsparse;
///     if (why_unusable({Backend::opencl, 0}).empty()) {
///       const OpenclHandles handles = opencl_handles({Backend::opencl, 0});
///       const Device device = opencl_device(handles.context, handles.device_id);  // of any context of yours
///       assert(device == opencl_device(handles.context, handles.device_id));
///       const Buffer buffer(1000, device);
///       assert(buffer.data() != nullptr);
///     }
[[nodiscard]] KRONSPARSE_API Device opencl_device(void* context, void* device_id);

/// An address that stands for the beginning of a cl_mem, which is retained until opencl_forget(). Error
/// invalid_argument where it is of another context than the device's.
[[nodiscard]] KRONSPARSE_API void* opencl_address(Device device, void* buffer);

/// Gives an address of opencl_address() up, once no run needs it any more. Error bad_pointer where it is
/// none.
KRONSPARSE_API void opencl_forget(Device device, void* address);

}  // namespace kronsparse
