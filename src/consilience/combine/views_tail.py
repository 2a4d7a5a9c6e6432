"""Where kernel estimates hold, and what stands in for them elsewhere: the tail rules of marginal views.

A point is dense when enough draws lie in the central region (1 - alpha of the mass) of the kernel around it:

    eta          for the density of the function                            (3.22)
    eta_1 p²     for a conditional covariance of p other parameters         (3.23)
    eta_2 p      for a conditional mean and variances                       (3.24)

Elsewhere the estimate of the nearest dense point is carried forward, and between two dense regions it is
interpolated linearly. In several dimensions the nearest dense point it is, everywhere.

Erratum. The thesis' (3.22) to (3.24) count draws between two quantiles of the kernel (for which |x| > q(alpha / 2) is
no condition); what counts is the distance from the point. A covariance asks for at least as many draws as a mean,
and both for at least as many as a density, whatever eta_1 and eta_2 are.

Reference. Vyner's thesis, section 3.2.5.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .base import Floats


@dataclass(frozen=True, eq=False)
class Bridge:
    """For every point, the two dense points whose estimates it takes, (1 - share) of one and share of the other.

    A dense point takes its own. ``outside`` are the points that lie between no two dense ones.
    """

    dense: np.ndarray
    left: np.ndarray
    right: np.ndarray
    share: Floats
    outside: np.ndarray

    def carried(self, values: Floats) -> Floats:
        """Values at every point (last axis) from those at dense ones."""
        found = values[..., self.left]
        between = np.flatnonzero(self.left != self.right)
        if between.size:
            share = self.share[between]
            found[..., between] *= 1.0 - share
            found[..., between] += share * values[..., self.right[between]]
        return found


def bridge(dense: np.ndarray, points: Floats) -> Bridge | None:
    """Neighbours of points (M, k); sorted when k = 1. None where no point is dense.

    Examples
    --------
    >>> found = bridge(np.array([False, True, False, True]), np.array([[0.0], [1.0], [1.5], [3.0]]))
    >>> found.left, found.right, found.share, found.outside
    (array([1, 1, 1, 3]), array([1, 1, 3, 3]),
     array([0.  , 0.  , 0.25, 0.  ]), array([ True, False, False, False]))
    """
    good = np.flatnonzero(dense)
    if not good.size:
        return None
    if points.shape[1] > 1:
        from scipy.spatial import cKDTree

        nearest = np.arange(len(dense))
        missing = np.flatnonzero(~dense)
        if missing.size:
            nearest[missing] = good[cKDTree(points[good]).query(points[missing])[1]]
        return Bridge(dense, nearest, nearest, np.zeros(len(dense)), ~dense)
    every = np.arange(len(dense))
    left = good[np.maximum(np.searchsorted(good, every, side="right") - 1, 0)]
    right = good[np.minimum(np.searchsorted(good, every, side="left"), len(good) - 1)]
    left, right = np.minimum(left, right), np.maximum(left, right)
    x = points[:, 0]
    width = x[right] - x[left]
    share = np.divide(x - x[left], width, out=np.zeros(len(x)), where=width > 0)
    return Bridge(dense, left, right, share, (left == right) & ~dense)


def reduced(whole: Bridge | None, first: int, stop: int, anchors: np.ndarray) -> Bridge | None:
    """The bridge of points [first, stop) followed by the anchors, which hold all dense points they lean on."""
    if whole is None:
        return None
    chosen = np.concatenate([np.arange(first, stop), anchors])

    def moved(index: np.ndarray) -> np.ndarray:
        inside = (index >= first) & (index < stop)
        return np.where(inside, index - first, np.searchsorted(anchors, index) + stop - first)

    return Bridge(
        whole.dense[chosen],
        moved(whole.left[chosen]),
        moved(whole.right[chosen]),
        whole.share[chosen],
        whole.outside[chosen],
    )


def anchors_of(bridges: list[Bridge | None]) -> np.ndarray:
    """The dense points on which others lean."""
    found = [np.concatenate([x.left[~x.dense], x.right[~x.dense]]) for x in bridges if x is not None]
    return np.unique(np.concatenate(found)) if found else np.empty(0, dtype=np.intp)


def neighbours(points: Floats, draws: Floats, radius: float) -> np.ndarray:
    """How many draws (N, k) lie within the radius of each point (M, k); both sorted when k = 1.

    Examples
    --------
    >>> neighbours(np.array([[0.0], [2.0]]), np.array([[-0.5], [0.2], [0.4]]), 0.5)
    array([3, 0])
    """
    if points.shape[1] > 1:
        from scipy.spatial import cKDTree

        return np.asarray(cKDTree(draws).query_ball_point(points, radius, return_length=True))
    x, t = draws[:, 0], points[:, 0]
    return np.searchsorted(x, t + radius, side="right") - np.searchsorted(x, t - radius, side="left")
