#include "opencl/memory.hpp"

#include <sys/mman.h>

#include <map>
#include <mutex>
#include <shared_mutex>

#include "core/message.hpp"
#include "kronsparse/error.hpp"
#include "opencl/runtime.hpp"

namespace kronsparse::opencl {
namespace {

struct Range {
  cl_mem buffer;
  std::size_t bytes;
  int device;
  bool is_given;  ///< by the caller
};

/// Buffers by the first address of their ranges.
struct Ranges {
  std::shared_mutex mutex = {};
  std::map<std::uintptr_t, Range> by_address = {};
};

Ranges& ranges() {
  static Ranges& all = *new Ranges;  // never destroyed: buffers of static storage may be gone later
  return all;
}

std::uintptr_t number(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

/// Takes over the buffer, also when it fails.
void* add_range(const Range& range) {
  void* const base =
      mmap(nullptr, range.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    static_cast<void>(api().release_mem_object(range.buffer));
    throw Error(ErrorCode::out_of_memory, message("buffer: no addresses are left for {} bytes of opencl:{}",
                                                  range.bytes, range.device));
  }
  Ranges& all = ranges();
  const std::unique_lock changing(all.mutex);
  all.by_address.emplace(number(base), range);
  return base;
}

void remove_range(std::map<std::uintptr_t, Range>::iterator found) {
  static_cast<void>(api().release_mem_object(found->second.buffer));
  munmap(reinterpret_cast<void*>(found->first), found->second.bytes);  // NOLINT(performance-no-int-to-ptr)
  ranges().by_address.erase(found);
}

void* allocate(Device device, std::size_t bytes) {
  DeviceState& state = state_of(device);
  if (bytes > state.facts().buffer_bytes)
    throw Error(
        ErrorCode::out_of_memory,
        message("buffer: {} bytes given, {} has at most {} in one buffer (CL_DEVICE_MAX_MEM_ALLOC_SIZE)",
                bytes, device.to_string(), state.facts().buffer_bytes));
  const std::string action = message("allocating {} bytes of {}", bytes, device.to_string());
  cl_int status = CL_SUCCESS;
  cl_mem buffer = api().create_buffer(state.context(), CL_MEM_READ_WRITE, bytes, nullptr, &status);
  check(status, action);
  // Drivers take the memory when it is first used; what is missing must be said now.
  cl_command_queue queue = state.queue(nullptr);
  status = api().enqueue_migrate_mem_objects(queue, 1, &buffer, CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED, 0,
                                             nullptr, nullptr);
  if (status == CL_SUCCESS) status = api().finish(queue);
  if (status != CL_SUCCESS) static_cast<void>(api().release_mem_object(buffer));
  if (status == CL_OUT_OF_RESOURCES) status = CL_MEM_OBJECT_ALLOCATION_FAILURE;
  check(status, action);
  return add_range({buffer, bytes, device.index, false});
}

void release(Device, void* data) noexcept {
  Ranges& all = ranges();
  const std::unique_lock changing(all.mutex);
  if (const auto found = all.by_address.find(number(data)); found != all.by_address.end())
    remove_range(found);
}

void wait_for(cl_command_queue queue, Device device) {
  check(api().finish(queue), message("waiting for a queue of {}", device.to_string()));
}

void upload(Device device, void* to, const void* from, std::size_t bytes, Stream stream) {
  if (bytes == 0) return;
  const Placed place = place_of(device, to, bytes, "to");
  check(api().enqueue_write_buffer(state_of(device).queue(stream), place.buffer, CL_TRUE, place.offset, bytes,
                                   from, 0, nullptr, nullptr),
        message("copying {} bytes to {}", bytes, device.to_string()));
}

void download(Device device, void* to, const void* from, std::size_t bytes, Stream stream) {
  if (bytes == 0) return;
  const Placed place = place_of(device, from, bytes, "from");
  check(api().enqueue_read_buffer(state_of(device).queue(stream), place.buffer, CL_TRUE, place.offset, bytes,
                                  to, 0, nullptr, nullptr),
        message("copying {} bytes from {}", bytes, device.to_string()));
}

void copy(Device device, void* to, const void* from, std::size_t bytes, Stream stream) {
  if (bytes == 0) return;
  const Placed source = place_of(device, from, bytes, "from");
  const Placed target = place_of(device, to, bytes, "to");
  check(api().enqueue_copy_buffer(state_of(device).queue(stream), source.buffer, target.buffer, source.offset,
                                  target.offset, bytes, 0, nullptr, nullptr),
        message("copying {} bytes within {}", bytes, device.to_string()));
}

void clear(Device device, void* data, std::size_t bytes, Stream stream) {
  if (bytes == 0) return;
  const Placed place = place_of(device, data, bytes, "data");
  const cl_uchar zero = 0;
  check(api().enqueue_fill_buffer(state_of(device).queue(stream), place.buffer, &zero, 1, place.offset, bytes,
                                  0, nullptr, nullptr),
        message("clearing {} bytes of {}", bytes, device.to_string()));
}

void synchronise(Device device, Stream stream) { wait_for(state_of(device).queue(stream), device); }

void drop_mark(Device, void* mark) noexcept {
  static_cast<void>(api().release_event(static_cast<cl_event>(mark)));
}

void* make_mark(Device device, Stream stream) {
  cl_event event = nullptr;
  cl_command_queue queue = state_of(device).queue(stream);
  check(api().enqueue_marker(queue, 0, nullptr, &event),
        message("marking a queue of {}", device.to_string()));
  // Work that nobody waits for may else stay in the host's memory.
  check(api().flush(queue), message("flushing a queue of {}", device.to_string()));
  return event;
}

double seconds_between(Device device, void* first, void* second) {
  const std::string action =
      message("measuring time on {} (its queue must have CL_QUEUE_PROFILING_ENABLE)", device.to_string());
  const auto end_of = [&](void* mark) {
    auto* event = static_cast<cl_event>(mark);
    check(api().wait_for_events(1, &event), action);
    cl_ulong nanoseconds = 0;
    check(api().get_event_profiling_info(event, CL_PROFILING_COMMAND_END, sizeof nanoseconds, &nanoseconds,
                                         nullptr),
          action);
    return nanoseconds;
  };
  const cl_ulong begin = end_of(first);
  return 1e-9 * static_cast<double>(end_of(second) - begin);
}

}  // namespace

Placed place_of(Device device, const void* address, std::size_t bytes, std::string_view argument) {
  if (address == nullptr) return {};
  Ranges& all = ranges();
  const std::shared_lock reading(all.mutex);
  auto found = all.by_address.upper_bound(number(address));
  if (found != all.by_address.begin()) --found;
  const bool is_inside = found != all.by_address.end() && number(address) >= found->first &&
                         number(address) - found->first < found->second.bytes;
  if (!is_inside || found->second.device != device.index)
    throw Error(ErrorCode::bad_pointer,
                message("{}: address {} given, must be memory of {}: of a Buffer, or from opencl_address()",
                        argument, address, device.to_string()));
  const std::size_t offset = number(address) - found->first;
  if (bytes > found->second.bytes - offset)
    throw Error(ErrorCode::bad_pointer,
                message("{}: {} bytes of a buffer lie at the address given, {} are needed", argument,
                        found->second.bytes - offset, bytes));
  return {found->second.buffer, offset};
}

void* address_of(Device device, cl_mem buffer) {
  DeviceState& state = state_of(device);
  std::size_t bytes = 0;
  cl_context context = nullptr;
  check(api().get_mem_object_info(buffer, CL_MEM_SIZE, sizeof bytes, &bytes, nullptr),
        "buffer: asking a buffer for its size");
  check(api().get_mem_object_info(buffer, CL_MEM_CONTEXT, sizeof(cl_context), static_cast<void*>(&context),
                                  nullptr),
        "buffer: asking a buffer for its context");
  if (context != state.context())
    throw Error(ErrorCode::invalid_argument,
                message("buffer: one of another context given, must be of that of {}", device.to_string()));
  check(api().retain_mem_object(buffer), "buffer: retaining a buffer");
  return add_range({buffer, bytes, device.index, true});
}

void forget(Device device, void* address) {
  Ranges& all = ranges();
  const std::unique_lock changing(all.mutex);
  const auto found = all.by_address.find(number(address));
  if (found == all.by_address.end() || !found->second.is_given || found->second.device != device.index)
    throw Error(ErrorCode::bad_pointer, message("address: {} given, must be one from opencl_address() for {}",
                                                address, device.to_string()));
  remove_range(found);
}

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
          .drop_mark = drop_mark};
}

}  // namespace kronsparse::opencl
