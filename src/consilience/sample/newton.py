"""Mode and curvature of shards' targets by a damped Newton method.

Step: (S + lambda I)^-1 g in coordinates scaled so that the negative Hessian S has entries of order one, with
lambda at least what makes the Cholesky factorisation succeed (Levenberg and Marquardt). The step is taken if
the target rises by a tenth of what the quadratic model promised, else lambda grows tenfold. At a saddle, where
the gradient is silent, the step follows a direction of negative curvature.

It needs finite second derivatives. Separated data and flat directions leave next to no curvature: the damping
keeps the steps finite, the prior makes the mode exist. Several modes: it finds one of them; `concave` tells
whether the search met a place where the target curves the wrong way, as it must between two modes.

Only derivatives are compiled. The rest is a few operations on small matrices, in float64, for many shards at
once.

Reference: Nocedal and Wright (2006), Numerical Optimization, sections 3.4 (algorithm 3.3) and 10.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from consilience.sample.factor import (
    cholesky,
    inverse_transposed,
    negative_curvature,
    solve_lower,
    solve_upper,
)

MAX_ITERATIONS = 80
# Squared distance to the mode in posterior standard deviations at which the search stops.
DECREMENT_TOLERANCE = 1e-3
# Curvature below this, in scaled coordinates, is lost in the rounding of a float32 Hessian: taken for flat.
FLOOR = 1e-6
# Curvature of the wrong sign counts as such beyond this.
SADDLE = 3e-3
# Damping beyond which no step is short enough: the search is stuck.
STUCK = 1e9
# Rounding of a sum hides gains below this; a step that stays within it is as good as any.
ROUNDING = 1e-3

# Points before and after a step (shards, d) to the gain, score and negative Hessian after it.
Derivatives = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]


class Mode(NamedTuple):
    """Where the target peaks and how sharply; `root` maps standard normal draws onto its curvature."""

    point: np.ndarray
    root: np.ndarray
    decrement: np.ndarray
    iterations: np.ndarray
    flat: np.ndarray
    concave: np.ndarray
    evaluations: np.ndarray


class _Curvature(NamedTuple):
    """A scaled negative Hessian with as little added to its diagonal as makes it positive definite."""

    scale: np.ndarray
    scaled: np.ndarray
    added: np.ndarray
    factor: np.ndarray


def _curvature(precision: np.ndarray) -> _Curvature:
    """Scale every row's largest entry to one, and factorise.

    For a positive definite matrix that is its diagonal, and parameters of any units are told apart from
    flat ones; without it 1e-4 beside 1e4 would be lost in rounding.
    """
    size = np.abs(precision)
    scale = np.sqrt(np.diagonal(size, axis1=-2, axis2=-1))
    scale = np.where(scale > 0, scale, 1.0)
    for _ in range(4):
        largest = np.max(size / scale[..., :, None] / scale[..., None, :], axis=-1)
        scale = scale * np.where(largest > 0, np.sqrt(largest), 1.0)
    scaled = precision / scale[..., :, None] / scale[..., None, :]
    return _factorised(scale, scaled, np.full(scaled.shape[0], FLOOR))


def _factorised(scale: np.ndarray, scaled: np.ndarray, added: np.ndarray) -> _Curvature:
    dimension = scaled.shape[-1]
    while True:
        factor, failed = cholesky(scaled + added[:, None, None] * np.eye(dimension))
        if np.all(failed == dimension):
            return _Curvature(scale, scaled, added, factor)
        added = np.where(failed < dimension, 10 * added, added)


def _damped_steps(
    curvature: _Curvature, slope: np.ndarray, damping: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Steps in scaled coordinates, and what the quadratic model promises of them."""
    damped = _factorised(curvature.scale, curvature.scaled, curvature.added + damping)
    step = solve_upper(damped.factor, solve_lower(damped.factor, slope))
    promised = 0.5 * (slope * step).sum(axis=-1) + 0.5 * damped.added * (step**2).sum(axis=-1)
    return step, promised


def _escape(curvature: _Curvature, lane: int, damping: float) -> tuple[np.ndarray, float]:
    """One lane's step away from a saddle, along negative curvature."""
    scaled = curvature.scaled[lane]
    # Ten times less than what was needed was the last that failed.
    shifted = scaled + 0.1 * curvature.added[lane] * np.eye(len(scaled))
    factor, failed = cholesky(shifted)
    direction = negative_curvature(factor, shifted, int(failed))
    direction /= np.sqrt((direction**2).sum())
    bend = abs(float((direction[:, None] * scaled * direction[None, :]).sum()))
    length = 1 / np.sqrt(bend + damping)
    return length * direction, 0.5 * bend * length**2


def find_modes(derivatives: Derivatives, start: np.ndarray) -> Mode:
    """Search from `start` (shards, d), all shards at once.

    A start where the target or its derivatives are not finite ends that shard's search there, with a
    decrement that is not finite.
    """
    shards, dimension = start.shape
    point = np.array(start)
    gain, score, precision = derivatives(point, point)
    possible = np.isfinite(gain) & np.isfinite(score).all(-1) & np.isfinite(precision).all((-2, -1))
    score, precision = _only(possible, score, 0.0), _only(possible, precision, np.eye(dimension))
    damping, iterations = np.full(shards, 1e-3), np.ones(shards)
    concave, active = np.full(shards, True), possible.copy()
    while True:
        curvature = _curvature(precision)
        slope = score / curvature.scale
        decrement = (solve_lower(curvature.factor, slope) ** 2).sum(axis=-1)
        bent = curvature.added > SADDLE
        concave &= ~bent
        quiet = decrement < DECREMENT_TOLERANCE
        active &= ~(quiet & ~bent) & (iterations < MAX_ITERATIONS) & (damping < STUCK)
        if not active.any():
            break
        step, promised = _damped_steps(curvature, slope, damping)
        for lane in np.flatnonzero(active & quiet):
            step[lane], promised[lane] = _escape(curvature, int(lane), float(damping[lane]))
        with np.errstate(over="ignore"):
            trial = np.where(active[:, None], point + step / curvature.scale, point).astype(start.dtype)
        gain, new_score, new_precision = derivatives(point, trial)
        finite = np.isfinite(gain) & np.isfinite(new_score).all(-1) & np.isfinite(new_precision).all((-2, -1))
        better = active & finite & (np.where(finite, gain, -np.inf) > 0.1 * promised - ROUNDING)
        damping = np.where(better, damping / 10, np.maximum(damping, 1e-5) * 10)
        damping = np.where(damping < 1e-7, 0.0, damping)
        iterations = iterations + active
        point, score = _only(better, trial, point), _only(better, new_score, score)
        precision = _only(better, new_precision, precision)
    root = inverse_transposed(curvature.factor) / curvature.scale[:, :, None]
    # A Hessian costs as much as one gradient for each coordinate.
    return Mode(
        point=point,
        root=root.astype(start.dtype),
        decrement=np.where(possible, decrement, np.inf),
        iterations=iterations,
        flat=np.diagonal(curvature.factor, axis1=-2, axis2=-1).min(axis=-1) ** 2 < 10 * FLOOR,
        concave=concave,
        evaluations=iterations * (dimension + 2),
    )


def _only(chosen: np.ndarray, new: np.ndarray, old: Any) -> np.ndarray:
    """`new` for the chosen shards, `old` for the others."""
    return np.where(chosen.reshape((-1,) + (1,) * (new.ndim - 1)), new, old)
