"""How long factorisation takes here, as sizes double, on a large layer, and beside lazylinop.

python examples/factorize_speed.py [--largest 4096]
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import time
from collections.abc import Callable

import kronsparse
import numpy as np


def shortest(call: Callable[[], object], times: int) -> float:
    seconds = []
    for _ in range(times):
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def product_of(chain: kronsparse.Chain) -> np.ndarray:
    rng = np.random.default_rng(0)
    return kronsparse.KSOperator([rng.normal(size=one) / np.sqrt(one.c) for one in chain]).to_dense()


def report(name: str, w: np.ndarray, chain: kronsparse.Chain, times: int = 3) -> None:
    found = kronsparse.factorize(w, chain)
    certified = shortest(lambda: kronsparse.factorize(w, chain), times)
    alone = shortest(lambda: kronsparse.factorize(w, chain, certify=False), times)
    print(
        f"{name}: {alone:.3f} s, with the certificate {certified:.3f} s, error {found.error:.2g}, "
        f"at most {found.ratio:.3f} times that of the best",
        flush=True,
    )


def beside_lazylinop() -> None:
    if importlib.util.find_spec("lazylinop") is None:
        print("lazylinop is not installed: nothing to compare with")
        return
    from lazylinop.butterfly import Chain, ksd

    size = 1024
    random = np.random.default_rng(0).normal(size=(size, size))
    butterfly = Chain.square_dyadic((size, size)), kronsparse.butterfly(size)
    monarch = Chain.monarch((size, size), p=32, q=32), kronsparse.monarch(size, size, 32)
    for name, w, theirs, ours in (
        ("butterfly f64", random, *butterfly),
        ("butterfly f32", random.astype(np.float32), *butterfly),
        ("monarch f64", random, *monarch),
        ("monarch f32", random.astype(np.float32), *monarch),
    ):
        seconds: dict[str, list[float]] = {"ksd": [], "ours": [], "certified": []}
        for _ in range(5):  # in turn, so that all meet the same machine
            seconds["ksd"].append(shortest(functools.partial(ksd, w, theirs), 1))
            seconds["ours"].append(
                shortest(functools.partial(kronsparse.factorize, w, ours, certify=False), 1)
            )
            seconds["certified"].append(shortest(functools.partial(kronsparse.factorize, w, ours), 1))
        best = {who: min(all_of) for who, all_of in seconds.items()}
        print(
            f"{name} {size}: ksd {best['ksd']:.3f} s, ours {best['ours']:.4f} s "
            f"({best['ksd'] / best['ours']:.1f}x), with the certificate {best['certified']:.4f} s "
            f"({best['ksd'] / best['certified']:.1f}x)",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--largest", type=int, default=4096)
    arguments = parser.parse_args()
    size = 512
    while size <= arguments.largest:
        chain = kronsparse.butterfly(size)
        report(f"product of a butterfly {size}", product_of(chain), chain)
        report(f"random, butterfly {size}", np.random.default_rng(1).normal(size=(size, size)), chain)
        size *= 2
    if arguments.largest >= 4096:
        chain = kronsparse.monarch(4096, 11008, 64)
        report("product of a monarch 4096 x 11008", product_of(chain), chain, times=1)
    beside_lazylinop()


if __name__ == "__main__":
    main()
