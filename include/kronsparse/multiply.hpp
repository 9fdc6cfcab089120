// One-shot calls on views whose sizes are checked. device.hpp says how many threads they use.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "kronsparse/chain.hpp"
#include "kronsparse/device.hpp"
#include "kronsparse/dtype.hpp"
#include "kronsparse/export.h"
#include "kronsparse/pattern.hpp"
#include "kronsparse/problem.hpp"

namespace kronsparse {

/// A contiguous run of elements: values or a bias.
struct ConstVector {
  const void* data;
  DType dtype;
  std::int64_t size;

  template <class T>
  ConstVector(const T* pointer, std::int64_t elements) : data(pointer), dtype(dtype_of<T>), size(elements) {}
  ConstVector(const void* pointer, DType type, std::int64_t elements)
      : data(pointer), dtype(type), size(elements) {}
};

/// A row-major matrix whose rows start `stride` elements apart.
template <class Void>
struct BasicMatrix {
  Void* data;
  DType dtype;
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t stride;

  template <class T>
  BasicMatrix(T* pointer, std::int64_t row_count, std::int64_t col_count, std::int64_t row_stride = 0)
      : data(pointer),
        dtype(dtype_of<std::remove_const_t<T>>),
        rows(row_count),
        cols(col_count),
        stride(row_stride == 0 ? col_count : row_stride) {}
  BasicMatrix(Void* pointer, DType type, std::int64_t row_count, std::int64_t col_count,
              std::int64_t row_stride = 0)
      : data(pointer),
        dtype(type),
        rows(row_count),
        cols(col_count),
        stride(row_stride == 0 ? col_count : row_stride) {}
};
using ConstMatrix = BasicMatrix<const void>;
using Matrix = BasicMatrix<void>;

/// Options of `multiply`.
struct MultiplyOptions {
  Layout layout = Layout::batch_first;
  Operation operation = Operation::multiply;  ///< any but gradient
  Mode mode = Mode::fp32;
  std::optional<ConstVector> bias = std::nullopt;
  Activation activation = Activation::none;
  Device device = {};
  Stream stream = nullptr;
};

/// y = act(K x + bias), or K^T x, or K^H x. Plans, runs, waits and forgets: for
/// repeated products with the same values make a Plan.
///
///     using namespace kronsparse;
///     std::vector<double> values(2 * 1 * 3 * 2, 1.0), x(5 * 12, 2.0), y(5 * 4);
///     multiply(Pattern{2, 1, 3, 2}, {values.data(), 12}, {x.data(), 5, 12}, {y.data(), 5, 4});
///     assert(y[0] == 6.0);
KRONSPARSE_API void multiply(const Pattern& pattern, ConstVector values, ConstMatrix x, Matrix y,
                             const MultiplyOptions& options = {});

/// The product of a chain, y = act(K_1 ... K_L x + bias), one factor after the
/// other; `values[f]` belongs to chain[f]. Allocates the intermediate results.
///
///     using namespace kronsparse;
///     Chain chain{{1, 2, 2, 2}, {2, 2, 2, 1}};
///     std::vector<float> ones(8, 1.0f), x(3 * 4, 1.0f), y(3 * 4);
///     std::vector<ConstVector> values{{ones.data(), 8}, {ones.data(), 8}};
///     multiply(chain, values, {x.data(), 3, 4}, {y.data(), 3, 4});
///     assert(y[0] == 4.0f);
KRONSPARSE_API void multiply(const Chain& chain, std::span<const ConstVector> values, ConstMatrix x, Matrix y,
                             const MultiplyOptions& options = {});

/// Options of `gradient`.
struct GradientOptions {
  Layout layout = Layout::batch_first;
  Mode mode = Mode::fp32;
  Device device = {};
  Stream stream = nullptr;
};

/// The gradient with respect to the values: grad_values, a row-major (a·b, c·d)
/// matrix without gaps, receives sum_n g[n,i,k,j] · conj(x[n,i,l,j]) at (i,k,l,j).
///
///     using namespace kronsparse;
///     std::vector<float> x(5 * 12, 2.0f), g(5 * 4, 1.0f), grad(12);
///     gradient(Pattern{2, 1, 3, 2}, {x.data(), 5, 12}, {g.data(), 5, 4}, {grad.data(), 2, 6});
///     assert(grad[0] == 10.0f);
KRONSPARSE_API void gradient(const Pattern& pattern, ConstMatrix x, ConstMatrix g, Matrix grad_values,
                             const GradientOptions& options = {});

}  // namespace kronsparse
