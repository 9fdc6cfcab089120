// The number of threads follows whatever runtime of OpenMP is loaded, however it came.
#include "cpu/openmp.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "child.hpp"
#include "cpu/threads.hpp"

namespace kronsparse {
namespace {

TEST(OpenMP, NoneIsLoadedByTheLibrary) { EXPECT_EQ(openmp_threads(), 0); }

// As PyTorch's: loaded after this library, and hidden from it.
TEST(OpenMP, ARuntimeThatIsLoadedLaterIsAsked) {
  EXPECT_TRUE(holds_in_child([] {
    if (openmp_threads() != 0) return false;
    void* const library = dlopen(KRONSPARSE_PRETENDED_OPENMP, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return false;
    const auto pretend = reinterpret_cast<void (*)(int, int)>(dlsym(library, "pretend"));
    pretend(7, 0);
    bool holds = openmp_threads() == 7 && thread_count() == 7 && threads_for(1) == 7;
    pretend(1, 0);
    holds = holds && thread_count() == 1 && threads_for(1) == 1;
    pretend(7, 1);
    return holds && thread_count() == 1;
  }));
}

}  // namespace
}  // namespace kronsparse
