"""The native module: products on NumPy arrays, and what this build and this machine have."""

from typing import Any

from numpy.typing import NDArray

__version__: str

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
def devices() -> list[tuple[str, str]]: ...
def why_unusable(device: str) -> str: ...
def candidates(problem: str, device: str) -> list[tuple[str, str, float]]: ...
def predict(problem: str, device: str) -> tuple[float, float]: ...
