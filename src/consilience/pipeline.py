"""`fit`: the only loop. Rows are partitioned, shards sampled, draws combined and refined, the result judged."""

from __future__ import annotations

import os
import time
import warnings as python_warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from consilience.combine import combine
from consilience.data import RandomPartition, Shards, Source, automatic_shards, open_source, split
from consilience.draws import Posterior, Subposteriors
from consilience.engines import Event, TaskFailure
from consilience.errors import ConvergenceWarning, DataError, InputError, ShardError, must_be
from consilience.fitted import Cost, Fit
from consilience.progress import Progress
from consilience.refine import PassBack, get_refinement
from consilience.request import Request, checked_request
from consilience.sample.shard import ShardDraws, ShardSampler, ShardTask
from consilience.sample.vectorised import chunks, sample_chunks, shards_per_program
from consilience.store import RunDirectory
from consilience.versions import versions

# A shard's covariance is inverted: it needs several draws for each coordinate, however many shards there are.
DRAWS_PER_COORDINATE = 5
LEAST_DRAWS = 100


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
        sampled = _sample(request, ready, rows, tasks, store, clock)
        result = _combine(request, ready, rows, sampled, clock)
        if request.refinements:
            result = _refine(request, ready, tasks, result, clock)
        result = replace(result, cost=replace(result.cost, seconds=dict(clock.seconds)))
        if store is not None:
            result = replace(result, notes=(*result.notes, *store.warnings))
            _write(store, result)
    for message in result.warnings:
        python_warnings.warn(message, ConvergenceWarning, stacklevel=2)
    return result


class Stopwatch:
    """Wall time of each stage, shown as it goes."""

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
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - begun


@dataclass(frozen=True)
class Ready:
    """Model and rows after everything that must be known about all rows is known."""

    model: Any
    source: Source
    columns: tuple[str, ...]
    partition: Any
    fingerprint: str
    notes: tuple[str, ...]

    def manifest(self, request: Request) -> dict[str, Any]:
        """What a run directory remembers, so that another run is not mistaken for this one."""
        plan = "one task per shard" if request.engine is not None else "vectorised"
        return {
            "versions": versions(),
            "model": {**self.model.describe(), "fingerprint": self.fingerprint},
            "data": self.source.fingerprint(self.columns),
            "settings": {**request.settings(), "partition": self.partition.describe()},
            "plan": plan,
        }


def prepare(request: Request, model: Any, data: Any) -> Ready:
    """Open the rows, find the model's state over all of them, and decide how to split them."""
    if not hasattr(model, "log_likelihood"):
        raise must_be(
            "fit", "model", "a cs.Model", model, "Make one with cs.glm(formula, ...) or cs.Model(...)."
        )
    source = open_source(data)
    if source.num_rows == 0:
        raise must_be("fit", "data", "at least one row", source.name, "Look at how it was made.", DataError)
    columns = _needed_columns(request, model, source)
    source = source.filtered(request.missing, columns)
    if source.num_rows == 0:
        raise DataError(
            f"fit: every row of {source.name} has a missing value. Look at what fills its columns."
        )
    model = model.prepare(source.scan)
    example = model.rows(next(iter(source.scan(columns, 1024))))
    model.validate(example)
    partition, notes = request.shards, tuple(source.notes) + tuple(model.notes)
    if partition == "auto":
        cores = request.workers or os.cpu_count() or 1
        number, why = automatic_shards(source.num_rows, model.space.dimension, cores)
        partition, notes = RandomPartition(number), (*notes, why)
    elif isinstance(partition, int):
        partition = RandomPartition(partition)
    return Ready(model, source, columns, partition, model.fingerprint(example), notes)


def _needed_columns(request: Request, model: Any, source: Source) -> tuple[str, ...]:
    wanted = model.columns
    if wanted is None:
        wanted = [name for name, kind in source.dtypes.items() if kind != "unsupported"]
    extra = getattr(request.shards, "columns", None) or ()
    column = getattr(request.shards, "column", None)
    return source.require([*wanted, *extra, *([column] if column else [])])


def _split(request: Request, ready: Ready, store: RunDirectory | None) -> Shards:
    return split(
        ready.source,
        ready.partition,
        columns=ready.columns,
        seed=request.seed,
        directory=None if store is None else store.rows,
        outcome=getattr(ready.model, "outcome", None),
    )


