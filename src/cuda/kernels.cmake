# The kernels, a line each: the folder; the sources compiled there beside plan.cu (the launch and its entry in
# the table); and the arithmetics for which instances.cu.in becomes a source of its own. The includer defines
# kronsparse_kernel(): src/cuda/CMakeLists.txt compiles for GPUs, tests/emulation/CMakeLists.txt for the CPU.
kronsparse_kernel(large_batch/gemm SOURCES search.cu INSTANCES f16 bf16)
kronsparse_kernel(large_batch/wgmma SOURCES search.cu weights.cu INSTANCES f16 bf16 tf32 tf32x3)
kronsparse_kernel(large_batch/staged SOURCES search.cu sort_by_j.cu)
kronsparse_kernel(large_batch/mma SOURCES search.cu INSTANCES f16 bf16 tf32 tf32x3)
kronsparse_kernel(large_batch/simt)
kronsparse_kernel(small_batch/direct SOURCES search.cu INSTANCES f16 bf16)
kronsparse_kernel(small_batch/resident SOURCES search.cu INSTANCES f16 bf16)
kronsparse_kernel(small_batch/narrow SOURCES search.cu INSTANCES f16 bf16)
kronsparse_kernel(small_batch/stream SOURCES search.cu kernels.cu)
kronsparse_kernel(small_batch/skinny SOURCES search.cu)
kronsparse_kernel(chain/fused SOURCES search.cu INSTANCES f16 bf16 tf32 tf32x3)
kronsparse_kernel(chain/fused_wgmma SOURCES search.cu INSTANCES f16 bf16)
kronsparse_kernel(gradient/mma SOURCES search.cu INSTANCES f16 bf16)
kronsparse_kernel(gradient/wgmma SOURCES search.cu INSTANCES f16 bf16)
kronsparse_kernel(gradient/simt)
