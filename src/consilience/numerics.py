"""Symmetric roots, weighted moments and precisions in NumPy float64: the arithmetic that every rule shares.

Nothing here knows about shards. Matrices may be stacks: an argument of shape (..., d, d) is worked on
matrix by matrix in one call.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.errors import DrawsError, must_be

Floats = NDArray[np.float64]

# Below this many effective draws per dimension an inverted covariance is noisy enough to say so.
FEW_DRAWS_PER_DIMENSION = 5.0


def symmetric_root(matrix: ArrayLike, *, power: float = 0.5, floor: float = 1e-12) -> tuple[Floats, int]:
    """Raise symmetric positive semi-definite matrices to a power through their spectrum.

    Eigenvalues under ``floor`` times the largest one are set to that floor, so that a negative power of a
    singular matrix stays finite; the caller is told how many were, to report it.

    Parameters
    ----------
    matrix : array, shape (..., d, d)
    power : float
        0.5 gives the symmetric root, -0.5 its inverse.
    floor : float
        Relative floor on the spectrum.

    Returns
    -------
    root : array, shape (..., d, d)
    floored : int
        How many eigenvalues were raised to the floor.

    Examples
    --------
    >>> root, floored = symmetric_root([[4.0, 0.0], [0.0, 9.0]])
    >>> root
    array([[2., 0.],
           [0., 3.]])
    >>> floored
    0
    """
    values, vectors = np.linalg.eigh(np.asarray(matrix, dtype=np.float64))
    lowest = floor * values[..., -1:]
    floored = int(np.count_nonzero(values < lowest))
    if floored:
        values = np.maximum(values, lowest)
    return (vectors * values[..., None, :] ** power) @ np.swapaxes(vectors, -1, -2), floored


def least_motion_map(source: ArrayLike, target: ArrayLike) -> tuple[Floats, int]:
    """Find the linear maps that take covariances ``source`` to ``target`` and move points least.

    A = M (M⁻¹ S M⁻¹)^{-1/2} M⁻¹ with M = T^{1/2} (SwISS, section 3.1): of all A with A S A' = T it moves
    points least, distance measured in the units of T. A is the same for every root M of T, which is why the
    work is done in units of the target's standard deviations: parameters of very different scales lose no
    digits.

    Parameters
    ----------
    source : array, shape (..., d, d)
    target : array, shape (d, d)

    Returns
    -------
    maps : array, shape (..., d, d)
    floored : int
        How many eigenvalues had to be raised to a floor; 0 unless a covariance is singular.

    Examples
    --------
    >>> least_motion_map([[4.0]], [[9.0]])[0]
    array([[1.5]])
    """
    source, target = np.asarray(source, dtype=np.float64), np.asarray(target, dtype=np.float64)
    scale = np.sqrt(np.diagonal(target))
    unit = np.outer(scale, scale)
    root, floored_target = symmetric_root(target / unit)
    inverse_root = np.linalg.inv(root)
    inner, floored_inner = symmetric_root(inverse_root @ (source / unit) @ inverse_root, power=-0.5)
    maps = (root @ inner @ inverse_root) * (scale[:, None] / scale[None, :])
    return maps, floored_target + floored_inner


def log_sum_exp(a: ArrayLike, axis: int | tuple[int, ...] | None = None) -> Floats:
    """Compute log(sum(exp(a))) without overflow; all minus infinity gives minus infinity.

    Examples
    --------
    >>> float(log_sum_exp([1000.0, 1000.0])) == 1000.0 + float(np.log(2.0))
    True
    """
    a = np.asarray(a, dtype=np.float64)
    largest = np.max(a, axis=axis, keepdims=True, initial=-np.inf)
    largest = np.where(np.isfinite(largest), largest, 0.0)
    with np.errstate(divide="ignore"):
        total = np.log(np.sum(np.exp(a - largest), axis=axis, keepdims=True)) + largest
    return np.squeeze(total, axis=axis)


def normalised_weights(log_weights: ArrayLike) -> Floats:
    """Turn log weights into weights that sum to 1.

    Examples
    --------
    >>> normalised_weights([-1000.0, -1000.0])
    array([0.5, 0.5])
    """
    log_weights = np.asarray(log_weights, dtype=np.float64)
    return np.exp(log_weights - log_sum_exp(log_weights))


def weighted_mean(x: ArrayLike, log_weights: ArrayLike | None = None) -> Floats:
    """Average the rows of ``x`` (n, d), with weights that need not be normalised.

    Examples
    --------
    >>> weighted_mean([[1.0], [4.0]], np.log([2.0, 1.0]))
    array([2.])
    """
    x = np.asarray(x, dtype=np.float64)
    if log_weights is None:
        return x.mean(axis=0)
    return normalised_weights(log_weights) @ x


def weighted_covariance(x: ArrayLike, log_weights: ArrayLike | None = None) -> Floats:
    """Covariance of the rows of ``x`` (n, d) with divisor 1 - sum of squared weights, n - 1 for equal ones.

    Examples
    --------
    >>> weighted_covariance([[0.0], [2.0]])
    array([[2.]])
    """
    x = np.asarray(x, dtype=np.float64)
    centred = x - weighted_mean(x, log_weights)
    if log_weights is None:
        return centred.T @ centred / (len(x) - 1)
    weights = normalised_weights(log_weights)
    return (centred * weights[:, None]).T @ centred / (1.0 - np.sum(weights**2))


class PrecisionEstimate(NamedTuple):
    """What came of inverting estimated covariances."""

    precision: Floats
    factor: Floats  # what the inverse was multiplied by: (n - d - 2) / (n - 1)


def estimate_precision(covariance: ArrayLike, effective_draws: ArrayLike) -> PrecisionEstimate:
    """Estimate precisions from covariances that were themselves estimated.

    The inverse of a covariance of n Gaussian draws over-states the precision by (n - 1) / (n - d - 2) on
    average, the mean of the inverse Wishart, so it is shrunk by the factor (n - d - 2) / (n - 1).

    That is the only shrinkage. Pulling the covariance towards a diagonal or towards the average over
    shards, as is often done when draws are few, was measured to multiply the error of the combined
    covariance by 3 to 50 as soon as shards differ, because the narrow directions that decide a precision
    are the first to be lost; with the factor alone the combined covariance is right on average down to d +
    5 draws per shard.

    Parameters
    ----------
    covariance : array, shape (..., d, d)
    effective_draws : array, shape (...)
        How many independent draws each covariance is worth.

    Raises
    ------
    DrawsError
        When there are not more than d + 4 effective draws: the inverse then has no finite variance.

    Examples
    --------
    >>> estimate = estimate_precision([[2.0]], 101)
    >>> estimate.precision, float(estimate.factor)
    (array([[0.49]]), 0.98)
    """
    covariance = np.asarray(covariance, dtype=np.float64)
    n = np.asarray(effective_draws, dtype=np.float64)
    d = covariance.shape[-1]
    if np.any(n <= d + 4):
        raise must_be(
            "precision",
            "effective_draws",
            f"more than {d + 4} for {d} parameters",
            float(n.min()),
            "Draw longer chains, or leave out parameters.",
            error=DrawsError,
        )
    # In units of standard deviations: parameters of very different scales lose no digits in the inverse.
    scale = np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1))
    unit = scale[..., :, None] * scale[..., None, :]
    factor = (n - d - 2) / (n - 1)
    return PrecisionEstimate(np.linalg.inv(covariance / unit) / unit * factor[..., None, None], factor)


def precision_from_draws(covariance: ArrayLike, effective_draws: ArrayLike) -> Floats:
    """Estimate precisions from estimated covariances: the first field of `estimate_precision`.

    Examples
    --------
    >>> precision_from_draws([[2.0]], 101)
    array([[0.49]])
    """
    return estimate_precision(covariance, effective_draws).precision
