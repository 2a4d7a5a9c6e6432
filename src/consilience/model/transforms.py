"""The state of a formula's stateful transforms, found over all rows while they stream by.

formulaic finds a transform's state (means, scales, knots, polynomial coefficients) on the rows it is first
shown. Here the rows never lie together, so each transform gets an accumulator: fed by chunks, asked after
every pass whether it is done, it fills the very dictionary that formulaic would have filled. A nested
transform, `bs(scale(x), df=4)`, waits for its inner one. From then on formulaic computes with that state
and never looks for another.

- scale, center, standardize: pairwise update of mean and sum of squares (Chan, Golub & LeVeque 1983, eq.
2.1).
- poly: the three-term recurrence needs sums of its own polynomials, one pass for each degree.
- bs: bounds and exact quantiles; cr, cs, cc: those of the distinct values, and column means for
`constraints="center"`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from consilience.errors import ModelError
from consilience.model.splines import BasisSpline, CubicSpline, CyclicSpline

__all__ = ["ACCUMULATORS", "Accumulator", "NotReady", "Recorder", "fixed_context"]


class NotReady(Exception):
    """An expression needs a state that this pass is still finding."""


class Accumulator(Protocol):
    """Finds one transform's state from chunks of its argument."""

    def add(self, data: Any) -> None: ...

    def finish(self, state: dict[str, Any]) -> bool: ...


class _Scale:
    """State of `scale(data, center=True, scale=True, ddof=1)`."""

    def __init__(self, center: Any = True, scale: Any = True, ddof: float = 1) -> None:
        self.center, self.scale, self.ddof = center, scale, ddof
        self.count = 0
        self.mean: Any = 0.0
        self.squares: Any = 0.0

    def add(self, data: Any) -> None:
        x = np.asarray(data, dtype=np.float64)
        if x.shape[0] == 0:
            return
        mean = x.mean(axis=0)
        squares = ((x - mean) ** 2).sum(axis=0)
        total = self.count + x.shape[0]
        shift = mean - self.mean
        self.squares = self.squares + squares + shift**2 * (self.count * x.shape[0] / total)
        self.mean = self.mean + shift * (x.shape[0] / total)
        self.count = total

    def finish(self, state: dict[str, Any]) -> bool:
        state["ddof"] = self.ddof
        if isinstance(self.center, bool):
            state["center"] = self.mean if self.center else None
        else:
            state["center"] = np.array(self.center)
        about = 0.0 if state["center"] is None else state["center"]
        if isinstance(self.scale, bool):
            squares = self.squares + self.count * (self.mean - about) ** 2
            state["scale"] = np.sqrt(squares / (self.count - self.ddof)) if self.scale else None
        else:
            state["scale"] = np.array(self.scale)
        return True


def _center() -> _Scale:
    return _Scale(scale=False)


def _standardize(center: Any = True, rescale: Any = True, ddof: float = 0) -> _Scale:
    return _Scale(center, rescale, ddof)


class _Poly:
    """State of `poly(x, degree)`: alpha_k = <x P_k, P_k> / <P_k, P_k> and the squared norms."""

    def __init__(self, degree: int = 1, raw: bool = False) -> None:
        self.degree = degree
        self.alpha: dict[int, float] = {}
        self.norms: dict[int, float] = {}
        self.sums = np.zeros(2)

    def add(self, data: Any) -> None:
        x = np.asarray(data, dtype=np.float64)
        before, current = np.zeros_like(x), np.ones_like(x)
        for k in range(len(self.norms)):
            beta = self.norms[k] / self.norms[k - 1] if k else 0.0
            before, current = current, (x - self.alpha[k]) * current - beta * before
        self.sums += [np.sum(x * current**2), np.sum(current**2)]

    def finish(self, state: dict[str, Any]) -> bool:
        k = len(self.norms)
        self.norms[k] = float(self.sums[1])
        if k < self.degree:
            if self.sums[1] == 0:
                raise ModelError(
                    f"glm: poly(degree={self.degree}) needs more distinct values than the column has."
                )
            self.alpha[k] = float(self.sums[0] / self.sums[1])
            self.sums = np.zeros(2)
            return False
        state["alpha"], state["norms2"] = self.alpha, self.norms
        return True


