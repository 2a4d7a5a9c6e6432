"""Shards two by two: how far apart their means lie, and how much their sub-posteriors overlap.

Distance. With m_b, T_b as in `heterogeneity`: sqrt((m_a - m_b)' (T_a + T_b)^-1 (m_a - m_b) / d), divided by what the
noise of T adds; its root mean square is 1 by chance, whatever the number of parameters.

Overlap. The integral of the smaller of two densities, 1 - IAD, of the Gaussians with the moments of the two
*sub*-posteriors (inflated draws are drawn out about their mean), averaged over parameters. Two equal shards that
differ by chance alone share (2 / pi) arctan sqrt 2 = 0.61 on average, because their means differ too; that average
is worked out for every pair, by quadrature over the quantiles of the gap (the overlap has a corner where it is 0).

With thousands of shards, those that stand out most and an even spread of the others are compared.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.combine.moments import ShardMoments

Floats = NDArray[np.float64]

# So many shards are compared two by two at most: 1,770 pairs, each with a d x d system to solve.
MOST_COMPARED = 60
_NODES = 12


@dataclass(frozen=True, eq=False)
class Pairs:
    """Shards two by two.

    Attributes
    ----------
    shards : (P,) which shards were compared
    distance : (P, P) of their means; root mean square 1 by chance
    overlap : (P, P) of their sub-posteriors, mean over parameters; 1 on the diagonal
    overlap_by_chance : (P, P) what it is on average when shards differ by chance alone
    """

    shards: NDArray[np.int64]
    distance: Floats
    overlap: Floats
    overlap_by_chance: Floats

    def least(self) -> tuple[int, int]:
        """The two shards that overlap least."""
        first, second = np.unravel_index(np.argmin(self.overlap), self.overlap.shape)
        return int(self.shards[first]), int(self.shards[second])

    def average(self) -> tuple[float, float]:
        """Mean overlap of two different shards, and by chance."""
        upper = np.triu_indices(len(self.shards), 1)
        return float(self.overlap[upper].mean()), float(self.overlap_by_chance[upper].mean())


def compare_pairs(moments: ShardMoments, powers: Floats, joint_p_values: Floats) -> Pairs:
    """Compare shards two by two."""
    chosen = choose(joint_p_values)
    means, covariances = moments.means[chosen], moments.covariances[chosen]
    n, a = moments.effective_draws[chosen], powers[chosen]
    # In units of typical standard deviations: parameters of very different scales lose no digits.
    scale = np.sqrt(np.mean(np.diagonal(covariances, axis1=1, axis2=2), axis=0))
    means = (means - means.mean(axis=0)) / scale
    covariances = covariances / np.outer(scale, scale) / a[:, None, None]
    spreads = covariances * (1.0 + a / n)[:, None, None]
    first, second = np.triu_indices(len(chosen), 1)
    deviations = np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))
    distance, overlap, chance = (np.zeros((len(chosen),) * 2) for _ in range(3))
    distance[first, second] = _distances(means, spreads, moments.covariance_draws[chosen], first, second)
    gaps = means[second] - means[first]
    pair = deviations[first], deviations[second]
    overlap[first, second] = normal_overlap(gaps, *pair).mean(axis=1)
    gap_deviations = np.sqrt(
        np.diagonal(spreads, axis1=1, axis2=2)[first] + np.diagonal(spreads, axis1=1, axis2=2)[second]
    )
    chance[first, second] = _average_overlap(gap_deviations, *pair).mean(axis=1)
    identity = np.eye(len(chosen))
    return Pairs(
        shards=chosen,
        distance=distance + distance.T,
        overlap=overlap + overlap.T + identity,
        overlap_by_chance=chance + chance.T + identity,
    )


def choose(joint_p_values: Floats, most: int = MOST_COMPARED) -> NDArray[np.int64]:
    """All shards, or, of many, a third for those that stand out most and an even spread of the others.

    Examples
    --------
    >>> choose(np.array([0.5, 0.01, 0.9, 0.8, 0.7]), most=3)
    array([0, 1, 4])
    """
    number = len(joint_p_values)
    if number <= most:
        return np.arange(number)
    loud = np.argsort(joint_p_values, kind="stable")[: most // 3]
    others = np.setdiff1d(np.arange(number), loud)
    spread = others[np.linspace(0, len(others) - 1, most - len(loud)).astype(int)]
    return np.sort(np.concatenate([loud, spread]))


def normal_overlap(gap: Floats, first: Floats, second: Floats) -> Floats:
    """Integral of the smaller of the densities N(0, first^2) and N(gap, second^2).

    Examples
    --------
    >>> normal_overlap(np.array([0.0, 2.0]), np.ones(2), np.ones(2)).round(4)    # 1 and 2 Phi(-1)
    array([1.    , 0.3173])
    """
    from scipy.special import ndtr

    narrow, wide = np.minimum(first, second), np.maximum(first, second)
    ratio, delta = wide / narrow, np.abs(gap) / narrow
    # The densities cross where (r^2 - 1) c^2 + 2 delta c = delta^2 + 2 r^2 log r; one root goes to minus infinity as
    # the two spreads become equal, the other, delta / 2 then, is taken in the form that loses no digits.
    right = delta**2 + 2.0 * ratio**2 * np.log(ratio)
    leading = delta + np.sqrt(delta**2 + (ratio**2 - 1.0) * right)
    with np.errstate(divide="ignore", invalid="ignore"):
        low = np.where(ratio > 1.0, -leading / (ratio**2 - 1.0), -np.inf)
        high = np.where(leading > 0.0, right / leading, 0.0)
    inside = ndtr((high - delta) / ratio) - ndtr((low - delta) / ratio)
    return np.asarray(inside + ndtr(low) + ndtr(-high))


def _average_overlap(gap_deviation: Floats, first: Floats, second: Floats) -> Floats:
    """Overlap averaged over a normal gap."""
    from scipy.special import ndtri

    # Quantiles of the absolute gap: the overlap is even in the gap and smooth on either side of 0.
    levels, weights = np.polynomial.legendre.leggauss(_NODES)
    nodes, weights = ndtri(0.5 + 0.25 * (1.0 + levels)), 0.5 * weights
    total = np.zeros_like(first)
    for node, weight in zip(nodes, weights, strict=True):
        total += weight * normal_overlap(node * gap_deviation, first, second)
    return total


def _distances(
    means: Floats, spreads: Floats, draws: Floats, first: NDArray[np.intp], second: NDArray[np.intp]
) -> Floats:
    """Distances of the pairs, in blocks, so that memory stays that of a few shards."""
    d = means.shape[1]
    out = np.empty(len(first))
    step = max(1, 2_000_000 // d**2)
    for start in range(0, len(first), step):
        a, b = first[start : start + step], second[start : start + step]
        together = spreads[a] + spreads[b]
        gap = means[a] - means[b]
        solved = np.linalg.solve(together, np.concatenate([gap[:, :, None], spreads[a]], axis=2))
        squared = np.sum(gap * solved[:, :, 0], axis=1)
        share = np.trace(solved[:, :, 1:], axis1=1, axis2=2) / d
        # Draws that the sum of two estimated covariances is worth (Satterthwaite), and the bias of its inverse.
        freedom = 1.0 / (share**2 / (draws[a] - 1.0) + (1.0 - share) ** 2 / (draws[b] - 1.0))
        out[start : start + step] = np.sqrt(squared / d * (freedom - d - 1.0) / freedom)
    return out
