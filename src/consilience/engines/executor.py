"""Any `concurrent.futures.Executor` that the caller already has: threads, processes, MPI, a cluster's own."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import BrokenExecutor, Executor
from dataclasses import dataclass
from typing import Any, ClassVar

from ..machine import usable_cores
from ._driver import Job, OnEvent, drive
from ._futures import FutureBackend, FutureLike
from ._tasks import Outcome, Problem, Task, check_attempts, describe, pack_task, run_packed


@dataclass(frozen=True)
class ExecutorEngine:
    """Run tasks on an executor, which stays the caller's: it is neither configured nor shut down.

    An executor whose worker died cannot be used any more; the items it left are named. `ProcessEngine` copes.

    Parameters
    ----------
    executor : concurrent.futures.Executor
    workers : int, optional
        How many items it runs at once, when it does not say.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> with ThreadPoolExecutor(2) as threads:
    ...     sorted(ExecutorEngine(threads).map(lambda item: item**2, [3, 4]))
    [(0, 9), (1, 16)]
    """

    executor: Executor
    workers: int | None = None
    name: ClassVar[str] = "executor"
    survives_worker_death: ClassVar[bool] = False
    ships_tasks: ClassVar[bool] = True

    @property
    def elsewhere(self) -> bool:
        """Nobody knows where a given executor runs things."""
        return True

    def map(
        self, task: Task, items: Iterable[Any], *, attempts: int = 3, on_event: OnEvent | None = None
    ) -> Iterator[tuple[int, Any]]:
        """Yield (index, result or `TaskFailure`) as the items finish."""
        check_attempts(attempts)
        packed_task = pack_task(task, self.name)
        workers = self.workers or getattr(self.executor, "_max_workers", None) or usable_cores()
        return drive(lambda: _OnExecutor(self.executor, packed_task, 2 * workers), items, attempts, on_event)


class _OnExecutor(FutureBackend):
    def __init__(self, executor: Executor, packed_task: bytes, room: int) -> None:
        super().__init__(room)
        self._executor = executor
        self._packed_task = packed_task

    def send(self, job: Job, packed_item: bytes, place: str) -> FutureLike:
        return self._executor.submit(_run_in_executor, self._packed_task, packed_item)

    def running(self) -> list[tuple[int, str]]:
        return [
            (index, "")
            for index, future in self._futures.items()
            if future is not None and getattr(future, "running", bool)()
        ]

    def lost(self, job: Job, error: Exception) -> Problem:
        if isinstance(error, BrokenExecutor):
            message = "a worker of the executor died, which ends the executor; engine='processes' goes on"
            return Problem("WorkerDied", message, final=True)
        return describe(error, "the executor did not run it: ", final=True)


def _run_in_executor(packed_task: bytes, packed_item: bytes) -> Outcome:
    thread = threading.current_thread()
    worker = str(os.getpid()) if thread is threading.main_thread() else thread.name
    return run_packed(packed_task, packed_item, worker)
