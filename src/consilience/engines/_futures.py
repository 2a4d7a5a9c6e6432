"""The backend for whatever takes a function and gives a future: executors, and Dask on top of it."""

from __future__ import annotations

import queue
from typing import Any, Protocol

from ._driver import Job, Notice
from ._tasks import Outcome, Problem, describe, pack

# How often to look which submitted items have started: for the display only.
_SECONDS_BETWEEN_LOOKS = 0.2


class FutureLike(Protocol):
    """What is used of a future."""

    def result(self) -> Any: ...
    def cancel(self) -> Any: ...
    def add_done_callback(self, fn: Any) -> None: ...


class FutureBackend:
    """Keep at most `room` items submitted, so that large items are not all pickled at once."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._futures: dict[int, FutureLike | None] = {}
        self._jobs: dict[int, tuple[Job, str]] = {}
        self._started: set[int] = set()
        self._notices: queue.SimpleQueue[tuple[Job, FutureLike | Problem]] = queue.SimpleQueue()
        self._held: Notice | None = None

    def send(self, job: Job, packed_item: bytes, place: str) -> FutureLike:
        """Submit one packed item."""
        raise NotImplementedError

    def running(self) -> list[tuple[int, str]]:
        """Return the items known to run, with their workers where known."""
        return []

    def lost(self, job: Job, error: Exception) -> Problem:
        """Explain an error that is not the task's own: those come back as outcomes."""
        return describe(error)

    def free(self) -> list[str]:
        return [""] if len(self._futures) < self._room else []

    def submit(self, job: Job, place: str) -> None:
        self._jobs[job.index] = (job, place)
        self._futures[job.index] = None
        packed_item = pack(job.item, "item")
        if isinstance(packed_item, Problem):
            self._notices.put((job, packed_item))
            return
        try:
            future = self.send(job, packed_item, place)
        except Exception as error:
            self._notices.put((job, self.lost(job, error)))
            return
        self._futures[job.index] = future
        future.add_done_callback(lambda done: self._notices.put((job, done)))

    def wait(self) -> Notice | None:
        if self._held is not None:
            held, self._held = self._held, None
            return self._finished(held)
        try:
            job, done = self._notices.get(timeout=_SECONDS_BETWEEN_LOOKS)
        except queue.Empty:
            return self._look()
        notice = self._outcome(job, done)
        if job.index in self._started or isinstance(done, Problem):
            return self._finished(notice)
        # It was over before we looked; those who show progress still hear of its start first.
        self._held = notice
        return Notice(job, notice.worker)

    def close(self) -> None:
        for future in self._futures.values():
            if future is not None:
                future.cancel()

    def _finished(self, notice: Notice) -> Notice:
        self._started.discard(notice.job.index)
        del self._futures[notice.job.index], self._jobs[notice.job.index]
        return notice

    def _look(self) -> Notice | None:
        for index, worker in self.running():
            if index in self._futures and index not in self._started:
                self._started.add(index)
                return Notice(self._jobs[index][0], worker)
        return None

    def _outcome(self, job: Job, done: FutureLike | Problem) -> Notice:
        if isinstance(done, Problem):
            return Notice(job, self._jobs[job.index][1], Outcome(problem=done))
        try:
            outcome = done.result()
        except Exception as error:
            outcome = Outcome(problem=self.lost(job, error))
        return Notice(job, outcome.worker or self._jobs[job.index][1], outcome)
