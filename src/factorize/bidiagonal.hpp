// Singular values of a real bidiagonal matrix, and the rotations that lead to its left singular vectors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kronsparse::factorization {

/// A rotation of columns `first` and `second`: (x, y) becomes (cos·x + sin·y, cos·y - sin·x).
struct Rotation {
  std::int32_t first;
  std::int32_t second;
  double cos;
  double sin;
};

/// Diagonalises the matrix with diagonal d (k elements) and e above it (k elements, the last is scratch) by
/// QR steps with shifts. d becomes the singular values, up to sign and order. Where `rotations` is given, it
/// receives those of the left singular vectors in their order: U = R_1 R_2 ... False where that did not
/// converge, which finite numbers have not been seen to do.
bool diagonalise(double* d, double* e, std::int64_t k, std::vector<Rotation>* rotations);

/// The same for the `wanted` largest singular values alone: they end at the end of d, and what is before them
/// is left bidiagonal. True where that succeeded; else d and e are a matrix with the same singular values,
/// and the rotations lead there, so that `diagonalise` can go on. It has not tried where the matrix falls
/// apart.
bool diagonalise_largest(double* d, double* e, std::int64_t k, std::int64_t wanted,
                         std::vector<Rotation>* rotations);

/// z := R_1 R_2 ... z, for `width` vectors side by side: z is (k, width).
template <int width>
void apply_rotations(const std::vector<Rotation>& rotations, double* z) noexcept {
  for (std::size_t index = rotations.size(); index-- > 0;) {
    const Rotation& rotation = rotations[index];
    double* const first = z + (std::int64_t{rotation.first} * width);
    double* const second = z + (std::int64_t{rotation.second} * width);
    for (int t = 0; t < width; ++t) {
      const double x = first[t];
      const double y = second[t];
      first[t] = (rotation.cos * x) - (rotation.sin * y);
      second[t] = (rotation.sin * x) + (rotation.cos * y);
    }
  }
}

}  // namespace kronsparse::factorization
