// Where a thread is in a ring of stages in shared memory.
#pragma once

namespace kronsparse::cuda {

/// The parity turns with every round: it is that of the stage's barriers.
struct RingPlace {
  int at = 0;
  int parity = 0;

  __device__ void advance(int size) {
    if (++at == size) {
      at = 0;
      parity ^= 1;
    }
  }
  /// The same `stages` times.
  __device__ void skip(int size, int stages) {
    for (at += stages; at >= size; at -= size) parity ^= 1;
  }
};

}  // namespace kronsparse::cuda
