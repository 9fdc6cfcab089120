"""How long factorisation takes here: as sizes double, on a large layer, with one thread and all, on a device of
torch, and beside lazylinop.

python examples/factorize_speed.py [--only sizes,layer,threads,lazylinop] [--device cuda] [--largest 4096]
                                   [--rows rows.jsonl]

Each line is the shortest of some tries; contenders take turns. `--rows` adds them to a file, after the
machine, the versions and the commit.
"""

from __future__ import annotations

import argparse
import functools
import importlib.metadata
import importlib.util
import json
import time
from collections.abc import Callable
from typing import Any

import kronsparse
import numpy as np
from kronsparse.bench.measuring import machine

PARTS = ("sizes", "layer", "threads", "lazylinop")
DTYPES = (np.float64, np.float32)


class Rows:
    """Rows on the terminal, and in a file where one is named."""

    def __init__(self, path: str | None) -> None:
        self.path = path

    def add(self, **row: Any) -> None:
        if self.path:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        print(
            ", ".join(
                f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
                for name, value in row.items()
            ),
            flush=True,
        )


def shortest_in_turn(tries: int, **calls: Callable[[], object]) -> dict[str, float]:
    """The seconds of each call, one after the other in each try, so that all meet the same machine."""
    seconds = dict.fromkeys(calls, float("inf"))
    for _ in range(tries):
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            seconds[name] = min(seconds[name], time.perf_counter() - begin)
    return seconds


def product_of(chain: kronsparse.Chain, dtype: Any = np.float64) -> np.ndarray:
    rng = np.random.default_rng(0)
    factors = [rng.normal(size=one) / np.sqrt(one.c) for one in chain]
    return kronsparse.KSOperator(factors).to_dense().astype(dtype)


def random(chain: kronsparse.Chain, dtype: Any = np.float64) -> np.ndarray:
    return np.random.default_rng(1).normal(size=chain.shape).astype(dtype)


def report(rows: Rows, what: str, w: np.ndarray, chain: kronsparse.Chain, tries: int, device: str) -> None:
    call = functools.partial(kronsparse.factorize, w, chain)
    found = call(device=device)
    calls = {
        "alone": functools.partial(call, device=device, certify=False),
        "certified": functools.partial(call, device=device),
    }
    if device != "cpu":
        calls |= {"alone_cpu": functools.partial(call, certify=False), "certified_cpu": call}
    assert found.lower_bound <= found.error * (1 + 1e-5) + 1e-12, found
    rows.add(
        part=what,
        rows=w.shape[0],
        cols=w.shape[1],
        dtype=w.dtype.name,
        **shortest_in_turn(tries, **calls),
        error=found.error,
        lower_bound=found.lower_bound,
        upper_bound=found.upper_bound,
    )


def sizes(rows: Rows, largest: int, device: str) -> None:
    size = 512
    while size <= largest:
        chain = kronsparse.butterfly(size)
        report(rows, "product of a butterfly", product_of(chain), chain, 3, device)
        report(rows, "random to butterfly", random(chain), chain, 3, device)
        size *= 2


def layer(rows: Rows, largest: int, device: str) -> None:
    size = min(largest, 4096)
    chain = kronsparse.monarch(size, size * 43 // 16, size // 64)
    report(rows, "product of a monarch", product_of(chain), chain, 1, device)
    report(rows, "random to monarch", random(chain), chain, 1, device)
    report(rows, "random to monarch", random(chain, np.float32), chain, 1, device)


def threads(rows: Rows, largest: int) -> None:
    """One block, which all threads work on, and many, which they share."""
    if importlib.util.find_spec("torch") is None:
        print("torch is not installed: nothing else sets the number of threads")
        return
    import torch

    many = torch.get_num_threads()
    size = min(largest, 1024)
    for what, chain in (
        ("one large block, low rank", kronsparse.low_rank(size, size, 16)),
        ("monarch of rank 4", kronsparse.monarch(size, size, 32, 4)),
        ("monarch", kronsparse.monarch(size, size, 32)),
    ):
        for dtype in DTYPES:
            call = functools.partial(kronsparse.factorize, random(chain, dtype), chain)
            seconds = {1: float("inf"), many: float("inf")}
            for _ in range(5):
                for count in seconds:
                    torch.set_num_threads(count)
                    seconds[count] = min(seconds[count], shortest_in_turn(1, it=call)["it"])
            torch.set_num_threads(many)
            rows.add(
                part="threads",
                what=what,
                rows=size,
                dtype=np.dtype(dtype).name,
                threads=many,
                one=seconds[1],
                all=seconds[many],
                faster=seconds[1] / seconds[many],
            )


def beside_lazylinop(rows: Rows, largest: int, device: str) -> None:
    if importlib.util.find_spec("lazylinop") is None:
        print("lazylinop is not installed: nothing to compare with")
        return
    from lazylinop.butterfly import Chain, ksd

    size = min(1024, largest)
    blocks = size // 32
    for what, theirs, ours in (
        ("butterfly", Chain.square_dyadic((size, size)), kronsparse.butterfly(size)),
        ("monarch", Chain.monarch((size, size), p=blocks, q=blocks), kronsparse.monarch(size, size, blocks)),
    ):
        for dtype in DTYPES:
            w = random(ours, dtype)
            seconds = shortest_in_turn(
                7,
                ksd=functools.partial(ksd, w, theirs),
                ours=functools.partial(kronsparse.factorize, w, ours, certify=False, device=device),
                certified=functools.partial(kronsparse.factorize, w, ours, device=device),
            )
            rows.add(
                part="beside lazylinop",
                what=what,
                rows=size,
                dtype=np.dtype(dtype).name,
                lazylinop=importlib.metadata.version("lazylinop"),
                **seconds,
                ours_faster=seconds["ksd"] / seconds["ours"],
                certified_faster=seconds["ksd"] / seconds["certified"],
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default=",".join(PARTS), help="parts, with commas between")
    parser.add_argument("--device", default="cpu", help="of torch; the CPU is then timed beside it")
    parser.add_argument("--largest", type=int, default=4096, help="size of a matrix")
    parser.add_argument("--rows", help="file that rows are added to")
    arguments = parser.parse_args()
    parts = arguments.only.split(",")
    unknown = set(parts) - set(PARTS)
    if unknown:
        parser.error(f"--only: {sorted(unknown)} given, must be some of {', '.join(PARTS)}")
    rows = Rows(arguments.rows)
    rows.add(
        part="run",
        **machine.describe_machine(),
        device=arguments.device,
        numpy=np.__version__,
        commit=machine.commit(),
        load=machine.load(),
    )
    if "sizes" in parts:
        sizes(rows, arguments.largest, arguments.device)
    if "layer" in parts:
        layer(rows, arguments.largest, arguments.device)
    if "threads" in parts and arguments.device == "cpu":
        threads(rows, arguments.largest)
    if "lazylinop" in parts:
        beside_lazylinop(rows, arguments.largest, arguments.device)


if __name__ == "__main__":
    main()
