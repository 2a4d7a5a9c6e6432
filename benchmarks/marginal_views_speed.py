"""How fast marginal views see a shard: the EUWoK sweep against the same sums by brute force.

Run `python -m benchmarks.marginal_views_speed`. One shard of N = 100,000 draws of d = 10 parameters, M = 100,000 points
of one of them. "sums" are those of 1, r and r r' (55 numbers per draw) at all points; "shard" is all that the rule does
with a shard at these points, tail rules and the integral over the other parameters included, with nothing drawn
towards the shard's Gaussian, which would save work. The brute force takes the sums at 200 points, by the same kernel in
matrix form, and its time is multiplied by M / 200: all of it would take minutes. Contestants take turns in one process;
times are processor time, of all threads together; the ratio is the median over rounds. Doubling M and N at once shows
how the sweep grows.
"""

from __future__ import annotations

import statistics
import sys
import time

import numpy as np

from benchmarks.measuring import Verdict, machine, parser, table
from consilience.combine.euwok import Euwok
from consilience.combine.views_density import Prior
from consilience.combine.views_product import Product
from consilience.combine.views_shard import Density, ShardView

DIMENSION, SIZE, PART = 10, 100_000, 200


def shard(number: int, seed: int = 0) -> ShardView:
    """A skewed shard of correlated parameters, seen along the first."""
    rng = np.random.default_rng(seed)
    draws = rng.gamma(4.0, size=(number, DIMENSION)) @ (
        np.eye(DIMENSION) + 0.2 * rng.normal(size=(DIMENSION,) * 2)
    )
    density = Density("euwok", "sheather-jones", 0.05, 10.0, 2.0, 5.0)
    return ShardView.of(draws, draws.mean(axis=0), np.cov(draws, rowvar=False), 1, float(number), density)


def contestants(number: int) -> dict[str, float]:
    """Seconds of processor time of each, once; the brute force extrapolated to all points."""
    view, rng = shard(number), np.random.default_rng(1)
    p = DIMENSION - 1
    rows, columns = np.triu_indices(p)

    def values(start: int, stop: int) -> np.ndarray:
        r = view.r[:, start:stop]
        return np.concatenate([np.ones((1, stop - start)), r, r[rows] * r[columns]])

    kernel = view.kernel
    assert isinstance(kernel, Euwok)
    theta = np.sort(view.centre + rng.standard_t(5, size=(number, 1)) / view.theta_map[0, 0], axis=0)
    points = (theta - view.centre) @ view.theta_map.T
    psi = view.psi_centre + (theta - view.centre) @ view.slope.T
    seconds = {}
    start = time.process_time()
    for _ in kernel.sums(points, view.pulled, values):
        pass
    seconds["sums by the sweep"] = time.process_time() - start
    start = time.process_time()
    view.add_density(Product(1, number, p, integrate=True), theta, psi, Prior(), np.eye(p))
    seconds["shard"] = time.process_time() - start
    few = points[:: max(1, number // PART)][:PART]
    start = time.process_time()
    total = np.zeros((1 + p + len(rows), len(few)))
    for first in range(0, number, 4_096):
        stop = min(first + 4_096, number)
        total += values(first, stop) @ kernel.matrix(few, view.pulled[first:stop]).T
    seconds["sums by brute force"] = (time.process_time() - start) * number / len(few)
    return seconds


def main() -> int:
    arguments = parser(__doc__).parse_args()
    size, rounds = (4_000, 1) if arguments.small else (SIZE, 5)
    print(machine())
    found = [contestants(size) for _ in range(rounds + 1)][1:]
    doubled = [contestants(2 * size) for _ in range(max(1, rounds // 2))]
    middle = {name: statistics.median(x[name] for x in found) for name in found[0]}
    larger = {name: statistics.median(x[name] for x in doubled) for name in found[0]}
    print(
        table(
            ["", f"M = N = {size:,}, s", f"M = N = {2 * size:,}, s", "ratio"],
            [
                (name, f"{middle[name]:.3g}", f"{larger[name]:.3g}", f"{larger[name] / middle[name]:.2f}")
                for name in middle
            ],
        )
    )
    speed = statistics.median(x["sums by brute force"] / x["sums by the sweep"] for x in found)
    print(Verdict(f"brute force over sweep at d = {DIMENSION}", speed, 100.0, at_least=True))
    print(Verdict("a shard's whole density on one core", middle["shard"], 2.0, unit=" s"))
    growth = larger["sums by the sweep"] / middle["sums by the sweep"]
    print(Verdict("growth of the sweep when M and N double", growth, 2.6))
    return 0


if __name__ == "__main__":
    sys.exit(main())
