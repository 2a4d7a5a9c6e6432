"""Candidates for a product of shards that is known up to a factor, worked on in chunks of rows.

Most come from the Gaussian product; the others come from a Gaussian as wide as all sets together, for what the
product's Gaussian misses. Weights are then at most 1 / 0.8 times the factor.
"""

from __future__ import annotations

import numpy as np

from consilience.numerics import log_sum_exp

from .base import Floats
from .moments import GaussianProduct

# Of the candidates so many come from the Gaussian product.
PRODUCT_SHARE = 0.8
# Rows that are worked on at a time, so that candidates are there once and not three times.
CHUNK = 4_096


def candidates(
    means: Floats,
    covariances: Floats,
    shares: Floats,
    product: GaussianProduct,
    number: int,
    generator: np.random.Generator,
) -> tuple[Floats, Floats, Floats]:
    """Points from the Gaussian product and from a wide Gaussian, with log densities of these and of the product.

    Parameters
    ----------
    means, covariances : (B, d), (B, d, d)
        Of the sets that are multiplied.
    shares : (B,)
        Their shares in the wide Gaussian, which has the moments of their mixture.
    product : GaussianProduct
    number : int
    generator : numpy.random.Generator

    Returns
    -------
    points : (number, d)
    log_proposal, log_product : (number,)
    """
    first = round(PRODUCT_SHARE * number)
    wide_mean = shares @ means
    apart = means - wide_mean
    wide = np.tensordot(shares, covariances, 1)
    wide = wide + (apart * shares[:, None]).T @ apart
    points = generator.standard_normal((number, len(wide_mean)))
    root, wide_root = np.linalg.cholesky(product.covariance), np.linalg.cholesky(wide)
    for chunk in chunks(0, first):
        points[chunk] = product.mean + points[chunk] @ root.T
    for chunk in chunks(first, number):
        points[chunk] = wide_mean + points[chunk] @ wide_root.T
    log_product = log_gaussian(points, product.mean, root)
    log_wide = log_gaussian(points, wide_mean, wide_root)
    both = np.stack([np.log(first / number) + log_product, np.log1p(-first / number) + log_wide])
    return points, log_sum_exp(both, axis=0), log_product


def log_gaussian(points: Floats, mean: Floats, root: np.ndarray) -> Floats:
    squares = np.empty(len(points))
    for chunk in chunks(0, len(points)):
        squares[chunk] = np.sum(np.linalg.solve(root, (points[chunk] - mean).T) ** 2, axis=0)
    return -0.5 * squares - np.sum(np.log(np.diagonal(root)))


def chunks(start: int, stop: int) -> list[slice]:
    """Slices of `CHUNK` rows.

    Examples
    --------
    >>> chunks(0, 5000)
    [slice(0, 4096, None), slice(4096, 5000, None)]
    """
    return [slice(i, min(i + CHUNK, stop)) for i in range(start, stop, CHUNK)]


def weighted_moments(points: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """sum w (x - m)(x - m)' and sum w² (x - m)(x - m)', with m the weighted mean.

    Examples
    --------
    >>> weighted_moments(np.array([[0.0], [2.0]]), np.array([0.5, 0.5]))[0]
    array([[1.]])
    """
    mean = weights @ points
    found = np.zeros((2, len(mean), len(mean)))
    for chunk in chunks(0, len(points)):
        centred = points[chunk] - mean
        found[0] += (centred * weights[chunk, None]).T @ centred
        found[1] += (centred * weights[chunk, None] ** 2).T @ centred
    return found[0], found[1]


def systematic(weights: Floats, total: int, generator: np.random.Generator) -> Floats:
    """Systematic resampling, in random order.

    Examples
    --------
    >>> chosen = systematic(np.array([0.75, 0.25]), 4, np.random.default_rng(0))
    >>> np.bincount(chosen)
    array([3, 1])
    """
    steps = (np.arange(total) + generator.random()) / total
    chosen = np.minimum(np.searchsorted(np.cumsum(weights), steps), len(weights) - 1)
    return generator.permutation(chosen)
