"""One task on its way: packed, run where it lands, and its outcome packed for the way back.

No exception object ever travels. Many cannot be pickled, some cannot be unpickled, and one that fails while
being unpickled takes a whole pool with it; so whatever goes wrong becomes text where it happens.
"""

from __future__ import annotations

import hashlib
import pickle
import threading
import traceback
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from ..errors import InputError, must_be

Task = Callable[[Any], Any]

# A worker that serves several runs in turn holds only its latest tasks: each may carry a model and programs.
_KEPT_TASKS = 2


@dataclass(frozen=True)
class TaskFailure:
    """An item that could not be finished, in place of its result."""

    index: int
    message: str
    exception: str
    traceback: str
    attempts: int
    wrong_input: bool = False
    """The task raised an `InputError`: the caller's doing, not the machine's."""

    def __str__(self) -> str:
        times = "once" if self.attempts == 1 else f"{self.attempts} times"
        return f"item {self.index} failed ({times} tried): {self.exception}: {self.message}"


@dataclass(frozen=True)
class Event:
    """What happened to one item, for those who show progress."""

    kind: Literal["started", "finished", "failed"]
    index: int
    worker: str
    attempt: int
    message: str = ""


@dataclass(frozen=True)
class Problem:
    """Why one attempt at one item failed, as text."""

    exception: str
    message: str
    traceback: str = ""
    final: bool = False
    """Trying again cannot help."""
    wrong_input: bool = False


@dataclass(frozen=True)
class Outcome:
    """What one attempt at one item came to. ``packed`` says that the value is still a pickle."""

    value: Any = None
    problem: Problem | None = None
    worker: str = ""
    packed: bool = False

    def unpacked(self) -> Outcome:
        """Return the outcome with its value in usable form; a value that cannot be read back is a problem."""
        if self.problem is not None or not self.packed:
            return self
        try:
            return Outcome(pickle.loads(self.value), worker=self.worker)
        except Exception as error:
            return Outcome(problem=describe(error, "the result cannot be unpickled: "), worker=self.worker)


def describe(error: BaseException, because: str = "", *, final: bool | None = None) -> Problem:
    """Turn an exception into text; asking a broken exception for its message must not raise a second one."""
    try:
        message = str(error)
    except Exception:
        message = "(the exception has no readable message)"
    try:
        trace = "".join(traceback.format_exception(error))
    except Exception:
        trace = ""
    wrong_input = isinstance(error, InputError)
    return Problem(
        type(error).__qualname__,
        because + message,
        trace,
        final=(wrong_input or bool(because)) if final is None else final,
        wrong_input=wrong_input,
    )


def check_attempts(attempts: int) -> None:
    """Refuse a number of attempts that would never run anything."""
    if not isinstance(attempts, int) or isinstance(attempts, bool) or attempts < 1:
        raise must_be(
            "engine", "attempts", "a whole number of at least 1", attempts, "Use 1 to try only once."
        )


def pack_task(task: Task, engine: str) -> bytes:
    """Pickle the task once, by value where it comes from a script or notebook."""
    import cloudpickle

    try:
        return cloudpickle.dumps(task)
    except Exception as error:
        raise must_be(
            f"engine {engine!r}",
            "task",
            f"something that can be sent to another process ({type(error).__name__}: {error})",
            task,
            "Keep locks, open files and connections out of the model, or use engine='serial'.",
        ) from error


def pack(value: Any, what: str) -> bytes | Problem:
    """Pickle an item or a result; one that cannot be pickled is a problem that no repetition mends."""
    import cloudpickle

    try:
        return cloudpickle.dumps(value)
    except Exception as error:
        return describe(error, f"the {what} cannot be pickled: ", final=True)


def run(task: Task, item: Any, worker: str = "") -> Outcome:
    """Run one task here. A Ctrl-C is for the caller; all else, `SystemExit` too, is the task's failure."""
    try:
        return Outcome(task(item), worker=worker)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return Outcome(problem=describe(error), worker=worker)


def run_packed(packed_task: bytes, packed_item: bytes, worker: str = "") -> Outcome:
    """Run one packed task here and pack its result. Any executor can be given this: it is importable."""
    try:
        task = _unpacked_task(packed_task)
        item = pickle.loads(packed_item)
    except Exception as error:
        return Outcome(
            problem=describe(error, "the task cannot be unpickled here: ", final=False), worker=worker
        )
    outcome = run(task, item, worker)
    if outcome.problem is not None:
        return outcome
    packed = pack(outcome.value, "result")
    if isinstance(packed, Problem):
        return Outcome(problem=packed, worker=worker)
    return Outcome(packed, worker=worker, packed=True)


_tasks: OrderedDict[bytes, Task] = OrderedDict()
_tasks_lock = threading.Lock()


def _unpacked_task(packed_task: bytes) -> Task:
    # Unpickling again for each item would make new function objects, and JAX would compile each of them.
    key = hashlib.blake2b(packed_task, digest_size=16).digest()
    with _tasks_lock:
        if key not in _tasks:
            _tasks[key] = pickle.loads(packed_task)
            while len(_tasks) > _KEPT_TASKS:
                _tasks.popitem(last=False)
        return _tasks[key]
