// A number of f16 as two of bf16 that add up to it, exactly.
//
// The first piece is the number less a sixteenth, cut to 8 bits; what is left has no more than that. So
// neither piece is zero unless the number is, and both have its sign: times inf, all four products of pieces
// are inf of the same sign, or nan where the other number is zero, as IEEE says. Both pieces of inf are inf,
// of nan nan. The smallest is 2^-28: nothing is so small that the instruction takes it for zero.
#pragma once

namespace kronsparse::amx {

inline constexpr float first_piece = 0.9375F;  ///< of a number, before it is cut

}  // namespace kronsparse::amx
