// Values that tests of one problem need for every implementation, computed once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <typeindex>

#include "kronsparse/problem.hpp"

namespace conformance {

/// Values of problems of one dtype, layout and operation. Tests of the same three follow each other
/// (combination.hpp); the first of others drops what was kept, so that memory does not fill.
class Kept {
 public:
  /// The result of make() for this type, problem and seed, on which alone it must depend. It stays where it
  /// is until a problem of another dtype, layout or operation comes.
  template <class Value, class Make>
  const Value& get(const kronsparse::Problem& problem, std::uint64_t seed, Make&& make) {
    if (const Group group{problem.dtype, problem.layout, problem.operation}; group != group_) {
      values_.clear();
      group_ = group;
    }
    std::shared_ptr<const void>& value = values_[{typeid(Value), problem.to_string(), seed}];
    if (value == nullptr) value = std::make_shared<const Value>(make());
    return *static_cast<const Value*>(value.get());
  }

 private:
  using Group = std::tuple<kronsparse::DType, kronsparse::Layout, kronsparse::Operation>;
  using Key = std::tuple<std::type_index, std::string, std::uint64_t>;

  Group group_{};
  std::map<Key, std::shared_ptr<const void>> values_;
};

/// The store of this process; for the thread that runs the tests.
inline Kept& kept() {
  static Kept instance;
  return instance;
}

}  // namespace conformance
