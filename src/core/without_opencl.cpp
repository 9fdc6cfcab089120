// include/kronsparse/opencl.hpp in a build without OpenCL.
#include "core/message.hpp"
#include "kronsparse/error.hpp"
#include "kronsparse/opencl.hpp"

namespace kronsparse {
namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorCode::device,
              "device: this build has no opencl backend; build where OpenCL's headers (CL/cl.h) are found");
}

}  // namespace

OpenclHandles opencl_handles(Device) { refuse(); }
Device opencl_device(void*, void*) { refuse(); }
void* opencl_address(Device, void*) { refuse(); }
void opencl_forget(Device, void*) { refuse(); }

}  // namespace kronsparse
