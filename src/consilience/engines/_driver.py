"""The one loop behind every engine: hand out items lazily, repeat failed ones elsewhere, yield the finished.

An engine brings a `Backend`, which knows places (a worker, or a queue before several) and nothing about
repetition.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from ._tasks import Event, Outcome, Problem, TaskFailure

OnEvent = Callable[[Event], None]


@dataclass
class Job:
    """One item and the history of its attempts."""

    index: int
    item: Any
    attempt: int = 0
    failed_on: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Notice:
    """What a backend reports: the job was started (no outcome yet) or has come to its outcome."""

    job: Job
    worker: str
    outcome: Outcome | None = None


class Backend(Protocol):
    """Where jobs go. Everything is called from the thread that iterates."""

    def free(self) -> list[str]:
        """Return the places that can take a job now; at least one when no jobs are out."""

    def submit(self, job: Job, place: str) -> None:
        """Take the job, without waiting for it. Where it failed before, it must not meet the same state."""

    def wait(self) -> Notice | None:
        """Wait for the next notice, or a while for new places. Called only while jobs are out."""

    def close(self) -> None:
        """Let go of everything at once, whatever is still running."""


def drive(
    make_backend: Callable[[], Backend], items: Iterable[Any], attempts: int, on_event: OnEvent | None
) -> Iterator[tuple[int, Any]]:
    """Run every item to its result or its `TaskFailure`, in the order in which they finish."""
    tell = on_event or (lambda event: None)
    source = enumerate(items)
    again: deque[Job] = deque()
    backend = make_backend()
    out = _hand_out(backend, source, again)
    try:
        while out:
            notice = backend.wait()
            if notice is None:
                out += _hand_out(backend, source, again)
                continue
            job = notice.job
            if notice.outcome is None:
                tell(Event("started", job.index, notice.worker, job.attempt))
                continue
            out -= 1
            outcome = notice.outcome.unpacked()
            problem = outcome.problem
            result: Any = outcome.value
            unfinished = False
            if problem is None:
                tell(Event("finished", job.index, notice.worker, job.attempt))
            else:
                tell(Event("failed", job.index, notice.worker, job.attempt, problem.message))
                result = _failure(job, problem)
                if unfinished := not problem.final and job.attempt < attempts:
                    job.failed_on.add(notice.worker)
                    again.append(job)
            # Hand out first: what the caller does with a result must not keep a worker waiting.
            out += _hand_out(backend, source, again)
            if not unfinished:
                yield job.index, result
    finally:
        backend.close()


def _hand_out(backend: Backend, source: Iterator[tuple[int, Any]], again: deque[Job]) -> int:
    handed = 0
    while places := backend.free():
        chosen = _choose(places, source, again)
        if chosen is None:
            break
        job, place = chosen
        job.attempt += 1
        backend.submit(job, place)
        handed += 1
    return handed


def _choose(
    places: list[str], source: Iterator[tuple[int, Any]], again: deque[Job]
) -> tuple[Job, str] | None:
    """Prefer a repetition in a place where it has not failed, then a new item, then any repetition."""
    for position, job in enumerate(again):
        for place in places:
            if place not in job.failed_on:
                del again[position]
                return job, place
    for index, item in source:
        return Job(index, item), places[0]
    return (again.popleft(), places[0]) if again else None


def _failure(job: Job, problem: Problem) -> TaskFailure:
    return TaskFailure(
        job.index, problem.message, problem.exception, problem.traceback, job.attempt, problem.wrong_input
    )
