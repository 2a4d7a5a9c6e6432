"""How the wall time of a whole fit grows with the number of rows.

Run `python -m benchmarks.scaling_rows`. Logistic regression with 10 features, `shards="auto"`, everything
else as it is by default; rows in memory, and in a Parquet file. Every fit runs in a fresh process, imports
and compilation counted. Time that grows no faster than rows has a slope of at most 1 on log-log axes.
"""

from __future__ import annotations

import itertools
import math
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.measuring import Verdict, in_fresh_process, load, machine, parser, stages, table
from benchmarks.simulated import formula, logistic_columns

FEATURES = 10
ROWS = (100_000, 300_000, 1_000_000, 3_000_000)
# The processes' own start is the same for any number of rows; what varies besides is noise of this size.
NOISE = 0.05


def run_fit(rows: int, path: str | None, draws: int) -> dict[str, Any]:
    """One fit, in the process it is called in."""
    data: Any = logistic_columns(rows, FEATURES, seed=3) if path is None else path
    start = time.perf_counter()
    import consilience as cs

    model = cs.glm(formula(FEATURES), family="bernoulli")
    fit = cs.fit(model, data, draws=draws, seed=5, progress=False)
    return {
        "seconds": time.perf_counter() - start,
        "stages": fit.cost.seconds,
        "gradients": fit.cost.full_data_gradients,
        "shards": fit.settings["shards"],
        "warnings": len(fit.warnings),
    }


def measure(sizes: tuple[int, ...], draws: int, directory: Path) -> dict[str, list[dict[str, Any]]]:
    """One fit for every number of rows and kind of source."""
    found: dict[str, list[dict[str, Any]]] = {"memory": [], "Parquet": []}
    for rows in sizes:
        path = directory / f"rows-{rows}.parquet"
        in_fresh_process("simulated:write_parquet", path=str(path), rows=rows, features=FEATURES)
        for kind, place in (("memory", None), ("Parquet", str(path))):
            busy = load()
            answer = in_fresh_process("scaling_rows:run_fit", rows=rows, path=place, draws=draws)
            found[kind].append({**answer, "rows": rows, "load": busy})
        path.unlink()
    return found


def slope(runs: list[dict[str, Any]]) -> float:
    """Least-squares slope of log seconds on log rows."""
    x = [math.log(run["rows"]) for run in runs]
    y = [math.log(run["seconds"]) for run in runs]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    above = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return above / sum((a - mean_x) ** 2 for a in x)


def steepest(runs: list[dict[str, Any]]) -> float:
    """The largest factor of time over factor of rows between neighbouring sizes."""
    return max((b["seconds"] / a["seconds"]) / (b["rows"] / a["rows"]) for a, b in itertools.pairwise(runs))


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rows", type=int, nargs="+")
    options.add_argument("--draws", type=int, default=10_000)
    arguments = options.parse_args()
    sizes = tuple(arguments.rows or ((5_000, 10_000, 20_000) if arguments.small else ROWS))
    print(f"{machine()}; logistic regression, {FEATURES} features, shards='auto', {arguments.draws:,} draws")
    with tempfile.TemporaryDirectory(prefix="benchmark-") as directory:
        found = measure(sizes, arguments.draws, Path(directory))
    rows = [
        (
            kind,
            f"{run['rows']:,}",
            run["shards"],
            f"{run['seconds']:.1f}",
            f"{1e6 * run['seconds'] / run['rows']:.1f}",
            stages(run["stages"]),
            f"{run['gradients']:.0f}",
            f"{run['load']:.1f}",
        )
        for kind, runs in found.items()
        for run in runs
    ]
    headers = ["rows in", "rows", "shards", "s", "s per million", "stages, s", "full-data gradients", "load"]
    print(table(headers, rows))
    for kind, runs in found.items():
        print(Verdict(f"log-log slope of time on rows in {kind}", slope(runs), 1.0))
        what = f"largest (factor of time / factor of rows) between neighbours in {kind}"
        print(Verdict(what, steepest(runs), 1.0 + NOISE))


if __name__ == "__main__":
    main()
