"""The native module: products on NumPy arrays, and what this build and this machine have."""

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

__version__: str
loaded_version: str

def multiply_into(
    y: NDArray[Any],
    x: NDArray[Any],
    values: list[NDArray[Any]],
    bias: NDArray[Any] | None,
    activation: str,
    layout: str,
    operation: str,
    device: str = "cpu",
) -> None: ...
def gradient_into(
    grad_values: NDArray[Any], x: NDArray[Any], g: NDArray[Any], layout: str, device: str = "cpu"
) -> None: ...
def factorize_into(
    values: list[NDArray[Any]],
    w: NDArray[Any],
    order: str,
    splits: list[int],
    orthonormal: bool,
    polish: int,
    certify: bool,
    progress: Callable[[float], object] | None,
) -> tuple[float, float, float, list[float]]: ...
def devices() -> list[tuple[str, str]]: ...
def why_unusable(device: str) -> str: ...
def candidates(problem: str, device: str) -> list[tuple[str, str, float]]: ...
def predict(problem: str, device: str) -> tuple[float, float]: ...
def transform_radices(n: int, dtype: str, device: str) -> list[int]: ...
