"""How fast `swiss` combines: against a plain transcription of Algorithm 1 and NumPyro's consensus.

Run `python -m benchmarks.combine_speed`. Ten shards of 5,000 draws in d dimensions; repetitions of the
contestants alternate in one process, so that a busy machine is busy for all of them; the ratio is the
median over rounds. NumPyro's `consensus` runs twice: cold, as a user's first call (a new process each time,
its imports not counted), and warm.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

from consilience.combine import combine

NUM_SHARDS, NUM_DRAWS = 10, 5_000

COLD = """
import time
import jax, jax.numpy as jnp, numpy as np
from numpyro.infer.hmc_util import consensus
draws = np.random.default_rng(0).normal(size=({shards}, {draws}, {d}))
start = time.perf_counter()
jax.block_until_ready(consensus([jnp.asarray(x) for x in draws]))
print(time.perf_counter() - start)
"""


def plain_swiss(draws: np.ndarray) -> np.ndarray:
    """Algorithm 1 as it is printed, with symmetric roots by `eigh` and nothing checked."""

    def root(matrix: np.ndarray) -> np.ndarray:
        values, vectors = np.linalg.eigh(matrix)
        return (vectors * np.sqrt(values)) @ vectors.T

    num_shards = len(draws)
    means = [x.mean(axis=0) for x in draws]
    covariances = [np.atleast_2d(np.cov(x, rowvar=False)) for x in draws]
    precisions = [np.linalg.inv(v) for v in covariances]
    covariance = np.linalg.inv(sum(precisions) / num_shards)
    mean = covariance @ sum(p @ m for p, m in zip(precisions, means, strict=True)) / num_shards
    outer = root(covariance)
    inverse = np.linalg.inv(outer)
    moved = []
    for x, m, v in zip(draws, means, covariances, strict=True):
        map_ = outer @ np.linalg.inv(root(inverse @ v @ inverse)) @ inverse
        moved.append((x - m) @ map_.T + mean)
    return np.concatenate(moved)


def make_draws(d: int, seed: int = 0) -> np.ndarray:
    """Gaussian shards of differing means and covariances."""
    rng = np.random.default_rng(seed)
    factors = np.eye(d) + 0.3 * rng.normal(size=(NUM_SHARDS, d, d)) / np.sqrt(d)
    return rng.normal(size=(NUM_SHARDS, NUM_DRAWS, d)) @ np.swapaxes(factors, 1, 2) + rng.normal(
        size=(NUM_SHARDS, 1, d)
    )


def alternate(contestants: dict[str, Callable[[], object]], repetitions: int) -> dict[str, list[float]]:
    """Seconds of each in every round, taking turns."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for repetition in range(repetitions + 1):
        for name, run in contestants.items():
            start = time.perf_counter()
            run()
            if repetition:  # the first round warms caches up
                seconds[name].append(time.perf_counter() - start)
    return seconds


def numpyro_cold(d: int, repetitions: int) -> float:
    """Median seconds of the first call of NumPyro's consensus in a fresh process."""
    code = COLD.format(shards=NUM_SHARDS, draws=NUM_DRAWS, d=d)
    runs = [
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        for _ in range(repetitions)
    ]
    return statistics.median(float(run.stdout) for run in runs)


def numpyro_warm(draws: np.ndarray) -> Callable[[], object]:
    """NumPyro's consensus on arrays that JAX already holds."""
    import jax
    import jax.numpy as jnp
    from numpyro.infer.hmc_util import consensus

    held = [jnp.asarray(x) for x in draws]
    return lambda: jax.block_until_ready(consensus(held))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dimensions", type=int, nargs="+", default=[5, 20, 80])
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--cold-repetitions", type=int, default=3)
    arguments = parser.parse_args()
    peer = importlib.util.find_spec("numpyro") is not None
    print(f"{NUM_SHARDS} shards x {NUM_DRAWS} draws, median milliseconds")
    print(f"{'d':>4} {'swiss':>8} {'plain':>8} {'ratio':>6} {'peer cold':>13} {'ratio':>6} {'peer warm':>13}")
    for d in arguments.dimensions:
        draws = make_draws(d)
        contestants: dict[str, Callable[[], object]] = {
            "swiss": lambda draws=draws: combine(draws, method="swiss", kind="inflated"),  # type: ignore[misc]
            "plain": lambda draws=draws: plain_swiss(draws),  # type: ignore[misc]
        }
        found = alternate(contestants, arguments.repetitions)
        swiss, plain = (1e3 * statistics.median(found[name]) for name in ("swiss", "plain"))
        ratio = statistics.median(a / b for a, b in zip(found["swiss"], found["plain"], strict=True))
        line = f"{d:>4} {swiss:>8.1f} {plain:>8.1f} {ratio:>6.2f}"
        if peer:
            cold = 1e3 * numpyro_cold(d, arguments.cold_repetitions)
            warm = 1e3 * statistics.median(
                alternate({"warm": numpyro_warm(draws)}, arguments.repetitions)["warm"]
            )
            line += f" {cold:>13.1f} {swiss / cold:>6.3f} {warm:>13.1f}"
        print(line)


if __name__ == "__main__":
    main()
