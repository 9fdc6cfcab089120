# Installs a build tree into an empty prefix, then configures, builds and runs
# a project that knows nothing but that prefix. Run with
#   cmake -D BUILD_DIR=... -D WORK_DIR=... -D CONSUMER_DIR=... -D GENERATOR=...
#         -D CXX_COMPILER=... -D MAKE_PROGRAM=... -D BUILD_TYPE=... [-D SOURCE_DIR=...] -P install_and_use.cmake
# With SOURCE_DIR it first makes BUILD_DIR: a static library (BUILD_SHARED: a shared one) without the rest
# (and without CUDA, whose kernels take minutes to compile once more). Warnings are errors, in the headers too.

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "failed (${result}): ${command}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

set(toolchain -G "${GENERATOR}" "-DCMAKE_CXX_COMPILER=${CXX_COMPILER}" "-DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM}"
              "-DCMAKE_BUILD_TYPE=${BUILD_TYPE}")
file(REMOVE_RECURSE "${WORK_DIR}")
if(SOURCE_DIR)
  if(NOT BUILD_SHARED)
    set(BUILD_SHARED OFF)
  endif()
  run("${CMAKE_COMMAND}" -S "${SOURCE_DIR}" -B "${BUILD_DIR}" ${toolchain} -DBUILD_SHARED_LIBS=${BUILD_SHARED}
      -DKRONSPARSE_WERROR=ON -DKRONSPARSE_BUILD_TESTS=OFF -DKRONSPARSE_BUILD_CLI=OFF -DKRONSPARSE_CUDA=OFF
      -DCMAKE_CXX_FLAGS_DEBUG=-O0)
  run("${CMAKE_COMMAND}" --build "${BUILD_DIR}")
endif()
run("${CMAKE_COMMAND}" --install "${BUILD_DIR}" --prefix "${WORK_DIR}/prefix")
run("${CMAKE_COMMAND}" -S "${CONSUMER_DIR}" -B "${WORK_DIR}/build" ${toolchain}
    "-DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix" -DCMAKE_NO_SYSTEM_FROM_IMPORTED=ON
    "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror")
run("${CMAKE_COMMAND}" --build "${WORK_DIR}/build")
run("${WORK_DIR}/build/consumer")
message("${output}")

# A project of C alone, through CMake and through pkg-config.
run("${CMAKE_COMMAND}" -S "${CONSUMER_DIR}/../c_consumer" -B "${WORK_DIR}/c-build" -G "${GENERATOR}"
    "-DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM}" "-DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix")
run("${CMAKE_COMMAND}" --build "${WORK_DIR}/c-build")
run("${WORK_DIR}/c-build/consumer")
find_program(pkg_config pkg-config)
find_program(cc NAMES cc gcc clang)
if(pkg_config AND cc)
  file(GLOB_RECURSE pc "${WORK_DIR}/prefix/*/kronsparse.pc")
  get_filename_component(pc_directory "${pc}" DIRECTORY)
  set(ENV{PKG_CONFIG_PATH} "${pc_directory}")
  run("${pkg_config}" --cflags --libs kronsparse)
  separate_arguments(flags UNIX_COMMAND "${output}")
  get_filename_component(libraries "${pc_directory}" DIRECTORY)
  run("${cc}" "${CONSUMER_DIR}/../c_consumer/main.c" -o "${WORK_DIR}/by-pkg-config" ${flags} "-Wl,-rpath,${libraries}")
  run("${WORK_DIR}/by-pkg-config")
endif()
if(NOT EXISTS "${WORK_DIR}/prefix/share/licenses/kronsparse/LICENSE")
  message(FATAL_ERROR "LICENSE is not installed")
endif()

# The installed headers must be the public ones, complete, and nothing else.
file(GLOB headers RELATIVE "${WORK_DIR}/prefix/include/kronsparse" "${WORK_DIR}/prefix/include/kronsparse/*")
file(GLOB public_headers RELATIVE "${CONSUMER_DIR}/../../../include/kronsparse"
     "${CONSUMER_DIR}/../../../include/kronsparse/*.h*")
list(TRANSFORM public_headers REPLACE "\\.in$" "")
list(SORT headers)
list(SORT public_headers)
if(NOT headers STREQUAL public_headers)
  message(FATAL_ERROR "installed headers: ${headers}\npublic headers: ${public_headers}")
endif()
