"""The log density of one shard along a view, from kernel sums: log h_b(theta) + log g_b(psi* | theta).

What is summed over shards, and how psi is integrated out of the product of the g_b, is in `views_product`.

Coordinates. All is done in the shard's own units. u is theta, centred and whitened; r is what is left of the other
parameters psi after their linear regression on theta, whitened: for a Gaussian shard r is N(0, I) whatever theta is.
Local means and covariances of r are therefore nearly 0 and I where the shard is nearly Gaussian, and carrying them
forward into a tail extrapolates the regression, where carrying those of psi would drop its slope.

Formulas, with k_j the kernel around point j, S = sum k_j(u_i), n_j = n S / (N R(K)) the effective number of draws in
it (N draws, worth n; R(K) the integral of K²),

    log h_j = log(S / N) + 1 / (2 n_j),
    mu_j = sum k_j r_i / S,   V_j = (sum k_j r_i r_i' / S - mu_j mu_j') n_j / (n_j - 1),
    log g_j = -[log|V_j| - c(n_j)] / 2 - [f(n_j) (x_j - mu_j)' V_j⁻¹ (x_j - mu_j) - p / n_j] / 2,

x_j the point psi* in units of r. All three are drawn towards the shard's Gaussian, log h_j towards its log density,
mu_j towards 0 and V_j towards I, as if that were `Prior` draws more: by the factor n_j / (n_j + prior). A posterior of
B shards is exp of a sum of B such terms, and without this it would be made of their noise. The small terms remove the
bias of estimated logarithms, determinants and inverses to first order in 1 / n_j (c and f are exact for Gaussian
draws: E log|V| of a Wishart matrix and the mean of its inverse). Without them every shard would add
p (p + 1) / (4 n_j) to its tails, and B shards B times that.

Tails are the rules of `views_tail`: h_b goes on as a Gaussian, joined to the kernel estimate where that ends
(unjoined, as the thesis has it, it jumps); g_b as `views_tail` says. Where no point is dense at all, both are those
of the Gaussian with the shard's moments.

All arrays have a leading axis of versions: all draws, or all but some of them (the jackknife).

Reference. Vyner's thesis, (3.13) to (3.16) and section 3.2.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from .base import Floats
from .views_tail import Bridge

FLOOR = 1e-10


@dataclass(frozen=True, eq=False)
class Shape:
    """Gaussian moments of (u, r), per version: u's mean and inverse root, r given u."""

    location: Floats  # (G, k)
    whiten: Floats  # (G, k, k)
    intercept: Floats  # (G, p)
    slope: Floats  # (G, p, k)
    covariance: Floats  # (G, q) of r given u, packed as the sums are
    draws: float  # effective

    @property
    def shrink(self) -> float:
        """What makes the inverse of an estimated covariance of all columns right on average."""
        d = self.location.shape[1] + self.intercept.shape[1]
        return (self.draws - d - 2) / (self.draws - 1)

    @classmethod
    def standard(cls, k: int, p: int, pairs: bool, draws: float) -> Shape:
        """Of all draws: standard normal, by the choice of units."""
        rows, columns = packed_pairs(p, pairs)
        unit = (rows == columns).astype(np.float64)[None]
        return cls(np.zeros((1, k)), np.eye(k)[None], np.zeros((1, p)), np.zeros((1, p, k)), unit, draws)


@dataclass(frozen=True, eq=False)
class Points:
    """Where densities are wanted, and which estimates hold there."""

    u: Floats  # (M, k)
    r: Floats  # (p, M), psi* in units of r
    density: Bridge | None
    mean: Bridge | None
    covariance: Bridge | None


@dataclass(eq=False)
class Terms:
    """What a shard adds to the log density at every point, per version; see `views_product`."""

    log: Floats  # (G, M) log h + log g at psi*
    precision: Floats | None = None  # (G, q, M) packed precision of psi given theta, in shared units
    pull: Floats | None = None  # (G, p, M) precision times (conditional mean - psi*)


@dataclass(frozen=True)
class Prior:
    """How many draws the shard's Gaussian counts for beside the local ones; 0 takes local estimates as they are."""

    density: float = 0.0
    mean: float = 0.0
    covariance: float = 0.0

    @property
    def whole(self) -> bool:
        """Nothing local is left of the conditionals."""
        return np.isinf(self.mean) and np.isinf(self.covariance)


@lru_cache(maxsize=256)
def packed_pairs(p: int, pairs: bool) -> tuple[np.ndarray, np.ndarray]:
    """Which products of r are summed: those of the upper triangle, or the squares only."""
    if pairs:
        return np.triu_indices(p)
    return np.arange(p), np.arange(p)


