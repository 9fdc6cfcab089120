#include "core/choice.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>

#include "core/message.hpp"
#include "core/text.hpp"
#include "core/tuned_times.hpp"
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

[[noreturn]] void throw_unknown(std::span<const Implementation> table, Device device, const Forced& forced) {
  std::vector<std::string_view> names;
  for (const Implementation& implementation : table) names.push_back(implementation.name);
  throw Error(ErrorCode::invalid_argument,
              message("{}: {} is neither an implementation for {} nor a family of them; there are {}",
                      forced.argument, quoted(forced.name), device.to_string(), joined(names, ", ")));
}

}  // namespace

std::span<const BackendEntry> backends() {
  static const std::array all = {
      cpu_backend(),
#ifdef KRONSPARSE_WITH_OPENCL
      opencl_backend(),
#endif
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
      all.push_back({std::string(implementation.name), implementation.backend,
                     std::string(implementation.summary), implementation.takes_chains});
  return all;
}

bool Forced::leaves_out(std::string_view implementation) const noexcept {
  return !name.empty() && !belongs_to(implementation, name);
}

Forced forced_or_variable(std::string_view forced) {
  if (!forced.empty()) return {forced};
  const char* value = std::getenv("KRONSPARSE_IMPL");
  return {value == nullptr ? "" : value, "KRONSPARSE_IMPL"};
}

namespace {

/// Answers in the table's order.
std::vector<Assessment> answers_of(std::span<const Implementation> table, const Problem& problem,
                                   Device device, const Forced& forced, const PackedOrder* packed_as) {
  std::vector<Assessment> all;
  const bool is_chain = problem.chain.size() > 1;
  for (const Implementation& implementation : table) {
    if (forced.leaves_out(implementation.name)) continue;
    Proposal proposal;
    if (implementation.takes_chains == is_chain)
      proposal = implementation.propose(problem, device, packed_as);
    else
      proposal.refusal =
          is_chain ? "takes one factor at a time" : "takes chains of two or more factors, not one";
    all.push_back({&implementation, std::move(proposal)});
  }
  return all;
}

void sort_by_seconds(std::vector<Assessment>& all) {
  std::ranges::stable_sort(all, [](const Assessment& left, const Assessment& right) {
    const bool accepts = left.proposal.refusal.empty();
    if (accepts != right.proposal.refusal.empty()) return accepts;
    return accepts && left.proposal.seconds < right.proposal.seconds;
  });
}

}  // namespace

std::vector<Assessment> assess(std::span<const Implementation> table, const Problem& problem, Device device,
                               const Forced& forced, const PackedOrder* packed_as) {
  std::vector<Assessment> all = answers_of(table, problem, device, forced, packed_as);
  apply_tuned_times(all, problem, device, packed_as);
  sort_by_seconds(all);
  return all;
}

std::vector<Assessment> assess_untuned(std::span<const Implementation> table, const Problem& problem,
                                       Device device, const Forced& forced, const PackedOrder* packed_as) {
  std::vector<Assessment> all = answers_of(table, problem, device, forced, packed_as);
  sort_by_seconds(all);
  return all;
}

std::vector<Assessment> promising(std::span<const Implementation> table, const Problem& problem,
                                  Device device, bool packs, Places skipped) {
  const bool is_chain = problem.chain.size() > 1;
  double least = std::numeric_limits<double>::infinity();
  std::vector<Assessment> all;
  for (const bool has_bound : {false, true})
    for (std::size_t place = 0; place < table.size(); ++place) {
      const Implementation& one = table[place];
      if (one.takes_chains != is_chain || (one.at_least != nullptr) != has_bound ||
          (skipped >> place & 1U) != 0)
        continue;
      if (has_bound && one.at_least(problem, device) >= least) continue;
      Proposal proposal = one.propose(problem, device, nullptr);
      if (!proposal.refusal.empty()) continue;
      least = std::min(least, proposal.seconds + (packs ? proposal.packing_seconds : 0));
      all.push_back({&one, std::move(proposal)});
    }
  return all;
}

std::vector<Candidate> candidates(const Problem& problem, Device device) {
  problem.validate();
  const std::span<const Implementation> table = backend_of(device).implementations;
  const Forced forced = forced_or_variable({});
  const auto left_out = [&](std::string_view name) { return forced.leaves_out(name); };
  if (std::ranges::all_of(table, left_out, &Implementation::name)) throw_unknown(table, device, forced);
  std::vector<Candidate> all;
  for (Assessment& assessment : assess(table, problem, device)) {
    const std::string_view name = assessment.implementation->name;
    Proposal& proposal = assessment.proposal;
    if (left_out(name))
      proposal.refusal = message("left out, because {} is {}", forced.argument, quoted(forced.name));
    all.push_back({std::string(name), device, std::move(proposal.refusal), proposal.seconds,
                   proposal.is_measured, proposal.workspace_bytes});
  }
  std::stable_partition(all.begin(), all.end(),
                        [](const Candidate& candidate) { return candidate.refusal.empty(); });
  return all;
}

std::vector<Assessment> accepted_from(std::span<const Implementation> table, const Problem& problem,
                                      Device device, const Forced& forced) {
  std::vector<Assessment> all = assess(table, problem, device, forced);
  if (all.empty()) throw_unknown(table, device, forced);
  const auto first_refusal =
      std::ranges::find_if(all, [](const Assessment& one) { return !one.proposal.refusal.empty(); });
  if (first_refusal != all.begin()) {
    all.erase(first_refusal, all.end());
    return all;
  }
  std::vector<std::string> refusals;
  for (const Assessment& one : all)
    refusals.push_back(message("{}: {}", one.implementation->name, one.proposal.refusal));
  throw Error(ErrorCode::unsupported,
              forced.name.empty()
                  ? message("problem: no implementation on {} accepts {} ({})", device.to_string(),
                            problem.to_string(), joined(refusals, "; "))
                  : message("{}: {} does not accept {} ({})", forced.argument, quoted(forced.name),
                            problem.to_string(), joined(refusals, "; ")));
}

}  // namespace kronsparse
