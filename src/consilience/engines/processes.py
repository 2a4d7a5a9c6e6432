"""Worker processes on this machine.

Each worker is a fresh interpreter behind a pair of pipes (see `_child`), driven by one thread here. So the
engine knows which worker has which item: when a worker dies only its own item counts an attempt, only that
worker is replaced, and the others never notice. The task travels once per worker, items one at a time.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ..errors import RunError
from ..machine import FEW_HEAPS, usable_cores
from ._child import BOOTSTRAP, READY, read_frame, write_frame
from ._driver import Job, Notice, OnEvent, drive
from ._tasks import Outcome, Problem, Task, check_attempts, pack, pack_task

_STARTS_TRIED = 3
_SECONDS_TO_LEAVE = 2.0


def worker_environment(base: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a worker: one thread each, so that as many workers as cores do not fight.

    Examples
    --------
    >>> worker_environment({"XLA_FLAGS": "--xla_dump_to=x"})["XLA_FLAGS"].split()[0]
    '--xla_dump_to=x'
    """
    environment = dict(base)
    flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    environment["XLA_FLAGS"] = f"{base.get('XLA_FLAGS', '')} {flags}".strip()
    # The flags above are the known way, but jaxlib 0.10 does not follow them (measured: same threads, same
    # bits); the size of its thread pool comes from here.
    environment["PJRT_NPROC"] = "1"
    for library in ("OMP", "OPENBLAS", "MKL"):
        environment[f"{library}_NUM_THREADS"] = "1"
    environment.setdefault("MALLOC_ARENA_MAX", str(FEW_HEAPS))
    return environment


@dataclass(frozen=True)
class ProcessEngine:
    """Run tasks in worker processes on this machine.

    Parameters
    ----------
    workers : int, optional
        How many processes; the usable cores when not given. No more are started than there are items.

    Examples
    --------
    >>> sorted(ProcessEngine(workers=1).map(lambda item: item**2, [3, 4]))
    [(0, 9), (1, 16)]
    """

    workers: int | None = None
    name: ClassVar[str] = "processes"
    survives_worker_death: ClassVar[bool] = True
    ships_tasks: ClassVar[bool] = True

    @property
    def elsewhere(self) -> bool:
        """Workers are of this machine: what they read, this process can read."""
        return False

    def map(
        self, task: Task, items: Iterable[Any], *, attempts: int = 3, on_event: OnEvent | None = None
    ) -> Iterator[tuple[int, Any]]:
        """Yield (index, result or `TaskFailure`) as the items finish."""
        check_attempts(attempts)
        packed_task = pack_task(task, self.name)
        workers = self.workers or usable_cores()
        return drive(lambda: _Workers(packed_task, workers), items, attempts, on_event)


class _Workers:
    """The backend: as many workers as asked for, each started when its first item comes."""

    def __init__(self, packed_task: bytes, workers: int) -> None:
        self._notices: queue.SimpleQueue[Notice | RunError] = queue.SimpleQueue()
        labels = [str(number) for number in range(1, workers + 1)]
        self._workers = {label: _Worker(label, packed_task, self._notices) for label in labels}
        self._idle = labels

    def free(self) -> list[str]:
        return self._idle

    def submit(self, job: Job, place: str) -> None:
        self._idle.remove(place)
        packed_item = pack(job.item, "item")
        if isinstance(packed_item, Problem):
            self._notices.put(Notice(job, place, Outcome(problem=packed_item)))
        else:
            self._workers[place].give(job, packed_item)

    def wait(self) -> Notice:
        notice = self._notices.get()
        if isinstance(notice, RunError):
            raise notice
        if notice.outcome is not None:
            self._idle.append(notice.worker)
        return notice

    def close(self) -> None:
        for worker in self._workers.values():
            worker.leave(at_once=worker.label not in self._idle)
        for worker in self._workers.values():
            worker.end()


