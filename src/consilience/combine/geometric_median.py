"""Geometric medians: of points of a Hilbert space known by their inner products, and of covariance matrices.

In a Hilbert space. The weighted geometric median of points q_b is the q that makes sum w_b |q - q_b| least. It
lies in their convex hull, q = sum s_b q_b, and Weiszfeld's iteration

    s_b proportional to w_b / D_b,   D_b² = |q - q_b|² = s'G s - 2 (G s)_b + G_bb,

finds the shares s from the inner products G alone. One of the points, q_a, is the median itself when the others
pull at it no more than its own weight holds: |sum_{b != a} w_b (q_b - q_a) / |q_b - q_a|| <= w_a (Kuhn, 1973).
Only the point whose own sum of distances is least can be that one. It is looked at first, because Weiszfeld's
iteration creeps towards such a point.

Of covariances. The median of matrices V_b under the affine-invariant distance |log(S^{-1/2} V_b S^{-1/2})| by the
same iteration in the tangent space (Fletcher, Venkatasubramanian and Joshi, 2009). It follows every change of
coordinates, and half of the weight may lie on wrong matrices before it breaks down, where one is enough for an
average.

References. Weiszfeld (1937), Tohoku Mathematical Journal 43; Kuhn (1973), A note on Fermat's problem, Mathematical
Programming 4; Fletcher et al. (2009), The geometric median on Riemannian manifolds, NeuroImage 45.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from consilience.numerics import symmetric_root

from .base import Floats

# Squared distances under this share of the largest squared length are rounding: the points are one.
COINCIDENT = 1e-10
TOLERANCE = 1e-10
MOST_ITERATIONS = 2_000
# Covariances that the median of covariances looks at: more cost time and change nothing that matters.
MOST_COVARIANCES = 100
COVARIANCE_ITERATIONS = 30


@dataclass(frozen=True, eq=False)
class HilbertMedian:
    """Where the geometric median of points is."""

    shares: Floats  # (B,), sum 1: the median is sum shares_b q_b
    squared_distances: Floats  # (B,) from the median to every point
    at_point: bool  # the median is one of the points
    iterations: int
    converged: bool


def hilbert_median(gram: Floats, weights: Floats) -> HilbertMedian:
    """Find the weighted geometric median of points with inner products `gram`.

    Examples
    --------
    The corners of a triangle of equal sides, whose median is the centre, and three points of a line, whose
    median is the middle one:

    >>> corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 0.75**0.5]])
    >>> hilbert_median(corners @ corners.T, np.full(3, 1 / 3)).shares.round(6)
    array([0.333333, 0.333333, 0.333333])
    >>> line = np.array([[0.0], [1.0], [5.0]])
    >>> hilbert_median(line @ line.T, np.full(3, 1 / 3)).shares
    array([0., 1., 0.])
    """
    nearest = COINCIDENT * max(float(np.diagonal(gram).max()), np.finfo(np.float64).tiny)
    point = _median_point(gram, weights, nearest)
    if point is not None:
        return HilbertMedian(point, _squared_distances(gram, point), True, 0, True)
    shares = weights / weights.sum()
    for iteration in range(1, MOST_ITERATIONS + 1):  # noqa: B007
        following = weights / np.sqrt(np.maximum(_squared_distances(gram, shares), nearest))
        following /= following.sum()
        change = np.abs(following - shares).max()
        shares = following
        if change <= TOLERANCE * shares.max():
            break
    converged = bool(change <= TOLERANCE * shares.max())
    return HilbertMedian(shares, _squared_distances(gram, shares), False, iteration, converged)


def _squared_distances(gram: Floats, shares: Floats) -> Floats:
    """From sum shares_b q_b to every point."""
    inner = gram @ shares
    return np.maximum(shares @ inner - 2.0 * inner + np.diagonal(gram), 0.0)


def _median_point(gram: Floats, weights: Floats, nearest: float) -> Floats | None:
    """Shares of the point that is the median, or None if none of the points is."""
    lengths = np.diagonal(gram)
    squared = np.maximum(lengths[:, None] + lengths[None, :] - 2.0 * gram, 0.0)
    best = int(np.argmin(np.sqrt(squared) @ weights))
    together = squared[best] <= nearest
    pull = np.where(together, 0.0, weights / np.sqrt(np.maximum(squared[best], nearest)))
    pull[best] -= pull.sum()
    held = weights[together].sum()
    # At equality, as for two points of one weight, every point between them is a median: leave that to the
    # iteration, which starts in the middle.
    if not together.all() and pull @ gram @ pull >= held**2 * (1.0 - 1e-9):
        return None
    return np.where(together, weights, 0.0) / held


def influence_on_shares(gram: Floats, median: HilbertMedian, slopes: Floats) -> Floats:
    """How a combination of the shares answers to the squared distances that it was found from.

    With f = sum_b slopes_b s_b (slopes of shape (B, k)), returns C (B, k): f changes by sum_b C_b e_b when a
    change of the inner products moves D_b² by e_b at fixed shares. By implicit differentiation of Weiszfeld's
    fixed point; zero where the median is one of the points, which small changes do not move.

    Examples
    --------
    In a triangle of equal sides, a corner whose squared distance grows by e loses a share of 2 e / 3:

    >>> corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 0.75**0.5]])
    >>> gram = corners @ corners.T
    >>> median = hilbert_median(gram, np.full(3, 1 / 3))
    >>> influence_on_shares(gram, median, np.array([[1.0], [0.0], [0.0]])).round(3).ravel()
    array([-0.667,  0.333,  0.333])
    """
    if median.at_point:
        return np.zeros_like(slopes)
    shares = median.shares
    pulls = shares / np.maximum(median.squared_distances, COINCIDENT * np.diagonal(gram).max())
    # ds = from_distances dD², and dD² = e + from_shares ds.
    from_distances = -0.5 * (np.diag(pulls) - np.outer(shares, pulls))
    from_shares = 2.0 * (gram @ shares - gram)
    # Directions in which distances do not determine the shares (points that coincide) have no influence.
    system = np.eye(len(shares)) - from_distances @ from_shares
    return np.asarray(from_distances.T @ np.linalg.lstsq(system.T, slopes, rcond=1e-10)[0])


def median_covariance(covariances: Floats, weights: Floats) -> Floats:
    """Find the geometric median of covariance matrices under the affine-invariant distance.

    Of more than a hundred matrices, a hundred are looked at, evenly from the smallest determinant to the largest.

    Examples
    --------
    >>> median_covariance(np.array([[[1.0]], [[2.0]], [[1e9]]]), np.full(3, 1 / 3)).round(6)
    array([[2.]])
    """
    scale = np.sqrt(np.median(np.diagonal(covariances, axis1=1, axis2=2), axis=0))
    unit = np.outer(scale, scale)
    order = np.argsort(np.linalg.slogdet(covariances / unit)[1], kind="stable")
    total = np.cumsum(weights[order])
    current = covariances[order[np.searchsorted(total, 0.5 * total[-1])]] / unit
    chosen = order[np.unique(np.linspace(0, len(order) - 1, MOST_COVARIANCES).astype(int))]
    matrices, shares = covariances[chosen] / unit, weights[chosen]
    for _ in range(COVARIANCE_ITERATIONS):
        root, _ = symmetric_root(current)
        inverse, _ = symmetric_root(current, power=-0.5)
        values, vectors = np.linalg.eigh(inverse @ matrices @ inverse)
        logarithms = np.log(np.maximum(values, np.finfo(np.float64).tiny))
        distances = np.sqrt(np.sum(logarithms**2, axis=1))
        pulls = shares / np.maximum(distances, 1e-6)
        tangents = (vectors * logarithms[:, None, :]) @ np.swapaxes(vectors, 1, 2)
        step = np.tensordot(pulls / pulls.sum(), tangents, 1)
        values, vectors = np.linalg.eigh(step)
        current = root @ ((vectors * np.exp(values)) @ vectors.T) @ root
        current = 0.5 * (current + current.T)
        if np.abs(values).max() < 1e-6:
            break
    return current * unit
