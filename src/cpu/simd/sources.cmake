# Sources of the simd family and of `unpacked`, and the flags of the files that are compiled for one
# instruction set.
set(KRONSPARSE_SIMD_SOURCES
    cpu/simd/columns.cpp
    cpu/simd/columns_blocking.cpp
    cpu/simd/cost.cpp
    cpu/simd/gradient.cpp
    cpu/simd/isa_baseline.cpp
    cpu/simd/rows.cpp
    cpu/simd/rows_blocking.cpp
    cpu/simd/rows_part.cpp
    cpu/simd/simd.cpp
    cpu/simd/weights.cpp
    cpu/unpacked/isa_baseline.cpp
    cpu/unpacked/unpacked.cpp)

# Not in Debug builds: with sanitizers gcc takes four minutes over isa_avx512.cpp at -O3, and less than one at -O1.
# Scheduling before register allocation hoists loads until accumulators spill.
set(KRONSPARSE_ISA_FLAGS $<$<NOT:$<CONFIG:Debug>>:-O3> -ffp-contract=fast)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # gcc 12 takes the undefined operands inside its own intrinsics for ours.
  list(APPEND KRONSPARSE_ISA_FLAGS -fno-schedule-insns -Wno-maybe-uninitialized -Wno-uninitialized)
endif()
set_source_files_properties(cpu/simd/isa_baseline.cpp cpu/unpacked/isa_baseline.cpp PROPERTIES COMPILE_OPTIONS "${KRONSPARSE_ISA_FLAGS}")

if(KRONSPARSE_X86_64)
  list(APPEND KRONSPARSE_SIMD_SOURCES cpu/simd/isa_avx2.cpp cpu/simd/isa_avx512.cpp cpu/unpacked/isa_avx2.cpp
       cpu/unpacked/isa_avx512.cpp)
  set_source_files_properties(
    cpu/simd/isa_avx2.cpp cpu/unpacked/isa_avx2.cpp PROPERTIES COMPILE_OPTIONS "${KRONSPARSE_ISA_FLAGS};-mavx2;-mfma;-mf16c")
  set(KRONSPARSE_AVX512_FLAGS -mavx512f -mavx512dq -mavx512bw -mavx512vl -mfma -mf16c -mprefer-vector-width=512)
  set_source_files_properties(
    cpu/simd/isa_avx512.cpp cpu/unpacked/isa_avx512.cpp PROPERTIES COMPILE_OPTIONS "${KRONSPARSE_ISA_FLAGS};${KRONSPARSE_AVX512_FLAGS}")
endif()
