// Matrices in host memory, of any dtype, and the operands of a problem.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kronsparse/dtype.hpp"
#include "kronsparse/plan.hpp"
#include "kronsparse/problem.hpp"

namespace kronsparse::cli {

/// A row-major matrix, rows `stride` elements apart, between guard bands.
/// Every byte starts as 0xff, which is NaN in every dtype: an element that was
/// never written shows, and so does one that should not have been.
class Tensor {
 public:
  Tensor() = default;
  Tensor(DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t stride = 0);

  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] std::int64_t rows() const noexcept { return rows_; }
  [[nodiscard]] std::int64_t cols() const noexcept { return cols_; }
  [[nodiscard]] std::byte* data() noexcept { return data_; }
  [[nodiscard]] const std::byte* data() const noexcept { return data_; }
  /// The elements without guard bands; for a tensor without gaps, exactly its elements.
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept;
  /// Everything, guard bands included, and how far into it the elements begin.
  [[nodiscard]] std::span<std::byte> memory() noexcept { return {memory_.get(), allocated_}; }
  [[nodiscard]] std::size_t guard_offset() const noexcept {
    return static_cast<std::size_t>(data_ - memory_.get());
  }

  /// One element, widened without rounding.
  [[nodiscard]] std::complex<double> get(std::int64_t row, std::int64_t col) const;
  /// Rounds to the tensor's dtype; the imaginary part of a real dtype is dropped.
  void set(std::int64_t row, std::int64_t col, std::complex<double> value);

  /// Whether the guard bands and the gaps between rows are as they were made.
  [[nodiscard]] bool surroundings_untouched() const;
  /// Makes every byte 0xff again.
  void clear();

 private:
  struct Free {
    void operator()(std::byte* pointer) const noexcept;
  };
  [[nodiscard]] std::size_t offset(std::int64_t row, std::int64_t col) const noexcept;

  DType dtype_ = DType::f32;
  std::int64_t rows_ = 0;
  std::int64_t cols_ = 0;
  std::int64_t stride_ = 0;
  std::size_t allocated_ = 0;
  std::unique_ptr<std::byte, Free> memory_;
  std::byte* data_ = nullptr;
};

/// Everything one problem reads. Absent operands are empty and have null data.
struct Inputs {
  std::vector<Tensor> values;  ///< (a·b, c·d) of each factor, left factor first; none for the gradient of one
  Tensor x;
  Tensor g;  ///< gradient only
  Tensor bias;

  /// x, g, bias and y; not the values.
  [[nodiscard]] Operands operands(Tensor& y) const;
  /// The address of each factor's values.
  [[nodiscard]] std::vector<const void*> value_addresses() const;
};

/// Random data that is the same on every machine: values uniform in ±1/sqrt(n),
/// n being the length of the factor's sums, so that results are of order one; everything
/// else close to standard normal.
[[nodiscard]] Inputs random_inputs(const Problem& problem, std::uint64_t seed);
/// A matrix with a batch dimension: (B, features) or (features, B). Stride 0 is dense.
[[nodiscard]] Tensor batch_tensor(const Problem& problem, std::int64_t features, std::int64_t stride);
/// The gradient of several factors writes one row of all their values.
[[nodiscard]] Tensor output_tensor(const Problem& problem);
/// Numbers added up for one element of the result of a problem with one factor.
[[nodiscard]] std::int64_t sum_length(const Problem& problem);

/// Error out_of_memory when the machine could never hold the operands and what factors hand on: a clear
/// message now instead of a process killed later.
void require_memory_for(const Problem& problem);

}  // namespace kronsparse::cli
