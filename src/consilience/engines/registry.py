"""Which engines there are, and how a user names one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from typing import Any, Protocol

from ..errors import must_be
from ._driver import OnEvent
from ._tasks import Task
from .dask import DaskEngine
from .executor import ExecutorEngine
from .processes import ProcessEngine
from .serial import SerialEngine

ENGINES = (SerialEngine, ProcessEngine, DaskEngine, ExecutorEngine)

_NEXT_STEP = "Use 'serial', 'processes', 'dask', 'dask:tcp://host:port', an Executor or a Dask client."


class Engine(Protocol):
    """Where tasks run."""

    @property
    def name(self) -> str:
        """The name that a user gives."""

    @property
    def elsewhere(self) -> bool:
        """Whether rows may be out of this process's reach, so that every look at them must go there."""

    def map(
        self, task: Task, items: Iterable[Any], *, attempts: int = 3, on_event: OnEvent | None = None
    ) -> Iterator[tuple[int, Any]]:
        """Yield (index, result or `TaskFailure`) as the items finish."""


def get_engine(spec: Any = None, *, workers: int | None = None) -> Engine:
    """Return the engine that `spec` names.

    Parameters
    ----------
    spec : str, concurrent.futures.Executor, distributed.Client, engine or None
        ``None`` is "serial"; "local" is another name of "processes"; "dask" starts a cluster on this machine
        and "dask:<address>" uses a running one.
    workers : int, optional
        How many items at once.

    Examples
    --------
    >>> get_engine("processes", workers=2)
    ProcessEngine(workers=2)
    >>> get_engine("dask:tcp://10.0.0.1:8786").address
    'tcp://10.0.0.1:8786'
    >>> get_engine("threads")
    Traceback (most recent call last):
    ...
    consilience.errors.InputError: engine: `engine` must be a known engine. Got 'threads'. Use 'serial', ...
    """
    if workers is not None and (not isinstance(workers, int) or isinstance(workers, bool) or workers < 1):
        raise must_be(
            "engine", "workers", "a whole number of at least 1", workers, "Leave it out to use all cores."
        )
    if spec is None or spec == "serial":
        if workers is not None and workers > 1:
            raise must_be("engine 'serial'", "workers", "1", workers, "Use engine='processes' for more.")
        return SerialEngine()
    if isinstance(spec, str):
        return _by_name(spec, workers)
    if isinstance(spec, Executor):
        return ExecutorEngine(spec, workers)
    if isinstance(spec, ENGINES):
        return spec
    if _is_dask_client(spec):
        return DaskEngine(client=spec, workers=workers)
    raise must_be("engine", "engine", "a known engine", spec, _NEXT_STEP)


def _by_name(spec: str, workers: int | None) -> Engine:
    if spec in ("processes", "local"):
        return ProcessEngine(workers)
    kind, _, address = spec.partition(":")
    if kind == "dask" and (address or ":" not in spec):
        return DaskEngine(address=address or None, workers=workers)
    raise must_be("engine", "engine", "a known engine", spec, _NEXT_STEP)


def _is_dask_client(spec: Any) -> bool:
    # By name first: importing Dask takes half a second, and whoever has a client has imported it.
    if not any(kind.__module__.startswith("distributed") for kind in type(spec).__mro__):
        return False
    from distributed import Client

    return isinstance(spec, Client)
