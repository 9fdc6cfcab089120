// A thread's position in a ring of stages in shared memory.
#pragma once

namespace kronsparse::cuda {

/// `parity` is that of the stage's barriers: it flips after each turn of the ring.
struct RingPlace {
  int at = 0;
  int parity = 0;

  __device__ void advance(int size) {
    if (++at == size) {
      at = 0;
      parity ^= 1;
    }
  }
  /// Advances by `stages` stages.
  __device__ void skip(int size, int stages) {
    for (at += stages; at >= size; at -= size) parity ^= 1;
  }
};

}  // namespace kronsparse::cuda
