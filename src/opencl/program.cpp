#include "opencl/program.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <future>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "core/message.hpp"
#include "kronsparse/error.hpp"
#include "opencl/program_cache.hpp"
#include "opencl/runtime.hpp"
#include "opencl/sources.hpp"

namespace kronsparse::opencl {
namespace {

class Program {
 public:
  explicit Program(cl_program program) : program_(program) {}
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    if (program_ != nullptr) static_cast<void>(api().release_program(program_));
  }
  [[nodiscard]] cl_program get() const noexcept { return program_; }
  [[nodiscard]] cl_program release() noexcept { return std::exchange(program_, nullptr); }

 private:
  cl_program program_;
};

std::string source_text(Source source) {
  const std::string_view body = source == Source::private_memory ? sources::private_cl : sources::local_cl;
  return std::string(sources::element_cl) + std::string(sources::pack_cl) + std::string(body);
}

std::string build_log(cl_program program, cl_device_id id) {
  std::size_t bytes = 0;
  if (api().get_program_build_info(program, id, CL_PROGRAM_BUILD_LOG, 0, nullptr, &bytes) != CL_SUCCESS)
    return {};
  std::string log(bytes, '\0');
  if (api().get_program_build_info(program, id, CL_PROGRAM_BUILD_LOG, bytes, log.data(), nullptr) !=
      CL_SUCCESS)
    return {};
  while (!log.empty() && (log.back() == '\0' || log.back() == '\n')) log.pop_back();
  constexpr std::size_t most = 4000;  // the first error is what counts
  if (log.size() > most) log = log.substr(0, most) + "...";
  return log;
}

/// A program as the driver keeps it; empty where it does not say.
std::vector<unsigned char> binary_of(cl_program program) {
  std::size_t bytes = 0;
  if (api().get_program_info(program, CL_PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, nullptr) != CL_SUCCESS)
    return {};
  std::vector<unsigned char> binary(bytes);
  unsigned char* begin = binary.data();
  if (bytes == 0 || api().get_program_info(program, CL_PROGRAM_BINARIES, sizeof begin,
                                           static_cast<void*>(&begin), nullptr) != CL_SUCCESS)
    return {};
  return binary;
}

/// Null where the driver does not take it.
cl_program from_binary(DeviceState& state, const std::vector<unsigned char>& binary,
                       const std::string& options) {
  cl_device_id id = state.id();
  const std::size_t bytes = binary.size();
  const unsigned char* begin = binary.data();
  cl_int status = CL_SUCCESS;
  cl_int binary_status = CL_SUCCESS;
  Program program(
      api().create_program_with_binary(state.context(), 1, &id, &bytes, &begin, &binary_status, &status));
  if (status != CL_SUCCESS || binary_status != CL_SUCCESS) return nullptr;
  if (api().build_program(program.get(), 1, &id, options.c_str(), nullptr, nullptr) != CL_SUCCESS)
    return nullptr;
  return program.release();
}

cl_program from_source(DeviceState& state, const std::string& source, const std::string& options,
                       std::string_view purpose) {
  cl_device_id id = state.id();
  const char* text = source.c_str();
  const std::size_t length = source.size();
  cl_int status = CL_SUCCESS;
  Program program(api().create_program_with_source(state.context(), 1, &text, &length, &status));
  check(status, message("reading the source of a kernel for {}", purpose));
  status = api().build_program(program.get(), 1, &id, options.c_str(), nullptr, nullptr);
  if (status != CL_SUCCESS)
    throw Error(ErrorCode::device,
                message("opencl: building a kernel for {} on {} ({}) with '{}' failed: {}\n{}", purpose,
                        state.facts().name, state.facts().platform, options, status_name(status),
                        build_log(program.get(), id)));
  return program.release();
}

using Key = std::tuple<int, Source, std::string>;

using Building = std::shared_future<std::shared_ptr<const Kernels>>;

struct Programs {
  std::mutex mutex = {};
  std::map<Key, Building> kernels = {};  ///< those that are built, and those that a thread is building
  ProgramCounts counts = {};
};

Programs& programs() {
  static Programs& all = *new Programs;  // kernels are never released: the driver may be gone before us
  return all;
}

void count(int ProgramCounts::*which) {
  Programs& all = programs();
  const std::lock_guard counting(all.mutex);
  ++(all.counts.*which);
}

/// Work-items of a work-group that the driver has registers for; the device's limit where it does not say.
int largest_group_of(cl_kernel kernel, const DeviceState& state) {
  std::size_t most = 0;
  if (api().get_kernel_work_group_info(kernel, state.id(), CL_KERNEL_WORK_GROUP_SIZE, sizeof most, &most,
                                       nullptr) != CL_SUCCESS)
    return state.facts().work_group;
  return std::min(static_cast<int>(most), state.facts().kernel_group);
}

/// Null where the program lacks them.
std::shared_ptr<const Kernels> kernels_in(const Program& program, const DeviceState& state, int group) {
  if (program.get() == nullptr) return nullptr;
  cl_int status = CL_SUCCESS;
  cl_kernel contract = api().create_kernel(program.get(), "contract", &status);
  if (status != CL_SUCCESS) return nullptr;
  cl_kernel pack = api().create_kernel(program.get(), "pack", &status);
  if (status == CL_SUCCESS)
    return std::make_shared<const Kernels>(contract, pack, group, largest_group_of(contract, state));
  static_cast<void>(api().release_kernel(contract));
  return nullptr;
}

std::shared_ptr<const Kernels> build(DeviceState& state, Source source, const std::string& options, int group,
                                     std::string_view purpose) {
  const std::string text = source_text(source);
  const DeviceFacts& facts = state.facts();
  const std::string key =
      message("{}\n{}\n{}\n{}\n{}", facts.name, facts.platform, facts.version, options, text);
  if (const auto kept = read_cached(key)) {
    if (auto kernels = kernels_in(Program(from_binary(state, *kept, options)), state, group)) {
      count(&ProgramCounts::read);
      return kernels;
    }
  }
  const Program program(from_source(state, text, options, purpose));
  count(&ProgramCounts::compiled);
  const std::vector<unsigned char> binary = binary_of(program.get());
  if (!binary.empty()) write_cached(key, binary);
  auto kernels = kernels_in(program, state, group);
  if (kernels == nullptr)
    throw Error(ErrorCode::device, message("opencl: {} lost the kernels of {}", facts.name, purpose));
  return kernels;
}

}  // namespace

