"""How fast `swiss` combines: against a plain transcription of Algorithm 1 and NumPyro's consensus.

Run `python -m benchmarks.combine_speed`. Ten shards of 5,000 draws in d dimensions; repetitions of the
contestants alternate in one process, so that a busy machine is busy for all of them; the ratio is the
median over rounds. NumPyro's `consensus` runs twice: cold, as a user's first call (a new process each time,
its imports not counted), and warm.
"""

from __future__ import annotations

import importlib.util
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

from benchmarks.measuring import Verdict, machine, parser, table
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


def measure(d: int, repetitions: int, cold_repetitions: int, peer: bool) -> dict[str, float]:
    """Median milliseconds of all contestants, and the ratios."""
    draws = make_draws(d)
    contestants: dict[str, Callable[[], object]] = {
        "swiss": lambda: combine(draws, method="swiss", kind="inflated"),
        "plain": lambda: plain_swiss(draws),
    }
    seconds = alternate(contestants, repetitions)
    found = {name: 1e3 * statistics.median(runs) for name, runs in seconds.items()}
    found["over plain"] = statistics.median(
        a / b for a, b in zip(seconds["swiss"], seconds["plain"], strict=True)
    )
    if peer:
        found["cold"] = 1e3 * numpyro_cold(d, cold_repetitions)
        found["warm"] = 1e3 * statistics.median(alternate({"warm": numpyro_warm(draws)}, repetitions)["warm"])
        found["over cold"] = found["swiss"] / found["cold"]
    return found


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--dimensions", type=int, nargs="+", default=[5, 20, 80])
    options.add_argument("--repetitions", type=int)
    options.add_argument("--cold-repetitions", type=int)
    arguments = options.parse_args()
    repetitions = arguments.repetitions or (3 if arguments.small else 15)
    cold = arguments.cold_repetitions or (1 if arguments.small else 3)
    peer = importlib.util.find_spec("numpyro") is not None
    print(
        f"{machine()}; {NUM_SHARDS} shards x {NUM_DRAWS} draws, median milliseconds of {repetitions} rounds"
    )
    columns = ("swiss", "plain", "over plain", *(("cold", "over cold", "warm") if peer else ()))
    headers = {"cold": "NumPyro consensus, cold", "warm": "NumPyro consensus, warm", "plain": "transcription"}
    found = {d: measure(d, repetitions, cold, peer) for d in arguments.dimensions}
    rows = [
        (d, *(f"{run[name]:.3f}" if "over" in name else f"{run[name]:.1f}" for name in columns))
        for d, run in found.items()
    ]
    print(table(["d", *(headers.get(name, name) for name in columns)], rows))
    for d, run in found.items():
        print(Verdict(f"swiss over a plain transcription, d = {d}", run["over plain"], 2.0))
        if peer:
            print(Verdict(f"swiss over NumPyro's consensus called cold, d = {d}", run["over cold"], 1.0))


if __name__ == "__main__":
    main()
