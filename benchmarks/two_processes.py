"""How much faster two worker processes are than one, on equal shards.

Run `python -m benchmarks.two_processes`. The same fit (same bits) with `engine="processes"` and one or two workers,
taking turns, each in a fresh process. Beside the ratio stands what bounds it: the same two cores under plain
NumPy products, one process against two at once, and the share of the time that start-up takes.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from benchmarks.measuring import (
    Verdict,
    in_fresh_process,
    load,
    machine,
    parser,
    stages,
    start_fresh,
    table,
    wait_for,
)
from benchmarks.simulated import formula, logistic_columns

ROWS, FEATURES, SHARDS, DRAWS = 1_280_000, 28, 128, 128_000
TARGET = 1.7
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}


def run_fit(rows: int, shards: int, workers: int, draws: int) -> dict[str, Any]:
    """One fit, in the process it is called in."""
    data = logistic_columns(rows, FEATURES, seed=6)
    start = time.perf_counter()
    import consilience as cs

    model = cs.glm(formula(FEATURES), family="bernoulli")
    arguments: dict[str, Any] = {"engine": "processes", "refine": None, "seed": 7, "progress": False}
    fit = cs.fit(model, data, shards=shards, draws=draws, workers=workers, **arguments)
    seconds = sorted(fit.shards["seconds"])
    typical = statistics.median(seconds)
    return {
        "seconds": time.perf_counter() - start,
        "stages": fit.cost.seconds,
        "in_shards": sum(seconds),
        # A worker compiles on its first shard; what that took beyond a typical one is start-up too.
        "compiling": sum(max(0.0, each - typical) for each in seconds[-workers:]),
        "typical": typical,
        "check": float(fit.posterior.array.sum()),
    }


def spin(repeats: int) -> dict[str, Any]:
    """Work that nothing but a core limits, timed after the imports."""
    import numpy as np

    rng = np.random.default_rng(0)
    x, v = rng.normal(size=(10_000, FEATURES)).astype(np.float32), np.ones((FEATURES, 4), np.float32)
    start = time.perf_counter()
    for _ in range(repeats):
        v = x.T @ np.tanh(x @ v)
        v /= np.abs(v).max()
    return {"seconds": time.perf_counter() - start}


def ceiling(repeats: int) -> float:
    """How many cores two processes really get: twice the work over how much longer it takes."""
    alone = in_fresh_process("two_processes:spin", environment=ONE_THREAD, repeats=repeats)["seconds"]
    both = [start_fresh("two_processes:spin", environment=ONE_THREAD, repeats=repeats) for _ in range(2)]
    return 2 * alone / max(wait_for(process)["seconds"] for process in both)


def measure(rows: int, shards: int, draws: int, repetitions: int) -> list[dict[str, Any]]:
    """Fits with one and with two workers, taking turns."""
    found = []
    for _ in range(repetitions):
        for workers in (1, 2):
            busy = load()
            arguments: dict[str, Any] = {"rows": rows, "shards": shards, "workers": workers, "draws": draws}
            answer = in_fresh_process("two_processes:run_fit", **arguments)
            found.append({**answer, "workers": workers, "load": busy})
    return found


def start_up(run: dict[str, Any]) -> float:
    """Seconds of the sampling stage in which a worker started, imported, or compiled."""
    return float(run["stages"]["sample"] - (run["in_shards"] - run["compiling"]) / run["workers"])


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rows", type=int)
    options.add_argument("--repetitions", type=int, default=1)
    options.add_argument("--draws", type=int)
    arguments = options.parse_args()
    rows, shards, draws, repeats = (8_000, 4, 500, 50) if arguments.small else (ROWS, SHARDS, DRAWS, 3_000)
    rows, draws = arguments.rows or rows, arguments.draws or draws
    print(
        f"{machine()}; logistic regression, {rows:,} rows x {FEATURES} features in {shards} equal shards, "
        f"{draws:,} draws, refine=None"
    )
    limit = ceiling(repeats)
    found = measure(rows, shards, draws, arguments.repetitions)
    lines = [
        (
            run["workers"],
            f"{run['seconds']:.1f}",
            stages(run["stages"]),
            f"{start_up(run):.1f}",
            f"{100 * start_up(run) / run['seconds']:.0f} %",
            f"{run['typical']:.2f}",
            f"{run['load']:.1f}",
        )
        for run in found
    ]
    headers = ["workers", "s", "stages, s", "start-up in sampling, s", "share of all", "s per shard", "load"]
    print(table(headers, lines))
    one, two = ([run for run in found if run["workers"] == n] for n in (1, 2))
    if len({run["check"] for run in found}) > 1:
        print("The runs did NOT give the same bits.")

    def ratio(of: Any) -> float:
        return statistics.median(map(of, one)) / statistics.median(map(of, two))

    print(f"two processes of plain NumPy products do {limit:.2f} times the work of one on these cores")
    print(f"sampling stage alone: {ratio(lambda run: run['stages']['sample']):.2f} times")
    print(
        f"sampling without start-up: {ratio(lambda run: run['stages']['sample'] - start_up(run)):.2f} times"
    )
    print(
        Verdict("one worker's wall time over two's", ratio(lambda run: run["seconds"]), TARGET, at_least=True)
    )


if __name__ == "__main__":
    main()