ACCUMULATORS: dict[str, Callable[..., Accumulator]] = {
    "scale": _Scale,
    "center": _center,
    "standardize": _standardize,
    "poly": _Poly,
    "bs": BasisSpline,
    "cr": CubicSpline,
    "cs": CubicSpline,
    "cc": CyclicSpline,
}


def _is_stateless(name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> bool:
    raw = options.get("raw", arguments[1] if len(arguments) > 1 else False)
    return name == "poly" and bool(raw)


def _stateful(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function as formulaic marks its stateful transforms."""
    function.__is_stateful_transform__ = True  # type: ignore[attr-defined]
    function.get_required_variables = lambda *args, **kwargs: ()  # type: ignore[attr-defined]
    function.__name__ = name
    return function


def _nowhere(data: Any) -> Any:
    """Stand in for a call that carries no state.

    formulaic makes such calls when it looks for variables, and throws the result away. A call hidden from it,
    as in `map(scale, ...)`, would find a state of its own; NaN gets it refused.
    """
    return np.full(np.shape(data), np.nan)


class Recorder:
    """Stands in for formulaic's stateful transforms while their state is being found."""

    def __init__(self) -> None:
        self._finders: dict[int, tuple[Accumulator, dict[str, Any]]] = {}
        self._done: dict[int, dict[str, Any]] = {}  # holds the states, so that no identity is used twice
        self._seen: set[int] = set()
        self.listening = True  # when not, nothing is fed to the accumulators
        self.context = {name: self._recording(name) for name in ACCUMULATORS}

    def new_chunk(self) -> None:
        """Two factors may share a transform; each chunk counts once."""
        self._seen = set()

    def end_pass(self) -> None:
        """Ask every accumulator whether it is done."""
        for key, (finder, state) in list(self._finders.items()):
            if finder.finish(state):
                self._done[key] = state
                del self._finders[key]

    def _recording(self, name: str) -> Callable[..., Any]:
        from formulaic.transforms import TRANSFORMS

        original = TRANSFORMS[name]

        def transform(data: Any, *args: Any, _state: Any = None, **kwargs: Any) -> Any:
            if _state is None:
                return _nowhere(data)
            options = {k: v for k, v in kwargs.items() if k not in ("_metadata", "_spec", "_context")}
            if not _is_stateless(name, args, options):
                self._record(name, data, args, options, _state)
            return original(data, *args, _state=_state, **kwargs)

        return _stateful(name, transform)

    def _record(self, name: str, data: Any, args: Any, options: Any, state: dict[Any, Any]) -> None:
        """Feed the accumulators that are still at work; several for a transform of several columns."""
        waiting = False
        for piece, where in _pieces(data, state):
            key = id(where)
            if key in self._done:
                continue
            waiting = True
            if key in self._seen or not self.listening:
                continue
            self._seen.add(key)
            if key not in self._finders:
                try:
                    self._finders[key] = (ACCUMULATORS[name](*args, **options), where)
                except TypeError as error:
                    raise ModelError(
                        f"glm: `{name}` in the formula: {error}. See formulaic's {name}()."
                    ) from error
            self._finders[key][0].add(piece)
        if waiting:
            raise NotReady


def _pieces(data: Any, state: dict[Any, Any]) -> list[tuple[Any, dict[str, Any]]]:
    """The columns of a transform's argument, each with the dictionary for its own state."""
    if not isinstance(data, dict):
        return [(data, state)]
    keys = [key for key in data if not (isinstance(key, str) and key.startswith("__"))]
    return [pair for key in keys for pair in _pieces(data[key], state.setdefault(key, {}))]


def fixed_context() -> dict[str, Any]:
    """formulaic's stateful transforms, refusing to find a state of their own."""
    from formulaic.transforms import TRANSFORMS

    def fixed(name: str) -> Callable[..., Any]:
        original = TRANSFORMS[name]

        def transform(data: Any, *args: Any, _state: Any = None, **kwargs: Any) -> Any:
            if _state is None:
                return _nowhere(data)
            if not _state and not _is_stateless(name, args, kwargs):
                raise ModelError(f"glm: `{name}` was met with no state. Please report this formula.")
            return original(data, *args, _state=_state, **kwargs)

        return _stateful(name, transform)

    return {name: fixed(name) for name in ACCUMULATORS}
