#include "core/tuned_times.hpp"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <utility>

#include "core/message.hpp"
#include "core/text.hpp"
#include "core/user_cache.hpp"
#include "kronsparse/version.hpp"

namespace kronsparse {
namespace {

using Times = std::map<std::string, std::vector<TunedTime>>;  ///< by the text of a problem

/// The processor's name: several machines may share a home.
const std::string& processor_name() {
  static const std::string name = [] {
    std::ifstream file("/proc/cpuinfo");
    std::string found;
    for (std::string line; std::getline(file, line);)
      for (const char* field : {"model name", "CPU implementer", "CPU part"})
        if (line.starts_with(field) && found.find(line) == std::string::npos) found += line + "; ";
    return found;
  }();
  return name;
}

std::string description_of(Device device) {
  for (const DeviceInfo& info : backend_of(device).devices())
    if (info.device == device) return info.description;
  return {};
}

KeyedFile file_of(const std::string& description, Device device) {
  return {"tuning", "1", device_key(description, device)};
}

/// Nothing where a line is not as write() makes them.
std::optional<Times> parsed(const std::string& lines) {
  Times all;
  for (std::size_t begin = 0; begin < lines.size();) {
    const std::size_t end = lines.find('\n', begin);
    if (end == std::string::npos) return std::nullopt;
    std::vector<std::string> fields(1);
    for (std::size_t at = begin; at < end; ++at)
      if (lines[at] == '\t')
        fields.emplace_back();
      else
        fields.back() += lines[at];
    if (fields.size() != 5) return std::nullopt;
    const TunedTime time{fields[1], parse_real(fields[2]), parse_real(fields[3]), parse_real(fields[4])};
    constexpr double most = std::numeric_limits<double>::max();  // NaN and infinity are no times
    if (!(time.seconds > 0 && time.seconds <= most && time.packing_seconds >= 0 &&
          time.packing_seconds <= most && time.predicted_seconds > 0 && time.predicted_seconds <= most))
      return std::nullopt;
    all[fields[0]].push_back(time);
    begin = end + 1;
  }
  return all;
}

std::string lines_of(const Times& all) {
  std::string lines;
  for (const auto& [problem, times] : all)
    for (const TunedTime& time : times)
      lines += message("{}\t{}\t{}\t{}\t{}\n", problem, time.implementation, time.seconds,
                       time.packing_seconds, time.predicted_seconds);
  return lines;
}

/// All that is known in this process.
class Store {
 public:
  static Store& get() {
    static Store once;
    return once;
  }

  std::vector<TunedTime> find(const Problem& problem, Device device) {
    const std::string folder = user_cache_folder("tuning");
    if (!may_have_any(folder, device)) return {};
    const std::string description = description_of(device);
    const std::string file = file_of(description, device).path();
    const std::string key = key_of(file, description);
    const std::string text = problem.to_string();
    {
      const std::shared_lock reading(mutex_);
      if (const auto found = devices_.find(key); found != devices_.end())
        return times_of(found->second, text);
    }
    const std::unique_lock changing(mutex_);
    const Times& all = loaded(key, description, device);
    if (all.empty()) empty_.emplace_back(folder, device);
    return times_of(all, text);
  }

  void set(const Problem& problem, Device device, std::vector<TunedTime> times, bool keeps) {
    const std::string description = description_of(device);
    const KeyedFile file = file_of(description, device);
    const std::string text = problem.to_string();
    const std::unique_lock changing(mutex_);
    Times& known = loaded(key_of(file.path(), description), description, device);
    known[text] = times;
    has_any_ = true;
    empty_.clear();
    if (!keeps) return;
    const UserCacheLock alone("tuning");  // several processes of one program tune the same problems
    Times all = known_to_file(file);      // another process may have added to it
    all[text] = std::move(times);
    static_cast<void>(file.write(lines_of(all)));
  }

  void forget() {
    const std::unique_lock changing(mutex_);
    devices_.clear();
    looked_in_.clear();
    has_any_ = false;
    empty_.clear();
  }

  static std::string path(Device device) { return file_of(description_of(device), device).path(); }

 private:
  static std::string key_of(const std::string& file, const std::string& description) {
    return file.empty() ? description : file;
  }
  static std::vector<TunedTime> times_of(const Times& times, const std::string& text) {
    const auto found = times.find(text);
    return found == times.end() ? std::vector<TunedTime>() : found->second;
  }
  static Times known_to_file(const KeyedFile& file) {
    const std::optional<std::string> lines = file.read();
    return lines ? parsed(*lines).value_or(Times()) : Times();
  }
  Times& loaded(const std::string& key, const std::string& description, Device device) {
    const auto found = devices_.find(key);
    if (found != devices_.end()) return found->second;
    return devices_[key] = known_to_file(file_of(description, device));
  }

  /// Whether a look is worth its microseconds: most users have never tuned, or not this device.
  bool may_have_any(const std::string& folder, Device device) {
    {
      const std::shared_lock reading(mutex_);
      if (std::ranges::find(empty_, std::pair(folder, device)) != empty_.end()) return false;
      if (has_any_) return true;
      if (looked_in_ == folder) return false;
    }
    const std::unique_lock changing(mutex_);
    looked_in_ = folder;
    std::error_code ignored;
    has_any_ = has_any_ || (!folder.empty() && std::filesystem::exists(folder, ignored));
    return has_any_;
  }

  std::shared_mutex mutex_;
  std::map<std::string, Times> devices_;  ///< by file, or by description where there are no files
  std::vector<std::pair<std::string, Device>> empty_;  ///< folders that have none for a device
  std::string looked_in_ = "nowhere yet";
  bool has_any_ = false;
};

}  // namespace

std::vector<TunedTime> tuned_times(const Problem& problem, Device device) {
  return Store::get().find(problem, device);
}

void set_tuned_times(const Problem& problem, Device device, std::vector<TunedTime> times, bool keeps) {
  Store::get().set(problem, device, std::move(times), keeps);
}

std::string device_key(const std::string& description, Device device) {
  std::string key = message("kronsparse {}, {}, {}", KRONSPARSE_VERSION, name(device.backend), description);
  if (device.backend == Backend::cpu) key += ", " + processor_name();
  return key;
}
std::string device_key(Device device) { return device_key(description_of(device), device); }

std::string tuned_times_file(Device device) { return Store::path(device); }

void forget_tuned_times() { Store::get().forget(); }

void apply_tuned_times(std::vector<Assessment>& all, const Problem& problem, Device device,
                       const PackedOrder* packed_as) {
  const std::vector<TunedTime> times = tuned_times(problem, device);
  if (times.empty()) return;
  const double slowest = std::ranges::max(times, {}, &TunedTime::seconds).seconds;
  for (Assessment& one : all) {
    Proposal& proposal = one.proposal;
    if (!proposal.refusal.empty()) continue;
    const auto found = std::ranges::find(times, one.implementation->name, &TunedTime::implementation);
    if (found == times.end()) {
      proposal.seconds = std::max(proposal.seconds, 1.001 * slowest);
      continue;
    }
    proposal.is_measured = packed_as == nullptr;
    proposal.seconds =
        packed_as == nullptr ? found->seconds : proposal.seconds * found->seconds / found->predicted_seconds;
    if (packed_as == nullptr) proposal.packing_seconds = found->packing_seconds;
  }
}

}  // namespace kronsparse
