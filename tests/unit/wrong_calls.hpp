// A wrong call, and the test that every one of them goes through.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <string>

#include "kronsparse/kronsparse.hpp"

namespace kronsparse {

inline const std::string text = "f32 batch_first B=7 2x3x4x5";
inline const std::string number_rule =
    " is not a whole number written in decimal digits without sign or leading zero";

struct WrongCall {
  std::string label;
  ErrorCode code;
  std::string message;
  std::function<void()> call;

  // The name that GoogleTest shows for a parameter.
  friend std::ostream& operator<<(std::ostream& stream, const WrongCall& wrong) {
    return stream << wrong.label;
  }
};

/// Its test is in wrong_calls_test.cpp.
class WrongCalls : public testing::TestWithParam<WrongCall> {};

inline std::string test_name(const testing::TestParamInfo<WrongCall>& info) {
  std::string result;
  for (char character : info.param.label) result += character == ' ' ? '_' : character;
  return result;
}

}  // namespace kronsparse
