"""`fit`: the only loop. Rows are partitioned, shards sampled, draws combined and refined, the result judged."""

from __future__ import annotations

import os
import time
import warnings as python_warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from consilience.assembly import combined
from consilience.data import Shards, split
from consilience.errors import ConvergenceWarning
from consilience.fitted import Fit
from consilience.machine import release_freed_memory
from consilience.preparation import Ready, prepare
from consilience.progress import Progress
from consilience.refining import refined
from consilience.request import Request, checked_request
from consilience.sample.shard import ShardTask
from consilience.sampling import sample_shards
from consilience.store import RunDirectory


def fit(
    model: Any,
    data: Any,
    *,
    shards: Any = "auto",
    method: str = "swiss",
    refine: Any = "auto",
    draws: int = 10_000,
    seed: int = 0,
    engine: Any = None,
    out: str | os.PathLike[str] | None = None,
    progress: bool = True,
    missing: str = "refuse",
    sampler: Any = "hmc",
    precision: str = "float32",
    workers: int | None = None,
    **options: Any,
) -> Fit:
    """Fit a model shard by shard and combine the draws into the full posterior.

    Parameters
    ----------
    model : Model
        From `glm` or `Model`.
    data : dict of arrays, data frame, table, or path
        Rows; a path is a Parquet or CSV file, a folder of them, or a glob.
    shards : int, "auto", str or partition
        How many shards at random, the name of a column (one shard per value), or a partition.
    method : str
        Combination rule; see `methods`.
    refine : str, list of str or None
        What is done with another look at the data; ``"auto"`` chooses and says why.
    draws : int
        Draws wanted of the full posterior.
    seed : int
        Root of all random numbers.
    engine : str, Executor, Dask client or None
        Where shards are sampled; None runs them in this process, many at once.
    out : path, optional
        Run directory. A run that was interrupted goes on from there.
    progress : bool
        Show progress on a terminal.
    missing : "refuse" or "drop"
        What happens to rows with missing or infinite values.
    sampler : str or Sampler
        ``"hmc"`` or ``"nuts"``, or a configured `HMC` or `NUTS`.
    precision : "float32" or "float64"
        Of rows and log densities; sums over shards are float64 in any case.
    workers : int, optional
        How many shards at once; all cores by default.
    **options
        Options of the combination rule.

    Returns
    -------
    Fit

    Examples
    --------
    >>> import numpy as np
    >>> import consilience as cs
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=2000)
    >>> rows = {"x": x, "y": 1.0 + 2.0 * x + rng.normal(size=2000)}
    >>> result = cs.fit(cs.glm("y ~ x", family="gaussian"), rows, shards=4, draws=2000, progress=False)
    >>> result.summary().loc["x", "mean"].round(1)
    np.float64(2.0)
    """
    request = checked_request(
        shards=shards,
        method=method,
        options=options,
        refine=refine,
        draws=draws,
        seed=seed,
        engine=engine,
        missing=missing,
        sampler=sampler,
        precision=precision,
        workers=workers,
    )
    if out is not None:
        RunDirectory.check(out)
    with ExitStack() as stack:
        shown = stack.enter_context(Progress(progress))
        clock = Stopwatch(shown)
        with clock("read"):
            ready = prepare(request, model, data)
        store = None
        if out is not None:
            store = stack.enter_context(RunDirectory.open(Path(out), ready.manifest(request)))
        with clock("split"):
            rows = stack.enter_context(_split(request, ready, store))
        tasks = [
            ShardTask(b, rows.labels[b], float(rows.weights[b]), rows.reference(b))
            for b in range(len(rows.sizes))
        ]
        with clock("sample", len(tasks)):
            sampled = sample_shards(request, ready, rows, tasks, store, shown)
        with clock("combine"):
            result = combined(request, ready, rows, sampled)
        if request.refinements:
            with clock("refine"):
                result = refined(request, ready, tasks, result)
        result = replace(result, cost=replace(result.cost, seconds=dict(clock.seconds)))
        if store is not None:
            result = replace(result, notes=(*result.notes, *store.warnings))
            _write(store, result)
    for message in result.warnings:
        python_warnings.warn(message, ConvergenceWarning, stacklevel=2)
    return result


class Stopwatch:
    """Wall time of each stage, shown as it goes; what a stage needed and freed is not kept for the next."""

    def __init__(self, shown: Progress) -> None:
        self.shown = shown
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, stage: str, total: int | None = None) -> Iterator[Progress]:
        self.shown.stage(stage, total)
        begun = time.perf_counter()
        try:
            yield self.shown
        finally:
            release_freed_memory()
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - begun


def _split(request: Request, ready: Ready, store: RunDirectory | None) -> Shards:
    return split(
        ready.source,
        ready.partition,
        columns=ready.columns,
        seed=request.seed,
        directory=None if store is None else store.rows,
        outcome=getattr(ready.model, "outcome_column", None),
    )


def _write(store: RunDirectory, result: Fit) -> None:
    """Leave posterior, summary, diagnostics and report in the run directory."""
    result.posterior.save(store.path / "posterior.npz")
    store.write_text("summary.csv", result.summary().to_csv())
    store.save_json(
        "diagnostics.json",
        {
            "shards": list(result.shard_records),
            "cost": result.cost.to_dict(),
            "certificate": None if result.certificate is None else result.certificate.to_dict(),
            "model": result.model,
            "settings": result.settings,
            "notes": list(result.notes),
            "warnings": list(result.warnings),
        },
    )
    result.report(store.path / "report.html")
