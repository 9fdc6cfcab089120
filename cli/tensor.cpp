#include "tensor.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>

#include "kronsparse/error.hpp"

namespace kronsparse::cli {
namespace {

constexpr std::size_t guard_bytes = 256;
constexpr std::byte filler{0xff};

/// A counter-based generator: element `counter` of stream `seed`, so that data
/// depends on neither the order nor the library's version.
std::uint64_t random_bits(std::uint64_t seed, std::uint64_t counter) {
  std::uint64_t z = (seed + 1) * 0x9e3779b97f4a7c15U + counter * 0xd1342543de82ef95U;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

double uniform(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-52 - 1.0; }

/// The sum of four uniform numbers, scaled to variance 1: near enough to normal, and cheap.
double near_normal(std::uint64_t bits) {
  double sum = 0;
  for (int part = 0; part < 4; ++part) sum += static_cast<double>(bits >> (16 * part) & 0xffff);
  return (sum * 0x1p-16 - (2.0 - 0x1p-15)) * std::sqrt(3.0);
}

template <class Draw>
void fill(Tensor& tensor, std::uint64_t seed, Draw draw) {
  std::uint64_t counter = 0;
  const bool complex = is_complex(tensor.dtype());
  for (std::int64_t row = 0; row < tensor.rows(); ++row) {
    for (std::int64_t col = 0; col < tensor.cols(); ++col) {
      const double real = draw(random_bits(seed, counter++));
      tensor.set(row, col, {real, complex ? draw(random_bits(seed, counter++)) : 0.0});
    }
  }
}

/// Loads or stores an element at `address` through `visit(reference to T)`.
template <class Pointer, class Visit>
auto with_element(DType dtype, Pointer address, Visit visit) {
  const auto load_as = [&]<class T>(T element) {
    std::memcpy(&element, address, sizeof(T));
    return visit(element);
  };
  switch (dtype) {
    case DType::f32:
      return load_as(float{});
    case DType::f64:
      return load_as(double{});
    case DType::f16:
      return load_as(Half{});
    case DType::bf16:
      return load_as(BFloat16{});
    case DType::complex64:
      return load_as(std::complex<float>{});
    case DType::complex128:
      return load_as(std::complex<double>{});
  }
  throw Error(ErrorCode::internal, "unknown dtype");
}

std::complex<double> widen(float value) { return value; }
std::complex<double> widen(double value) { return value; }
std::complex<double> widen(Half value) { return static_cast<float>(value); }
std::complex<double> widen(BFloat16 value) { return static_cast<float>(value); }
std::complex<double> widen(std::complex<float> value) { return value; }
std::complex<double> widen(std::complex<double> value) { return value; }

void narrow(std::complex<double> value, float& out) { out = static_cast<float>(value.real()); }
void narrow(std::complex<double> value, double& out) { out = value.real(); }
void narrow(std::complex<double> value, Half& out) { out = Half(static_cast<float>(value.real())); }
void narrow(std::complex<double> value, BFloat16& out) { out = BFloat16(static_cast<float>(value.real())); }
void narrow(std::complex<double> value, std::complex<float>& out) { out = std::complex<float>(value); }
void narrow(std::complex<double> value, std::complex<double>& out) { out = value; }

}  // namespace

void Tensor::Free::operator()(std::byte* pointer) const noexcept { std::free(pointer); }

Tensor::Tensor(DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t stride)
    : dtype_(dtype), rows_(rows), cols_(cols), stride_(std::max(cols, stride)) {
  const std::size_t body = static_cast<std::size_t>(rows_ * stride_) * size_of(dtype_);
  allocated_ = (body + 2 * guard_bytes + 63) / 64 * 64;
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(64, allocated_)));
  if (!memory_) {
    throw Error(ErrorCode::out_of_memory, fmt::format("no memory for a matrix of {} x {} {}, {:.1f} GB", rows,
                                                      cols, name(dtype), static_cast<double>(body) * 1e-9));
  }
  data_ = memory_.get() + guard_bytes;
  clear();
}

std::span<const std::byte> Tensor::bytes() const noexcept {
  return {data_, static_cast<std::size_t>(rows_ * stride_) * size_of(dtype_)};
}

std::size_t Tensor::offset(std::int64_t row, std::int64_t col) const noexcept {
  return static_cast<std::size_t>(row * stride_ + col) * size_of(dtype_);
}

std::complex<double> Tensor::get(std::int64_t row, std::int64_t col) const {
  return with_element(dtype_, data_ + offset(row, col), [](auto element) { return widen(element); });
}

void Tensor::set(std::int64_t row, std::int64_t col, std::complex<double> value) {
  std::byte* address = data_ + offset(row, col);
  with_element(dtype_, address, [&](auto element) {
    narrow(value, element);
    std::memcpy(address, &element, sizeof(element));
  });
}

