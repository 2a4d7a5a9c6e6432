"""What scores at draws say about mean and covariance: a whitened regression, made robust by leave-one-out.

For draws with mean m and covariance V = M M', in whitened coordinates z = M^-1 (theta - m) with whitened
scores h = M' g, the exact posterior has E[h] = 0 and E[h z'] = -I (Stein's identities). So r = h + z is
regressed on z,

    r = a + C z + noise,      h = a - Q z + noise,   Q = I - C,

and a Gaussian posterior has mean m + M Q^-1 a and covariance M Q^-1 M', without noise. The ridge on C is
chosen by leave-one-out among values up to infinity: scores without information leave C = 0, that is, the
covariance as it is. z is centred over all draws, not over those with scores, so a is the score's linear
part averaged over all draws, which removes most Monte Carlo noise.

Assumptions: the scores are near linear in theta over the cloud (R^2 says how near). Fails where they are
not: a few scores outweigh the others, C tends to 0 and a to their mean, which is why no step that rests on
this is taken unseen (see calibrate).

Reference. Stein (1981), The Annals of Statistics 9(6), Lemma 2; DESIGN section 1 of this project; leave-one-
out of a ridge regression: Golub, Heath and Wahba (1979), Technometrics 21(2), equation (1.5).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.numerics import symmetric_root, weighted_covariance, weighted_mean

Floats = NDArray[np.float64]

RIDGES = np.concatenate([[0.0], 10.0 ** np.arange(-6.0, 4.5, 0.5), [np.inf]])
# Leverage beyond which leaving a point out cannot be told from dividing by zero.
MOST_LEVERAGE = 1.0 - 1e-6


@dataclass(frozen=True, eq=False)
class Cloud:
    """Mean, covariance and whitening of draws: theta = centre + root z."""

    centre: Floats
    covariance: Floats
    root: Floats
    inverse_root: Floats
    floored: int

    @classmethod
    def of(cls, draws: Floats, log_weights: Floats | None = None) -> Cloud:
        """Moments of all draws.

        Examples
        --------
        >>> cloud = Cloud.of(np.array([[0.0], [4.0]]))
        >>> cloud.centre, cloud.whiten(np.array([[0.0]])).round(3)
        (array([2.]), array([[-0.707]]))
        """
        return cls.at(weighted_mean(draws, log_weights), weighted_covariance(draws, log_weights))

    @classmethod
    def at(cls, centre: Floats, covariance: Floats) -> Cloud:
        """Given moments; the root is taken of the correlation, so that scales cost no digits."""
        covariance = np.atleast_2d(covariance)
        scale = np.sqrt(np.diagonal(covariance))
        correlation = covariance / np.outer(scale, scale)
        root, floored = symmetric_root(correlation)
        inverse = symmetric_root(correlation, power=-0.5)[0]
        return cls(centre, covariance, scale[:, None] * root, inverse / scale[None, :], floored)

    @property
    def scale(self) -> Floats:
        """Standard deviations."""
        return np.sqrt(np.diagonal(self.covariance))

    def whiten(self, theta: Floats) -> Floats:
        """Coordinates in which the cloud has mean 0 and covariance I."""
        return (theta - self.centre) @ self.inverse_root.T

    def colour(self, z: Floats) -> Floats:
        """Back from whitened coordinates."""
        return self.centre + z @ self.root.T

    def whiten_scores(self, scores: Floats) -> Floats:
        """Scores with respect to the whitened coordinates."""
        return scores @ self.root


@dataclass(frozen=True, eq=False)
class SteinFit:
    """The regression of whitened scores.

    Attributes
    ----------
    intercept : (d,) a
    slope : (d, d) C, symmetric
    residuals : (S, d) leave-one-out residuals of h
    ridge : float
    r_squared : float
        Share of the whitened scores' variance that the regression predicts at points it has not seen.
    """

    intercept: Floats
    slope: Floats
    residuals: Floats
    ridge: float
    r_squared: float

    @property
    def num_points(self) -> int:
        return len(self.residuals)

    @property
    def precision(self) -> Floats:
        """Q = I - C."""
        return np.eye(len(self.slope)) - self.slope

    @property
    def intercept_noise(self) -> Floats:
        """(d, d) Monte Carlo covariance of the intercept."""
        return np.asarray(self.residuals.T @ self.residuals) / self.num_points**2

    def slope_noise(self, directions: Floats) -> Floats:
        """Monte Carlo standard error of e' C e for each column e."""
        along = self.residuals @ directions
        return np.asarray(np.sqrt(np.mean(along**2, axis=0) / self.num_points))

    def shift_evidence(self) -> float:
        """T^2 = a' K^-1 a, about d where the mean is right and large where it is not."""
        scale = np.sqrt(np.diagonal(self.intercept_noise))
        tiny = 1e-12 + 1e-6 * scale.max()
        noise = self.intercept_noise + tiny**2 * np.eye(len(scale))
        return float(self.intercept @ np.linalg.solve(noise, self.intercept))


def fit_scores(z: Floats, h: Floats) -> SteinFit:
    """Regress whitened scores h (S, d) on whitened points z (S, d).

    Examples
    --------
    >>> z = np.random.default_rng(0).normal(size=(50, 1))
    >>> fit = fit_scores(z, 0.5 - 2.0 * z)
    >>> fit.intercept.round(6), fit.slope.round(6), round(fit.r_squared, 6)
    (array([0.5]), array([[-1.]]), 1.0)
    """
    r = h + z
    z_mean, r_mean = z.mean(axis=0), r.mean(axis=0)
    left, sizes, right = np.linalg.svd(z - z_mean, full_matrices=False)
    target = r - r_mean
    projected = left.T @ target
    best: tuple[float, float, Floats, Floats] | None = None
    for ridge in RIDGES * len(z):
        kept = np.where(sizes > 1e-10 * sizes[0], 1.0 / (1.0 + ridge / np.maximum(sizes, 1e-300) ** 2), 0.0)
        leverage = np.minimum(1.0 / len(z) + left**2 @ kept, MOST_LEVERAGE)
        residuals = (target - left @ (kept[:, None] * projected)) / (1.0 - leverage)[:, None]
        loss = float(np.sum(residuals**2))
        if best is None or loss < best[0]:
            best = (loss, float(ridge), kept, residuals)
    assert best is not None
    loss, ridge, kept, residuals = best
    slope = (right.T @ ((kept / np.maximum(sizes, 1e-300))[:, None] * projected)).T
    # The negative Hessian that C estimates is symmetric; half of the noise is not.
    slope = (slope + slope.T) / 2
    total = float(np.sum((h - h.mean(axis=0)) ** 2)) * (len(z) / max(1, len(z) - 1)) ** 2
    r_squared = 1.0 - loss / total if total > 0 else 0.0
    return SteinFit(r_mean - slope @ z_mean, slope, residuals, ridge, r_squared)
