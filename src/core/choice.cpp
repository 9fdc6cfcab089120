#include "core/choice.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "core/message.hpp"
#include "core/text.hpp"
#include "kronsparse/error.hpp"

namespace kronsparse {
namespace {

/// The backend of a device, or null when this build does not have it.
const BackendEntry* entry_of(Backend backend) {
  for (const BackendEntry& entry : backends())
    if (entry.backend == backend) return &entry;
  return nullptr;
}

bool is_usable(const BackendEntry& entry, Device device) {
  const std::vector<DeviceInfo> usable = entry.devices();
  return std::ranges::find(usable, device, &DeviceInfo::device) != usable.end();
}

bool belongs_to(std::string_view name, std::string_view name_or_family) {
  return name == name_or_family ||
         (name.starts_with(name_or_family) && name.substr(name_or_family.size()).starts_with('-'));
}

constexpr std::string_view variable = "KRONSPARSE_IMPL";

/// What the variable says; empty when it is not set.
std::string_view forced_by_variable() {
  const char* value = std::getenv(variable.data());
  return value == nullptr ? "" : value;
}

[[noreturn]] void throw_unknown(std::span<const Implementation> table, Device device,
                                std::string_view argument, std::string_view forced) {
  std::vector<std::string_view> names;
  for (const Implementation& implementation : table) names.push_back(implementation.name);
  throw Error(ErrorCode::invalid_argument,
              message("{}: {} is neither an implementation for {} nor a family of them; there are {}",
                      argument, quoted(forced), device.to_string(), joined(names, ", ")));
}

}  // namespace

std::span<const BackendEntry> backends() {
  static const std::array all = {
      cpu_backend(),
#ifdef KRONSPARSE_WITH_CUDA
      cuda_backend(),
#endif
  };
  return all;
}

std::string why_unusable(Device device) {
  const BackendEntry* entry = entry_of(device.backend);
  if (entry == nullptr) return message("this build has no {} backend", name(device.backend));
  if (is_usable(*entry, device)) return {};
  const std::string why = entry->why_unusable(device.index);
  return why.empty() ? "there is no such device" : why;
}

const BackendEntry& backend_of(Device device) {
  const BackendEntry* entry = entry_of(device.backend);
  if (entry != nullptr && is_usable(*entry, device)) return *entry;
  std::vector<std::string> present;
  for (const DeviceInfo& info : devices()) present.push_back(info.device.to_string());
  throw Error(ErrorCode::device, message("device: {} cannot be used, {}; present: {}", device.to_string(),
                                         why_unusable(device), joined(present, ", ")));
}

std::vector<ImplementationInfo> implementations() {
  std::vector<ImplementationInfo> all;
  for (const BackendEntry& entry : backends())
    for (const Implementation& implementation : entry.implementations)
      all.push_back(
          {std::string(implementation.name), implementation.backend, std::string(implementation.summary)});
  return all;
}

std::vector<Assessment> assess(std::span<const Implementation> table, const Problem& problem, Device device) {
  std::vector<Assessment> all;
  for (const Implementation& implementation : table) {
    Assessment assessment{&implementation, implementation.refuse(problem, device)};
    if (assessment.refusal.empty()) assessment.seconds = implementation.predict(problem, device);
    all.push_back(std::move(assessment));
  }
  std::ranges::stable_sort(all, [](const Assessment& left, const Assessment& right) {
    if (left.refusal.empty() != right.refusal.empty()) return left.refusal.empty();
    return left.refusal.empty() && left.seconds < right.seconds;
  });
  return all;
}

std::vector<Candidate> candidates(const Problem& problem, Device device) {
  problem.validate();
  const std::span<const Implementation> table = backend_of(device).implementations;
  const std::string_view forced = forced_by_variable();
  const auto left_out = [&](std::string_view name) { return !forced.empty() && !belongs_to(name, forced); };
  if (std::ranges::all_of(table, left_out, &Implementation::name))
    throw_unknown(table, device, variable, forced);
  std::vector<Candidate> all;
  for (Assessment& assessment : assess(table, problem, device)) {
    const std::string_view name = assessment.implementation->name;
    if (left_out(name)) assessment.refusal = message("{} is {}", variable, quoted(forced));
    all.push_back({std::string(name), device, std::move(assessment.refusal), assessment.seconds});
  }
  std::stable_partition(all.begin(), all.end(),
                        [](const Candidate& candidate) { return candidate.refusal.empty(); });
  return all;
}

const Implementation& choose_from(std::span<const Implementation> table, const Problem& problem,
                                  Device device, std::string_view argument, std::string_view forced) {
  std::vector<std::string> refusals;
  for (const Assessment& assessment : assess(table, problem, device)) {
    const std::string_view name = assessment.implementation->name;
    if (!forced.empty() && !belongs_to(name, forced)) continue;
    if (assessment.refusal.empty()) return *assessment.implementation;
    refusals.push_back(message("{}: {}", name, assessment.refusal));
  }
  if (!refusals.empty())
    throw Error(ErrorCode::unsupported,
                forced.empty() ? message("problem: no implementation on {} accepts {} ({})",
                                         device.to_string(), problem.to_string(), joined(refusals, "; "))
                               : message("{}: {} does not accept {} ({})", argument, quoted(forced),
                                         problem.to_string(), joined(refusals, "; ")));
  throw_unknown(table, device, argument, forced);
}

const Implementation& choose(const Problem& problem, Device device, std::string_view forced) {
  const std::span<const Implementation> table = backend_of(device).implementations;
  if (!forced.empty()) return choose_from(table, problem, device, "implementation", forced);
  return choose_from(table, problem, device, variable, forced_by_variable());
}

}  // namespace kronsparse
