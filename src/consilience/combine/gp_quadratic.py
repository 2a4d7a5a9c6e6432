"""A quadratic through log densities in many dimensions, where there is no hope for a process on top of it.

Formula. With c, s and a symmetric matrix S, the least squares fit of

    l(z) ~ c + s'z + (z' S z - tr S) / sqrt(2)

to all draws of a shard. For white draws these features are orthonormal when S is measured by its Frobenius norm,
so that conjugate gradients on the normal equations need few steps: their condition is ((1 + r) / (1 - r))² with
r = (p / J)^1/2. The (J, p) matrix of the features is never formed.

Assumptions. More draws J than coefficients p = (d + 1)(d + 2) / 2, by half at least.

Fails when the log density is no quadratic: the scatter about it says so.

Cost. About a hundred steps of 4 J d² operations, and memory for two copies of the shard's draws.

Reference. Björck (1996), Numerical methods for least squares problems, section 7.4 (CGLS).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .base import Floats
from .gp_density import Placed
from .gp_surface import LEAST_CURVATURE, Surface, num_features

TOLERANCE = 1e-13
MOST_STEPS = 500


def fit_quadratic(z: Floats, values: Floats) -> Surface:
    """Fit a quadratic to all values.

    Parameters
    ----------
    z : (J, d)
        All draws of a shard in white coordinates.
    values : (J,)

    Examples
    --------
    >>> z = np.random.default_rng(0).normal(size=(3000, 30))
    >>> surface = fit_quadratic(z, z[:, 0] - np.sum(z**2, axis=1))
    >>> np.abs(surface.curvature - 2.0 * np.eye(30)).max() < 1e-9, surface.slope[:2].round(9)
    (np.True_, array([ 1., -0.]))
    """
    level = float(values.max())
    coefficients, left = _least_squares(z, values - level)
    constant, slope, matrix = _unpacked(coefficients, z.shape[1])
    curvature = -np.sqrt(2.0) * matrix
    eigenvalues, vectors = np.linalg.eigh(curvature)
    if eigenvalues[0] < LEAST_CURVATURE:
        # Then it is no Gaussian's, and what is left says how far from one.
        raised = (vectors * np.maximum(eigenvalues, LEAST_CURVATURE)) @ vectors.T
        left = left + 0.5 * np.sum((z @ (raised - curvature)) * z, axis=1)
        left -= left.mean()
        curvature = raised
    return Surface(
        points=np.empty((0, z.shape[1])),  # not a slice of z, which would keep it
        constant=constant - np.trace(matrix) / np.sqrt(2.0) + level,
        slope=slope,
        curvature=curvature,
        length=np.inf,
        noise=1.0,
        scale=float(left @ left) / (len(z) - num_features(z.shape[1])),
        inverse_factor=None,
        dual=np.empty(0),
        num_values=len(z),
    )


def mean_error(shards: Sequence[Placed], mean: Floats, root: Floats) -> Floats:
    """Variance of the product's mean that noise of the values leaves in quadratics fitted here, per parameter.

    A shard's gradient at the mean is off by s² (1 + |z|²) / (J - p) in each white direction, z being where the mean
    lies for it.

    Examples
    --------
    >>> mean_error([], np.zeros(2), np.eye(2))
    array([0., 0.])
    """
    total = np.zeros(len(mean))
    for shard in shards:
        surface, d = shard.surface, len(mean)
        if not surface.has_process and not len(surface.points):
            z = shard.place(mean[None])[0]
            each = surface.scale * (1.0 + z @ z) / (surface.num_values - num_features(d))
            total += each * np.sum((root @ (shard.whitening @ root).T) ** 2, axis=1)
    return total


def _least_squares(z: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Coefficients (1 + d + d²,) and residuals, by conjugate gradients."""
    d = z.shape[1]
    coefficients = np.zeros(1 + d + d * d)
    left = values.copy()
    slope = _adjoint(z, left)
    direction, size = slope, float(slope @ slope)
    enough = TOLERANCE**2 * size
    for _ in range(MOST_STEPS):
        if size <= enough:
            break
        along = _applied(z, direction)
        step = size / float(along @ along)
        coefficients += step * direction
        left -= step * along
        slope = _adjoint(z, left)
        before, size = size, float(slope @ slope)
        direction = slope + (size / before) * direction
    return coefficients, left


def _applied(z: Floats, coefficients: Floats) -> Floats:
    """The quadratic with these coefficients at all draws."""
    constant, slope, matrix = _unpacked(coefficients, z.shape[1])
    bent = np.sum((z @ matrix) * z, axis=1) - np.trace(matrix)
    return constant + z @ slope + bent / np.sqrt(2.0)


def _adjoint(z: Floats, left: Floats) -> Floats:
    """Inner products of the features with values at all draws."""
    total = left.sum()
    matrix = (z * left[:, None]).T @ z
    matrix[np.diag_indices(len(matrix))] -= total
    return np.concatenate([[total], left @ z, 0.5 * (matrix + matrix.T).ravel() / np.sqrt(2.0)])


def _unpacked(coefficients: Floats, dimension: int) -> tuple[float, Floats, Floats]:
    slope, matrix = coefficients[1 : 1 + dimension], coefficients[1 + dimension :]
    return float(coefficients[0]), slope, matrix.reshape(dimension, dimension)
