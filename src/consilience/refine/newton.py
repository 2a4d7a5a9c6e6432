"""Newton: move all draws so that their mode is the full data's mode.

Formula. From the draws' mean, u <- u + (H + lambda diag H)^-1 g with the full data's score g and negative
Hessian H, until the step is under a hundredth of a standard deviation. To third order (Edgeworth) draws with
mean m and covariance M M' have their mode at m - M kappa / 2, kappa = E[z |z|^2], z = M^-1 (u - m); so

    mean <- mode + A M kappa / 2,

kappa shrunk by its own Monte Carlo noise, A the least-motion map from the draws' covariance to H^-1, so that
the offset has the posterior's scale whatever the draws' is. The covariance is not touched.

Assumptions. One mode, and draws of the posterior's shape. Fails where the mode says little about the mean
(strong skewness, several modes) or does not exist; `calibrate` asks for neither and mends the covariance too.

Reference. Wu and Robert (2017), Average of recentred parallel MCMC for big data, remark 1; the offset:
McCullagh (1987), Tensor methods in statistics, chapter 5 (Edgeworth series).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from consilience.draws import Subposteriors
from consilience.numerics import least_motion_map
from consilience.refine.base import Floats, Need, Refined, checked_draws
from consilience.refine.pass_back import PassBack
from consilience.refine.stein import Cloud

# Steps that are tried at once: one pass over the rows finds out which is best.
STEPS = (1.0, 0.5, 0.25, 0.06, 0.015, 0.004, 0.001)
# Squared length of a step, in standard deviations of the curvature, at which the search stops.
CLOSE = 1e-4
# Eigenvalues of the scaled curvature below this share of the largest are taken for flat.
FLAT = 1e-6
# The offset between mean and mode is an expansion in small skewness: no more of it is believed, in sd.
MOST_OFFSET = 0.5


@dataclass(frozen=True)
class Newton:
    """Recentre at the full data's mode.

    Attributes
    ----------
    max_steps : int
        Newton steps at most; each costs d + 4 or so full-data gradients.

    Examples
    --------
    >>> Newton().max_steps
    12
    """

    name: ClassVar[str] = "newton"
    reference: ClassVar[str] = "Wu and Robert (2017), remark 1"
    needs: ClassVar[tuple[Need, ...]] = ("draws", "pass-back")
    exact_for_gaussian: ClassVar[bool] = True

    max_steps: int = 12

    def refine(
        self,
        draws: Floats,
        log_weights: Floats | None,
        pass_back: PassBack,
        subposteriors: Subposteriors | None = None,
        *,
        seed: int = 0,
    ) -> Refined:
        """Recentre draws; nothing here is random, so `seed` is not used."""
        array, weights = checked_draws(self.name, draws, log_weights, pass_back.dimension)
        begun = pass_back.ledger
        cloud = Cloud.of(array, weights)
        peak = find_mode(pass_back, cloud.centre, self.max_steps)
        spent = pass_back.ledger.since(begun)
        record: dict[str, Any] = {
            "name": self.name,
            "rounds": peak.steps,
            "distance_to_mode": float(np.sqrt(peak.decrement)),
            "cost": spent.to_dict(),
        }
        if not peak.found:
            return Refined(
                array=array,
                log_weights=weights,
                notes=("newton: nothing changed: no mode was found",),
                warnings=(
                    f"newton: after {peak.steps} steps the search was still {np.sqrt(peak.decrement):.2g} sd "
                    "from a mode, so the draws were left where they were. Look for a direction that neither "
                    "data nor prior determine.",
                ),
                record=record,
            )
        offset = mean_less_mode(cloud.whiten(array), weights)
        offset = offset * min(1.0, MOST_OFFSET / max(float(np.linalg.norm(offset)), 1e-12))
        scaling = least_motion_map(cloud.covariance, peak.covariance)[0]
        shift = peak.point + scaling @ (cloud.root @ offset) - cloud.centre
        distance = float(np.linalg.norm(cloud.inverse_root @ shift))
        note = (
            f"newton: {peak.steps} steps, {spent.full_data_gradients:.0f} full-data gradients: mean moved by "
            f"{distance:.2g} sd; covariance as it was"
        )
        return Refined(array + shift, weights, (note,), (), {**record, "shift": distance})


class Peak(NamedTuple):
    """Where a search ended: the point, its log density and curvature, and how far it still is from a mode."""

    point: Floats
    log_density: float
    hessian: Floats
    decrement: float
    steps: int

    @property
    def found(self) -> bool:
        """Whether it is a mode, within one standard deviation."""
        return bool(self.decrement < 1.0)

    @property
    def covariance(self) -> Floats:
        """Inverse of the curvature."""
        values, vectors, scale = scaled_spectrum(self.hessian)
        return np.asarray((vectors / values) @ vectors.T / np.outer(scale, scale))


def find_mode(pass_back: PassBack, start: Floats, max_steps: int) -> Peak:
    """Damped Newton search on the full data."""
    point, here = start, pass_back.scores(start[None])
    hessian = np.full((len(start), len(start)), np.nan)
    decrement = np.inf
    for step in range(max_steps + 1):
        assert here.scores is not None
        hessian = pass_back.negative_hessian(point)
        if not here.finite.all() or not np.all(np.isfinite(hessian)):
            return Peak(point, -np.inf, hessian, np.inf, step)
        values, vectors, scale = scaled_spectrum(hessian)
        slope = vectors.T @ (here.scores[0] / scale)
        direction = (vectors @ (slope / values)) / scale
        decrement = float(slope @ (slope / values))
        if decrement < CLOSE or step == max_steps:
            break
        tried = pass_back.densities(point + np.outer(STEPS, direction))
        heights = np.where(tried.finite, tried.log_density - here.log_density[0], -np.inf)
        best = int(np.argmax(heights))
        if not heights[best] > 0:
            break
        point = tried.points[best]
        here = pass_back.scores(point[None])
    return Peak(point, float(here.log_density[0]), hessian, decrement, step)


def scaled_spectrum(hessian: Floats) -> tuple[Floats, Floats, Floats]:
    """Absolute eigenvalues of the curvature in its own units, floored: a step is uphill from anywhere."""
    diagonal = np.abs(np.diagonal(hessian))
    scale = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    values, vectors = np.linalg.eigh(hessian / np.outer(scale, scale))
    values = np.maximum(np.abs(values), max(FLAT * np.max(np.abs(values)), FLAT**2))
    return values, vectors, scale


def mean_less_mode(z: Floats, log_weights: Floats | None) -> Floats:
    """Whitened offset between mean and mode, E[z |z|^2] / 2, shrunk by its Monte Carlo noise.

    Examples
    --------
    >>> z = np.random.default_rng(0).gamma(9.0, size=(100_000, 1))
    >>> mean_less_mode((z - z.mean()) / z.std(), None).round(2)      # exactly: 1/3 sd
    array([0.33])
    """
    number, dimension = z.shape
    if log_weights is None:
        weights = np.full(number, 1.0 / number)
    else:
        weights = np.exp(log_weights - log_weights.max())
        weights = weights / weights.sum()
    # z has mean zero, so what is subtracted changes noise only.
    terms = z * (np.sum(z**2, axis=1) - (dimension + 2))[:, None]
    kappa = weights @ terms
    noise = float(np.sum(weights**2 @ (terms - kappa) ** 2))
    size = float(kappa @ kappa)
    return np.asarray(0.5 * kappa * max(0.0, 1.0 - noise / size)) if size > 0 else np.zeros(dimension)