bool Tensor::surroundings_untouched() const {
  const auto untouched = [](const std::byte* begin, const std::byte* end) {
    return std::all_of(begin, end, [](std::byte byte) { return byte == filler; });
  };
  for (std::int64_t row = 0; row < rows_; ++row) {
    if (!untouched(data_ + offset(row, cols_), data_ + offset(row + 1, 0))) return false;
  }
  return untouched(memory_.get(), data_) && untouched(data_ + bytes().size(), memory_.get() + allocated_);
}

void Tensor::clear() { std::memset(memory_.get(), std::to_integer<int>(filler), allocated_); }

Operands Inputs::operands(Tensor& y) const {
  return {.x = x.data(), .y = y.data(), .bias = bias.data(), .g = g.data()};
}

std::vector<const void*> Inputs::value_addresses() const {
  std::vector<const void*> all;
  for (const Tensor& one : values) all.push_back(one.data());
  return all;
}

std::int64_t sum_length(const Problem& problem) {
  switch (problem.operation) {
    case Operation::multiply:
      return problem.pattern().c;
    case Operation::transposed:
    case Operation::adjoint:
      return problem.pattern().b;
    case Operation::gradient:
      return problem.batch;
  }
  throw Error(ErrorCode::internal, "unknown operation");
}

Tensor batch_tensor(const Problem& problem, std::int64_t features, std::int64_t stride) {
  return problem.layout == Layout::batch_first ? Tensor(problem.dtype, problem.batch, features, stride)
                                               : Tensor(problem.dtype, features, problem.batch, stride);
}

namespace {

Tensor values_tensor(const Problem& problem, const Pattern& factor) {
  return {problem.dtype, factor.a * factor.b, factor.c * factor.d};
}

}  // namespace

Tensor output_tensor(const Problem& problem) {
  if (problem.operation == Operation::gradient) {
    if (problem.chain.size() > 1) return {problem.dtype, 1, problem.chain.nnz()};
    return values_tensor(problem, problem.pattern());
  }
  return batch_tensor(problem, problem.out_features(), problem.y_stride());
}

Inputs random_inputs(const Problem& problem, std::uint64_t seed) {
  require_memory_for(problem);
  const Chain& chain = problem.chain;
  const bool gradient = problem.operation == Operation::gradient;
  const bool transposed =
      problem.operation == Operation::transposed || problem.operation == Operation::adjoint;
  Inputs inputs;
  inputs.x = batch_tensor(problem, problem.in_features(), problem.x_stride());
  fill(inputs.x, 4 * seed, near_normal);
  if (gradient) {
    inputs.g = batch_tensor(problem, chain.rows(), problem.rows_stride);
    fill(inputs.g, 4 * seed + 1, near_normal);
  }
  if (!gradient || chain.size() > 1) {
    for (std::size_t factor = 0; factor < chain.size(); ++factor) {
      const double scale =
          1.0 / std::sqrt(static_cast<double>(transposed ? chain[factor].b : chain[factor].c));
      // Streams of the other factors are far from those of any seed near this one.
      const std::uint64_t stream = 4 * seed + 2 + (static_cast<std::uint64_t>(factor) << 40U);
      inputs.values.push_back(values_tensor(problem, chain[factor]));
      fill(inputs.values.back(), stream, [scale](std::uint64_t bits) { return scale * uniform(bits); });
    }
  }
  if (problem.bias) {
    inputs.bias = Tensor(problem.dtype, 1, chain.rows());
    fill(inputs.bias, 4 * seed + 3, near_normal);
  }
  return inputs;
}

void require_memory_for(const Problem& problem) {
  const double physical =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGE_SIZE));
  // Strides may make a matrix larger than its elements.
  const auto strided_elements = [&](std::int64_t features, std::int64_t stride) {
    const std::int64_t rows = problem.layout == Layout::batch_first ? problem.batch : features;
    return static_cast<double>(rows) * static_cast<double>(stride);
  };
  const double element = static_cast<double>(size_of(problem.dtype));
  const double strided = (strided_elements(problem.chain.cols(), problem.cols_stride) +
                          strided_elements(problem.chain.rows(), problem.rows_stride)) *
                         element;
  double handed_on = 0;  // all of it at once for the gradient, two at a time otherwise
  double widest = 0;
  for (std::size_t factor = 1; factor < problem.chain.size(); ++factor) {
    const double features = static_cast<double>(problem.chain[factor].rows());
    handed_on += features;
    widest = std::max(widest, features);
  }
  handed_on =
      problem.operation == Operation::gradient ? handed_on + 2 * widest : std::min(handed_on, 2 * widest);
  const double needed =
      std::max(problem.bytes(), strided) + handed_on * static_cast<double>(problem.batch) * element;
  if (needed > physical) {
    throw Error(ErrorCode::out_of_memory, fmt::format("\"{}\" needs {:.1f} GB, this machine has {:.1f} GB",
                                                      problem.to_string(), needed * 1e-9, physical * 1e-9));
  }
}

}  // namespace kronsparse::cli
