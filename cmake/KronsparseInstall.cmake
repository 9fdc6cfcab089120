# Installs the library so that find_package(kronsparse) and pkg-config find it.
include_guard(GLOBAL)
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(_config_dir "${CMAKE_INSTALL_LIBDIR}/cmake/kronsparse")

# A Python package holds no symbolic links: there the library would be copied for each of its names.
if(NOT SKBUILD)
  set_target_properties(kronsparse PROPERTIES VERSION ${PROJECT_VERSION}
                                              SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
endif()
target_include_directories(kronsparse INTERFACE "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
if(NOT KRONSPARSE_INSTALL)
  return()
endif()

install(
  TARGETS kronsparse
  EXPORT kronsparse-targets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(
  DIRECTORY "${PROJECT_SOURCE_DIR}/include/kronsparse" "${PROJECT_BINARY_DIR}/include/kronsparse"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  FILES_MATCHING
  PATTERN "*.h"
  PATTERN "*.hpp")
install(
  EXPORT kronsparse-targets
  NAMESPACE kronsparse::
  DESTINATION "${_config_dir}")

# A static library leaves its dependencies to whoever links it. (fmt is compiled
# in and is none of them.)
get_target_property(_library_type kronsparse TYPE)
set(KRONSPARSE_CONFIG_DEPENDENCIES "")
set(KRONSPARSE_PC_LIBS "")
set(KRONSPARSE_PC_CFLAGS "")
if(_library_type STREQUAL "STATIC_LIBRARY")
  set(KRONSPARSE_PC_CFLAGS "-DKRONSPARSE_STATIC")
  set(KRONSPARSE_PC_LIBS "-lstdc++ -lm -pthread -ldl")
  string(APPEND KRONSPARSE_CONFIG_DEPENDENCIES "find_dependency(Threads)\n")
  if(KRONSPARSE_WITH_CUDA)
    # For CUDA::cudart_static; a compiler for CUDA is not needed.
    string(APPEND KRONSPARSE_CONFIG_DEPENDENCIES "find_dependency(CUDAToolkit)\n")
    string(PREPEND KRONSPARSE_PC_LIBS "-lcudart_static -lrt ")
  endif()
endif()
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/kronsparse-config.cmake.in"
                              "${PROJECT_BINARY_DIR}/kronsparse-config.cmake" INSTALL_DESTINATION "${_config_dir}")
write_basic_package_version_file(
  "${PROJECT_BINARY_DIR}/kronsparse-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/kronsparse-config.cmake" "${PROJECT_BINARY_DIR}/kronsparse-config-version.cmake"
        DESTINATION "${_config_dir}")

if(TARGET kronsparse_cli)
  install(TARGETS kronsparse_cli RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()

configure_file("${PROJECT_SOURCE_DIR}/cmake/kronsparse.pc.in" "${PROJECT_BINARY_DIR}/kronsparse.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/kronsparse.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DATADIR}/licenses/kronsparse")
