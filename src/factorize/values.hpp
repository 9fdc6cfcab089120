// Values of a factor in memory.
#pragma once

#include <memory>
#include <utility>
#include <vector>

namespace kronsparse::factorization {

/// Leaves new elements as they are: whoever makes values writes all of them, on all threads.
template <class T>
class Unset : public std::allocator<T> {
 public:
  template <class Other>
  struct rebind {  // NOLINT(readability-identifier-naming): the standard's name
    using other = Unset<Other>;
  };
  template <class Thing>
  void construct(Thing* /*there*/) noexcept {}
  template <class Thing, class... Arguments>
  void construct(Thing* there, Arguments&&... arguments) {
    std::construct_at(there, std::forward<Arguments>(arguments)...);
  }
};

template <class T>
using Values = std::vector<T, Unset<T>>;

}  // namespace kronsparse::factorization
