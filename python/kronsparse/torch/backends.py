"""The ways to multiply by one Kronecker-sparse factor, by name: ours and torch's own.

Each is a function (x, values, layout) -> y, for x (..., features) in batch_first and (features, ...) in
batch_last. ``kernel`` is kronsparse's; the others are what the paper's layer offers, for comparison and for
machines where the kernels cannot run.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from kronsparse.chains import Chain, Pattern, chain_text
from kronsparse.torch import _library, _operators
from kronsparse.torch.device_clock import device_seconds

Product = Callable[[Tensor, Tensor, str], Tensor]

_LARGEST_COMPILED_EDGE = 64


def to_dense(factors: Sequence[Tensor]) -> Tensor:
    """The matrix that factors of shapes (a, b, c, d) make, left factor first; differentiable.

    >>> to_dense([torch.ones(2, 1, 1, 2)])
    tensor([[1., 0., 0., 0.],
            [0., 1., 0., 0.],
            [0., 0., 1., 0.],
            [0., 0., 0., 1.]])
    """
    product = _dense_factor(factors[-1])
    for values in reversed(factors[:-1]):
        product = by_einsum(product, values, "batch_last")
    return product


def _dense_factor(values: Tensor) -> Tensor:
    a, b, c, d = values.shape
    dense = torch.diag_embed(values.permute(0, 1, 3, 2).transpose(2, 3), dim1=2, dim2=4)  # a, b, d, c, d
    dense = torch.diag_embed(dense.movedim(0, -1), dim1=0, dim2=3)  # a, b, d, a, c, d
    return dense.reshape(a * b * d, a * c * d)


def _blocks(values: Tensor) -> Tensor:
    """(a·d, b, c): the dense products, one after the other."""
    a, b, c, d = values.shape
    return values.permute(0, 3, 1, 2).reshape(a * d, b, c)


def by_kernel(x: Tensor, values: Tensor, layout: str) -> Tensor:
    """kronsparse's own kernels."""
    _library.check_usable("backend: 'kernel'")
    return _operators.linear(x, [values], None, _library.SETTINGS["none", layout, float32_mode()])


def by_einsum(x: Tensor, values: Tensor, layout: str) -> Tensor:
    return _einsum(x, values, "ibcj", Pattern(*values.shape), layout)


def _einsum(x: Tensor, values: Tensor, order: str, pattern: Pattern, layout: str) -> Tensor:
    """`order` names the dimensions of the values."""
    a, _, c, d = pattern
    if layout == "batch_first":
        y = torch.einsum(f"...icj,{order}->...ibj", x.unflatten(-1, (a, c, d)), values)
        return y.flatten(-3)
    y = torch.einsum(f"icj...,{order}->ibj...", x.unflatten(0, (a, c, d)), values)
    return y.flatten(0, 2)


def _einsum_prepared(x: Tensor, blocks: Tensor, pattern: Pattern, layout: str) -> Tensor:
    """With values in the order (a, d, b, c), which einsum's own products read without a permutation."""
    return _einsum(x, blocks, "ijbc", pattern, layout)


def by_bmm(x: Tensor, values: Tensor, layout: str) -> Tensor:
    """A batched product between two permutations."""
    return _bmm(x, _blocks(values), Pattern(*values.shape), layout)


def _bmm(x: Tensor, blocks: Tensor, pattern: Pattern, layout: str) -> Tensor:
    a, b, c, d = pattern
    if layout == "batch_first":
        # Only c x d is transposed, inside samples: half the time of a permutation that moves samples too.
        permuted = x.reshape(-1, a, c, d).transpose(2, 3).reshape(-1, a * d, c).transpose(0, 1)
        y = torch.bmm(permuted, blocks.transpose(1, 2))
        return y.view(a, d, -1, b).permute(2, 0, 3, 1).reshape(*x.shape[:-1], a * b * d)
    permuted = x.reshape(a, c, d, -1).transpose(1, 2).reshape(a * d, c, -1)
    y = torch.bmm(blocks, permuted)
    return y.view(a, d, b, -1).transpose(1, 2).reshape(a * b * d, *x.shape[1:])


def by_bsr(x: Tensor, values: Tensor, layout: str) -> Tensor:
    """A block-sparse product between two permutations. No gradient."""
    _refuse_gradient("bsr", x, values)
    return _bsr(x, _bsr_matrix(values), Pattern(*values.shape), layout)