class _Worker:
    """One process and the thread that drives it. The thread lets every wait be a plain blocking read."""

    def __init__(self, label: str, packed_task: bytes, notices: queue.SimpleQueue[Notice | RunError]) -> None:
        self.label = label
        self._packed_task = packed_task
        self._notices = notices
        self._inbox: queue.SimpleQueue[tuple[Job, bytes] | None] = queue.SimpleQueue()
        self._process: subprocess.Popen[bytes] | None = None
        self._leaving = False
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def give(self, job: Job, packed_item: bytes) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._drive, name=f"worker {self.label}", daemon=True)
            self._thread.start()
        self._inbox.put((job, packed_item))

    def leave(self, *, at_once: bool) -> None:
        """Ask the process to go, without waiting for it."""
        self._inbox.put(None)
        with self._lock:
            self._leaving = True
            if self._process is not None:
                _dismiss(self._process, at_once=at_once)

    def end(self) -> None:
        """Wait until the process and its thread are gone."""
        process = self._process
        if process is not None:
            _wait(process)
        if self._thread is not None:
            self._thread.join()
        if process is not None:
            _reap(process)

    def _drive(self) -> None:
        while (given := self._inbox.get()) is not None:
            try:
                outcome = self._perform(*given)
            except RunError as error:
                self._notices.put(error)
                return
            except (
                BaseException
            ) as error:  # nobody sees what a thread raises, and the caller would wait for ever
                failure = RunError(f"engine 'processes': worker {self.label} was lost: {error!r}")
                failure.__cause__ = error
                self._notices.put(failure)
                return
            self._notices.put(Notice(given[0], self.label, outcome))

    def _perform(self, job: Job, packed_item: bytes) -> Outcome:
        # "Elsewhere" for an item that failed here, with no other worker free, is a new process in this place.
        if self._process is not None and self.label in job.failed_on:
            _dismiss(self._process, at_once=True)
            _reap(self._process)
            self._process = None
        if self._process is None:
            self._process = self._start()
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        self._notices.put(Notice(job, self.label))
        try:
            write_frame(process.stdin, packed_item)  # type: ignore[arg-type]
            return pickle.loads(read_frame(process.stdout))  # type: ignore[arg-type]
        except (EOFError, OSError, ValueError):
            code = _reap(process)
            self._process = None
            return Outcome(problem=Problem("WorkerDied", f"the worker process {_manner(code)}"))

    def _start(self) -> subprocess.Popen[bytes]:
        """Start the process and give it the task; a start that fails is nobody's item's fault."""
        code = 0
        for _ in range(_STARTS_TRIED):
            with self._lock:
                if self._leaving:
                    raise RunError("engine 'processes': the run is over")
                process = self._process = subprocess.Popen(
                    [sys.executable, "-c", BOOTSTRAP],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env=worker_environment(os.environ),
                )
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(json.dumps([str(entry) for entry in sys.path]).encode() + b"\n")
                process.stdin.flush()
                if read_frame(process.stdout) == READY:  # type: ignore[arg-type]
                    write_frame(process.stdin, self._packed_task)  # type: ignore[arg-type]
                    return process
            except (EOFError, OSError, ValueError):
                pass
            _dismiss(process, at_once=True)
            code = _reap(process)
        raise RunError(
            f"engine 'processes': a worker process {_manner(code)} while starting, {_STARTS_TRIED} times. "
            "Look at what it wrote above, or use engine='serial'."
        )


def _dismiss(process: subprocess.Popen[bytes], *, at_once: bool) -> None:
    if at_once:
        process.kill()
    elif process.stdin is not None:
        with contextlib.suppress(OSError):  # it died before
            process.stdin.close()


def _wait(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(_SECONDS_TO_LEAVE)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _reap(process: subprocess.Popen[bytes]) -> int:
    code = _wait(process)
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):  # what was left to flush has nowhere to go
            if pipe is not None:
                pipe.close()
    return code


def _manner(code: int) -> str:
    if code >= 0:
        return f"ended by itself with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was ended by {name}" + (" (often: memory ran out)" if name == "SIGKILL" else "")
