"""How fast and how near `semiparametric-product` is, on one thread: against R's parallelMCMCcombine.

Run `python -m benchmarks.semiparametric_speed`. The workload is that of SwISS 4.1 (see papers/swiss_dimension.py): ten
Gaussian shards of 5,000 draws in d dimensions, 5,000 draws out. R's `semiparamDPE` was run once, on one thread of a
2-core machine; its figures stand below. Seconds are compared through the time that a copy of the draws takes,
there and here, and the error (IAD against the exact marginals) through that of consensus, whose formula is the same
in both, on the same draws: with shards as far apart as these, luck decides most of the error of all rules.

On these shards no correction can be seen, so that by default every shard enters as a Gaussian and no walk is needed.
The walk is timed twice besides: made to run on the same shards (`noise_limit=None`, which is how the peer works),
and by default on shards as far apart as chance puts them.
"""

from __future__ import annotations

import statistics
import time
import warnings
from typing import Any

import numpy as np

from benchmarks.measuring import Verdict, in_fresh_process, machine, parser, table

DRAWS = 5_000
# d: seconds of a copy of the draws, seconds and IAD of semiparamDPE, and IAD of consensus on the same draws.
PEER = {
    5: (0.034e-3, 23.0, 0.128, 0.072),
    20: (0.17e-3, 29.0, 0.180, 0.183),
    80: (1.2e-3, 62.0, 0.54, 0.54),
}
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
RUNS: dict[str, tuple[bool, dict[str, Any]]] = {
    "default": (True, {}),
    "walk": (True, {"noise_limit": None, "max_sweeps": 50}),
    "overlapping": (False, {}),
}


def copy_seconds(draws: list[np.ndarray]) -> float:
    """Seconds of a copy of all draws, best of many."""
    taken = []
    for _ in range(30):
        start = time.perf_counter()
        for x in draws:
            x.copy()
        taken.append(time.perf_counter() - start)
    return min(taken)


def measure(d: int, repetitions: int, draws: int) -> dict[str, list[float]]:
    """Seconds and IAD of every run, repetition by repetition, and the seconds of a copy."""
    from papers.measuring import measured
    from papers.rules import combine
    from papers.swiss_dimension import gaussian_shards

    from consilience.errors import ConsilienceWarning

    found: dict[str, list[float]] = {}
    for repetition in range(repetitions):
        for scattered in (True, False):
            rng = np.random.default_rng([0, d, repetition])
            shards = gaussian_shards(d, rng, scattered)
            reference = shards.reference(draws, rng)
            subposteriors = shards.draws(draws, rng)["subposterior"]
            if scattered:
                found.setdefault("copy", []).append(copy_seconds(list(subposteriors.draws)))
                plain = measured(combine("consensus", subposteriors, repetition), reference)
                found.setdefault("consensus iad", []).append(plain["iad"])
            for name in (name for name, (far, _) in RUNS.items() if far == scattered):
                seconds = []
                for _ in range(2):  # the first warms caches up
                    start = time.perf_counter()
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore", ConsilienceWarning)
                        posterior = combine(
                            "semiparametric-product", subposteriors, repetition, **RUNS[name][1]
                        )
                    seconds.append(time.perf_counter() - start)
                found.setdefault(f"{name} seconds", []).append(min(seconds))
                found.setdefault(f"{name} iad", []).append(measured(posterior, reference)["iad"])
    return found


def report(found: dict[int, dict[str, list[float]]]) -> None:
    """Print the table, and what was asked for."""
    rows, verdicts = [], []
    for d, values in found.items():
        copy, seconds, iad, consensus = PEER[d]
        scale = min(values["copy"]) / copy
        rows.append((d, "R semiparamDPE, there", f"{seconds:.1f}", f"{iad:.3f}", f"{iad / consensus:.2f}"))
        own = statistics.mean(values["consensus iad"])
        for name in RUNS:
            taken = statistics.median(values[f"{name} seconds"])
            error = statistics.mean(values[f"{name} iad"])
            relative = f"{error / own:.2f}" if RUNS[name][0] else ""
            rows.append((d, name, f"{taken:.3f}", f"{error:.3f}", relative))
            verdicts.append(
                Verdict(
                    f"R's semiparamDPE over {name}, in copies of the draws, d = {d}",
                    seconds * scale / taken,
                    10.0,
                    at_least=True,
                )
            )
        error = statistics.mean(values["default iad"])
        verdicts.append(
            Verdict(f"IAD over that of consensus on the same draws, d = {d}", error / own, iad / consensus)
        )
    print(table(["d", "run", "seconds", "IAD", "over consensus"], rows))
    for verdict in verdicts:
        print(verdict)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--dimensions", type=int, nargs="+", default=list(PEER), choices=list(PEER))
    options.add_argument("--repetitions", type=int)
    arguments = options.parse_args()
    repetitions = arguments.repetitions or (1 if arguments.small else 3)
    draws = 500 if arguments.small else DRAWS
    print(f"{machine()}; 10 shards x {draws} draws, one thread, {repetitions} repetitions")
    report(
        {
            d: in_fresh_process(
                "semiparametric_speed:measure",
                environment=ONE_THREAD,
                d=d,
                repetitions=repetitions,
                draws=draws,
            )
            for d in arguments.dimensions
        }
    )


if __name__ == "__main__":
    main()
