// OpenCL's functions, found in its loader (libOpenCL) when they are first asked for: the library is built
// with OpenCL's headers alone, and runs on machines without OpenCL.
#pragma once

#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>

#include <string>
#include <string_view>

namespace kronsparse::opencl {

struct Api {
  decltype(&clGetPlatformIDs) get_platform_ids;
  decltype(&clGetPlatformInfo) get_platform_info;
  decltype(&clGetDeviceIDs) get_device_ids;
  decltype(&clGetDeviceInfo) get_device_info;
  decltype(&clCreateContext) create_context;
  decltype(&clRetainContext) retain_context;
  decltype(&clGetContextInfo) get_context_info;
  decltype(&clCreateCommandQueue) create_command_queue;
  decltype(&clGetCommandQueueInfo) get_command_queue_info;
  decltype(&clCreateBuffer) create_buffer;
  decltype(&clRetainMemObject) retain_mem_object;
  decltype(&clReleaseMemObject) release_mem_object;
  decltype(&clGetMemObjectInfo) get_mem_object_info;
  decltype(&clEnqueueReadBuffer) enqueue_read_buffer;
  decltype(&clEnqueueWriteBuffer) enqueue_write_buffer;
  decltype(&clEnqueueCopyBuffer) enqueue_copy_buffer;
  decltype(&clEnqueueFillBuffer) enqueue_fill_buffer;
  decltype(&clEnqueueMigrateMemObjects) enqueue_migrate_mem_objects;
  decltype(&clEnqueueMarkerWithWaitList) enqueue_marker;
  decltype(&clWaitForEvents) wait_for_events;
  decltype(&clReleaseEvent) release_event;
  decltype(&clGetEventProfilingInfo) get_event_profiling_info;
  decltype(&clFlush) flush;
  decltype(&clFinish) finish;
  decltype(&clCreateProgramWithSource) create_program_with_source;
  decltype(&clCreateProgramWithBinary) create_program_with_binary;
  decltype(&clBuildProgram) build_program;
  decltype(&clGetProgramBuildInfo) get_program_build_info;
  decltype(&clGetProgramInfo) get_program_info;
  decltype(&clReleaseProgram) release_program;
  decltype(&clCreateKernel) create_kernel;
  decltype(&clReleaseKernel) release_kernel;
  decltype(&clSetKernelArg) set_kernel_arg;
  decltype(&clGetKernelWorkGroupInfo) get_kernel_work_group_info;
  decltype(&clEnqueueNDRangeKernel) enqueue_kernel;
};

/// The functions, or null where there is no loader or one without them all (OpenCL 1.2 is needed).
[[nodiscard]] const Api* find_api();
/// Why find_api() is null: what was looked for, and what to install.
[[nodiscard]] const std::string& why_no_api();
/// The functions, where a device was found and they are known to be there.
[[nodiscard]] const Api& api();

/// "CL_OUT_OF_RESOURCES" for -5; the number for what is not known.
[[nodiscard]] std::string status_name(cl_int status);
/// Throws Error out_of_memory or device, with what was attempted and what OpenCL says of it.
void check(cl_int status, std::string_view action);

}  // namespace kronsparse::opencl
