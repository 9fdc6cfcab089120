// kronsparse_emulation_tests [--quick] [GoogleTest flags]
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>

#include "picker.hpp"

namespace kronsparse::emulation {
bool quick = false;
}

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int at = 1; at < argc; ++at) {
    if (std::strcmp(argv[at], "--quick") != 0) {
      std::fprintf(stderr, "unknown argument '%s'\n", argv[at]);
      return 2;
    }
    kronsparse::emulation::quick = true;
  }
  return RUN_ALL_TESTS();
}