def log_density(
    sums: Floats,
    points: Points,
    shape: Shape,
    number: Floats,
    spread: float,
    prior: Prior,
    unit: Floats | None,
) -> Terms:
    """log h + log g at all points, up to a constant.

    Parameters
    ----------
    sums : (G, 1 + p + q, M) kernel sums of 1, r and products of r
    number : (G,) draws
    spread : effective draws per unit of S: n / (N R(K))
    unit : (p, p) what moves r by one in the units of psi that all shards share; None where only log g is wanted
    """
    total = np.maximum(sums[:, 0], 1.0 / spread)
    found = _log_marginal(total, points, shape, number, total * spread, prior)
    if not len(points.r):
        return Terms(found)
    terms = _conditional(sums[:, 1:], total, points, shape, total * spread, prior, unit)
    terms.log += found
    return terms


def _log_marginal(
    total: Floats, points: Points, shape: Shape, number: Floats, local: Floats, prior: Prior
) -> Floats:
    apart = np.einsum("gkl,gml->gmk", shape.whiten, points.u - shape.location[:, None])
    gaussian = -0.5 * shape.shrink * np.sum(apart**2, axis=-1)
    gaussian += np.linalg.slogdet(shape.whiten)[1][:, None] - 0.5 * points.u.shape[1] * np.log(2.0 * np.pi)
    if points.density is None or np.isinf(prior.density):
        return gaussian
    found = np.log(total / number[:, None]) + 0.5 / local
    found = gaussian + local / (local + prior.density) * (found - gaussian)
    joined = points.density.carried(found)
    outside = points.density.outside
    joined[:, outside] += (gaussian - gaussian[:, points.density.left])[:, outside]
    return joined


def _conditional(
    sums: Floats,
    total: Floats,
    points: Points,
    shape: Shape,
    local: Floats,
    prior: Prior,
    unit: Floats | None,
) -> Terms:
    p = len(points.r)
    pairs = shape.covariance.shape[1] != p or p == 1
    if points.mean is None or prior.whole:
        return _global_conditional(points, shape, unit)
    local = np.maximum(local, p + 5.0)
    location, covariance = _local_moments(sums, total, local, p, pairs)
    if pairs and p > 1:
        covariance = _with_carried_correlation(covariance, points, p)
    for_mean, for_covariance = local / (local + prior.mean), local / (local + prior.covariance)
    location += (1.0 - for_mean)[:, None] * (_regression(points, shape) - location)
    covariance += (1.0 - for_covariance)[:, None] * (shape.covariance[:, :, None] - covariance)
    location = points.mean.carried(location)
    covariance = points.mean.carried(covariance)
    draws = points.mean.carried(np.minimum(local + prior.covariance, max(shape.draws, p + 5.0)))
    mean_error = points.mean.carried(for_mean**2 / local)
    outside = np.flatnonzero(points.mean.outside)
    if outside.size:
        gap = points.u[outside] - points.u[points.mean.left[outside]]
        location[..., outside] += shape.slope @ gap.T
    return _gaussian_terms(points.r - location, covariance, draws, mean_error, pairs, unit)


def _regression(points: Points, shape: Shape) -> Floats:
    """Mean of r given u by linear regression: (G, p, M)."""
    return shape.intercept[:, :, None] + shape.slope @ (points.u.T - shape.location[:, :, None])


def _global_conditional(points: Points, shape: Shape, unit: Floats | None) -> Terms:
    """Where nothing is dense: one Gaussian regression on u, the same covariance everywhere."""
    p = len(points.r)
    rows, columns = packed_pairs(p, pairs=True)
    covariance = np.zeros((len(shape.covariance), p, p))
    covariance[:, rows, columns] = covariance[:, columns, rows] = shape.covariance
    root = np.linalg.cholesky(covariance)
    scaled = np.linalg.solve(root, points.r - _regression(points, shape))
    log_determinant = 2.0 * np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1)
    # Determinant and error of the mean do not depend on the point: their bias cancels.
    terms = Terms(-0.5 * (log_determinant[:, None] + shape.shrink * np.sum(scaled**2, axis=1)))
    if unit is not None:
        slopes = np.linalg.solve(root, np.broadcast_to(unit, root.shape))
        precision = shape.shrink * (np.swapaxes(slopes, 1, 2) @ slopes)[:, rows, columns]
        terms.precision = np.repeat(precision[:, :, None], len(points.u), axis=2)
        terms.pull = -shape.shrink * (np.swapaxes(slopes, 1, 2) @ scaled)
    return terms


