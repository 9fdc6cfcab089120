#!/usr/bin/env python3
"""Fits the cost model of a kernel to the table that its sweep writes.

    kronsparse_sweep_fused < tools/sweeps/fused_problems.txt > results/h200-fused-configs.csv
    tools/sweeps/fit.py results/h200-fused-configs.csv

Prints the coefficients for the kernel's search.cu, and the regret: how much slower than the best config
the chosen one is. Every fourth problem is kept out of the fit. A time is the sum of its terms, or that of
moving the operands if it is longer.
"""

import csv
import sys
from collections import defaultdict

import numpy as np
from scipy.optimize import nnls


def main() -> None:
    configs = defaultdict(list)
    apart = {}
    with open(sys.argv[1], newline="") as table:
        rows = csv.reader(table)
        measured = next(rows).index("measured_us")
        for row in rows:
            if row[1] == "apart":
                apart[row[0]] = float(row[measured])
            else:
                configs[row[0]].append((float(row[measured]), [float(term) for term in row[measured + 1 :]]))
    problems = list(configs)
    fitted = [problem for at, problem in enumerate(problems) if at % 4 != 3]
    samples, times, weights = [], [], []
    for problem in fitted:
        best = min(seconds for seconds, _ in configs[problem])
        for seconds, terms in configs[problem]:
            samples.append(terms)
            times.append(seconds)
            # Errors are relative, and the best configs matter most.
            weights.append((best / seconds) ** 1.5 / seconds)
    weighted = np.array(weights)
    coefficients, _ = nnls(np.array(samples) * weighted[:, None], np.array(times) * weighted)
    print("{" + ", ".join(f"{value:.4g}" for value in coefficients) + "}")
    for name, chosen_from in (("fitted", fitted), ("kept out", [p for p in problems if p not in fitted])):
        regrets, ratios = [], []
        for problem in chosen_from:
            predictions = [float(np.dot(terms, coefficients)) for _, terms in configs[problem]]
            chosen = int(np.argmin(predictions))
            seconds = configs[problem][chosen][0]
            regrets.append(seconds / min(time for time, _ in configs[problem]))
            ratios.append(predictions[chosen] / seconds)
            one_by_one = f", one by one {apart[problem]:.1f}" if problem in apart else ""
            print(
                f"  {problem}: {seconds:.1f} us, predicted {predictions[chosen]:.1f}, "
                f"regret {regrets[-1]:.2f}{one_by_one}"
            )
        print(
            f"{name}: regret median {np.median(regrets):.3f}, mean {np.mean(regrets):.3f}, "
            f"worst {max(regrets):.2f}; predicted / measured {min(ratios):.2f} to {max(ratios):.2f}"
        )


if __name__ == "__main__":
    main()
