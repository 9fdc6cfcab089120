#include "kronsparse/profile.hpp"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "core/implementation.hpp"
#include "core/message.hpp"
#include "core/profile.hpp"
#include "core/text.hpp"
#include "core/tuned_times.hpp"
#include "core/user_cache.hpp"
#include "kronsparse/buffer.hpp"
#include "kronsparse/version.hpp"
#ifdef KRONSPARSE_WITH_CUDA
#include "cuda/profile/profile.hpp"
#endif

namespace kronsparse {
namespace {

KeyedFile file_of(std::string key) { return {"profile", "1", std::move(key)}; }

/// All that is asked of devices without kernels of their own for this.
std::vector<Rate> measure_copy(Device device) {
  constexpr std::size_t bytes = std::size_t{64} << 20;
  Buffer from(bytes, device), to(bytes, device);
  from.clear();
  double least = std::numeric_limits<double>::infinity();
  for (int turn = 0; turn < 4; ++turn) {
    Timer timer(device);
    timer.mark();
    to.copy_from(from);
    timer.mark();
    const double seconds = timer.seconds().front();
    if (turn > 0) least = std::min(least, seconds);
  }
  return {{"copy", 2.0 * static_cast<double>(bytes) / std::max(least, 1e-9), "B/s"}};
}

}  // namespace

std::vector<Rate> measure_profile(Device device, bool keeps) {
  static_cast<void>(backend_of(device));  // Error device where there is none
  std::vector<Rate> rates;
#ifdef KRONSPARSE_WITH_CUDA
  if (device.backend == Backend::cuda) rates = cuda::measure_rates(device);
#endif
  if (rates.empty()) rates = measure_copy(device);
  std::string lines;
  for (const Rate& rate : rates) lines += message("{}\t{}\t{}\n", rate.name, rate.value, rate.unit);
  if (keeps) static_cast<void>(file_of(device_key(device)).write(lines));
  return rates;
}

std::vector<Rate> kept_profile(Device device) {
  for (const DeviceInfo& info : backend_of(device).devices())
    if (info.device == device) return read_rates(info.description, device);
  return {};
}

std::vector<Rate> read_rates(const std::string& description, Device device) {
  const std::string lines = file_of(device_key(description, device)).read().value_or("");
  std::vector<Rate> rates;
  for (std::size_t begin = 0; begin < lines.size();) {
    const std::size_t end = lines.find('\n', begin);
    const std::size_t first = lines.find('\t', begin);
    const std::size_t second = first == std::string::npos ? first : lines.find('\t', first + 1);
    if (end == std::string::npos || second == std::string::npos || second > end) return {};
    const double value = parse_real(std::string_view(lines).substr(first + 1, second - first - 1));
    if (!(value > 0 && value <= std::numeric_limits<double>::max())) return {};
    rates.push_back({lines.substr(begin, first - begin), value, lines.substr(second + 1, end - second - 1)});
    begin = end + 1;
  }
  return rates;
}

}  // namespace kronsparse