def _sample(
    request: Request,
    ready: Ready,
    rows: Shards,
    tasks: Sequence[ShardTask],
    store: RunDirectory | None,
    clock: Stopwatch,
) -> list[ShardDraws]:
    """Sample every shard that is not finished yet, and keep each as soon as it is."""
    number, dimension = len(tasks), ready.model.space.dimension
    wanted = request.combiner.draws_per_shard(request.draws, number)
    sampler = ShardSampler(
        model=ready.model,
        fingerprint=ready.fingerprint,
        kind=request.kind,
        sampler=request.sampler,
        draws=max(wanted, LEAST_DRAWS + DRAWS_PER_COORDINATE * dimension),
        seed=request.seed,
        precision=request.precision,
    )
    with clock("sample", number) as shown:
        done = _finished(store, number)
        shown.advance(len(done))
        if request.engine is None:
            fresh = _vectorised(request, sampler, rows.sizes, tasks, done, shown)
        else:
            fresh = _on_engine(request, sampler, tasks, done, shown)
        for draws in fresh:
            if draws.index not in done:
                done[draws.index] = draws
                if store is not None:
                    _save_shard(store, ready, draws)
                shown.advance()
    return [done[index] for index in range(number)]


def _vectorised(
    request: Request,
    sampler: ShardSampler,
    sizes: Sequence[int],
    tasks: Sequence[ShardTask],
    done: dict[int, ShardDraws],
    shown: Progress,
) -> Iterator[ShardDraws]:
    size = shards_per_program(sizes, request.sampler.chains)
    # A chunk is sampled whole or not at all, so that what is left of a run gives the bits it would have given.
    groups = [group for group in chunks(tasks, size) if any(task.index not in done for task in group)]

    def on_event(_: str, slot: int, text: str) -> None:
        shown.worker(f"thread {slot + 1}", f"shard {text}")

    yield from sample_chunks(sampler, groups, size=size, workers=request.workers, on_event=on_event)


def _on_engine(
    request: Request,
    sampler: ShardSampler,
    tasks: Sequence[ShardTask],
    done: dict[int, ShardDraws],
    shown: Progress,
) -> Iterator[ShardDraws]:
    todo = [task for task in tasks if task.index not in done]
    failures: list[tuple[ShardTask, TaskFailure]] = []

    def on_event(event: Event) -> None:
        busy = event.kind == "started"
        shown.worker(event.worker, f"shard {todo[event.index].label}" if busy else "")
        if event.kind == "failed":
            shown.note(f"shard {todo[event.index].label}, attempt {event.attempt}: {event.message}")

    assert request.engine is not None
    for index, result in request.engine.map(sampler, todo, on_event=on_event):
        if isinstance(result, TaskFailure):
            failures.append((todo[index], result))
        else:
            yield result
    if failures:
        raise _failed(failures, len(tasks))


def _failed(failures: Sequence[tuple[ShardTask, TaskFailure]], number: int) -> Exception:
    """One sentence for all shards that could not be finished; the others are kept."""
    failure = failures[0][1]
    if failure.wrong_input:
        return InputError(failure.message)
    named = ", ".join(f"{task.index} ({task.label})" for task, _ in failures[:5])
    return ShardError(
        f"{len(failures)} of {number} shards failed after {failure.attempts} attempts: {named}. The first said "
        f"{failure.exception}: {failure.message}. Finished shards are kept in the run directory, if there is one."
    )


def _finished(store: RunDirectory | None, number: int) -> dict[int, ShardDraws]:
    done: dict[int, ShardDraws] = {}
    if store is None:
        return done
    for index in store.finished():
        loaded = store.load_shard(index) if index < number else None
        if loaded is not None:
            arrays, record = loaded
            lengths = tuple(int(n) for n in arrays["chain_lengths"])
            done[index] = ShardDraws(index, arrays["draws"], arrays["log_density"], lengths, record)
    return done


def _save_shard(store: RunDirectory, ready: Ready, draws: ShardDraws) -> None:
    arrays = {
        "draws": draws.draws,
        "log_density": draws.log_density,
        "chain_lengths": np.asarray(draws.chain_lengths),
        "user": ready.model.space.to_user(draws.draws),
    }
    store.save_shard(draws.index, arrays, draws.record)


