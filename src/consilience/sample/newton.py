"""Mode and curvature of a shard's target by a damped Newton method.

Step: (|H| + lambda I)^-1 g in coordinates scaled so that H has entries of order one, where |H| has the
absolute eigenvalues of the negative Hessian, floored (Levenberg-Marquardt on a saddle-free Hessian). The
step is taken if the target rises by a tenth of what the quadratic model promised, else lambda grows tenfold.
At a saddle, where the gradient is silent, the step follows the most negative curvature.

It needs finite second derivatives. Separated data and flat directions leave eigenvalues near zero: the
damping keeps the steps finite, the prior makes the mode exist. Several modes: it finds one of them; `concave`
tells whether the search met a place where the target curves the wrong way, as it must between two modes.

Reference: Nocedal and Wright (2006), Numerical Optimization, sections 3.4 and 10.3; Dauphin et al. (2014),
Identifying and attacking the saddle point problem, for the absolute eigenvalues.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from consilience.sample.target import (
    Array,
    ShardData,
    absolute_log_density,
    log_density,
    reference_at,
    score_and_precision,
)

MAX_ITERATIONS = 80
# Squared distance to the mode in posterior standard deviations at which the search stops.
DECREMENT_TOLERANCE = 1e-3
# Eigenvalues of the scaled Hessian below this share of the largest are lost in rounding: taken for flat.
FLOOR = 1e-6
# Curvature of the wrong sign counts as such beyond this share of the largest.
SADDLE = 1e-3
# Damping beyond which no step is short enough: the search is stuck.
STUCK = 1e9
# Rounding of a sum hides gains below this; a step that stays within it is as good as any.
ROUNDING = 1e-3


class Mode(NamedTuple):
    """Where the target peaks and how sharply; `root` maps standard normal draws onto its curvature."""

    point: Array
    root: Array
    decrement: Array
    iterations: Array
    floored: Array
    concave: Array
    evaluations: Array


class _Spectrum(NamedTuple):
    scale: Array
    values: Array
    vectors: Array


class _Search(NamedTuple):
    point: Array
    damping: Array
    decrement: Array
    iteration: Array
    done: Array
    concave: Array
    spectrum: _Spectrum


def _spectrum(precision: Array) -> _Spectrum:
    """Scales that bring every row's largest entry to one, then eigenvalues and eigenvectors.

    For a positive definite matrix that is its diagonal, and parameters of any units are told apart from
    flat ones; without it 1e-4 beside 1e4 would be lost in rounding.
    """
    size = jnp.abs(jnp.where(jnp.isfinite(precision), precision, 0.0))
    scale = jnp.sqrt(jnp.diagonal(size))
    scale = jnp.where(scale > 0, scale, 1.0)
    for _ in range(4):
        largest = jnp.max(size / scale[:, None] / scale[None, :], axis=1)
        scale = scale * jnp.where(largest > 0, jnp.sqrt(largest), 1.0)
    scaled = precision / scale[:, None] / scale[None, :]
    values, vectors = jnp.linalg.eigh(jnp.where(jnp.isfinite(scaled), scaled, 0.0))
    return _Spectrum(scale, values, vectors)


def _iterate(model: Any, data: ShardData, state: _Search) -> _Search:
    reference = reference_at(model, state.point, data)
    score, precision = score_and_precision(model, state.point, data, reference)
    spectrum = _spectrum(precision)
    scale, values, vectors = spectrum
    largest = jnp.max(jnp.abs(values))
    largest = jnp.where(largest > 0, largest, 1.0)
    curvature = jnp.maximum(jnp.abs(values), FLOOR * largest)
    slope = vectors.T @ (score / scale)
    # Where a row has no density NaN is masked, and the gradient with it: no mode, however flat it looks.
    possible = jnp.isfinite(jnp.sum(reference.rows) + reference.prior)
    decrement = jnp.where(possible, jnp.sum(slope**2 / curvature), jnp.inf)
    damped = curvature + state.damping * largest
    concave = values[0] >= -SADDLE * largest
    quiet = decrement < DECREMENT_TOLERANCE
    # At a saddle the gradient says nothing; any way along the wrong curvature is up.
    along = jnp.where(quiet, jnp.zeros_like(slope).at[0].set(1 / jnp.sqrt(damped[0])), slope / damped)
    newton = jnp.sum(slope**2 / damped * (1 - 0.5 * curvature / damped))
    promised = jnp.where(quiet, 0.5 * curvature[0] / damped[0], newton)
    step = (vectors @ along) / scale
    finished = (quiet & concave) | (state.iteration + 1 >= MAX_ITERATIONS) | ~jnp.isfinite(decrement)
    gained = log_density(model, state.point + step, data, reference)
    better = (gained > 0.1 * promised - ROUNDING) & jnp.all(jnp.isfinite(step)) & jnp.isfinite(gained)
    damping = jnp.where(better, state.damping / 10, jnp.maximum(state.damping, 1e-5) * 10)
    return _Search(
        jnp.where(better & ~finished, state.point + step, state.point),
        jnp.where(damping < 1e-7, 0.0, damping),
        decrement,
        state.iteration + 1,
        finished | (damping > STUCK),
        state.concave & concave,
        spectrum,
    )


def find_mode(model: Any, data: ShardData, start: Array) -> Mode:
    """Search from `start`; traceable, so that many shards can be searched by one compiled program.

    A start where the target or its derivatives are not finite ends the search there, with a decrement that
    is not finite.
    """
    dimension = start.shape[0]
    ones = jnp.ones(dimension, start.dtype)
    first = _Search(
        start,
        jnp.asarray(1e-3, start.dtype),
        jnp.asarray(jnp.inf, start.dtype),
        jnp.asarray(0, jnp.int32),
        jnp.asarray(False),
        jnp.asarray(True),
        _Spectrum(ones, ones, jnp.eye(dimension, dtype=start.dtype)),
    )
    last = jax.lax.while_loop(lambda state: ~state.done, lambda state: _iterate(model, data, state), first)
    scale, values, vectors = last.spectrum
    floor = FLOOR * jnp.max(jnp.abs(values)) + jnp.finfo(start.dtype).tiny
    root = (vectors / jnp.sqrt(jnp.maximum(jnp.abs(values), floor))) / scale[:, None]
    # A Hessian costs as much as one gradient for each coordinate.
    evaluations = last.iteration.astype(start.dtype) * (dimension + 2)
    flat = jnp.sum(jnp.abs(values) < floor)
    return Mode(last.point, root, last.decrement, last.iteration, flat, last.concave, evaluations)


def values_at(model: Any, data: ShardData, points: Array) -> Array:
    """Log density, up to a constant, and whether its gradient is finite too, at several points."""

    def one(point: Array) -> Array:
        value, gradient = jax.value_and_grad(lambda u: absolute_log_density(model, u, data))(point)
        return jnp.where(jnp.all(jnp.isfinite(gradient)), value, -jnp.inf)

    return jax.lax.map(one, points)
