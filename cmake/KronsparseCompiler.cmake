# Language, build type, warnings, sanitizers, compiler cache.
include_guard(GLOBAL)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

# Asked of the compiler: CMAKE_SYSTEM_PROCESSOR is empty where someone sets CMAKE_SYSTEM_NAME alone.
include(CheckCXXSymbolExists)
check_cxx_symbol_exists(__x86_64__ cstddef KRONSPARSE_X86_64)

# gcc 12 for x86-64 turns a pair of roundings (double)(float)x, (double)(float)y
# that it vectorises from straight-line code into nothing.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND KRONSPARSE_X86_64)
  add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-fno-tree-slp-vectorize>)
endif()

option(KRONSPARSE_WERROR "Treat warnings as errors" OFF)
set(KRONSPARSE_SANITIZE "" CACHE STRING "Sanitizers for everything that is built, e.g. address,undefined")

if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
  endif()
  find_program(KRONSPARSE_CCACHE ccache DOC "Compiler cache; empty to go without")
  if(KRONSPARSE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_C_COMPILER_LAUNCHER "${KRONSPARSE_CCACHE}")
    set(CMAKE_CXX_COMPILER_LAUNCHER "${KRONSPARSE_CCACHE}")
  endif()
endif()

# Warnings are a target, so that code which is not ours can go without them.
add_library(kronsparse_warnings INTERFACE)
target_compile_options(kronsparse_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion)
if(KRONSPARSE_WERROR)
  target_compile_options(kronsparse_warnings INTERFACE -Werror)
endif()

# Sanitizers must be in every object and every link, hence the directory scope.
if(KRONSPARSE_SANITIZE)
  add_compile_options(-fsanitize=${KRONSPARSE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${KRONSPARSE_SANITIZE})
endif()

kronsparse_report(compiler "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}, ${CMAKE_SYSTEM_PROCESSOR}")
set(_build_type "${CMAKE_BUILD_TYPE}")
if(KRONSPARSE_SANITIZE)
  string(APPEND _build_type ", sanitizers: ${KRONSPARSE_SANITIZE}")
endif()
if(KRONSPARSE_WERROR)
  string(APPEND _build_type ", warnings are errors")
endif()
kronsparse_report("build type" "${_build_type}")
