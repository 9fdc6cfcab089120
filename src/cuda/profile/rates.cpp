#include <algorithm>
#include <string_view>

#include "cuda/host/speeds.hpp"
#include "cuda/profile/profile.hpp"

namespace kronsparse::cuda {

void use_rates(const std::string& name, const std::vector<Rate>& rates) {
  if (rates.empty()) return;
  const auto value = [&](std::string_view rate) {
    const auto found = std::ranges::find(rates, rate, &Rate::name);
    return found == rates.end() ? 0.0 : found->value;
  };
  set_measured_rates(name, {.l2 = value("l2"),
                            .copy = value("copy"),
                            .f16 = value("f16") / 2,
                            .bf16 = value("bf16") / 2,
                            .tf32 = value("tf32") / 2,
                            .fma32 = value("fma32") / 2,
                            .fma64 = value("fma64") / 2});
}

}  // namespace kronsparse::cuda
