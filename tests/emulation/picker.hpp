// Choices that look random and are the same every time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kronsparse::emulation {

class Picker {
 public:
  explicit Picker(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  template <class T, std::size_t Count>
  const T& of(const T (&list)[Count]) {
    return list[next(Count)];
  }
  std::size_t next(std::size_t count) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::size_t>(state_ >> 33) % count;
  }

 private:
  std::uint64_t state_;
};

/// Whether the command line asked for a few cases only.
extern bool quick;

}  // namespace kronsparse::emulation
