"""How much memory a fit from a Parquet file takes, when the file is several times larger than it may take.

Run `python -m benchmarks.memory_parquet`. The bound is one shard (its columns as 8-byte numbers) for each worker
and 500 MB. The file is written a row group at a time and fitted in a fresh process, with the few heaps that
`consilience fit` makes do with. Memory is what the process and its children hold resident, looked at every few
hundredths of a second, and no less than the kernel's own record of the process' peak (VmHWM). Pages mapped from
files (the libraries' code: about 215 MB in a fit of any size), which the kernel can drop and read again, are counted
apart, and there is a verdict with and without them; what is without them is only seen by looking.
The same fit of a thousand rows says what of it the file
is not to blame for.
"""

from __future__ import annotations

import math
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measuring import Verdict, in_fresh_process, load, machine, parser, stages, table
from benchmarks.simulated import formula

MB = 1e6
ALLOWANCE = 500 * MB
ROWS, FEATURES, SHARDS, WORKERS = 8_000_000, 30, 400, 2
FEW = 1_000


def status_bytes(process: int | str, field: str) -> float:
    """A number of /proc/PID/status, in bytes; 0 for a process that is gone."""
    try:
        text = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0.0
    lines = [line for line in text.splitlines() if line.startswith(f"{field}:")]
    return 1024.0 * int(lines[0].split()[1]) if lines else 0.0


def children() -> list[str]:
    """Processes that this one has started."""
    found: list[str] = []
    for task in Path("/proc/self/task").iterdir():
        try:
            found += (task / "children").read_text().split()
        except OSError:
            continue
    return found


class Watch(threading.Thread):
    """Looks at the memory of this process and its children until told to stop."""

    def __init__(self, every: float = 0.03) -> None:
        super().__init__(daemon=True)
        self.every, self.stopped = every, threading.Event()
        # Seconds; resident bytes of this process and its children; of those, mapped from files.
        self.seen: list[tuple[float, float, float]] = []

    def run(self) -> None:
        while not self.stopped.wait(self.every):
            everybody = [str(os.getpid()), *children()]
            resident, mapped = (sum(status_bytes(p, f) for p in everybody) for f in ("VmRSS", "RssFile"))
            self.seen.append((time.perf_counter(), resident, mapped))

    def peaks(self, started: float, seconds: dict[str, float]) -> dict[str, tuple[float, float]]:
        """The private peak of every stage and what was mapped then; stages follow each other from `started` on."""
        found, begin = {}, -math.inf
        for name, end in [("imports", started), *_ends(started, seconds)]:
            inside = [(resident - mapped, mapped) for t, resident, mapped in self.seen if begin <= t < end]
            if inside:
                found[name] = max(inside)
            begin = end
        return found


def _ends(started: float, seconds: dict[str, float]) -> list[tuple[str, float]]:
    return list(zip(seconds, started + np.cumsum(list(seconds.values())), strict=True))


def run_fit(
    path: str, features: int, shards: int, workers: int, engine: str | None, draws: int
) -> dict[str, Any]:
    """One fit under watch, in the process it is called in."""
    watch = Watch()
    watch.start()
    import consilience as cs
    from consilience.machine import use_few_heaps

    use_few_heaps()

    model = cs.glm(formula(features), family="bernoulli")
    begun = time.perf_counter()
    fit = cs.fit(
        model, path, shards=shards, workers=workers, engine=engine, draws=draws, seed=4, progress=False
    )
    seconds = time.perf_counter() - begun
    own = status_bytes(os.getpid(), "VmHWM")
    watch.stopped.set()
    watch.join()
    return {
        "private": max((resident - mapped for _, resident, mapped in watch.seen), default=0.0),
        "all": max(own, *(resident for _, resident, _ in watch.seen)),
        "by_stage": watch.peaks(begun, fit.cost.seconds),
        "seconds": seconds,
        "stages": fit.cost.seconds,
        "shard_rows": int(max(fit.shards["rows"])),
    }


def measure(
    rows: int, features: int, shards: int, workers: int, draws: int, engines: tuple[str | None, ...]
) -> dict[str, Any]:
    """Write the file, fit it, and remove it."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as directory:
        path = str(Path(directory) / "rows.parquet")
        arguments: dict[str, Any] = {"path": path, "rows": rows, "features": features}
        size = in_fresh_process("simulated:write_parquet", **arguments)["bytes"]
        few = str(Path(directory) / "few.parquet")
        in_fresh_process("simulated:write_parquet", path=few, rows=FEW, features=features)
        settings: dict[str, Any] = {"features": features, "workers": workers, "draws": draws}
        runs = {}
        for engine in engines:
            name = engine or "threads (default)"
            for label, source, parts in ((f"{name}, {FEW:,} rows", few, 4), (name, path, shards)):
                busy = load()
                answer = in_fresh_process(
                    "memory_parquet:run_fit", path=source, shards=parts, engine=engine, **settings
                )
                runs[label] = {**answer, "load": busy}
    shard = 8.0 * (features + 1) * max(run["shard_rows"] for run in runs.values())
    return {"file": size, "shard": shard, "bound": shard * workers + ALLOWANCE, "runs": runs}


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rows", type=int)
    options.add_argument("--shards", type=int)
    options.add_argument("--draws", type=int, default=10_000)
    options.add_argument("--engines", nargs="+", choices=["threads", "processes"], default=["threads"])
    arguments = options.parse_args()
    rows, features, shards = (20_000, 5, 4) if arguments.small else (ROWS, FEATURES, SHARDS)
    rows, shards = arguments.rows or rows, arguments.shards or shards
    engines = tuple(None if name == "threads" else name for name in arguments.engines)
    print(
        f"{machine()}; logistic regression, {rows:,} rows x {features} features, {shards} shards, {WORKERS} workers"
    )
    found = measure(rows, features, shards, WORKERS, arguments.draws, engines)
    bound = found["bound"]
    print(
        f"file {found['file'] / MB:.0f} MB = {found['file'] / bound:.1f} times the bound; "
        f"shard {found['shard'] / MB:.1f} MB; bound {bound / MB:.0f} MB"
    )
    lines = [
        (
            name,
            f"{run['private'] / MB:.0f}",
            f"{run['all'] / MB:.0f}",
            ", ".join(f"{s} {a / MB:.0f} ({m / MB:.0f})" for s, (a, m) in run["by_stage"].items()),
            f"{run['seconds']:.0f}",
            stages(run["stages"]),
            f"{run['load']:.1f}",
        )
        for name, run in found["runs"].items()
    ]
    headers = [
        "workers are",
        "peak MB, private",
        "peak MB, mapped pages too",
        "private MB by stage (mapped)",
        "s",
        "stages, s",
        "load",
    ]
    print(table(headers, lines))
    for name, run in found["runs"].items():
        if f"{FEW:,} rows" not in name:
            print(Verdict(f"peak memory over the bound, {name}", run["all"] / bound, 1.0))
            print(Verdict(f"peak private memory over the bound, {name}", run["private"] / bound, 1.0))


if __name__ == "__main__":
    main()
