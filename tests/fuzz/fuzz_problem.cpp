// Feeds arbitrary text to every parser. Only Error may come out, and what is
// read must print to something that reads the same. What is read as a problem has steps and a plan.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "kronsparse/kronsparse.hpp"

namespace {

template <class T>
void check_round_trip(std::string_view text) {
  try {
    const T parsed = T::parse(text);
    const auto printed = parsed.to_string();
    // A parser that refuses what was printed is as wrong as one that reads something else.
    try {
      if (!(T::parse(printed) == parsed) || T::parse(printed).to_string() != printed) std::abort();
    } catch (const kronsparse::Error&) {
      std::abort();
    }
  } catch (const kronsparse::Error& error) {
    if (std::string_view(error.what()).empty()) std::abort();
  }
}

/// The consequences of a problem that was read: its steps and, as long as that takes no time, what would run
/// it. Only Error may come out, and sizes of memory that overflow would show as less than what they are the
/// sum of.
void check_plan(std::string_view text) {
  try {
    const kronsparse::Problem problem = kronsparse::Problem::parse(text);
    for (const kronsparse::Problem& step : kronsparse::steps_of(problem)) {
      step.validate();
      if (step.chain.size() != 1) std::abort();
    }
    constexpr std::size_t most_factors = 8;
    if (problem.chain.size() > most_factors) return;
    const kronsparse::Plan plan(problem, kronsparse::Device{}, "reference");
    const kronsparse::Batch batch{problem.batch, problem.cols_stride, problem.rows_stride};
    const void* const values[most_factors] = {};
    const auto workspace = static_cast<double>(plan.workspace_bytes(batch, {.values = values}));
    double largest = 0;
    for (std::size_t factor = 1; factor < problem.chain.size(); ++factor)
      largest = std::max(largest, static_cast<double>(problem.chain[factor].rows()) *
                                      static_cast<double>(problem.batch) *
                                      static_cast<double>(kronsparse::size_of(problem.dtype)));
    if (workspace < largest * 0.999) std::abort();
    if (!(plan.predicted_seconds(batch) >= 0)) std::abort();
  } catch (const kronsparse::Error& error) {
    if (std::string_view(error.what()).empty()) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_round_trip<kronsparse::Problem>(text);
  check_round_trip<kronsparse::Pattern>(text);
  check_round_trip<kronsparse::Chain>(text);
  check_round_trip<kronsparse::Device>(text);
  check_plan(text);
  return 0;
}