void Kernel::set(cl_uint index, const void* argument, std::size_t bytes) const {
  check(api().set_kernel_arg(kernel_, index, bytes, argument), "setting an argument of a kernel");
}

void Kernel::launch(cl_command_queue queue, std::size_t groups) const {
  const auto local = static_cast<std::size_t>(group_);
  const std::size_t global = groups * local;
  check(api().enqueue_kernel(queue, kernel_, 1, nullptr, &global, &local, 0, nullptr, nullptr),
        "enqueuing a kernel");
}

std::shared_ptr<const Kernels> kernels_of(Device device, Source source, const std::string& options, int group,
                                          std::string_view purpose) {
  DeviceState& state = state_of(device);
  Programs& all = programs();
  const Key key{device.index, source, options};
  // Threads build different programs at the same time, and the same one once.
  std::promise<std::shared_ptr<const Kernels>> built;
  Building building;
  {
    const std::lock_guard looking(all.mutex);
    const auto [found, is_new] = all.kernels.try_emplace(key);
    if (!is_new)
      building = found->second;
    else
      found->second = built.get_future().share();
  }
  if (building.valid()) return building.get();
  try {
    auto kernels = build(state, source, options, group, purpose);
    built.set_value(kernels);
    return kernels;
  } catch (...) {
    const std::lock_guard changing(all.mutex);
    all.kernels.erase(key);  // whoever comes next tries again
    built.set_exception(std::current_exception());
    throw;
  }
}

bool are_built(Device device, Source source, const std::string& options) {
  Programs& all = programs();
  const std::lock_guard looking(all.mutex);
  const auto found = all.kernels.find({device.index, source, options});
  return found != all.kernels.end() &&
         found->second.wait_for(std::chrono::seconds(0)) == std::future_status::ready &&
         found->second.get()->fit();
}

ProgramCounts program_counts() {
  Programs& all = programs();
  const std::lock_guard reading(all.mutex);
  return all.counts;
}

void forget_programs() {
  Programs& all = programs();
  const std::lock_guard changing(all.mutex);
  all.kernels.clear();
}

}  // namespace kronsparse::opencl
