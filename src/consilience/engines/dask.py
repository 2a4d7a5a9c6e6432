"""A Dask cluster: the caller's own, by address or client, or one started here for the time of the run.

A cluster started here has a scheduler in this process and workers from Dask's command line, because the
workers that `LocalCluster` starts import the caller's script again, and run it again when it has no
``__main__`` guard.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from ..errors import RunError, must_be
from ._driver import Job, Notice, OnEvent, drive
from ._futures import FutureBackend, FutureLike
from ._tasks import Outcome, Problem, Task, check_attempts, describe, pack_task, run_packed
from .processes import usable_cores, worker_environment

_SECONDS_TO_CONNECT = 30
_SECONDS_BETWEEN_CENSUSES = 1.0
# Dask's command for workers, which ends with all it started when the pipe from us does: we were killed.
_WORKERS_THAT_FOLLOW_US = (
    "import os, signal, sys, threading; "
    "end = lambda: (os.read(0, 1), os.killpg(0, signal.SIGKILL)); "
    "threading.Thread(target=end, daemon=True).start(); "
    "from distributed.cli.dask_worker import main; "
    "main(sys.argv[1:])"
)
_CONNECTION_LOST = "engine 'dask': the connection to the scheduler was lost. Start the run again to go on."


@dataclass(frozen=True)
class DaskEngine:
    """Run tasks on a Dask cluster.

    Parameters
    ----------
    address : str, optional
        A scheduler's address, as ``tcp://host:8786``.
    client : distributed.Client, optional
        A client, which stays the caller's. Without address and client a cluster is started on this machine.
    workers : int, optional
        Processes of the cluster started here (the usable cores when not given); for another cluster, how many
        items it runs at once (its threads when not given).

    Notes
    -----
    A cluster that is not ours reruns the items of a dead worker by its own setting
    ``distributed.scheduler.allowed-failures``; those runs count as attempts.
    """

    address: str | None = None
    client: Any = None
    workers: int | None = None
    name: ClassVar[str] = "dask"
    survives_worker_death: ClassVar[bool] = True
    ships_tasks: ClassVar[bool] = True

    @property
    def elsewhere(self) -> bool:
        """A cluster that is not started here may read rows that this machine cannot."""
        return self.address is not None or self.client is not None

    def map(
        self, task: Task, items: Iterable[Any], *, attempts: int = 3, on_event: OnEvent | None = None
    ) -> Iterator[tuple[int, Any]]:
        """Yield (index, result or `TaskFailure`) as the items finish."""
        check_attempts(attempts)
        packed_task = pack_task(task, self.name)
        _require_dask()
        if getattr(self.client, "asynchronous", False):
            raise must_be(
                "engine 'dask'",
                "client",
                "a blocking client",
                self.client,
                "Make it without asynchronous=True.",
            )
        return drive(lambda: self._backend(packed_task, attempts), items, attempts, on_event)

    def _backend(self, packed_task: bytes, attempts: int) -> _OnDask:
        with contextlib.ExitStack() as stack:
            if self.client is not None:
                client = self.client
            elif self.address is not None:
                client = stack.enter_context(_connected(self.address))
            else:
                client = stack.enter_context(own_cluster(self.workers or usable_cores()))
            backend = _OnDask(client, packed_task, self.workers)
            backend.let_go = stack.pop_all()
            return backend


class _OnDask(FutureBackend):
    """One item per thread of each worker: one queued behind an item that kills it would share the blame."""

    def __init__(self, client: Any, packed_task: bytes, most: int | None) -> None:
        super().__init__(room=most or sys.maxsize)
        self._client = client
        self._run = f"consilience-{uuid.uuid4().hex[:12]}"
        self._now_running: dict[int, str] = {}
        self._threads: dict[str, int] = {}
        self._seen_at = -math.inf
        self.let_go = contextlib.ExitStack()
        _send_task(client, self._run, packed_task)
        client.subscribe_topic(self._run, self._hear)

    def free(self) -> list[str]:
        if not super().free():
            return []
        self._see_workers()
        busy = Counter(place for _, place in self._jobs.values())
        return [address for address, threads in self._threads.items() if busy[address] < threads]

    def send(self, job: Job, packed_item: bytes, place: str) -> FutureLike:
        return self._client.submit(
            _run_on_worker,
            packed_item,
            self._run,
            job.index,
            key=f"{self._run}-{job.index}-{job.attempt}",
            pure=False,
            workers=[place],
            allow_other_workers=True,
        )

    def running(self) -> list[tuple[int, str]]:
        return list(self._now_running.items())

    def lost(self, job: Job, error: Exception) -> Problem:
        from distributed import KilledWorker

        self._seen_at = -math.inf
        if self._client.status != "running":
            raise RunError(_CONNECTION_LOST) from error
        if isinstance(error, KilledWorker):
            job.attempt += error.allowed_failures
            return Problem("WorkerDied", f"its worker died ({error.last_worker.address})")
        return describe(error, "the cluster did not run it: ", final=False)

    def close(self) -> None:
        try:
            if self._client.status == "running":
                super().close()
                self._client.unsubscribe_topic(self._run)
                self._client.unregister_worker_plugin(self._run)
        finally:
            self.let_go.close()

    def _finished(self, notice: Notice) -> Notice:
        self._now_running.pop(notice.job.index, None)
        return super()._finished(notice)

    def _see_workers(self) -> None:
        """Look which workers there are: they come and go. Wait for one when nothing else is waited for."""
        if self._threads and time.monotonic() - self._seen_at < _SECONDS_BETWEEN_CENSUSES:
            return
        self._threads = self._client.nthreads()
        if not self._threads and not self._jobs:
            try:
                self._client.wait_for_workers(1, timeout=_SECONDS_TO_CONNECT)
            except TimeoutError as error:
                raise RunError("engine 'dask': the cluster has no workers. Start some first.") from error
            self._threads = self._client.nthreads()
        self._seen_at = time.monotonic()

    def _hear(self, event: tuple[float, Any]) -> None:
        _, message = event
        self._now_running[message["index"]] = message["worker"]


# The packed tasks of the runs that this worker serves.
_packed_tasks: dict[str, bytes] = {}


def _send_task(client: Any, run: str, packed_task: bytes) -> None:
    """Send the task to each worker once; Dask's plugins also reach the workers that come later."""
    from distributed import WorkerPlugin

    class TaskHolder(WorkerPlugin):
        idempotent = False

        def setup(self, worker: Any) -> None:
            from consilience.engines.dask import _packed_tasks

            _packed_tasks[run] = packed_task

        def teardown(self, worker: Any) -> None:
            from consilience.engines.dask import _packed_tasks

            _packed_tasks.pop(run, None)

    try:
        client.register_plugin(TaskHolder(), name=run)
    except Exception as error:
        raise must_be(
            "engine 'dask'",
            "engine",
            f"a cluster whose workers have consilience installed ({type(error).__name__}: {error})",
            client,
            "Install the same versions of Python and consilience there.",
        ) from error


