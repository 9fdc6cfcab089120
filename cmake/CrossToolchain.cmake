# Cross-compiles with Debian's compilers and runs the result under qemu-user.
# Used by tools/cross-check, which prepares KRONSPARSE_CROSS_ROOT.
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES KRONSPARSE_CROSS_ARCH KRONSPARSE_CROSS_ROOT)

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR "${KRONSPARSE_CROSS_ARCH}")
set(CMAKE_C_COMPILER "${KRONSPARSE_CROSS_ARCH}-linux-gnu-gcc")
set(CMAKE_CXX_COMPILER "${KRONSPARSE_CROSS_ARCH}-linux-gnu-g++")

set(CMAKE_FIND_ROOT_PATH "${KRONSPARSE_CROSS_ROOT}" "/usr/${KRONSPARSE_CROSS_ARCH}-linux-gnu")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

# "max" has every instruction set that the emulator knows: for x86-64 up to
# AVX2 (qemu has no AVX-512), for aarch64 SVE, half precision and bfloat16.
find_program(KRONSPARSE_QEMU NAMES qemu-${KRONSPARSE_CROSS_ARCH}-static qemu-${KRONSPARSE_CROSS_ARCH} REQUIRED)
set(CMAKE_CROSSCOMPILING_EMULATOR "${KRONSPARSE_QEMU}" -cpu max -L "/usr/${KRONSPARSE_CROSS_ARCH}-linux-gnu")
