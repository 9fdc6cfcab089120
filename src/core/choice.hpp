// Which implementation runs a problem: one factor, or a chain in one pass.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/implementation.hpp"

namespace kronsparse {

/// One implementation's answer to a problem.
struct Assessment {
  const Implementation* implementation;
  Proposal proposal;
};

/// Implementations that a caller wants, by name or family; all of them where it is empty.
struct Forced {
  std::string_view name;
  std::string_view argument = "implementation";  ///< where the name came from

  [[nodiscard]] bool leaves_out(std::string_view implementation) const noexcept;
};

/// The caller's word, or else that of the variable KRONSPARSE_IMPL.
[[nodiscard]] Forced forced_or_variable(std::string_view forced);

/// The answers of a table, those that accept first, cheapest first; the table's
/// order decides between equals. Those that are left out are not asked, nor are those for one factor about a
/// chain, or those for chains about one factor: they refuse.
[[nodiscard]] std::vector<Assessment> assess(std::span<const Implementation> table, const Problem& problem,
                                             Device device, const Forced& forced = {},
                                             const PackedOrder* packed_as = nullptr);

/// The same by predictions alone, whatever was measured.
[[nodiscard]] std::vector<Assessment> assess_untuned(std::span<const Implementation> table,
                                                     const Problem& problem, Device device,
                                                     const Forced& forced = {},
                                                     const PackedOrder* packed_as = nullptr);

/// Some of a table: a bit for the place of each.
using Places = std::uint64_t;

/// The answers that may be the cheapest, in no order, none where all refuse: neither those of the `skipped`,
/// nor of who says to take longer than another's answer does. `packs`: values are packed at each run.
[[nodiscard]] std::vector<Assessment> promising(std::span<const Implementation> table, const Problem& problem,
                                                Device device, bool packs, Places skipped = 0);

/// Those that accept, cheapest first; never none. Error unsupported with every reason where all refuse, Error
/// invalid_argument where none has the forced name.
[[nodiscard]] std::vector<Assessment> accepted_from(std::span<const Implementation> table,
                                                    const Problem& problem, Device device,
                                                    const Forced& forced);

}  // namespace kronsparse
