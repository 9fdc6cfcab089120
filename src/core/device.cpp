#include "kronsparse/device.hpp"

#include <limits>
#include <vector>

#include "core/implementation.hpp"
#include "core/message.hpp"
#include "core/names.hpp"
#include "core/text.hpp"
#include "kronsparse/error.hpp"

namespace kronsparse {
namespace {

bool begins_with_letter(std::string_view text) {
  return !text.empty() && ((text[0] >= 'a' && text[0] <= 'z') || (text[0] >= 'A' && text[0] <= 'Z'));
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& letter : out)
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  return out;
}

/// The one device of a backend whose description has the words. `text` is what the user wrote.
Device device_described(Backend backend, std::string_view words, std::string_view text) {
  std::vector<Device> found;
  for (const DeviceInfo& info : devices())
    if (info.device.backend == backend && lower(info.description).find(lower(words)) != std::string::npos)
      found.push_back(info.device);
  if (found.size() == 1) return found.front();
  std::vector<std::string> names;
  for (const Device& device : found) names.push_back(device.to_string());
  throw Error(ErrorCode::parse,
              message("device: {} given, must have a number or a part of the description of exactly "
                      "one device; {} is in that of {}",
                      quoted(text), quoted(words), names.empty() ? "none" : joined(names, ", ")));
}

}  // namespace

std::string_view name(Backend backend) { return enum_name(backend, backend_names, "backend"); }

std::string Device::to_string() const {
  if (backend == Backend::cpu && index == 0) return "cpu";
  return message("{}:{}", name(backend), index);
}

Device Device::parse(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view backend_name = text.substr(0, colon);
  for (std::size_t number = 0; number < backend_names.size(); ++number) {
    if (backend_names[number] != backend_name) continue;
    if (colon != std::string_view::npos && begins_with_letter(text.substr(colon + 1)))
      return device_described(static_cast<Backend>(number), text.substr(colon + 1), text);
    const std::int64_t index =
        colon == std::string_view::npos ? 0 : parse_number(text.substr(colon + 1), "device", text);
    if (index > std::numeric_limits<int>::max())
      throw Error(ErrorCode::overflow, message("device: the number of {} must be at most {}", quoted(text),
                                               std::numeric_limits<int>::max()));
    return {static_cast<Backend>(number), static_cast<int>(index)};
  }
  throw Error(ErrorCode::parse,
              message("device: {} given, must be one of {}, with a number as in cuda:1 or without",
                      quoted(text), listed(backend_names)));
}

std::vector<DeviceInfo> devices() {
  std::vector<DeviceInfo> all;
  for (const BackendEntry& entry : backends())
    for (DeviceInfo& info : entry.devices()) all.push_back(std::move(info));
  return all;
}

}  // namespace kronsparse
