"""Is there posterior mass where there are no draws? A search by importance weights.

Formula. Points are drawn from a mixture q of kernel estimates: of the final draws, of the combined draws
before refinement, and of the shards' own draws pooled, which are far wider. With w = p / q from the full
data's log densities, the posterior's mass outside the draws' region R is

    P(outside R) = sum w 1(outside R) / sum w,
    R = {theta: f(theta) >= its 0.1 % quantile over the draws},

f the kernel estimate of the final draws.

Assumptions: the shards' draws reach the missing mass. Fails beyond about ten dimensions, where kernel
estimates are so rough that a few weights decide (the effective number of weights says so), and for mass that
no shard's draws came near.

Reference. Owen and Zhou (2000), Safe and effective importance sampling, JASA 95 (mixture proposals);
Silverman (1986), Density estimation, equation (4.14) (bandwidth).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.draws import Subposteriors
from consilience.numerics import log_sum_exp
from consilience.refine.base import FreshDraws
from consilience.refine.pass_back import PassBack
from consilience.refine.stein import Cloud

Floats = NDArray[np.float64]

POINTS = 256
KERNELS = 2000
QUANTILE = 0.001
SUSPICIOUS = 0.02


@dataclass(frozen=True)
class Escape:
    """Estimated share of the posterior outside the draws' region, with its Monte Carlo error."""

    mass: float
    error: float
    points: int
    effective_points: float
    shards_searched: bool

    @property
    def surely(self) -> float:
        """What the share exceeds by two standard errors."""
        return max(0.0, self.mass - 2.0 * self.error)

    @property
    def suspicious(self) -> bool:
        return self.mass > SUSPICIOUS

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True, eq=False)
class Kernels:
    """A Gaussian kernel estimate."""

    centres: Floats
    cloud: Cloud
    bandwidth: float

    @classmethod
    def of(cls, draws: Floats) -> Kernels:
        number, dimension = draws.shape
        bandwidth = (4.0 / (dimension + 2.0)) ** (1.0 / (dimension + 4.0)) * number ** (
            -1.0 / (dimension + 4.0)
        )
        return cls(draws, Cloud.of(draws), float(bandwidth))

    def sample(self, count: int, rng: np.random.Generator) -> Floats:
        chosen = self.centres[rng.integers(len(self.centres), size=count)]
        noise = self.bandwidth * rng.normal(size=chosen.shape)
        return np.asarray(chosen + noise @ self.cloud.root.T)

    def log_density(self, points: Floats) -> Floats:
        """Log density at (S, d) points.

        Examples
        --------
        >>> kernels = Kernels.of(np.random.default_rng(0).normal(size=(2000, 1)))
        >>> np.exp(kernels.log_density(np.zeros((1, 1)))).round(1)
        array([0.4])
        """
        z, centres = self.cloud.whiten(points), self.cloud.whiten(self.centres)
        out = np.empty(len(z))
        for start in range(0, len(z), 64):
            block = z[start : start + 64]
            squares = np.sum(block**2, axis=1)[:, None] - 2.0 * block @ centres.T + np.sum(centres**2, axis=1)
            out[start : start + 64] = log_sum_exp(-0.5 * squares / self.bandwidth**2, axis=1)
        dimension = z.shape[1]
        log_volume = float(np.linalg.slogdet(self.cloud.inverse_root)[1])
        scale = dimension * np.log(self.bandwidth * np.sqrt(2.0 * np.pi)) + np.log(len(centres))
        return np.asarray(out - scale + log_volume)


def escape_check(
    draws: Floats,
    pass_back: PassBack,
    *,
    log_weights: Floats | None,
    raw: Floats | None,
    subposteriors: Subposteriors | None,
    rng: np.random.Generator,
    points: int = POINTS,
) -> Escape:
    """Estimate the posterior's mass outside the draws' region from `points` log densities."""
    final = Kernels.of(draws[FreshDraws(log_weights, len(draws), rng).take(KERNELS)])
    parts = [final]
    if raw is not None:
        parts.append(Kernels.of(raw[FreshDraws(None, len(raw), rng).take(KERNELS)]))
    if subposteriors is not None:
        share = np.ceil(KERNELS * np.asarray(subposteriors.weights)).astype(int)
        pooled = [
            x[rng.integers(len(x), size=count)] for x, count in zip(subposteriors.draws, share, strict=True)
        ]
        parts.append(Kernels.of(np.concatenate(pooled)))
    proposed = np.concatenate([part.sample(points // len(parts), rng) for part in parts])
    found = pass_back.densities(proposed)
    log_proposal = log_sum_exp([part.log_density(found.points) for part in parts], axis=0) - np.log(
        len(parts)
    )
    ratio = np.where(found.finite, found.log_density, -np.inf) - log_proposal
    if not np.any(np.isfinite(ratio)):
        return Escape(1.0, 1.0, len(proposed), 0.0, subposteriors is not None)
    weights = np.exp(ratio - ratio.max())
    weights = weights / weights.sum()
    inside = final.log_density(draws[FreshDraws(log_weights, len(draws), rng).take(KERNELS)])
    outside = final.log_density(found.points) < np.quantile(inside, QUANTILE)
    mass = float(weights @ outside)
    error = float(np.sqrt(np.sum(weights**2 * (outside - mass) ** 2)))
    effective = float(1.0 / np.sum(weights**2))
    return Escape(mass, error, len(proposed), effective, subposteriors is not None)
