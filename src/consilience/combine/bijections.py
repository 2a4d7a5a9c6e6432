"""NumPyro's bijections of the supports that can be declared, in double precision, on stacks of draws.

Where one is one line it is that line in NumPy; the others are NumPyro's `biject_to`, compiled.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from .base import Floats

# Each support with what it demands of a draw.
SUPPORTS = {
    "positive": "above 0",
    "unit": "between 0 and 1",
    "simplex": "positive, with sum 1",
    "ordered": "increasing",
    "correlation": "a correlation matrix",
}
ROUNDING = 1e-4  # of draws written with few digits


def outside(support: str, x: Floats) -> Floats:
    """(N,) whether a draw is not inside the support."""
    rows = tuple(range(1, x.ndim))
    if support == "positive":
        return np.any(x <= 0, axis=rows)
    if support == "unit":
        return np.any((x <= 0) | (x >= 1), axis=rows)
    if support == "simplex":
        return np.any(x <= 0, axis=rows) | np.any(np.abs(x.sum(axis=-1) - 1) > ROUNDING, axis=rows[:-1])
    if support == "ordered":
        return np.any(np.diff(x, axis=-1) <= 0, axis=rows)
    diagonal = np.abs(np.diagonal(x, axis1=-2, axis2=-1) - 1).max(axis=-1)
    skew = np.abs(x - np.swapaxes(x, -1, -2)).max(axis=(-2, -1))
    smallest = np.linalg.eigvalsh((x + np.swapaxes(x, -1, -2)) / 2)[..., 0]
    wrong = (diagonal > ROUNDING) | (skew > ROUNDING) | (smallest <= 0)
    return np.any(wrong, axis=rows[:-2])


def forward(support: str | None, free: Floats) -> Floats:
    """From coordinates to the support.

    Examples
    --------
    >>> forward("simplex", np.zeros((1, 1)))
    array([[0.5, 0.5]])
    """
    if support is None:
        return free
    if support == "positive":
        with np.errstate(over="ignore"):
            return np.exp(free)
    return _in_double(support, "forward", free)


def backward(support: str | None, values: Floats) -> Floats:
    """From the support to coordinates; what few digits have spoiled is put right first."""
    if support is None:
        return values
    if support == "positive":
        return np.log(values)
    if support == "simplex":
        values = values / values.sum(axis=-1, keepdims=True)
    if support == "correlation":
        scale = np.sqrt(np.diagonal(values, axis1=-2, axis2=-1))
        values = (values + np.swapaxes(values, -1, -2)) / 2
        values = values / (scale[..., :, None] * scale[..., None, :])
    return _in_double(support, "backward", values)


def log_jacobian(support: str, free: Floats) -> Floats:
    """(N,) log |d value / d coordinates|."""
    found = free if support == "positive" else _in_double(support, "jacobian", free)
    return found.reshape(len(found), -1).sum(axis=1)


def _in_double(support: str, direction: str, x: Floats) -> Floats:
    """NumPyro's bijection in float64.

    Programs are compiled for a number of draws: padded to a power of two, all shards share a few.
    """
    from consilience.model.space import double_precision

    number = len(x)
    padding = [(0, (1 << (number - 1).bit_length()) - number), *[(0, 0)] * (x.ndim - 1)]
    with double_precision():
        found = _compiled(support, direction)(np.pad(x, padding, mode="edge"))
    return np.asarray(found, dtype=np.float64)[:number]


@functools.cache
def _compiled(support: str, direction: str) -> Callable[[Any], Any]:
    """Compiled as a whole: operation by operation takes seconds the first time."""
    import jax
    from numpyro.distributions import constraints
    from numpyro.distributions.transforms import biject_to

    domain = {
        "unit": constraints.unit_interval,
        "simplex": constraints.simplex,
        "ordered": constraints.ordered_vector,
        "correlation": constraints.corr_matrix,
    }[support]
    bijection = biject_to(domain)
    if direction == "forward":
        return jax.jit(lambda u: bijection(u))
    if direction == "backward":
        return jax.jit(lambda x: bijection.inv(x))
    return jax.jit(lambda u: bijection.log_abs_det_jacobian(u, bijection(u)))
