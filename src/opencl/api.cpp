#include "opencl/api.hpp"

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <utility>

#include "core/message.hpp"
#include "kronsparse/error.hpp"

namespace kronsparse::opencl {
namespace {

struct Loaded {
  Api functions{};
  bool is_complete = false;
  std::string problem = {};
};

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

/// The first function that the library lacks, or null.
const char* find_all(void* library, Api& api) {
#define KRONSPARSE_FIND(member, name) \
  if (!find(library, #name, api.member)) return #name
  KRONSPARSE_FIND(get_platform_ids, clGetPlatformIDs);
  KRONSPARSE_FIND(get_platform_info, clGetPlatformInfo);
  KRONSPARSE_FIND(get_device_ids, clGetDeviceIDs);
  KRONSPARSE_FIND(get_device_info, clGetDeviceInfo);
  KRONSPARSE_FIND(create_context, clCreateContext);
  KRONSPARSE_FIND(retain_context, clRetainContext);
  KRONSPARSE_FIND(get_context_info, clGetContextInfo);
  KRONSPARSE_FIND(create_command_queue, clCreateCommandQueue);
  KRONSPARSE_FIND(get_command_queue_info, clGetCommandQueueInfo);
  KRONSPARSE_FIND(create_buffer, clCreateBuffer);
  KRONSPARSE_FIND(retain_mem_object, clRetainMemObject);
  KRONSPARSE_FIND(release_mem_object, clReleaseMemObject);
  KRONSPARSE_FIND(get_mem_object_info, clGetMemObjectInfo);
  KRONSPARSE_FIND(enqueue_read_buffer, clEnqueueReadBuffer);
  KRONSPARSE_FIND(enqueue_write_buffer, clEnqueueWriteBuffer);
  KRONSPARSE_FIND(enqueue_copy_buffer, clEnqueueCopyBuffer);
  KRONSPARSE_FIND(enqueue_fill_buffer, clEnqueueFillBuffer);
  KRONSPARSE_FIND(enqueue_migrate_mem_objects, clEnqueueMigrateMemObjects);
  KRONSPARSE_FIND(enqueue_marker, clEnqueueMarkerWithWaitList);
  KRONSPARSE_FIND(wait_for_events, clWaitForEvents);
  KRONSPARSE_FIND(release_event, clReleaseEvent);
  KRONSPARSE_FIND(get_event_profiling_info, clGetEventProfilingInfo);
  KRONSPARSE_FIND(flush, clFlush);
  KRONSPARSE_FIND(finish, clFinish);
  KRONSPARSE_FIND(create_program_with_source, clCreateProgramWithSource);
  KRONSPARSE_FIND(create_program_with_binary, clCreateProgramWithBinary);
  KRONSPARSE_FIND(build_program, clBuildProgram);
  KRONSPARSE_FIND(get_program_build_info, clGetProgramBuildInfo);
  KRONSPARSE_FIND(get_program_info, clGetProgramInfo);
  KRONSPARSE_FIND(release_program, clReleaseProgram);
  KRONSPARSE_FIND(create_kernel, clCreateKernel);
  KRONSPARSE_FIND(release_kernel, clReleaseKernel);
  KRONSPARSE_FIND(set_kernel_arg, clSetKernelArg);
  KRONSPARSE_FIND(get_kernel_work_group_info, clGetKernelWorkGroupInfo);
  KRONSPARSE_FIND(enqueue_kernel, clEnqueueNDRangeKernel);
#undef KRONSPARSE_FIND
  return nullptr;
}

const Loaded& loaded() {
  static const Loaded result = [] {
    Loaded found;
    // The variable is for tests, and for loaders in unusual places.
    const char* given = std::getenv("KRONSPARSE_OPENCL_LIBRARY");
    const char* const name = given != nullptr ? given : "libOpenCL.so.1";
    void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* const why = dlerror();
      found.problem = message(
          "OpenCL's loader was not found ({}): install it (ocl-icd-libopencl1 on Debian and Ubuntu) and a "
          "driver "
          "(pocl-opencl-icd for CPUs, the GPU vendor's own for GPUs)",
          why == nullptr ? name : why);
      return found;
    }
    if (const char* const lacking = find_all(library, found.functions)) {
      found.problem = message("{} has no {}: OpenCL 1.2 or newer is needed", name, lacking);
      return found;
    }
    found.is_complete = true;
    return found;
  }();
  return result;
}

}  // namespace

const Api* find_api() { return loaded().is_complete ? &loaded().functions : nullptr; }

const std::string& why_no_api() { return loaded().problem; }

const Api& api() { return loaded().functions; }

std::string status_name(cl_int status) {
  static constexpr std::array<std::pair<cl_int, std::string_view>, 22> names = {{
      {CL_DEVICE_NOT_FOUND, "CL_DEVICE_NOT_FOUND"},
      {CL_DEVICE_NOT_AVAILABLE, "CL_DEVICE_NOT_AVAILABLE"},
      {CL_COMPILER_NOT_AVAILABLE, "CL_COMPILER_NOT_AVAILABLE"},
      {CL_MEM_OBJECT_ALLOCATION_FAILURE, "CL_MEM_OBJECT_ALLOCATION_FAILURE"},
      {CL_OUT_OF_RESOURCES, "CL_OUT_OF_RESOURCES"},
      {CL_OUT_OF_HOST_MEMORY, "CL_OUT_OF_HOST_MEMORY"},
      {CL_PROFILING_INFO_NOT_AVAILABLE, "CL_PROFILING_INFO_NOT_AVAILABLE"},
      {CL_BUILD_PROGRAM_FAILURE, "CL_BUILD_PROGRAM_FAILURE"},
      {CL_INVALID_VALUE, "CL_INVALID_VALUE"},
      {CL_INVALID_PLATFORM, "CL_INVALID_PLATFORM"},
      {CL_INVALID_DEVICE, "CL_INVALID_DEVICE"},
      {CL_INVALID_CONTEXT, "CL_INVALID_CONTEXT"},
      {CL_INVALID_COMMAND_QUEUE, "CL_INVALID_COMMAND_QUEUE"},
      {CL_INVALID_MEM_OBJECT, "CL_INVALID_MEM_OBJECT"},
      {CL_INVALID_BINARY, "CL_INVALID_BINARY"},
      {CL_INVALID_BUILD_OPTIONS, "CL_INVALID_BUILD_OPTIONS"},
      {CL_INVALID_KERNEL_NAME, "CL_INVALID_KERNEL_NAME"},
      {CL_INVALID_KERNEL_ARGS, "CL_INVALID_KERNEL_ARGS"},
      {CL_INVALID_WORK_GROUP_SIZE, "CL_INVALID_WORK_GROUP_SIZE"},
      {CL_INVALID_BUFFER_SIZE, "CL_INVALID_BUFFER_SIZE"},
      {CL_INVALID_OPERATION, "CL_INVALID_OPERATION"},
      {-1001, "CL_PLATFORM_NOT_FOUND_KHR"},
  }};
  for (const auto& [number, name] : names)
    if (number == status) return std::string(name);
  return message("status {}", status);
}

void check(cl_int status, std::string_view action) {
  if (status == CL_SUCCESS) return;
  const bool is_memory = status == CL_MEM_OBJECT_ALLOCATION_FAILURE || status == CL_OUT_OF_HOST_MEMORY;
  throw Error(is_memory ? ErrorCode::out_of_memory : ErrorCode::device,
              message("opencl: {}: {}", action, status_name(status)));
}

}  // namespace kronsparse::opencl
