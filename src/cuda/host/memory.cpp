#include "cuda/host/memory.hpp"

#include "core/message.hpp"
#include "cuda/host/runtime.hpp"

namespace kronsparse::cuda {
namespace {

cudaStream_t stream_of(Stream stream) { return static_cast<cudaStream_t>(stream); }

void* allocate(Device device, std::size_t bytes) { return DeviceMemory(device.index, bytes).release(); }

void release(Device device, void* data) noexcept {
  const DeviceMemory freed_here = DeviceMemory::adopt(device.index, data);
}

void wait_for(Device device, Stream stream) {
  check(cudaStreamSynchronize(stream_of(stream)), message("waiting for a stream of {}", device.to_string()));
}

void transfer(Device device, void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
              Stream stream, std::string_view direction) {
  if (bytes == 0) return;
  const DeviceGuard guard(device.index);
  check(cudaMemcpyAsync(to, from, bytes, kind, stream_of(stream)),
        message("copying {} bytes {} {}", bytes, direction, device.to_string()));
}

void upload(Device device, void* to, const void* from, std::size_t bytes, Stream stream) {
  transfer(device, to, from, bytes, cudaMemcpyHostToDevice, stream, "to");
  const DeviceGuard guard(device.index);
  wait_for(device, stream);
}

void download(Device device, void* to, const void* from, std::size_t bytes, Stream stream) {
  transfer(device, to, from, bytes, cudaMemcpyDeviceToHost, stream, "from");
  const DeviceGuard guard(device.index);
  wait_for(device, stream);
}

void copy(Device device, void* to, const void* from, std::size_t bytes, Stream stream) {
  transfer(device, to, from, bytes, cudaMemcpyDeviceToDevice, stream, "within");
}

void clear(Device device, void* data, std::size_t bytes, Stream stream) {
  if (bytes == 0) return;
  const DeviceGuard guard(device.index);
  check(cudaMemsetAsync(data, 0, bytes, stream_of(stream)),
        message("clearing {} bytes of {}", bytes, device.to_string()));
}

void synchronise(Device device, Stream stream) {
  const DeviceGuard guard(device.index);
  wait_for(device, stream);
}

void drop_mark(Device, void* mark) noexcept {
  if (cudaEventDestroy(static_cast<cudaEvent_t>(mark)) != cudaSuccess) static_cast<void>(cudaGetLastError());
}

void* make_mark(Device device, Stream stream) {
  const DeviceGuard guard(device.index);
  cudaEvent_t event = nullptr;
  check(cudaEventCreate(&event), message("making an event of {}", device.to_string()));
  try {
    check(cudaEventRecord(event, stream_of(stream)), message("recording an event of {}", device.to_string()));
  } catch (...) {
    drop_mark(device, event);
    throw;
  }
  return event;
}

double seconds_between(Device device, void* first, void* second) {
  const DeviceGuard guard(device.index);
  const auto begin = static_cast<cudaEvent_t>(first);
  const auto end = static_cast<cudaEvent_t>(second);
  const std::string action = message("measuring time on {}", device.to_string());
  check(cudaEventSynchronize(begin), action);
  check(cudaEventSynchronize(end), action);
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, begin, end), action);
  return 1e-3 * static_cast<double>(milliseconds);
}

bool is_capturing(Device device, Stream stream) {
  const DeviceGuard guard(device.index);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t answer = cudaStreamIsCapturing(stream_of(stream), &status);
  if (answer ==
      cudaErrorStreamCaptureImplicit) {  // another stream captures; this is the default stream, which cannot
    static_cast<void>(cudaGetLastError());
    return false;
  }
  if (answer != cudaSuccess)  // the text is made for failures only: frozen layers ask at every call
    check(answer, message("asking what a stream of {} does", device.to_string()));
  return status == cudaStreamCaptureStatusActive;
}

/// The default stream waits for others, unless they were made not to be waited for: those can be recorded
/// without this being seen.
bool may_measure(Device device) {
  const DeviceGuard guard(device.index);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t answer = cudaStreamIsCapturing(cudaStreamLegacy, &status);
  if (answer != cudaSuccess) static_cast<void>(cudaGetLastError());
  return answer == cudaSuccess && status == cudaStreamCaptureStatusNone;
}

}  // namespace

MemoryOps memory_ops() {
  return {.allocate = allocate,
          .release = release,
          .upload = upload,
          .download = download,
          .copy = copy,
          .clear = clear,
          .synchronise = synchronise,
          .make_mark = make_mark,
          .seconds_between = seconds_between,
          .drop_mark = drop_mark,
          .is_capturing = is_capturing,
          .may_measure = may_measure};
}

}  // namespace kronsparse::cuda
