"""What importance sampling proposes from: fitted parts with heavy tails, and kernels on draws there are.

Parts. Each Gaussian part N(m, V) is proposed as 0.7 N(m, V) + 0.3 t_5(m, V): the normal part is efficient where the
fit is right, and the t part bounds the weights where it is too narrow.

Kernels. Draws x_i of a part with n draws, mean m and covariance V become, with c = sqrt(1 - h^2),

    (1 / n) sum_i N(m + c (x_i - m), h^2 V),      h = min(0.95, (4 / (d + 2))^{1/(d+4)} n^{-1/(d+4)}),

which keeps mean and covariance of the draws whatever h is. Without the pull towards m the variance grows by 1 + h^2
in every direction: at d = 28 and n = 2,000 (h = 0.74) that is a volume 445 times too large. V is the covariance of the
part of the draws, found by BIC, so that separate modes are not smeared into one.

Fails gently in many dimensions: h tends to 1, and kernels on draws say no more than their parts' Gaussians.

Reference. West (1993), Approximating posterior distributions by mixtures, JRSS B 55(2) (the pull); Silverman
(1986), Density estimation, equation (4.14) (h); Hesterberg (1995), Technometrics 37(2) (defensive mixtures).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from consilience.numerics import log_sum_exp
from consilience.refine.base import Floats
from consilience.refine.mixtures import GaussianMixture, split_by_bic
from consilience.refine.stein import Cloud

HEAVY_SHARE = 0.3
DEGREES = 5.0
WIDEST = 0.95


class Proposal(Protocol):
    """Something with a density that can be drawn from."""

    def sample(self, count: int, rng: np.random.Generator) -> Floats:
        """(count, d) draws."""

    def log_density(self, points: Floats) -> Floats:
        """(S,) normalised log densities."""


@dataclass(frozen=True, eq=False)
class HeavyParts:
    """A mixture of Gaussians, each with a heavy-tailed companion."""

    mixture: GaussianMixture

    def sample(self, count: int, rng: np.random.Generator) -> Floats:
        part = stratified(self.mixture.shares, count, rng)
        dimension = self.mixture.means.shape[1]
        z = rng.normal(size=(count, dimension))
        heavy = rng.uniform(size=count) < HEAVY_SHARE
        z = z / np.where(heavy, np.sqrt(rng.chisquare(DEGREES, size=count) / DEGREES), 1.0)[:, None]
        roots = np.linalg.cholesky(self.mixture.covariances)
        return np.asarray(self.mixture.means[part] + np.einsum("nij,nj->ni", roots[part], z))

    def log_density(self, points: Floats) -> Floats:
        """Log density of all parts together.

        Examples
        --------
        >>> parts = HeavyParts(GaussianMixture(np.ones(1), np.zeros((1, 1)), np.ones((1, 1, 1))))
        >>> grid = np.linspace(-60.0, 60.0, 100_001)
        >>> round(float(np.sum(np.exp(parts.log_density(grid[:, None]))) * (grid[1] - grid[0])), 4)
        1.0
        """
        from scipy.special import gammaln

        dimension = points.shape[1]
        log_det = 0.5 * np.linalg.slogdet(self.mixture.covariances)[1]
        constant = np.log(self.mixture.shares) - log_det - 0.5 * dimension * np.log(2.0 * np.pi)
        normal = self.mixture.log_parts(points)
        squares = np.maximum(2.0 * (constant - normal), 0.0)
        power = 0.5 * (DEGREES + dimension)
        heavy = (
            np.log(self.mixture.shares)
            - log_det
            + gammaln(power)
            - gammaln(DEGREES / 2.0)
            - 0.5 * dimension * np.log(DEGREES * np.pi)
            - power * np.log1p(squares / DEGREES)
        )
        both = np.logaddexp(np.log1p(-HEAVY_SHARE) + normal, np.log(HEAVY_SHARE) + heavy)
        return log_sum_exp(both, axis=1)


@dataclass(frozen=True, eq=False)
class Kernels:
    """Gaussian kernels on draws, as wide as the part of the draws that they belong to allows.

    Attributes
    ----------
    centres : per part, (n_k, d) draws pulled towards their mean
    clouds : per part, whose covariance the kernels have, times the squared bandwidth
    bandwidths : per part
    """

    centres: tuple[Floats, ...]
    clouds: tuple[Cloud, ...]
    bandwidths: tuple[float, ...]

    @classmethod
    def on(cls, draws: Floats, rng: np.random.Generator) -> Kernels:
        """Kernels on (n, d) draws that count the same.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> kernels = Kernels.on(rng.normal(size=(2000, 1)), rng)
        >>> np.exp(kernels.log_density(np.zeros((1, 1)))).round(1), kernels.sample(9000, rng).std().round(1)
        (array([0.4]), np.float64(1.0))
        """
        nearest = split_by_bic(draws, None, rng).nearest(draws)
        counts = np.bincount(nearest)
        # Too few to have a covariance: they go with the largest part, whose kernels are then wider, not narrower.
        small = np.flatnonzero(counts < 2 * (draws.shape[1] + 1))
        nearest = np.where(np.isin(nearest, small), np.argmax(counts), nearest)
        centres, clouds, bandwidths = [], [], []
        for k in np.unique(nearest):
            members = draws[nearest == k]
            cloud, width = Cloud.of(members), bandwidth(*members.shape)
            centres.append(cloud.centre + np.sqrt(1.0 - width**2) * (members - cloud.centre))
            clouds.append(cloud)
            bandwidths.append(width)
        return cls(tuple(centres), tuple(clouds), tuple(bandwidths))

    @property
    def number(self) -> int:
        return sum(len(x) for x in self.centres)

    def sample(self, count: int, rng: np.random.Generator) -> Floats:
        sizes = np.array([len(x) for x in self.centres])
        part = stratified(sizes / sizes.sum(), count, rng)
        out = np.empty((count, self.centres[0].shape[1]))
        for k, (centres, cloud, width) in enumerate(
            zip(self.centres, self.clouds, self.bandwidths, strict=True)
        ):
            here = np.flatnonzero(part == k)
            noise = width * rng.normal(size=(len(here), out.shape[1]))
            out[here] = centres[rng.integers(len(centres), size=len(here))] + noise @ cloud.root.T
        return out

    def log_density(self, points: Floats) -> Floats:
        parts = [
            log_kernel_sums(points, *part)
            for part in zip(self.centres, self.clouds, self.bandwidths, strict=True)
        ]
        return log_sum_exp(np.stack(parts), axis=0) - np.log(self.number)


def bandwidth(number: int, dimension: int) -> float:
    """Silverman's bandwidth in standard deviations, never more than `WIDEST`."""
    power = 1.0 / (dimension + 4.0)
    return float(min(WIDEST, (4.0 / (dimension + 2.0)) ** power * number**-power))


