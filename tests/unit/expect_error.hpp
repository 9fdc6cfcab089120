// An Error with exactly this code and message, or a failure that shows both.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "kronsparse/error.hpp"

namespace kronsparse {

template <class Call>
void expect_error(ErrorCode code, const std::string& message, Call&& call) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown, expected " << name(code) << ": " << message;
  } catch (const Error& error) {
    EXPECT_EQ(name(error.code()), name(code));
    EXPECT_EQ(error.what(), message);
  }
}

/// The code alone, where the message is tested elsewhere.
template <class Call>
void expect_code(ErrorCode code, const std::string& context, Call&& call) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown for " << context << ", expected " << name(code);
  } catch (const Error& error) {
    EXPECT_EQ(name(error.code()), name(code)) << context << ": " << error.what();
  }
}

}  // namespace kronsparse