def _bsr_edge(b: int, c: int, on_gpu: bool) -> int:
    """The edge of the square blocks that a dense block is cut into; MKL and cuSPARSE take no others. Where
    it is a power of two, torch compiles a kernel for whole blocks on a GPU; for 256 that did not end in
    minutes.

    >>> _bsr_edge(96, 384, on_gpu=True), _bsr_edge(1024, 256, on_gpu=True), _bsr_edge(1024, 256, on_gpu=False)
    (96, 64, 256)
    """
    edge = math.gcd(b, c)
    is_power_of_two = edge & (edge - 1) == 0
    return min(edge, _LARGEST_COMPILED_EDGE) if on_gpu and is_power_of_two else edge


def _bsr_matrix(values: Tensor) -> Tensor:
    """The permuted factor, whose a·d dense blocks lie on its diagonal, in square blocks."""
    a, b, c, d = values.shape
    device = values.device
    edge = _bsr_edge(b, c, device.type == "cuda")
    block_rows, block_cols = b // edge, c // edge
    first_col = (torch.arange(a * d, device=device) * block_cols).view(a * d, 1, 1)
    cols = (first_col + torch.arange(block_cols, device=device)).expand(a * d, block_rows, block_cols)
    row_starts = torch.arange(a * d * block_rows + 1, device=device) * block_cols
    squares = _blocks(values).view(a * d, block_rows, edge, block_cols, edge).transpose(2, 3)
    with _quiet():
        return torch.sparse_bsr_tensor(
            row_starts,
            cols.reshape(-1),
            squares.reshape(-1, edge, edge).contiguous(),  # cuSPARSE takes no views
            size=(a * b * d, a * c * d),
            check_invariants=False,
        )


def _bsr(x: Tensor, matrix: Tensor, pattern: Pattern, layout: str) -> Tensor:
    a, b, c, d = pattern
    if layout == "batch_first":
        permuted = x.reshape(-1, a, c, d).permute(1, 3, 2, 0).reshape(a * d * c, -1)
        y = torch.mm(matrix, permuted)
        return y.view(a, d, b, -1).permute(3, 0, 2, 1).reshape(*x.shape[:-1], a * b * d)
    permuted = x.reshape(a, c, d, -1).transpose(1, 2).reshape(a * d * c, -1)
    y = torch.mm(matrix, permuted)
    return y.view(a, d, b, -1).transpose(1, 2).reshape(a * b * d, *x.shape[1:])


def by_sparse(x: Tensor, values: Tensor, layout: str) -> Tensor:
    """The factor as a compressed sparse row matrix. No gradient."""
    _refuse_gradient("sparse", x, values)
    return _sparse(x, _csr_matrix(values), Pattern(*values.shape), layout)


def _csr_matrix(values: Tensor) -> Tensor:
    a, b, c, d = values.shape
    rows, cols = a * b * d, a * c * d
    device = values.device
    crow = torch.arange(0, rows * c + 1, c, device=device)
    i = torch.arange(a, device=device).view(a, 1, 1, 1)
    j = torch.arange(d, device=device).view(1, 1, d, 1)
    k = torch.arange(c, device=device).view(1, 1, 1, c)
    col = (i * c * d + k * d + j).expand(a, b, d, c).reshape(-1)
    with _quiet():
        data = values.transpose(2, 3).reshape(-1)
        return torch.sparse_csr_tensor(crow, col, data, size=(rows, cols), check_invariants=False)


def _sparse(x: Tensor, matrix: Tensor, pattern: Pattern, layout: str) -> Tensor:
    if layout == "batch_first":
        y = torch.mm(matrix, x.reshape(-1, pattern.cols).t())
        return y.t().reshape(*x.shape[:-1], pattern.rows)
    return torch.mm(matrix, x.reshape(pattern.cols, -1)).reshape(pattern.rows, *x.shape[1:])


def by_dense(x: Tensor, values: Tensor, layout: str) -> Tensor:
    """The factor with its zeros."""
    return multiply_dense(x, _dense_factor(values), layout)


def multiply_dense(x: Tensor, matrix: Tensor, layout: str) -> Tensor:
    if layout == "batch_first":
        return torch.nn.functional.linear(x, matrix)
    return (matrix @ x.flatten(1)).view(matrix.shape[0], *x.shape[1:]) if x.dim() > 1 else matrix @ x


