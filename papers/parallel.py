"""Parts of an experiment in several processes, each with data from its own seed: numbers do not depend on how many."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

Answer = TypeVar("Answer")


def in_processes(
    function: Callable[..., Answer], tasks: Sequence[tuple[Any, ...]], jobs: int
) -> Iterator[Answer]:
    """Answers in the order of the tasks; with one job, in this process."""
    if jobs == 1:
        for place, task in enumerate(tasks):
            yield function(*task)
            _tell(place + 1, len(tasks))
        return
    # Forked processes would inherit locks of JAX's threads.
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = [pool.submit(function, *task) for task in tasks]
        for place, future in enumerate(futures):
            yield future.result()
            _tell(place + 1, len(tasks))


def _tell(done: int, number: int) -> None:
    print(f"{done} of {number} parts", file=sys.stderr, flush=True)
