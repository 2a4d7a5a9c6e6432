"""Functions of the parameters, for rules that combine one marginal view at a time.

A function is a linear combination, `{"parameter name": coefficient, ...}`, or anything callable that takes the
draws as `{parameter: (J, *shape) array}`, in the user's parameters, and returns (J,) or (J, k) numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from consilience.draws import Subposteriors
from consilience.draws.checks import shapes_from_names
from consilience.errors import InputError, must_be

from .base import Floats

Function = Mapping[str, float] | Callable[[dict[str, Floats]], Any]
Functions = Mapping[str, Function]


def check_functions(rule: str, functions: Any) -> None:
    """Refuse what is not a name with a function each, before anything is computed."""
    if functions is None:
        return
    right = isinstance(functions, Mapping) and functions
    if not right or not all(callable(f) or isinstance(f, Mapping) for f in functions.values()):
        raise must_be(
            rule,
            "functions",
            "a dict of names, each with a linear combination {parameter: coefficient} or a callable",
            functions,
            "For example functions={'contrast': {'a': 1, 'b': -1}}.",
            error=InputError,
        )


def evaluate_functions(
    rule: str, functions: Functions, subposteriors: Subposteriors
) -> dict[str, tuple[Floats, ...]]:
    """Values of every function at the draws of every shard: per function, one (J_b, k) array per shard.

    Examples
    --------
    >>> shards = Subposteriors.of(np.ones((2, 3, 2)) * np.arange(3)[:, None], kind="inflated", names=["a", "b"])
    >>> evaluate_functions("pie", {"sum": {"a": 1, "b": 1}}, shards)["sum"][0][:, 0]
    array([0., 2., 4.])
    """
    space, names = subposteriors.space, subposteriors.names
    user_names: Sequence[str] = names if space is None else space.names
    values: dict[str, list[Floats]] = {name: [] for name in functions}
    for b, x in enumerate(subposteriors.draws):
        columns = np.asarray(x if space is None else space.to_user(x), dtype=np.float64)
        by_name = _parameters(columns, user_names, None if space is None else dict(space.shapes))
        for name, function in functions.items():
            found = (
                _linear(rule, name, function, columns, user_names)
                if isinstance(function, Mapping)
                else function(by_name)
            )
            values[name].append(_checked(rule, name, found, len(x), subposteriors.labels[b]))
    return {name: tuple(arrays) for name, arrays in values.items()}


def column_names(name: str, width: int) -> tuple[str, ...]:
    """Names of a function's columns."""
    return (name,) if width == 1 else tuple(f"{name}[{i}]" for i in range(width))


def _parameters(
    columns: Floats, names: Sequence[str], shapes: dict[str, tuple[int, ...]] | None
) -> dict[str, Floats]:
    found, start = {}, 0
    for name, shape in (shapes or shapes_from_names(names)).items():
        stop = start + int(np.prod(shape))
        found[name] = columns[:, start:stop].reshape(len(columns), *shape)
        start = stop
    return {**found, **{name: columns[:, i] for i, name in enumerate(names) if name not in found}}


def _linear(
    rule: str, name: str, function: Mapping[str, float], columns: Floats, names: Sequence[str]
) -> Floats:
    unknown = [key for key in function if key not in names]
    if unknown:
        advice = f"There are {', '.join(list(names)[:8])}{', …' if len(names) > 8 else ''}."
        raise must_be(rule, name, "made of known parameters", unknown[0], advice, error=InputError)
    coefficients = np.array([float(function.get(key, 0.0)) for key in names])
    return np.asarray(columns @ coefficients)


def _checked(rule: str, name: str, found: Any, number: int, label: str) -> Floats:
    values = np.asarray(found, dtype=np.float64)
    if values.ndim == 1:
        values = values[:, None]
    right = values.ndim == 2 and len(values) == number
    if not right or not np.all(np.isfinite(values)):
        got = "NaN or infinity" if right else f"an array of shape {np.shape(found)}"
        raise must_be(
            rule,
            name,
            f"one finite number (or k of them) for each of the {number} draws of shard {label}",
            got,
            "Check the function.",
            error=InputError,
        )
    return values


def described(options: dict[str, Any]) -> dict[str, Any]:
    """Options as a record can hold them: callables by their names.

    Examples
    --------
    >>> described({"functions": {"size": np.exp, "sum": {"a": 1}}, "num_draws": 5})
    {'functions': {'size': 'exp', 'sum': {'a': 1}}, 'num_draws': 5}
    """
    plain: dict[str, Any] = {}
    for key, value in options.items():
        if isinstance(value, Mapping):
            value = described(dict(value))
        elif callable(value):
            value = str(getattr(value, "__name__", value))
        plain[key] = value
    return plain
