"""Many shards in one compiled program: the plan for many small shards, and for an accelerator.

Shards are stacked, padded to the longest of their chunk, and every program runs over the stack. A chunk is
as many consecutive shards as fill the machine and fit in memory; what a chunk holds depends on the shards'
sizes alone, so that the plan gives the same bits each time. Chunks run in as many threads as there are
cores. A shard that has not converged is finished alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

import jax
import numpy as np

from consilience.machine import usable_cores
from consilience.sample.rows import lengthened, padded_length
from consilience.sample.search import Modes, simple, stacked_search
from consilience.sample.shard import ShardDraws, ShardSampler, ShardTask, Work, blamed_on, on_device
from consilience.sample.target import ShardData
from consilience.sample.trace import Trace

# Row-by-chain evaluations that keep one core busy, beyond which stacking more shards gains nothing there.
CORE_FULL = 32_768
# On an accelerator the stack grows until it fills this share of the memory.
ACCELERATOR_ROWS = 1 << 26


def shards_per_program(sizes: Sequence[int], chains: int) -> int:
    """How many shards to stack.

    Examples
    --------
    >>> shards_per_program([100] * 1000, chains=4), shards_per_program([100_000] * 10, chains=4)
    (64, 1)
    """
    longest = padded_length(max(sizes)) * chains
    full = CORE_FULL if jax.default_backend() == "cpu" else ACCELERATOR_ROWS
    return int(min(len(sizes), max(1, full // longest)))


def chunks(tasks: Sequence[ShardTask], size: int) -> list[list[ShardTask]]:
    """Consecutive shards, `size` at a time."""
    return [list(tasks[i : i + size]) for i in range(0, len(tasks), size)]


def sample_chunks(
    sampler: ShardSampler,
    groups: Sequence[Sequence[ShardTask]],
    *,
    size: int,
    workers: int | None = None,
    on_event: Callable[[str, int, str], None] | None = None,
) -> Iterator[ShardDraws]:
    """Sample chunks of shards as they come, several at once."""
    workers = workers or (usable_cores() if jax.default_backend() == "cpu" else 1)

    def run(group: Sequence[ShardTask], slot: int) -> list[ShardDraws]:
        if on_event:
            on_event("started", slot, ", ".join(task.label for task in group[:3]))
        return [sampler(group[0])] if size == 1 else _sample_stack(sampler, group, size)

    pending: dict[Future[list[ShardDraws]], int] = {}
    queue = iter(groups)
    slots = list(range(workers))
    with ThreadPoolExecutor(workers) as pool:
        try:
            while True:
                while slots and (group := next(queue, None)) is not None:
                    slot = slots.pop(0)
                    pending[pool.submit(run, group, slot)] = slot
                if not pending:
                    return
                done, _ = wait(pending, return_when=FIRST_COMPLETED)
                for future in done:
                    slots.append(pending.pop(future))
                    yield from future.result()
        finally:
            for future in pending:
                future.cancel()


def _stack(works: Sequence[Work]) -> Any:
    """Stack shards along a first axis, padding the shorter ones with rows of weight zero."""
    longest = max(len(work.data.row_weight) for work in works)

    def padded(data: ShardData) -> ShardData:
        extra = longest - len(data.row_weight)
        weight = np.concatenate([data.row_weight, np.zeros(extra, data.row_weight.dtype)])
        rows = {name: lengthened(values, extra) for name, values in data.rows.items()}
        return data._replace(rows=rows, row_weight=weight)

    return jax.tree.map(lambda *leaves: np.stack(leaves), *(padded(work.data) for work in works))


def _lane(tree: Any, index: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[index], tree)


def _read(sampler: ShardSampler, task: ShardTask) -> Work:
    with blamed_on(task):
        return sampler.read(task)


def _sample_stack(sampler: ShardSampler, group: Sequence[ShardTask], size: int) -> list[ShardDraws]:
    works = [_read(sampler, task) for task in group]
    # A chunk that is not full is filled with copies, so that it runs the same program as the others.
    filled = works + [works[-1]] * (size - len(works))
    with blamed_on(group[0]):
        modes, traces = _run_stack(sampler, filled)
    results = []
    for work, found, trace in zip(works, modes, traces, strict=False):
        with blamed_on(work.task):
            results.append(sampler.sample(work) if found is None else sampler.finish(work, found, trace))
    return results


def _run_stack(sampler: ShardSampler, works: Sequence[Work]) -> tuple[list[Modes | None], list[Trace]]:
    """Search and draw for all; a shard whose search was not simple gets no modes, and is sampled alone."""
    size = len(works)
    with on_device(_stack(works), sampler.precision) as data:
        compiled = sampler.programs(data, vectorised=True)
        starts = np.stack([sampler.start()] * size)
        noises = [sampler.noise(work, 2) for work in works]
        noise = jax.tree.map(lambda *leaves: np.stack(leaves), *noises)
        plan = sampler.plan(0, sampler.sampler.warmup)
        blank = jax.tree.map(lambda leaf: np.stack([leaf] * size), sampler.blank_start())
        compiled.run.prepare(data, *blank, noise, plan)
        modes = [Modes(mode, (), float(mode.evaluations)) for mode in stacked_search(compiled, data, starts)]
        firsts = [sampler.first_chains(work, found) for work, found in zip(works, modes, strict=True)]
        chains = jax.tree.map(lambda *leaves: np.stack(leaves), *firsts)
        frame = jax.tree.map(lambda *leaves: np.stack(leaves), *(found.frame for found in modes))
        chains, block = jax.device_get(compiled.run(data, frame, chains, noise, plan))
    traces = [
        Trace(found.frame, _lane(chains, i), [_lane(block, i)], [plan.tuning])
        for i, found in enumerate(modes)
    ]
    return [found if simple(found.main) else None for found in modes], traces