def _local_moments(sums: Floats, total: Floats, draws: Floats, p: int, pairs: bool) -> tuple[Floats, Floats]:
    """Means (G, p, M) and packed covariances (G, q, M)."""
    location = sums[:, :p] / total[:, None]
    rows, columns = packed_pairs(p, pairs)
    covariance = sums[:, p:] / total[:, None]
    covariance -= location[:, rows] * location[:, columns]
    covariance *= (draws / (draws - 1.0))[:, None]
    diagonal = rows == columns
    covariance[:, diagonal] = np.maximum(covariance[:, diagonal], FLOOR)
    return location, covariance


def _with_carried_correlation(covariance: Floats, points: Points, p: int) -> Floats:
    """Local variances with the correlation of the nearest points where (3.23) holds; none, where none does."""
    rows, columns = packed_pairs(p, pairs=True)
    sparse = np.flatnonzero(
        np.ones(len(points.u), bool) if points.covariance is None else ~points.covariance.dense
    )
    if not sparse.size:
        return covariance
    deviations = np.sqrt(covariance[:, rows == columns])
    unit = deviations[:, rows] * deviations[:, columns]
    if points.covariance is None:
        correlation = np.zeros_like(covariance)
        correlation[:, rows == columns] = 1.0
    else:
        correlation = points.covariance.carried(covariance / unit)
    return np.where(np.isin(np.arange(covariance.shape[-1]), sparse), correlation * unit, covariance)


def _gaussian_terms(
    apart: Floats, covariance: Floats, draws: Floats, mean_error: Floats, pairs: bool, unit: Floats | None
) -> Terms:
    """The bias-corrected log density of Gaussians whose moments were estimated."""
    from scipy.special import digamma

    p = apart.shape[1]
    if pairs:
        log_determinant, scaled, slopes = factored(covariance, apart, unit)
        degrees = (draws[None] - np.arange(1, p + 1)[:, None, None]) / 2.0
        excess = digamma(degrees).sum(axis=0) - p * np.log((draws - 1.0) / 2.0)
        shrink = (draws - p - 2.0) / (draws - 1.0)
    else:
        deviations = np.sqrt(covariance)
        log_determinant, scaled = 2.0 * np.log(deviations).sum(axis=1), apart / deviations
        slopes = None if unit is None else unit[None, :, :, None] / deviations[:, :, None]
        excess = p * (digamma((draws - 1.0) / 2.0) - np.log((draws - 1.0) / 2.0))
        shrink = (draws - 3.0) / (draws - 1.0)
    quadratic = np.sum(scaled**2, axis=1)
    terms = Terms(-0.5 * (log_determinant - excess + shrink * quadratic - p * mean_error))
    if slopes is not None:
        rows, columns = packed_pairs(p, pairs=True)
        terms.precision = np.empty((len(apart), len(rows), apart.shape[2]))
        for index, (i, j) in enumerate(zip(rows, columns, strict=True)):
            terms.precision[:, index] = shrink * np.einsum("gkm,gkm->gm", slopes[:, :, i], slopes[:, :, j])
        terms.pull = -shrink[:, None] * np.einsum("gkim,gkm->gim", slopes, scaled)
    return terms


def factored(
    covariance: Floats, x: Floats, unit: Floats | None = None
) -> tuple[Floats, Floats, Floats | None]:
    """log|V|, L⁻¹ x and L⁻¹ U of many small packed matrices V = L L': Cholesky's recursion over all at once.

    Shapes are (G, q, M), (G, p, M) and (p, p) for U.

    Examples
    --------
    >>> log_determinant, scaled, _ = factored(np.array([[[4.0], [0.0], [9.0]]]), np.array([[[2.0], [3.0]]]))
    >>> round(float(log_determinant[0, 0]), 4), scaled[0, :, 0]
    (3.5835, array([1., 1.]))
    """
    versions, p, number = x.shape
    rows, columns = packed_pairs(p, pairs=True)
    lower = np.zeros((p, p, versions, number))
    lower[columns, rows] = np.swapaxes(covariance, 0, 1)
    right = np.empty((p, 1 + (0 if unit is None else p), versions, number))
    right[:, 0] = np.swapaxes(x, 0, 1)
    if unit is not None:
        right[:, 1:] = unit[:, :, None, None]
    log_determinant = np.zeros((versions, number))
    for j in range(p):
        if j:
            lower[j:, j] -= np.einsum("ikgm,kgm->igm", lower[j:, :j], lower[j, :j])
            right[j] -= np.einsum("kgm,kcgm->cgm", lower[j, :j], right[:j])
        pivot = np.sqrt(np.maximum(lower[j, j], FLOOR))
        lower[j:, j] /= pivot
        right[j] /= pivot
        log_determinant += 2.0 * np.log(pivot)
    found = np.moveaxis(right, 2, 0)
    return log_determinant, found[:, :, 0], None if unit is None else found[:, :, 1:]
