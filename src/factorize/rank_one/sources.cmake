# Blocks of rank 1 in lanes, for each instruction set with the flags of the simd family.
set(KRONSPARSE_RANK_ONE_SOURCES factorize/rank_one/isa_baseline.cpp)
set_source_files_properties(factorize/rank_one/isa_baseline.cpp PROPERTIES COMPILE_OPTIONS "${KRONSPARSE_ISA_FLAGS}")
if(KRONSPARSE_X86_64)
  list(APPEND KRONSPARSE_RANK_ONE_SOURCES factorize/rank_one/isa_avx2.cpp factorize/rank_one/isa_avx512.cpp)
  set_source_files_properties(factorize/rank_one/isa_avx2.cpp PROPERTIES COMPILE_OPTIONS
                                                                         "${KRONSPARSE_ISA_FLAGS};-mavx2;-mfma;-mf16c")
  set_source_files_properties(
    factorize/rank_one/isa_avx512.cpp PROPERTIES COMPILE_OPTIONS "${KRONSPARSE_ISA_FLAGS};${KRONSPARSE_AVX512_FLAGS}")
endif()
