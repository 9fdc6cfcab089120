// One exception type for everything that can go wrong.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "kronsparse/export.h"

namespace kronsparse {

/// The kind of mistake or misfortune that an Error reports. The numeric values are
/// the status codes of the C API and never change.
enum class ErrorCode : int {
  invalid_argument = 1,  ///< a value outside what is allowed (a dimension of 0, an unknown enum)
  parse = 2,             ///< a text form that cannot be read
  size_mismatch = 3,     ///< sizes or dtypes of operands that do not fit together
  bad_pointer = 4,       ///< a null or misaligned pointer
  overlap = 5,           ///< an output that overlaps an input
  overflow = 6,          ///< a size that does not fit in 64 bits
  unsupported = 7,       ///< a valid problem that no implementation (or not the forced one) accepts
  io = 8,                ///< a file that cannot be read or written, or is malformed
  out_of_memory = 9,     ///< host or device memory ran out
  device = 10,           ///< a device that is missing or failed
  internal = 11,         ///< a bug in kronsparse
};

/// The name of a code as it appears in messages: "invalid_argument", "parse", ...
[[nodiscard]] KRONSPARSE_API std::string_view name(ErrorCode code) noexcept;

/// Thrown by every kronsparse function that fails. `what()` names the argument,
/// what was given and what is allowed; `code()` is for programs.
///
///     bool refused = false;
///     try {
///       static_cast<void>(kronsparse::Pattern::parse("4x0x3x2"));
///     } catch (const kronsparse::Error& error) {
///       refused = error.code() == kronsparse::ErrorCode::invalid_argument;
///     }
///     assert(refused);
class KRONSPARSE_API Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& detail) : std::runtime_error(detail), code_(code) {}
  [[nodiscard]] ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace kronsparse
