"""Points of a shard at which its log density is taken: some of its draws, spread out.

Formula. Farthest points (Gonzalez, 1985): each next point is the draw that is farthest from all points so far,
in coordinates in which the shard's draws are white. The set is within a factor 2 of the one that covers the
draws best. Every other point is chosen so among the draws nearest to the product, where the surface must be
good: the product is narrow beside a shard, and few of a shard's draws lie there.

Cost. n passes over the shard's draws.

Reference. Gonzalez (1985), Clustering to minimize the maximum intercluster distance, Theoretical Computer
Science 38, 293-306.
"""

from __future__ import annotations

import numpy as np

from .base import Floats

# More draws than this make no better cover by a few hundred points.
MOST_CANDIDATES = 5_000
# The share of the draws that count as near to the product.
NEAR = 0.25


def design_points(z: Floats, distances: Floats, number: int) -> np.ndarray:
    """Indices of at most `number` different draws, every beginning of them spread out.

    Parameters
    ----------
    z : (J, d)
        Draws in white coordinates.
    distances : (J,)
        How far each draw is from the product.

    Examples
    --------
    >>> z = np.linspace(-2.0, 2.0, 101)[:, None]
    >>> z[np.sort(design_points(z, np.abs(z[:, 0] - 1.0), 6)), 0].round(2)
    array([-2.  , -0.52,  0.52,  0.76,  1.  ,  1.48])
    """
    candidates = np.unique(z, axis=0, return_index=True)[1]
    # Rows in the order of their values would be a biased sample of the draws; in their own, they are none.
    candidates.sort()
    if len(candidates) > MOST_CANDIDATES:
        candidates = candidates[np.linspace(0, len(candidates) - 1, MOST_CANDIDATES).astype(int)]
    number = min(number, len(candidates))
    order = np.argsort(distances[candidates], kind="stable")
    near = candidates[order[: min(len(order), max(number, int(NEAR * len(order))))]]
    first = candidates[order[0]]
    spread = np.stack([farthest_points(z, pool, first, number) for pool in (near, candidates)], axis=1)
    chosen = spread.ravel()
    _, once = np.unique(chosen, return_index=True)
    return chosen[np.sort(once)][:number]


def farthest_points(z: Floats, pool: np.ndarray, first: int, number: int) -> np.ndarray:
    """Indices of `number` rows of the pool, each farthest from those before it.

    Examples
    --------
    >>> farthest_points(np.array([[0.0], [1.0], [5.0], [3.0]]), np.arange(4), 0, 3)
    array([0, 2, 3])
    """
    x = z[pool]
    chosen = np.empty(number, dtype=np.intp)
    chosen[0] = first
    shortest = np.sum((x - z[first]) ** 2, axis=1)
    for i in range(1, number):
        farthest = int(np.argmax(shortest))
        chosen[i] = pool[farthest]
        np.minimum(shortest, np.sum((x - x[farthest]) ** 2, axis=1), out=shortest)
    return chosen
