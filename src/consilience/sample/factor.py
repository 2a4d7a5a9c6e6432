"""Cholesky factors that have the same bits everywhere.

LAPACK divides its work among threads and sums in another order when there are more of them: a shard would
get other draws from a worker that is allowed one thread than from one that is allowed two (measured with
OpenBLAS from 64 dimensions on). What the chains start from is therefore factorised by these few loops. They
work on stacks (..., d, d), take d steps of array arithmetic, and are not meant for more than some thousand
dimensions.

Reference: Golub and Van Loan (2013), Matrix Computations, algorithm 4.2.2 (outer product form); Nocedal and
Wright (2006), section 3.4, for the direction of negative curvature that a failed factorisation leaves.
"""

from __future__ import annotations

import numpy as np


def cholesky(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lower factors, and the index of the first pivot that is not positive (d where there is none).

    Beyond a failed pivot a factor holds nothing of use.

    Examples
    --------
    >>> factor, failed = cholesky(np.array([[4.0, 2.0], [2.0, 5.0]]))
    >>> factor, int(failed)
    (array([[2., 0.],
           [1., 2.]]), 2)
    >>> int(cholesky(np.array([[1.0, 2.0], [2.0, 1.0]]))[1])
    1
    """
    left = np.array(matrix, np.float64)
    dimension = left.shape[-1]
    failed = np.full(left.shape[:-2], dimension)
    for k in range(dimension):
        pivot = left[..., k, k]
        good = pivot > 0
        failed = np.where(~good & (failed == dimension), k, failed)
        root = np.sqrt(np.where(good, pivot, 1.0))
        column = left[..., k:, k] / root[..., None]
        left[..., k:, k] = column
        left[..., k, k] = root
        below = column[..., 1:]
        left[..., k + 1 :, k + 1 :] -= below[..., :, None] * below[..., None, :]
    return np.tril(left), failed


def solve_lower(factor: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Solve L x = b for b of shape (..., d).

    Examples
    --------
    >>> solve_lower(np.array([[2.0, 0.0], [1.0, 2.0]]), np.array([2.0, 5.0]))
    array([1., 2.])
    """
    x = np.array(right, np.float64)
    for k in range(x.shape[-1]):
        x[..., k] /= factor[..., k, k]
        x[..., k + 1 :] -= factor[..., k + 1 :, k] * x[..., k, None]
    return x


def solve_upper(factor: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Solve L' x = b for b of shape (..., d), with the lower factor L.

    Examples
    --------
    >>> solve_upper(np.array([[2.0, 0.0], [1.0, 2.0]]), np.array([4.0, 4.0]))
    array([1., 2.])
    """
    x = np.array(right, np.float64)
    for k in range(x.shape[-1] - 1, -1, -1):
        x[..., k] /= factor[..., k, k]
        x[..., :k] -= factor[..., k, :k] * x[..., k, None]
    return x


def inverse_transposed(factor: np.ndarray) -> np.ndarray:
    """The upper triangle L^-T: it maps standard normals onto the covariance whose inverse is L L'.

    Examples
    --------
    >>> inverse_transposed(np.array([[2.0, 0.0], [1.0, 2.0]]))
    array([[ 0.5 , -0.25],
           [ 0.  ,  0.5 ]])
    """
    dimension = factor.shape[-1]
    inverse = np.zeros_like(factor)
    identity = np.eye(dimension)
    for k in range(dimension):
        known = (factor[..., k, :k, None] * inverse[..., :k, :]).sum(axis=-2)
        inverse[..., k, :] = (identity[k] - known) / factor[..., k, k, None]
    return np.swapaxes(inverse, -1, -2)


def negative_curvature(factor: np.ndarray, matrix: np.ndarray, failed: int) -> np.ndarray:
    """A direction along which a matrix, whose factorisation failed at this pivot, curves downwards or not at all.

    Examples
    --------
    >>> matrix = np.array([[1.0, 2.0], [2.0, 1.0]])
    >>> v = negative_curvature(cholesky(matrix)[0], matrix, 1)
    >>> bool(v @ matrix @ v < 0)
    True
    """
    v = np.zeros(len(matrix))
    v[failed] = 1.0
    if failed:
        part = factor[:failed, :failed]
        v[:failed] = -solve_upper(part, solve_lower(part, matrix[:failed, failed]))
    return v


def product(draws: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """`draws @ matrix.T`, summed in one order."""
    return np.einsum("...j,kj->...k", draws, matrix)


def covariance(draws: np.ndarray) -> np.ndarray:
    """Covariance of the rows, summed in one order.

    Examples
    --------
    >>> covariance(np.array([[0.0], [2.0]]))
    array([[2.]])
    """
    centred = draws - draws.mean(axis=0)
    return np.asarray(np.einsum("ni,nj->ij", centred, centred) / (len(draws) - 1))
