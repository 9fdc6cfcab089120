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

/// The code, and how the message begins.
template <class Call>
void expect_beginning(ErrorCode code, const std::string& beginning, Call&& call) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown, expected " << name(code) << ": " << beginning << "...";
  } catch (const Error& error) {
    EXPECT_EQ(name(error.code()), name(code)) << error.what();
    EXPECT_TRUE(std::string(error.what()).starts_with(beginning)) << error.what();
  }
}

}  // namespace kronsparse
