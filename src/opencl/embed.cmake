# Writes OUTPUT, a header with one string for each of KERNELS, the files FOLDER/<kernel>.cl.
string(
  CONCAT text "// Made from src/opencl/kernels by src/opencl/embed.cmake.\n#pragma once\n\n#include <string_view>\n\n"
         "namespace kronsparse::opencl::sources {\n")
foreach(kernel IN LISTS KERNELS)
  file(READ "${FOLDER}/${kernel}.cl" source)
  string(APPEND text "\ninline constexpr std::string_view ${kernel}_cl = R\"cl(${source})cl\";\n")
endforeach()
string(APPEND text "\n}  // namespace kronsparse::opencl::sources\n")
file(WRITE "${OUTPUT}" "${text}")