BACKENDS: dict[str, Product] = {
    "kernel": by_kernel,
    "bmm": by_bmm,
    "bsr": by_bsr,
    "einsum": by_einsum,
    "dense": by_dense,
    "sparse": by_sparse,
}


class Steps(NamedTuple):
    """A backend of torch's in two steps: weights are prepared once, products are made of them often."""

    prepare: Callable[[Tensor], Tensor]
    multiply: Callable[[Tensor, Tensor, Pattern, str], Tensor]  # of x and what was prepared


# For who multiplies by the same values again and again: the benchmark.
STEPS = {
    "bmm": Steps(lambda values: _blocks(values).contiguous(), _bmm),
    "bsr": Steps(_bsr_matrix, _bsr),
    "einsum": Steps(lambda values: values.permute(0, 3, 1, 2).contiguous(), _einsum_prepared),
    "dense": Steps(_dense_factor, lambda x, matrix, _, layout: multiply_dense(x, matrix, layout)),
    "sparse": Steps(_csr_matrix, _sparse),
}


def _refuse_gradient(backend: str, *tensors: Tensor) -> None:
    if _operators.needs_grad(*tensors):
        raise NotImplementedError(
            f"backend: {backend!r} has no gradient; use kernel, bmm, einsum or dense, or torch.no_grad()"
        )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """torch says of compressed sparse tensors that they are in beta."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is in beta state")
        yield


# Compiled code holds the answer, and is compiled again when the setting changes: torch guards it.
@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def float32_mode() -> str:
    """The mode that torch.set_float32_matmul_precision allows: one TF32 product unless it is "highest"."""
    return "fp32" if torch.get_float32_matmul_precision() == "highest" else "tf32"


class Choice(NamedTuple):
    """The backend that "auto" takes, and why."""

    backend: str
    reason: str
    is_close: bool = False
    """whether measuring may know better"""


# Predictions further apart than this are believed. With 2 instead, GPT-2 medium in float16 took 1.07 and 1.08
# times as long as its dense twin (monarch with 4 and 16 blocks, an H200): layers that are slow were believed
# to be fast.
_CLOSE = 8
# A measured kernel must be this much faster than dense: beside other layers it finds less in the cache.
_WORTH = 0.95

SMALL_WIDTH, SMALL_BATCH = 48, 64
"""up to these a layer always takes the kernel"""


def choose(
    chain: Chain,
    dtype: torch.dtype,
    layout: str,
    device: torch.device,
    batch: int,
    is_frozen: bool = False,
    has_bias: bool = False,
    activation: str | None = None,
) -> Choice:
    """`kernel`, unless the layer is frozen and one product with the factors multiplied out is predicted to be
    faster: then `dense`. Factors that may change are never multiplied out.

    >>> chain = (Pattern(1, 8, 8, 8), Pattern(8, 8, 8, 1))
    >>> choose(chain, torch.float32, "batch_first", torch.device("cpu"), 4096).backend
    'kernel'
    >>> choose(chain, torch.float32, "batch_first", torch.device("cpu"), 4096, is_frozen=True).backend
    'dense'
    """
    refused = _without_kernels(device)
    if refused is not None:
        return refused
    rows, cols = chain[0].rows, chain[-1].cols
    if not is_frozen:
        return Choice("kernel", "weights are not frozen: they are read at each call, and not multiplied out")
    if max(rows, cols) <= SMALL_WIDTH and batch <= SMALL_BATCH:
        return Choice("kernel", f"a layer up to {SMALL_WIDTH} wide, and a batch up to {SMALL_BATCH}")
    try:
        kernel = _kernel_seconds(chain, dtype, layout, device, batch, has_bias, activation)
        dense = _dense_seconds(rows, cols, dtype, layout, device, batch, has_bias, activation)
    except (ValueError, RuntimeError) as error:
        return Choice("kernel", f"no prediction: {error}")
    times = f"{1e6 * kernel:.3g} us for {chain_text(chain)}, {1e6 * dense:.3g} us for dense {rows}x{cols}"
    return Choice(
        "dense" if dense < kernel else "kernel",
        f"predicted for a batch of {batch} {layout} on {device}: {times}",
        device.type == "cuda" and 1 / _CLOSE < dense / max(kernel, 1e-9) < _CLOSE,
    )


def _without_kernels(device: torch.device) -> Choice | None:
    if _library.why_unusable:
        return Choice("bmm", f"the kernels cannot be used: {_library.why_unusable}")
    if device.type not in ("cpu", "cuda"):
        return Choice("bmm", f"there are no kernels for {device.type}")
    return None


def _kernel_seconds(
    chain: Chain,
    dtype: torch.dtype,
    layout: str,
    device: torch.device,
    batch: int,
    has_bias: bool,
    activation: str | None,
) -> float:
    """The kernels' predicted time, for values that are packed already."""
    if dtype not in _library.DTYPES:
        raise ValueError(f"dtype: {dtype} given, must be one of {', '.join(map(str, _library.DTYPES))}")
    mode = float32_mode() if dtype == torch.float32 else "fp32"
    gpu = -1 if device.type == "cpu" else device.index or 0
    sizes = [size for pattern in chain for size in pattern]
    settings = _library.SETTINGS[activation or "none", layout, mode]
    number = _library.DTYPES.index(dtype)
    run, _, _ = torch.ops.kronsparse.predict(sizes, number, settings, has_bias, gpu, batch)
    return 1e-9 * float(run)


