"""Draws split into Gaussian parts: a mixture by expectation-maximisation, its number of parts by BIC.

Formula. For draws x_i with weights w_i that sum to 1 and n effective draws, the parts' shares a_k, means m_k and
covariances V_k maximise l = sum_i w_i log sum_k a_k N(x_i | m_k, V_k), and

    BIC(K) = -2 n l + (K - 1 + K d + K d (d + 1) / 2) log n

is least at the K that is kept. The n that counts is Kish's, so that weighted draws split no finer than they can.

Assumptions: none; a bent cloud is followed by several parts. A part with fewer than 4 (d + 1) effective draws is
given up, because its covariance would be noise.

Fails for parts that no draws came from, and finds a local maximum only. In many dimensions BIC allows few parts.

Reference. Dempster, Laird and Rubin (1977), JRSS B 39(1), section 4.3; Fraley and Raftery (2002), JASA 97(458)
(BIC); starts: Arthur and Vassilvitskii (2007), k-means++, SODA.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.numerics import log_sum_exp, normalised_weights
from consilience.refine.base import Floats
from consilience.refine.stein import Cloud

# Numbers of parts that are tried, until BIC has risen twice in a row.
NUMBERS = (1, 2, 3, 4, 6, 8, 12)
ITERATIONS = 60
# Rise of the log likelihood, per effective draw, at which a fit is finished.
RISE = 1e-4
# Added to whitened covariances: a part that has collapsed on a plane keeps a density.
LEAST_VARIANCE = 1e-8


@dataclass(frozen=True, eq=False)
class GaussianMixture:
    """Shares (K,), means (K, d) and covariances (K, d, d)."""

    shares: Floats
    means: Floats
    covariances: Floats

    @property
    def number(self) -> int:
        return len(self.shares)

    def log_parts(self, points: Floats) -> Floats:
        """(S, K) logarithms of share times density.

        Examples
        --------
        >>> one = GaussianMixture(np.ones(1), np.zeros((1, 1)), np.ones((1, 1, 1)))
        >>> one.log_parts(np.zeros((1, 1))).round(3)
        array([[-0.919]])
        """
        from scipy.linalg import solve_triangular

        out = np.empty((len(points), self.number))
        dimension = points.shape[1]
        for k, (mean, covariance) in enumerate(zip(self.means, self.covariances, strict=True)):
            factor = np.linalg.cholesky(covariance)
            z = solve_triangular(factor, (points - mean).T, lower=True, check_finite=False)
            log_det = float(np.sum(np.log(np.diagonal(factor))))
            out[:, k] = -0.5 * np.sum(z**2, axis=0) - log_det
        return out + np.log(self.shares) - 0.5 * dimension * np.log(2.0 * np.pi)

    def nearest(self, points: Floats) -> NDArray[np.intp]:
        """(S,) the part that each point most likely came from."""
        return np.argmax(self.log_parts(points), axis=1)


def split_by_bic(draws: Floats, log_weights: Floats | None, rng: np.random.Generator) -> GaussianMixture:
    """Fit mixtures of more and more parts, and keep the one with the least BIC.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> two = np.concatenate([rng.normal(-4.0, 1.0, size=(300, 1)), rng.normal(4.0, 1.0, size=(700, 1))])
    >>> found = split_by_bic(two, None, rng)
    >>> found.number, np.sort(found.shares).round(2)
    (2, array([0.3, 0.7]))
    """
    cloud = Cloud.of(draws, log_weights)
    z = cloud.whiten(draws)
    weights = np.full(len(z), 1.0 / len(z)) if log_weights is None else normalised_weights(log_weights)
    effective = float(1.0 / np.sum(weights**2))
    least = 4.0 * (z.shape[1] + 1) / effective
    best, lowest, risen = None, np.inf, 0
    for number in NUMBERS:
        if number > 1 and number * least > 1.0:
            break
        mixture, fit = fit_mixture(z, weights, number, least, rng)
        size = mixture.number - 1 + mixture.number * z.shape[1] * (z.shape[1] + 3) / 2
        bic = -2.0 * effective * fit + size * np.log(effective)
        if bic < lowest:
            best, lowest, risen = mixture, bic, 0
        else:
            risen += 1
        if risen == 2:
            break
    assert best is not None
    covariances = cloud.root @ best.covariances @ cloud.root.T
    covariances = (covariances + np.swapaxes(covariances, 1, 2)) / 2
    return GaussianMixture(best.shares, cloud.colour(best.means), covariances)


def fit_mixture(
    z: Floats, weights: Floats, number: int, least: float, rng: np.random.Generator
) -> tuple[GaussianMixture, float]:
    """Expectation-maximisation from spread centres; parts with a smaller share than `least` are given up."""
    centres = spread_centres(z, weights, number, rng)
    nearest = np.argmin(np.sum((z[:, None, :] - centres) ** 2, axis=2), axis=1)
    mixture = maximised(z, weights, np.eye(number)[nearest], least)
    before = -np.inf
    for _ in range(ITERATIONS):
        parts = mixture.log_parts(z)
        total = log_sum_exp(parts, axis=1)
        fit = float(weights @ total)
        if fit - before < RISE:
            break
        before = fit
        mixture = maximised(z, weights, np.exp(parts - total[:, None]), least)
    return mixture, float(weights @ log_sum_exp(mixture.log_parts(z), axis=1))


def spread_centres(z: Floats, weights: Floats, number: int, rng: np.random.Generator) -> Floats:
    """Draws that lie apart: each is chosen in proportion to its squared distance to those before it."""
    centres = [z[rng.choice(len(z), p=weights)]]
    nearest = np.sum((z - centres[0]) ** 2, axis=1)
    for _ in range(number - 1):
        chance = weights * nearest
        centres.append(z[rng.choice(len(z), p=chance / chance.sum())])
        nearest = np.minimum(nearest, np.sum((z - centres[-1]) ** 2, axis=1))
    return np.asarray(centres)


def maximised(z: Floats, weights: Floats, belonging: Floats, least: float) -> GaussianMixture:
    """Shares, means and covariances given how far each draw belongs to each part."""
    mass = weights[:, None] * belonging
    shares = mass.sum(axis=0)
    kept = shares >= min(least, shares.max())
    mass, shares = mass[:, kept], shares[kept]
    means = (mass.T @ z) / shares[:, None]
    covariances = np.empty((len(shares), z.shape[1], z.shape[1]))
    for k, mean in enumerate(means):
        off = z - mean
        covariances[k] = (off * mass[:, k, None]).T @ off / shares[k] + LEAST_VARIANCE * np.eye(z.shape[1])
    return GaussianMixture(shares / shares.sum(), means, covariances)
