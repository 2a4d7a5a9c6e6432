"""Every shard to draws, on an engine or in this process, each kept as soon as it is finished."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from consilience.data import Shards
from consilience.engines import Event, TaskFailure
from consilience.errors import InputError, ShardError
from consilience.preparation import Ready
from consilience.progress import Progress
from consilience.request import Request
from consilience.sample.shard import ShardDraws, ShardSampler, ShardTask
from consilience.sample.vectorised import chunks, sample_chunks, shards_per_program
from consilience.store import RunDirectory


def sample_shards(
    request: Request,
    ready: Ready,
    rows: Shards,
    tasks: Sequence[ShardTask],
    store: RunDirectory | None,
    shown: Progress,
) -> list[ShardDraws]:
    """Sample every shard that is not finished yet, and keep each as soon as it is."""
    number, dimension = len(tasks), ready.model.space.dimension
    sampler = ShardSampler(
        model=ready.model,
        fingerprint=ready.fingerprint,
        kind=request.kind,
        sampler=request.sampler,
        draws=request.draws_per_shard(number, dimension),
        seed=request.seed,
        precision=request.precision,
    )
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
            draws, d = arrays["draws"], arrays["draws"].shape[1]
            curvature = arrays.get("curvature", np.full((d, d), np.nan))  # earlier runs did not keep it
            done[index] = ShardDraws(index, draws, arrays["log_density"], lengths, curvature, record)
    return done


def _save_shard(store: RunDirectory, ready: Ready, draws: ShardDraws) -> None:
    arrays = {
        "draws": draws.draws,
        "log_density": draws.log_density,
        "chain_lengths": np.asarray(draws.chain_lengths),
        "curvature": draws.curvature,
        "user": ready.model.space.to_user(draws.draws),
    }
    store.save_shard(draws.index, arrays, draws.record)
