"""The log density of one shard's target, as a difference from a reference point.

    inflated       log p0(u) + (1 / w_b) sum_i m_i log f(y_i | u)
    subposterior   w_b log p0(u) + sum_i m_i log f(y_i | u)

in the unconstrained coordinates u, so the Jacobian belongs to the prior and is raised to the same power.
A sum over millions of rows has no digits left for the differences that a sampler needs (float32 resolves
1 in 10^7), so the reference is subtracted row by row, before the sum.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Array = Any


class ShardData(NamedTuple):
    """What a compiled program is given of one shard."""

    rows: dict[str, Array]
    row_weight: Array
    prior_power: Array
    likelihood_power: Array


class Reference(NamedTuple):
    """Log-likelihood of every row, and log prior, at the point that differences are taken from."""

    rows: Array
    prior: Array


def powers(kind: str, weight: float) -> tuple[float, float]:
    """Exponents of the prior and of the likelihood in a shard's target.

    Examples
    --------
    >>> powers("inflated", 0.25), powers("subposterior", 0.25)
    ((1.0, 4.0), (0.25, 1.0))
    """
    return (1.0, 1.0 / weight) if kind == "inflated" else (weight, 1.0)


def reference_at(model: Any, point: Array, data: ShardData) -> Reference:
    """Evaluate the rows at a point, once."""
    rows = model.log_likelihood(model.space.to_params(point), data.rows)
    return Reference(rows, model.space.log_prior(point))


def log_density(model: Any, point: Array, data: ShardData, reference: Reference) -> Array:
    """Log density of the shard's target at `point` less that at the reference; NaN counts as zero density."""
    rows = model.log_likelihood(model.space.to_params(point), data.rows)
    likelihood = jnp.sum(data.row_weight * (rows - reference.rows))
    prior = model.space.log_prior(point) - reference.prior
    value = data.likelihood_power * likelihood + data.prior_power * prior
    return jnp.where(jnp.isnan(value), -jnp.inf, value)


def absolute_log_density(model: Any, point: Array, data: ShardData) -> Array:
    """Log density up to a constant, for comparing points that lie far apart."""
    zero = Reference(jnp.zeros_like(data.row_weight), jnp.zeros((), data.row_weight.dtype))
    return log_density(model, point, data, zero)


# Numbers that one block of Hessian columns may take for each intermediate array.
HESSIAN_BLOCK = 1 << 23


def derivatives(model: Any, data: ShardData, here: Array, there: Array) -> tuple[Array, Array, Array]:
    """Rise of the target from `here` to `there`, and its gradient and negative Hessian there.

    The Hessian's columns are found in blocks where a shard is tall, so that they never take more memory than
    a few copies of it.
    """
    reference = reference_at(model, here, data)

    def target(u: Array) -> tuple[Array, Array]:
        return jax.value_and_grad(lambda v: log_density(model, v, data, reference))(u)

    (rise, score), push = jax.linearize(target, there)
    dimension = there.shape[0]
    columns = max(1, min(dimension, HESSIAN_BLOCK // data.row_weight.shape[0]))
    if columns == dimension:
        hessian = jax.vmap(lambda v: push(v)[1])(jnp.eye(dimension, dtype=there.dtype))
    else:
        blocks = -(-dimension // columns)
        basis = jnp.eye(blocks * columns, dimension, dtype=there.dtype).reshape(blocks, columns, dimension)
        hessian = jax.lax.map(jax.vmap(lambda v: push(v)[1]), basis).reshape(-1, dimension)[:dimension]
    # Where a row has no density NaN is masked, and the gradient with it: nothing there is to be believed.
    possible = jnp.isfinite(jnp.sum(reference.rows) + reference.prior)
    return jnp.where(possible, rise, -jnp.inf), score, -(hessian + hessian.T) / 2


def values_at(model: Any, data: ShardData, points: Array) -> Array:
    """Log densities up to a constant at several points, minus infinity where the gradient is not finite."""

    def one(point: Array) -> Array:
        value, gradient = jax.value_and_grad(lambda u: absolute_log_density(model, u, data))(point)
        return jnp.where(jnp.all(jnp.isfinite(gradient)), value, -jnp.inf)

    return jax.lax.map(one, points)