def log_kernel_sums(points: Floats, centres: Floats, cloud: Cloud, width: float) -> Floats:
    """Logarithm of the sum of the kernels on centres, at (S, d) points; in blocks that stay in a cache."""
    z, c = cloud.whiten(points) / width, cloud.whiten(centres) / width
    sizes = np.sum(c**2, axis=1)
    out = np.empty(len(z))
    for start in range(0, len(z), 128):
        block = z[start : start + 128]
        squares = np.sum(block**2, axis=1)[:, None] - 2.0 * block @ c.T + sizes
        out[start : start + 128] = log_sum_exp(-0.5 * squares, axis=1)
    log_volume = float(np.linalg.slogdet(cloud.inverse_root)[1]) - z.shape[1] * np.log(width)
    return np.asarray(out + log_volume - 0.5 * z.shape[1] * np.log(2.0 * np.pi))


@dataclass(frozen=True, eq=False)
class Shared:
    """Proposals of given shares, which are kept to exactly."""

    proposals: tuple[Proposal, ...]
    counts: tuple[int, ...]

    @classmethod
    def of(cls, proposals: Sequence[tuple[Proposal, float]], count: int) -> Shared:
        """So many points in all; the last proposal gets what rounding leaves."""
        shares = np.array([share for _, share in proposals])
        counts = np.floor(shares / shares.sum() * count).astype(int)
        counts[-1] += count - counts.sum()
        return cls(tuple(proposal for proposal, _ in proposals), tuple(int(n) for n in counts))

    def sample(self, rng: np.random.Generator) -> Floats:
        """Points of all proposals, one after the other."""
        return np.concatenate(
            [proposal.sample(n, rng) for proposal, n in zip(self.proposals, self.counts, strict=True)]
        )


def stratified(shares: Floats, count: int, rng: np.random.Generator) -> np.ndarray:
    """Indices in proportion to shares, each as near to its share as whole numbers allow.

    Examples
    --------
    >>> np.bincount(stratified(np.array([0.25, 0.75]), 8, np.random.default_rng(0)))
    array([2, 6])
    """
    places = (np.arange(count) + rng.uniform()) / count
    return np.searchsorted(np.cumsum(shares), places * np.sum(shares)).clip(max=len(shares) - 1)
