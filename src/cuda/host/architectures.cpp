#include "cuda/host/architectures.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <tuple>

#include "core/message.hpp"
#include "core/text.hpp"

namespace kronsparse::cuda {
namespace {

/// How well a GPU is served: not at all, by PTX that its driver compiles, by machine code.
enum class Fit : std::uint8_t { none, ptx, code };

Fit fit_of(const Architecture& built, int gpu) {
  const bool same_major = built.compute_capability / 10 == gpu / 10;
  const bool not_older = gpu >= built.compute_capability;
  const bool in_reach = built.kind == 'a'   ? gpu == built.compute_capability
                        : built.kind == 'f' ? same_major && not_older
                                            : not_older;
  if (!in_reach) return Fit::none;
  if (built.has_code && same_major) return Fit::code;
  return built.has_ptx ? Fit::ptx : Fit::none;
}

}  // namespace

std::vector<Architecture> parse_architectures(std::string_view text) {
  std::vector<Architecture> all;
  while (!text.empty()) {
    std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    Architecture one;
    one.has_ptx = !word.ends_with("-real");
    one.has_code = !word.ends_with("-virtual");
    word = word.substr(0, word.find('-'));
    if (word.ends_with('a') || word.ends_with('f')) {
      one.kind = word.back();
      word.remove_suffix(1);
    }
    const auto parsed = std::from_chars(word.data(), word.data() + word.size(), one.compute_capability);
    if (parsed.ec == std::errc() && parsed.ptr == word.data() + word.size() && one.compute_capability > 0)
      all.push_back(one);
  }
  return all;
}

std::string architectures_text(std::span<const Architecture> architectures) {
  std::vector<std::string> names;
  std::string later;
  for (const Architecture& one : architectures) {
    const std::string kind = one.kind == ' ' ? std::string() : std::string(1, one.kind);
    if (one.has_code) names.push_back(message("sm_{}{}", one.compute_capability, kind));
    if (one.has_ptx && one.kind == ' ')
      later = message("PTX for {}.{} or later", one.compute_capability / 10, one.compute_capability % 10);
  }
  if (later.empty()) return joined(names, ", ");
  return names.empty() ? later : message("{} and {}", joined(names, ", "), later);
}

std::optional<Architecture> code_for(std::span<const Architecture> architectures, int compute_capability) {
  std::optional<Architecture> best;
  const auto rank = [&](const Architecture& one) {
    return std::tuple(fit_of(one, compute_capability), one.compute_capability, one.kind != ' ');
  };
  for (const Architecture& one : architectures)
    if (fit_of(one, compute_capability) != Fit::none && (!best || rank(one) > rank(*best))) best = one;
  return best;
}

std::string misfit(std::span<const Architecture> architectures, int compute_capability) {
  if (code_for(architectures, compute_capability)) return {};
  return message("this build has kernels for {}, the GPU is sm_{}", architectures_text(architectures),
                 compute_capability);
}

std::span<const Architecture> built_architectures() {
  static const std::vector<Architecture> all = parse_architectures(KRONSPARSE_CUDA_ARCHITECTURES);
  return all;
}

}  // namespace kronsparse::cuda
