"""Compile once: programs kept by what they compute and by the shapes they are given.

`jax.jit` keeps programs by the identity of the function, and threads that ask at the same moment compile the
same thing twice. Here two threads wait for one compilation, and tasks that arrive one by one in a worker
process, each with its own copy of the model, share it. Two models can only share one where JAX traces the
same program for both, constants included.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any
from weakref import WeakKeyDictionary

import jax
import numpy as np

from consilience.machine import release_freed_memory
from consilience.model.fingerprints import abstract_rows, json_fingerprint, program_fingerprint
from consilience.model.space import double_precision

# One thread per program: sums must not depend on how many cores a machine has, and the cores are kept busy
# by several shards at once.
COMPILER_OPTIONS = {"xla_cpu_multi_thread_eigen": False}


def in_precision(precision: str) -> AbstractContextManager[Any]:
    """Context in which arrays of this precision keep it."""
    return double_precision() if precision == "float64" else nullcontext()


class _Entry:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.started = False
        self.compiled: Any = None


class Program:
    """A function compiled for each combination of shapes that it is called with.

    Examples
    --------
    >>> double = Program(lambda x: 2 * x, "float32")
    >>> [float(double(np.float32(value))) for value in (1.0, 2.0)], double.compilations
    ([2.0, 4.0], 1)
    """

    def __init__(
        self, function: Callable[..., Any], precision: str, axes: tuple[Any, ...] | None = None
    ) -> None:
        batched = function if axes is None else jax.vmap(function, in_axes=axes)
        self._function = jax.jit(batched, compiler_options=COMPILER_OPTIONS)
        self._precision = precision
        self._lock = threading.Lock()
        self._entries: dict[Any, _Entry] = {}

    @property
    def compilations(self) -> int:
        return sum(entry.compiled is not None for entry in self._entries.values())

    def __call__(self, *arguments: Any) -> Any:
        with in_precision(self._precision):
            return self._compiled(arguments)(*arguments)

    def prepare(self, *arguments: Any) -> None:
        """Compile for arguments of these shapes in another thread, while this one does something else.

        Whoever needs the program waits for it, and meets there whatever goes wrong. The thread is not a daemon:
        a compiler that is cut off while the interpreter ends takes the exit code with it.
        """

        def compile_it() -> None:
            with suppress(Exception), in_precision(self._precision):
                self._compiled(arguments)

        if not self._entry(arguments).started:
            threading.Thread(target=compile_it).start()

    def _entry(self, arguments: tuple[Any, ...]) -> _Entry:
        leaves, structure = jax.tree.flatten(arguments)
        shapes = tuple((np.shape(leaf), np.dtype(leaf.dtype).str) for leaf in leaves)
        with self._lock:
            return self._entries.setdefault((structure, shapes), _Entry())

    def _compiled(self, arguments: tuple[Any, ...]) -> Any:
        entry = self._entry(arguments)
        with entry.lock:
            entry.started = True
            if entry.compiled is None:
                entry.compiled = self._function.lower(*arguments).compile()
                release_freed_memory()  # a compiler frees a hundred megabytes, and the heap would keep them
        return entry.compiled


class ProgramCache:
    """The latest few sets of programs of a process."""

    def __init__(self, limit: int = 32) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._kept: OrderedDict[Any, Any] = OrderedDict()

    def get(self, key: Any, make: Callable[[], Any]) -> Any:
        with self._lock:
            if key not in self._kept:
                self._kept[key] = make()
            self._kept.move_to_end(key)
            while len(self._kept) > self._limit:
                self._kept.popitem(last=False)
            return self._kept[key]


_identities: WeakKeyDictionary[Any, dict[Any, str]] = WeakKeyDictionary()
_identities_lock = threading.Lock()


def program_identity(model: Any, rows: Mapping[str, np.ndarray]) -> str:
    """Hash of what a model computes, traced once for a model object and the kind of its rows."""
    abstract = abstract_rows(rows)
    key = tuple((name, spec.shape, str(spec.dtype)) for name, spec in abstract.items())
    with _identities_lock:
        known = _identities.setdefault(model, {})
        if key not in known:
            point = jax.ShapeDtypeStruct((model.space.dimension,), np.dtype(np.float32))
            params = jax.eval_shape(model.space.to_params, point)
            known[key] = json_fingerprint(
                [
                    program_fingerprint(model.log_likelihood, params, abstract),
                    program_fingerprint(model.space.to_params, point),
                    program_fingerprint(model.space.log_prior, point),
                ]
            )
        return known[key]
