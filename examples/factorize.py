"""A dense matrix as a Monarch chain: how good can it be, and what do weights and polish do?

  python examples/factorize.py [--size 512] [--parameters 65536]

The matrix is that of a layer whose inputs are correlated, as they are in trained models: few directions
have most of the variance.
"""

from __future__ import annotations

import argparse

import kronsparse
import numpy as np


def layer_and_inputs(size: int) -> tuple[np.ndarray, np.ndarray]:
    """A weight matrix, and the covariance of its inputs."""
    rng = np.random.default_rng(0)
    smooth = np.exp(-np.abs(np.subtract.outer(np.arange(size), np.arange(size))) / 32)
    weight = smooth * rng.normal(size=(size, size)) + 0.02 * rng.normal(size=(size, size))
    directions = rng.normal(size=(size, size // 16))
    return weight, directions @ directions.T + 0.1 * np.eye(size)


def error_of_outputs(weight: np.ndarray, op: kronsparse.KSOperator, covariance: np.ndarray) -> float:
    rest = weight - op.to_dense()
    return float(np.sqrt(np.sum((rest @ covariance) * rest) / np.sum((weight @ covariance) * weight)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--parameters", type=int, default=65536)
    arguments = parser.parse_args()
    weight, covariance = layer_and_inputs(arguments.size)
    chain = kronsparse.for_budget(arguments.size, arguments.size, arguments.parameters)
    print(chain.table())
    found = kronsparse.factorize(weight, chain)
    print(f"\nof the weights: error {found.error:.3f}, none is below {found.lower_bound:.3f}")
    print(f"of the outputs: error {error_of_outputs(weight, found.operator, covariance):.3f}")
    for sweeps in (0, 1, 2):
        found = kronsparse.factorize(weight, chain, weights=covariance, polish=sweeps)
        print(f"of the outputs, with weights and polish={sweeps}: error {found.error:.3f}")
    rounded = found.rounded(weight, "bf16", covariance)
    print(f"the same in bf16: error {error_of_outputs(weight, rounded.operator, covariance):.3f}")


if __name__ == "__main__":
    main()
