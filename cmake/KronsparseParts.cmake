# Optional parts of the build: chosen by the user, decided by what is found,
# reported once.
include_guard(GLOBAL)

define_property(GLOBAL PROPERTY KRONSPARSE_REPORT BRIEF_DOCS "Lines of the summary")

# One line of the summary: a name and what became of it.
function(kronsparse_report name text)
  string(LENGTH "${name}" length)
  math(EXPR padding "14 - ${length}")
  if(padding LESS 1)
    set(padding 1)
  endif()
  string(REPEAT " " ${padding} padding)
  set_property(GLOBAL APPEND PROPERTY KRONSPARSE_REPORT "${name}${padding}${text}")
endfunction()

# The cache variable KRONSPARSE_<part>: AUTO, ON or OFF. Defaults to AUTO.
function(_kronsparse_choice part description default)
  set(KRONSPARSE_${part} "${default}" CACHE STRING "Build ${description}: ON, OFF or AUTO (when its tools are found)")
  set_property(CACHE KRONSPARSE_${part} PROPERTY STRINGS AUTO ON OFF)
endfunction()

# kronsparse_part(<part> <description> PACKAGES <name>... [DEVELOPER])
#
# Declares KRONSPARSE_<part>, looks for the packages unless it is off and sets
# KRONSPARSE_WITH_<part>. ON makes the packages required. A DEVELOPER part is
# off by default when this project is a subdirectory of another.
macro(kronsparse_part part description)
  cmake_parse_arguments(_part "DEVELOPER" "" "PACKAGES" ${ARGN})
  set(_part_default AUTO)
  if(_part_DEVELOPER AND NOT PROJECT_IS_TOP_LEVEL)
    set(_part_default OFF)
  endif()
  _kronsparse_choice(${part} "${description}" ${_part_default})

  string(REPLACE "BUILD_" "" _part_label "${part}")
  string(TOLOWER "${_part_label}" _part_label)
  set(KRONSPARSE_WITH_${part} FALSE)
  if(KRONSPARSE_${part} STREQUAL "AUTO" OR KRONSPARSE_${part})
    set(_part_missing "")
    foreach(_part_package IN LISTS _part_PACKAGES)
      if(KRONSPARSE_${part} STREQUAL "AUTO")
        find_package(${_part_package} QUIET)
      else()
        find_package(${_part_package} REQUIRED)
      endif()
      if(NOT ${_part_package}_FOUND)
        list(APPEND _part_missing ${_part_package})
      endif()
    endforeach()
    if(_part_missing)
      list(JOIN _part_missing ", " _part_missing)
      kronsparse_report(${_part_label} "no: ${_part_missing} not found (${description})")
    else()
      set(KRONSPARSE_WITH_${part} TRUE)
      kronsparse_report(${_part_label} "yes (${description})")
    endif()
  else()
    kronsparse_report(${_part_label} "switched off (${description})")
  endif()
endmacro()

# kronsparse_directory_part(<part> <description> <directory> [DEVELOPER])
#
# A part that is one directory, which sets KRONSPARSE_WITH_<part> when it is
# built. Asking for one that this version does not have is an error, not a
# silent success.
function(kronsparse_directory_part part description directory)
  set(default AUTO)
  if("DEVELOPER" IN_LIST ARGN AND NOT PROJECT_IS_TOP_LEVEL)
    set(default OFF)
  endif()
  _kronsparse_choice(${part} "${description}" ${default})
  if(EXISTS "${PROJECT_SOURCE_DIR}/${directory}/CMakeLists.txt")
    if(KRONSPARSE_${part} STREQUAL "AUTO" OR KRONSPARSE_${part})
      add_subdirectory(${directory})
      set(KRONSPARSE_WITH_${part} "${KRONSPARSE_WITH_${part}}" PARENT_SCOPE)
    else()
      string(TOLOWER "${part}" label)
      set(reason "switched off")
      if(DEFINED KRONSPARSE_${part}_OFF_BECAUSE)
        set(reason "${KRONSPARSE_${part}_OFF_BECAUSE}")
      endif()
      kronsparse_report(${label} "${reason} (${description})")
    endif()
  elseif(KRONSPARSE_${part} AND NOT KRONSPARSE_${part} STREQUAL "AUTO")
    message(FATAL_ERROR "KRONSPARSE_${part}=${KRONSPARSE_${part}}, but kronsparse ${PROJECT_VERSION} does not have "
                        "${description} yet (there is no ${directory}/CMakeLists.txt). Leave it AUTO or OFF.")
  endif()
endfunction()

function(kronsparse_print_summary)
  get_property(lines GLOBAL PROPERTY KRONSPARSE_REPORT)
  message(STATUS "")
  message(STATUS "kronsparse ${PROJECT_VERSION}")
  foreach(line IN LISTS lines)
    message(STATUS "  ${line}")
  endforeach()
  message(STATUS "")
endfunction()