def _run_on_worker(packed_item: bytes, run: str, index: int) -> Outcome:
    from distributed import get_worker

    worker = get_worker()
    worker.log_event(run, {"index": index, "worker": worker.address})
    return run_packed(_packed_tasks[run], packed_item, worker.address)


def _require_dask() -> None:
    try:
        import distributed  # noqa: F401
    except ImportError as error:
        raise must_be(
            "engine", "engine", "one that is installed", "dask", "Run: pip install 'consilience[dask]'."
        ) from error


def _connected(address: str) -> Any:
    from distributed import Client

    try:
        return Client(address, timeout=_SECONDS_TO_CONNECT, set_as_default=False)
    except (OSError, ValueError) as error:
        next_step = f"Is a Dask scheduler running there? ({error})"
        raise must_be(
            "engine 'dask'", "engine", "dask:<address of a scheduler>", address, next_step
        ) from error


@contextlib.contextmanager
def own_cluster(workers: int) -> Iterator[Any]:
    """Start a cluster on this machine and yield its client; nothing of it is left afterwards."""
    import logging

    from distributed import Client, LocalCluster

    with contextlib.ExitStack() as stack:
        cluster = LocalCluster(
            n_workers=0,
            processes=True,
            dashboard_address=None,
            silence_logs=logging.CRITICAL,
            # Repetition is the driver's: it knows how often, and that it must be elsewhere.
            scheduler_kwargs={"allowed_failures": 0},
        )
        stack.callback(cluster.close)
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="consilience-dask-"))
        stack.enter_context(_worker_processes(cluster.scheduler_address, workers, directory))
        client = stack.enter_context(Client(cluster, set_as_default=False))
        try:
            client.wait_for_workers(workers, timeout=2 * _SECONDS_TO_CONNECT)
        except TimeoutError as error:
            raise RunError("engine 'dask': its workers did not start. Try engine='processes'.") from error
        yield client


@contextlib.contextmanager
def _worker_processes(address: str, workers: int, directory: str) -> Iterator[None]:
    environment = worker_environment(os.environ)
    # What the caller can import its workers must be able to import too: tasks refer to modules by name.
    environment["PYTHONPATH"] = os.pathsep.join(str(entry) for entry in sys.path if entry)
    environment["DASK_LOGGING__DISTRIBUTED"] = "critical"
    command = [sys.executable, "-c", _WORKERS_THAT_FOLLOW_US, address, "--no-dashboard"]
    command += ["--nworkers", str(workers), "--nthreads", "1", "--memory-limit", "0"]
    command += ["--local-directory", directory, "--death-timeout", str(_SECONDS_TO_CONNECT)]
    # A group of its own: a Ctrl-C is for us, and one signal ends the nannies and their workers together.
    process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, start_new_session=True)
    try:
        yield
    finally:
        if hasattr(os, "killpg"):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.communicate()
