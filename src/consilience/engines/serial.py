"""Every task here, one after the other. The engine to debug with, and what the others must agree with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from ._driver import Job, Notice, OnEvent, drive
from ._tasks import Task, check_attempts, run


@dataclass(frozen=True)
class SerialEngine:
    """Run tasks in this process, in order.

    Examples
    --------
    >>> sorted(SerialEngine().map(lambda item: item**2, [3, 4]))
    [(0, 9), (1, 16)]
    """

    name: ClassVar[str] = "serial"
    survives_worker_death: ClassVar[bool] = False
    ships_tasks: ClassVar[bool] = False

    @property
    def elsewhere(self) -> bool:
        """Shards are read in this process."""
        return False

    def map(
        self, task: Task, items: Iterable[Any], *, attempts: int = 3, on_event: OnEvent | None = None
    ) -> Iterator[tuple[int, Any]]:
        """Yield (index, result or `TaskFailure`) as the items finish."""
        check_attempts(attempts)
        return drive(lambda: _Here(task), items, attempts, on_event)


class _Here:
    def __init__(self, task: Task) -> None:
        self._task = task
        self._job: Job | None = None
        self._announced = False

    def free(self) -> list[str]:
        return [] if self._job else ["serial"]

    def submit(self, job: Job, place: str) -> None:
        self._job, self._announced = job, False

    def wait(self) -> Notice:
        job = self._job
        assert job is not None
        if not self._announced:
            self._announced = True
            return Notice(job, "serial")
        outcome = run(self._task, job.item, "serial")
        self._job = None
        return Notice(job, "serial", outcome)

    def close(self) -> None:
        self._job = None
