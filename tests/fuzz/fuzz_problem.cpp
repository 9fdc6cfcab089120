// Feeds arbitrary text to every parser. Only Error may come out, and what is
// read must print to something that reads the same.
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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_round_trip<kronsparse::Problem>(text);
  check_round_trip<kronsparse::Pattern>(text);
  check_round_trip<kronsparse::Chain>(text);
  check_round_trip<kronsparse::Device>(text);
  return 0;
}
