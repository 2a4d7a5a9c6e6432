"""From a regression of scores to an affine map: clipped, shrunk, and idle where there is only noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from consilience.numerics import least_motion_map
from consilience.refine.base import Floats
from consilience.refine.pass_back import Evaluation
from consilience.refine.stein import Cloud, SteinFit

# Most that a variance grows or shrinks in one round.
CLIP = 16.0
# Most that a mean moves in the first round, in standard deviations of the draws; twice as far after each
# whole step that was accepted, while the scores are near linear.
MOST_SHIFT = 3.0
# Curvature below this share of the cloud's: the data and the prior say nothing along this direction.
FLAT = 1e-4
# A correction this far under the noise floor of two runs with as many draws changes nothing that can be seen.
NEGLIGIBLE = 0.25
# R^2 from which a step that was right is trusted to be right for twice the way.
NEAR_LINEAR = 0.9
# R^2 from which on the evidence for a step must be three times as strong.
FAR_FROM_LINEAR = 0.5


@dataclass(frozen=True)
class Step:
    """A proposed affine map, whitened: shift s, and the eigenvalues and directions of the new covariance."""

    shift: Floats
    variances: Floats
    directions: Floats
    clipped: int = 0
    flat: int = 0

    @property
    def idle(self) -> bool:
        return not np.any(self.shift) and bool(np.all(self.variances == 1.0))

    def moved(self, cloud: Cloud, fraction: float) -> Cloud:
        """The cloud after that fraction of the step."""
        powers = self.variances**fraction
        inner = (self.directions * powers) @ self.directions.T
        covariance = cloud.root @ inner @ cloud.root.T
        return Cloud.at(cloud.centre + cloud.root @ (fraction * self.shift), (covariance + covariance.T) / 2)


def propose(fit: SteinFit, floor: float, most_shift: float = MOST_SHIFT) -> Step:
    """Turn a regression into a map, with the guards.

    Examples
    --------
    >>> from consilience.refine.stein import fit_scores
    >>> z = np.random.default_rng(0).normal(size=(64, 1))
    >>> step = propose(fit_scores(z, 2.0 - 4.0 * z), floor=0.01)
    >>> step.shift.round(3), step.variances.round(3)
    (array([0.5]), array([0.25]))
    """
    values, directions = np.linalg.eigh(fit.slope)
    noise = np.maximum(
        (2.0 + errors_wanted(fit)) * fit.slope_noise(directions), NEGLIGIBLE * floor * np.sqrt(len(values))
    )
    curvature = np.where(np.abs(values) < noise, 1.0, 1.0 - values)
    flat = np.abs(curvature) < FLAT
    precision = np.clip(np.abs(curvature), 1.0 / CLIP, CLIP)
    # Where the log density is convex it has no variance to offer: go uphill, and keep the width.
    variances = np.where(flat | (curvature < 0), 1.0, 1.0 / precision)
    shift = directions @ (shrunken_shift(fit, floor) @ directions / precision * ~flat)
    shift = shift / max(1.0, float(np.max(np.abs(directions.T @ shift))) / most_shift)
    clipped = int(np.count_nonzero(precision != np.abs(curvature)))
    return Step(shift, variances, directions, clipped, int(np.count_nonzero(flat)))


def shrunken_shift(fit: SteinFit, floor: float) -> Floats:
    """The intercept, nothing where it is noise or too small to be seen, else shrunk by its noise."""
    dimension = len(fit.intercept)
    evidence = fit.shift_evidence()
    seen = evidence > dimension + (3.0 + errors_wanted(fit)) * np.sqrt(2.0 * dimension)
    if not seen or np.linalg.norm(fit.intercept) < NEGLIGIBLE * floor * np.sqrt(dimension):
        return np.zeros(dimension)
    return fit.intercept * (1.0 - dimension / evidence)


def affine(before: Cloud, after: Cloud) -> tuple[Floats, float]:
    """The least-motion map between two clouds, and the logarithm of its determinant."""
    linear = least_motion_map(before.covariance, after.covariance)[0]
    return linear, float(np.linalg.slogdet(linear)[1])


def whitened(cloud: Cloud, evaluation: Evaluation) -> tuple[Floats, Floats]:
    """Points and scores in the cloud's coordinates."""
    assert evaluation.scores is not None
    return cloud.whiten(evaluation.points), cloud.whiten_scores(evaluation.scores)


def errors_wanted(fit: SteinFit) -> float:
    """Standard errors that a step must show: one where scores are near linear, up to three elsewhere."""
    return 1.0 + 2.0 * float(
        np.clip((NEAR_LINEAR - fit.r_squared) / (NEAR_LINEAR - FAR_FROM_LINEAR), 0.0, 1.0)
    )
