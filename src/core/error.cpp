#include "kronsparse/error.hpp"

namespace kronsparse {

std::string_view name(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::parse:
      return "parse";
    case ErrorCode::size_mismatch:
      return "size_mismatch";
    case ErrorCode::bad_pointer:
      return "bad_pointer";
    case ErrorCode::overlap:
      return "overlap";
    case ErrorCode::overflow:
      return "overflow";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::io:
      return "io";
    case ErrorCode::out_of_memory:
      return "out_of_memory";
    case ErrorCode::device:
      return "device";
    case ErrorCode::internal:
      return "internal";
  }
  return "unknown";
}

}  // namespace kronsparse
