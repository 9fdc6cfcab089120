#include "opencl/runtime.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <deque>
#include <utility>

#include "core/message.hpp"
#include "kronsparse/error.hpp"

namespace kronsparse::opencl {
namespace {

template <class T>
T info(cl_device_id id, cl_device_info which, T otherwise = {}) {
  T value{};
  return api().get_device_info(id, which, sizeof value, &value, nullptr) == CL_SUCCESS ? value : otherwise;
}

std::string without_end(std::string text) {
  while (!text.empty() && (text.back() == '\0' || text.back() == ' ')) text.pop_back();
  return text;
}

std::string text_info(cl_device_id id, cl_device_info which) {
  std::size_t bytes = 0;
  if (api().get_device_info(id, which, 0, nullptr, &bytes) != CL_SUCCESS) return {};
  std::string text(bytes, '\0');
  if (api().get_device_info(id, which, bytes, text.data(), nullptr) != CL_SUCCESS) return {};
  return without_end(std::move(text));
}

std::string text_info(cl_platform_id id, cl_platform_info which) {
  std::size_t bytes = 0;
  if (api().get_platform_info(id, which, 0, nullptr, &bytes) != CL_SUCCESS) return {};
  std::string text(bytes, '\0');
  if (api().get_platform_info(id, which, bytes, text.data(), nullptr) != CL_SUCCESS) return {};
  return without_end(std::move(text));
}

/// Reasons that a device is of no use to us.
std::string misfit(cl_device_id id) {
  const std::string version = text_info(id, CL_DEVICE_VERSION);
  int major = 0;
  int minor = 0;
  if (std::sscanf(version.c_str(), "OpenCL %d.%d", &major, &minor) != 2 || major * 10 + minor < 12)
    return message("it has '{}', OpenCL 1.2 or newer is needed", version);
  if (info<cl_bool>(id, CL_DEVICE_AVAILABLE) == CL_FALSE) return "its driver says that it is not available";
  if (info<cl_bool>(id, CL_DEVICE_COMPILER_AVAILABLE) == CL_FALSE) return "its driver has no compiler";
  if (info<cl_bool>(id, CL_DEVICE_ENDIAN_LITTLE) == CL_FALSE) return "it is not little-endian";
  if (info<cl_uint>(id, CL_DEVICE_ADDRESS_BITS) != 64)
    return message("it has addresses of {} bits, 64 are needed", info<cl_uint>(id, CL_DEVICE_ADDRESS_BITS));
  return {};
}

DeviceFacts read_facts(int index, cl_platform_id platform, cl_device_id id) {
  DeviceFacts facts;
  facts.index = index;
  facts.name = text_info(id, CL_DEVICE_NAME);
  facts.platform = text_info(platform, CL_PLATFORM_NAME);
  facts.version = text_info(platform, CL_PLATFORM_VERSION) + "; " + text_info(id, CL_DEVICE_VERSION) + "; " +
                  text_info(id, CL_DRIVER_VERSION);
  facts.is_cpu = (info<cl_device_type>(id, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CPU) != 0;
  facts.compute_units = std::max(static_cast<int>(info<cl_uint>(id, CL_DEVICE_MAX_COMPUTE_UNITS)), 1);
  // Some drivers do not know their clock: cost models then still compare.
  facts.clock_hz = std::max(1e6 * info<cl_uint>(id, CL_DEVICE_MAX_CLOCK_FREQUENCY), 1e9);
  facts.memory_bytes = info<cl_ulong>(id, CL_DEVICE_GLOBAL_MEM_SIZE);
  facts.buffer_bytes = info<cl_ulong>(id, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
  facts.cache_bytes = info<cl_ulong>(id, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE);
  facts.local_bytes = info<cl_ulong>(id, CL_DEVICE_LOCAL_MEM_SIZE);
  std::array<std::size_t, 3> items{1, 1, 1};
  static_cast<void>(
      api().get_device_info(id, CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof items, items.data(), nullptr));
  facts.work_group =
      static_cast<int>(std::min(info<std::size_t>(id, CL_DEVICE_MAX_WORK_GROUP_SIZE, 1), items[0]));
  facts.vector_bytes = static_cast<int>(
      std::clamp<cl_uint>(info<cl_uint>(id, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT), 1, 16) * 4);
  facts.has_f64 = info<cl_device_fp_config>(id, CL_DEVICE_DOUBLE_FP_CONFIG) != 0;
  facts.unusable = misfit(id);
  return facts;
}

struct Found {
  std::mutex mutex = {};  ///< of the list: devices of callers' contexts join it
  std::deque<DeviceState> devices = {};
  std::string reason = {};  ///< why there are none
};

/// Looking for devices must not fail: a machine without them still has its CPU.
void find_devices(Found& found) {
  if (find_api() == nullptr) {
    found.reason = why_no_api();
    return;
  }
  cl_uint platform_count = 0;
  const cl_int status = api().get_platform_ids(0, nullptr, &platform_count);
  std::vector<cl_platform_id> platforms(platform_count);
  if (platform_count == 0 ||
      api().get_platform_ids(platform_count, platforms.data(), nullptr) != CL_SUCCESS) {
    found.reason = message(
        "OpenCL's loader found no driver ({}): install one (pocl-opencl-icd for CPUs, the GPU vendor's own "
        "for GPUs)",
        status_name(status));
    return;
  }
  std::string names;
  for (cl_platform_id platform : platforms) {
    names += (names.empty() ? "" : ", ") + text_info(platform, CL_PLATFORM_NAME);
    cl_uint count = 0;
    if (api().get_device_ids(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &count) != CL_SUCCESS) continue;
    std::vector<cl_device_id> ids(count);
    if (api().get_device_ids(platform, CL_DEVICE_TYPE_ALL, count, ids.data(), nullptr) != CL_SUCCESS)
      continue;
    for (cl_device_id id : ids)
      found.devices.emplace_back(read_facts(static_cast<int>(found.devices.size()), platform, id), id);
  }
  if (found.devices.empty()) found.reason = message("OpenCL's drivers ({}) found no device", names);
}

Found& found() {
  // Never destroyed: plans and buffers of static storage may be gone later.
  static Found& once = *[] {
    auto* made = new Found;
    find_devices(*made);
    return made;
  }();
  return once;
}

}  // namespace

DeviceState::DeviceState(DeviceFacts facts, cl_device_id id, cl_context context)
    : facts_(std::move(facts)), id_(id), is_given_(true), context_(context) {
  check(api().retain_context(context), "retaining the context given");
}

void DeviceState::open() {
  cl_int status = CL_SUCCESS;
  if (context_ == nullptr) {
    context_ = api().create_context(nullptr, 1, &id_, nullptr, nullptr, &status);
    check(status, message("making a context of opencl:{}", facts_.index));
  }
  queue_ = api().create_command_queue(context_, id_, CL_QUEUE_PROFILING_ENABLE, &status);
  check(status, message("making a queue of opencl:{}", facts_.index));
}

cl_context DeviceState::context() {
  std::call_once(opened_, [this] { open(); });
  return context_;
}

cl_command_queue DeviceState::queue(Stream stream) {
  std::call_once(opened_, [this] { open(); });
  if (stream == nullptr) return queue_;
  auto* const given = static_cast<cl_command_queue>(stream);
  cl_context context = nullptr;
  cl_device_id id = nullptr;
  cl_command_queue_properties properties = 0;
  check(api().get_command_queue_info(given, CL_QUEUE_CONTEXT, sizeof(cl_context),
                                     static_cast<void*>(&context), nullptr),
        "stream: asking a queue for its context");
  check(api().get_command_queue_info(given, CL_QUEUE_DEVICE, sizeof(cl_device_id), static_cast<void*>(&id),
                                     nullptr),
        "stream: asking a queue for its device");
  check(api().get_command_queue_info(given, CL_QUEUE_PROPERTIES, sizeof properties, &properties, nullptr),
        "stream: asking a queue for its properties");
  if (context != context_ || id != id_)
    throw Error(
        ErrorCode::invalid_argument,
        message("stream: a queue of another context or device given, must be of opencl:{}", facts_.index));
  if ((properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) != 0)
    throw Error(ErrorCode::invalid_argument, "stream: a queue out of order given, must be one in order");
  return given;
}

std::vector<DeviceFacts> all_devices() {
  Found& all = found();
  const std::lock_guard reading(all.mutex);
  if (!all.reason.empty()) return {};
  std::vector<DeviceFacts> facts;
  for (const DeviceState& state : all.devices) facts.push_back(state.facts());
  return facts;
}

DeviceState& state_of(Device device) {
  Found& all = found();
  const std::lock_guard reading(all.mutex);
  if (all.reason.empty() && device.index >= 0 && static_cast<std::size_t>(device.index) < all.devices.size())
    return all.devices[static_cast<std::size_t>(device.index)];
  throw Error(ErrorCode::device, message("device: there is no {}", device.to_string()));
}

DeviceFacts facts_of(Device device) { return state_of(device).facts(); }

std::string why_unusable(int index) {
  Found& all = found();
  const std::lock_guard reading(all.mutex);
  if (!all.reason.empty()) return all.reason;
  if (index < 0 || static_cast<std::size_t>(index) >= all.devices.size()) return {};
  const DeviceFacts& facts = all.devices[static_cast<std::size_t>(index)].facts();
  return facts.unusable.empty() ? "" : message("{} ({}): {}", facts.name, facts.platform, facts.unusable);
}

std::string to_string(const DeviceFacts& facts) {
  constexpr double kibibyte = 1024;
  const double memory = static_cast<double>(facts.memory_bytes) / (kibibyte * kibibyte * kibibyte);
  return message("{} ({}), {} compute units, {}{:.0f} KiB local memory", facts.name, facts.platform,
                 facts.compute_units, facts.is_cpu ? "" : message("{:.0f} GiB, ", memory),
                 static_cast<double>(facts.local_bytes) / kibibyte);
}

Device device_of_context(cl_context context, cl_device_id id) {
  Found& all = found();
  const std::lock_guard changing(all.mutex);
  if (!all.reason.empty()) throw Error(ErrorCode::device, message("context: {}", all.reason));
  cl_uint count = 0;
  check(api().get_context_info(context, CL_CONTEXT_NUM_DEVICES, sizeof count, &count, nullptr),
        "context: asking for its devices");
  std::vector<cl_device_id> ids(count);
  check(api().get_context_info(context, CL_CONTEXT_DEVICES, count * sizeof(cl_device_id),
                               static_cast<void*>(ids.data()), nullptr),
        "context: asking for its devices");
  if (std::ranges::find(ids, id) == ids.end())
    throw Error(ErrorCode::invalid_argument, "device: none of the context's devices given");
  const DeviceState* same = nullptr;
  for (DeviceState& state : all.devices) {
    if (state.id() != id) continue;
    if (same == nullptr) same = &state;
    if (state.is_given() && state.context() == context) return {Backend::opencl, state.facts().index};
  }
  if (same == nullptr)
    throw Error(ErrorCode::invalid_argument, "device: one that no driver of this machine lists");
  DeviceFacts facts = same->facts();
  facts.index = static_cast<int>(all.devices.size());
  all.devices.emplace_back(std::move(facts), id, context);
  return {Backend::opencl, all.devices.back().facts().index};
}

PretendedDevices::PretendedDevices(void (*change)(DeviceFacts&)) {
  Found& all = found();
  const std::lock_guard changing(all.mutex);
  for (DeviceState& state : all.devices) {
    real_.push_back(state.facts_);
    change(state.facts_);
  }
}

PretendedDevices::PretendedDevices(std::string reason_of_none) {
  Found& all = found();
  const std::lock_guard changing(all.mutex);
  for (const DeviceState& state : all.devices) real_.push_back(state.facts_);
  all.reason = std::move(reason_of_none);
}

PretendedDevices::~PretendedDevices() {
  Found& all = found();
  const std::lock_guard changing(all.mutex);
  for (std::size_t index = 0; index < real_.size(); ++index) all.devices[index].facts_ = real_[index];
  if (!all.devices.empty()) all.reason.clear();
}

}  // namespace kronsparse::opencl
