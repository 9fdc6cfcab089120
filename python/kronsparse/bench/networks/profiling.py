"""The time of a call by kinds of kernels: where it goes."""

from __future__ import annotations

import re
from collections.abc import Callable

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

# The first that is found in the name of a kernel, or on a CPU of an operator.
KINDS = {
    "products of factors": r"kronsparse",
    "attention": r"flash|fmha|attention|softmax",
    "dense products": r"gemm|cutlass|nvjet|xmma|cublas|gemv|splitk|::mm|addmm|bmm|::linear|matmul",
    "norms": r"norm|rms",
    "copies": r"copy|memcpy|memset|cat|transpose|permute|contiguous|index|gather",
    "elementwise": r"",
}


def kind_of(kernel: str) -> str:
    """The kind of a kernel by its name.

    >>> kind_of("void kronsparse::wgmma_kernel"), kind_of("sm90_xmma_gemm_f16"), kind_of("vectorized_add")
    ('products of factors', 'dense products', 'elementwise')
    """
    return next(kind for kind, words in KINDS.items() if re.search(words, kernel.lower()))


def profiled(call: Callable[[], object], on_gpu: bool) -> dict[str, float]:
    """Seconds of a call by kinds: of kernels on a GPU, of operators on a CPU."""
    call()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities) as recorded:
        call()
        if on_gpu:
            torch.cuda.synchronize()
    found: dict[str, float] = {}
    for event in recorded.key_averages():
        if (event.device_type == DeviceType.CUDA) != on_gpu:
            continue
        microseconds = event.self_device_time_total if on_gpu else event.self_cpu_time_total
        kind = kind_of(event.key)
        found[kind] = found.get(kind, 0.0) + 1e-6 * float(microseconds)
    return {kind: found[kind] for kind in KINDS if kind in found}
