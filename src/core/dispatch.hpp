// From a dtype known at run time to a C++ type.
#pragma once

#include <complex>
#include <string>

#include "kronsparse/dtype.hpp"
#include "kronsparse/error.hpp"

namespace kronsparse {

/// Calls `body.template operator()<T>()` with the element type of `dtype`:
///
///     dispatch_dtype(dtype, []<class T>() { return sizeof(T); })
template <class Body>
decltype(auto) dispatch_dtype(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::f32:
      return body.template operator()<float>();
    case DType::f64:
      return body.template operator()<double>();
    case DType::f16:
      return body.template operator()<Half>();
    case DType::bf16:
      return body.template operator()<BFloat16>();
    case DType::complex64:
      return body.template operator()<std::complex<float>>();
    case DType::complex128:
      return body.template operator()<std::complex<double>>();
  }
  // name() explains what is allowed instead of the number.
  throw Error(ErrorCode::invalid_argument, std::string(name(dtype)));
}

}  // namespace kronsparse