def _combine(
    request: Request, ready: Ready, rows: Shards, sampled: Sequence[ShardDraws], clock: Stopwatch
) -> Fit:
    records = tuple(shard.record for shard in sampled)
    with clock("combine"):
        subposteriors = Subposteriors.of(
            [shard.draws for shard in sampled],
            kind=request.kind,
            weights=rows.weights,
            space=ready.model.space,
            labels=rows.labels,
            chain_lengths=[shard.chain_lengths for shard in sampled],
            log_densities=[shard.log_density for shard in sampled],
        )
        with python_warnings.catch_warnings():
            # They are in the posterior's record, and come out once, with the fit's own.
            python_warnings.simplefilter("ignore")
            posterior = combine(
                subposteriors, method=request.combiner.name, seed=request.seed, **_options(request)
            )
        posterior = thinned(posterior, request.draws)
    gradients = sum(record["row_evaluations"] for record in records) / sum(rows.sizes)
    settings = {
        **request.settings(),
        "shards": len(sampled),
        "partition": ready.partition.describe(),
        "rows": int(sum(rows.sizes)),
        "dropped_rows": int(rows.dropped_rows),
        "engine": "vectorised" if request.engine is None else request.engine.name,
        "versions": versions(),
    }
    return Fit(
        posterior=posterior,
        subposteriors=subposteriors,
        cost=Cost(full_data_gradients=gradients),
        shard_records=records,
        model=ready.model.describe(),
        settings=settings,
        notes=(*ready.notes, *rows.notes, *posterior.info["notes"], *_shard_notes(records)),
        warnings=(*_convergence_warnings(records), *posterior.info["warnings"]),
    )


def _options(request: Request) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(request.combiner)  # type: ignore[call-overload]


def thinned(posterior: Posterior, draws: int) -> Posterior:
    """As many draws as were asked for, evenly from those that there are."""
    number = len(posterior.array)
    if number <= draws:
        return posterior
    kept = np.linspace(0, number - 1, draws).round().astype(int)
    sizes = posterior.effective_sizes
    return replace(
        posterior,
        array=posterior.array[kept],
        coordinates=None if posterior.coordinates is None else posterior.coordinates[kept],
        log_weights=None if posterior.log_weights is None else posterior.log_weights[kept],
        effective_sizes=None if sizes is None else np.minimum(sizes, draws),
        chain_lengths=None,
    )


def _convergence_warnings(records: Sequence[dict[str, Any]]) -> list[str]:
    bad = [record for record in records if record["status"] != "converged"]
    if not bad:
        return []
    named = "; ".join(f"shard {r['index']} ({r['label']}): {', '.join(r['problems'])}" for r in bad[:5])
    more = f"; and {len(bad) - 5} more" if len(bad) > 5 else ""
    return [
        f"{len(bad)} of {len(records)} shards have not converged, so the posterior may be wrong. {named}{more}."
    ]


def _shard_notes(records: Sequence[dict[str, Any]]) -> list[str]:
    repeated = [record["label"] for record in records if record["repeats"]]
    notes = []
    if repeated:
        shown = ", ".join(repeated[:8]) + (", ..." if len(repeated) > 8 else "")
        notes.append(f"{len(repeated)} of {len(records)} shards were given more draws to converge: {shown}.")
    for note in sorted({note for record in records for note in record["notes"]})[:5]:
        labels = [record["label"] for record in records if note in record["notes"]]
        notes.append(f"{note} ({len(labels)} shards, first {labels[0]}).")
    return notes


def _refine(request: Request, ready: Ready, tasks: Sequence[ShardTask], result: Fit, clock: Stopwatch) -> Fit:
    """Look at the data again, as often as was asked for, and let each refinement say what it did."""
    posterior, space = result.posterior, ready.model.space
    coordinates, log_weights = posterior.coordinates, posterior.log_weights
    assert coordinates is not None
    notes, warnings, records = list(result.notes), list(result.warnings), []
    with clock("refine"):
        pass_back = PassBack(
            ready.model,
            ready.fingerprint,
            tasks,
            run=None if request.engine is None else request.engine.map,
            precision=request.precision,
            reference_point=coordinates.mean(axis=0),
        )
        for name in request.refinements:
            refined = get_refinement(name).refine(
                coordinates, log_weights, pass_back, result.subposteriors, seed=request.seed
            )
            coordinates, log_weights = refined.array, refined.log_weights
            notes += refined.notes
            warnings += refined.warnings
            records.append(refined.record)
    posterior = replace(
        posterior,
        array=space.to_user(coordinates),
        coordinates=coordinates,
        log_weights=log_weights,
        effective_sizes=None,
        info={**posterior.info, "refinements": records},
    )
    gradients = result.cost.full_data_gradients + pass_back.ledger.row_evaluations / result.settings["rows"]
    return replace(
        result,
        posterior=posterior,
        cost=replace(result.cost, full_data_gradients=gradients),
        notes=tuple(notes),
        warnings=tuple(warnings),
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
            "model": result.model,
            "settings": result.settings,
            "notes": list(result.notes),
            "warnings": list(result.warnings),
        },
    )
    result.report(store.path / "report.html")