# An H200 as measured, and its facts, by which other GPUs are told from it.
_GPU_FLOPS = {torch.float16: 745e12, torch.bfloat16: 745e12, torch.float32: 51e12, torch.float64: 51e12}
_GPU_TF32_FLOPS = 364e12
_GPU_BYTES_PER_SECOND = 4.2e12
_GPU_MULTIPROCESSORS, _GPU_KILOHERTZ, _GPU_MEMORY = 132, 1980000, 3201000 * 6016
_GPU_LAUNCH_SECONDS = 4e-6
_CPU_CALL_SECONDS = 5e-6  # that a product of torch's takes more than one of ours


def _dense_seconds(
    rows: int,
    cols: int,
    dtype: torch.dtype,
    layout: str,
    device: torch.device,
    batch: int,
    has_bias: bool,
    activation: str | None,
) -> float:
    """The predicted time of torch's product with the whole matrix: by the rates of a GPU's units and memory,
    or on a CPU by our own cost model."""
    if device.type == "cpu":
        whole = Chain([(1, rows, cols, 1)])
        seconds = _kernel_seconds(whole, dtype, layout, device, batch, has_bias, activation)
        return seconds + _CPU_CALL_SECONDS
    properties = torch.cuda.get_device_properties(device)
    units = properties.multi_processor_count / _GPU_MULTIPROCESSORS
    units *= getattr(properties, "clock_rate", _GPU_KILOHERTZ) / _GPU_KILOHERTZ
    width = getattr(properties, "memory_bus_width", 0) * getattr(properties, "memory_clock_rate", 0)
    memory = (width or _GPU_MEMORY) / _GPU_MEMORY
    is_tf32 = dtype == torch.float32 and float32_mode() == "tf32"
    rate = _GPU_TF32_FLOPS if is_tf32 else _GPU_FLOPS.get(dtype, _GPU_FLOPS[torch.float32] / 4)
    flops = 2 * rows * cols * batch
    moved = dtype.itemsize * (rows * cols + batch * (rows + cols))
    if activation is not None:
        moved += 2 * dtype.itemsize * batch * rows  # an operation of its own
    seconds = max(flops / (rate * units), moved / (_GPU_BYTES_PER_SECOND * memory))
    return seconds + _GPU_LAUNCH_SECONDS * (1 if activation is None else 2)


Measured = tuple[Chain, torch.dtype, str, torch.device, int, bool, str | None, str]
"""what a measurement is found by: a layer but for its weights, the batch, and what float32 may be"""

measured: dict[Measured, Choice] = {}
"""in this process; those of the last so many problems"""
_MOST_MEASURED = 4096


def measure(
    problem: Measured, x: Tensor, kernel: Callable[[], Tensor], dense: Callable[[], Tensor]
) -> Choice:
    """The faster of two on a GPU, measured once for a problem, as a CUDA graph would run them."""
    found = measured.get(problem)
    if found is not None:
        return found
    with torch.no_grad():
        kernel_s, dense_s = device_seconds([kernel, dense], x)
    times = f"{1e6 * kernel_s:.3g} us for the kernels, {1e6 * dense_s:.3g} us for dense"
    backend = "kernel" if kernel_s < _WORTH * dense_s else "dense"
    choice = Choice(backend, f"measured for a batch of {problem[4]}: {times}", True)
    if len(measured) >= _MOST_MEASURED:
        measured.clear()
    measured[problem] = choice
    return choice
