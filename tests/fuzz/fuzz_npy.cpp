// Any bytes either parse as .npy or are refused with Error io, or unsupported for
// a dtype of no use here; what parses survives being written and read again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "kronsparse/error.hpp"
#include "npy.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kronsparse::cli;
  NpyArray array;
  try {
    array = parse_npy(std::as_bytes(std::span(data, size)));
  } catch (const kronsparse::Error& error) {
    const bool is_expected =
        error.code() == kronsparse::ErrorCode::io || error.code() == kronsparse::ErrorCode::unsupported;
    if (!is_expected || std::strlen(error.what()) == 0) std::abort();
    return 0;
  }
  const std::string header = npy_header(array.type, array.shape);
  const auto header_bytes = std::as_bytes(std::span(header));
  std::vector<std::byte> file(header_bytes.begin(), header_bytes.end());
  file.insert(file.end(), array.data.begin(), array.data.end());
  if (header.size() % 64 != 0 || parse_npy(file) != array) std::abort();
  return 0;
}
