# Sources of the amx family. Emulated tiles are for tests of everything around the registers.
set(KRONSPARSE_AMX_SOURCES cpu/amx/amx.cpp cpu/amx/columns.cpp cpu/amx/rows.cpp cpu/amx/weights.cpp)

if(KRONSPARSE_EMULATED_TILES)
  list(APPEND KRONSPARSE_AMX_SOURCES cpu/amx/isa_emulated.cpp)
  # -O1: at -O3 gcc takes minutes over vectors wider than the CPU's. They have no calling convention either, of
  # which gcc warns, but are never passed.
  set_source_files_properties(cpu/amx/isa_emulated.cpp PROPERTIES COMPILE_OPTIONS "-O1;-Wno-psabi")
endif()
if(KRONSPARSE_X86_64)
  list(APPEND KRONSPARSE_AMX_SOURCES cpu/amx/isa_amx.cpp)
  set_source_files_properties(cpu/amx/isa_amx.cpp PROPERTIES COMPILE_OPTIONS "${KRONSPARSE_ISA_FLAGS};${KRONSPARSE_AVX512_FLAGS}")
endif()
