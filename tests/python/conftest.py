"""Helpers of the Python tests: seeds, devices, and references that are written without kronsparse."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

torch = pytest.importorskip("torch", reason="needs torch >= 2.10")

PATTERNS = [(1, 3, 4, 5), (2, 3, 4, 1), (3, 2, 2, 4), (1, 7, 5, 1)]
LAYOUTS = ["batch_first", "batch_last"]


def gpu_is_missing() -> str:
    """Why tests of the GPU cannot run; empty when they can."""
    from kronsparse import _native

    if not torch.cuda.is_available():
        return "needs an NVIDIA GPU and a torch with CUDA"
    return _native.why_unusable("cuda:0")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = gpu_is_missing()
    for item in items:
        if missing and item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason=missing))


@pytest.fixture(autouse=True)
def _same_numbers_each_time() -> None:
    torch.manual_seed(0)


def dense_factor(values: torch.Tensor) -> torch.Tensor:
    """K by its definition: K[i·b·d + k·d + j, i·c·d + l·d + j] = values[i,k,l,j]."""
    a, b, c, d = values.shape
    matrix = values.new_zeros(a * b * d, a * c * d)
    for i in range(a):
        for k in range(b):
            for m in range(c):
                for j in range(d):
                    matrix[i * b * d + k * d + j, i * c * d + m * d + j] = values[i, k, m, j]
    return matrix


def dense_product(factors: Sequence[torch.Tensor]) -> torch.Tensor:
    product = dense_factor(factors[0])
    for values in factors[1:]:
        product = product @ dense_factor(values)
    return product


def input_of(
    features: int, batch: Sequence[int], layout: str, dtype: torch.dtype, **options: object
) -> torch.Tensor:
    shape = (*batch, features) if layout == "batch_first" else (features, *batch)
    return torch.randn(shape, dtype=dtype, **options)


def expected(
    x: torch.Tensor, matrix: torch.Tensor, layout: str, bias: torch.Tensor | None = None
) -> torch.Tensor:
    y = torch.tensordot(x, matrix, ([-1], [1])) if layout == "batch_first" else torch.tensordot(matrix, x, 1)
    if bias is not None:
        y = y + (bias if layout == "batch_first" else bias.reshape(-1, *[1] * (x.dim() - 1)))
    return y
