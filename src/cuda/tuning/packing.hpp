// The fitted constants of the cost model in packing/.
#pragma once

namespace kronsparse::cuda::tuning {

/// The time by which a product that follows the packing becomes longer.
struct Packing {
  double start;        ///< seconds
  double copy;         ///< rate of values and packed weights together, over that of a copy
  double by_elements;  ///< factor where elements are packed one by one, as `simt` has them
};

}  // namespace kronsparse::cuda::tuning
