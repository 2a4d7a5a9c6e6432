"""Which shards say something else than the rest, and in which parameter.

Scale. Write V for the posterior covariance and S_b for the covariance of shard b's *sub*-posterior (S_b = V_b
for sub-posterior draws, S_b = V_b / w_b for inflated ones). For Gaussian shards mu = V sum S_b^-1 mu_b, and
if all shards come from one population then

    Var(mu_b) = S_b,   Cov(mu_b, mu) = V,   so   Var(mu_b - mu) = S_b - V.

For equally informative shards, S_b = V / w_b, this is V (1 / w_b - 1): by chance alone an inflated shard's
mean lies about sqrt(1 / w_b - 1) posterior standard deviations away (7 for 50 shards), which would look like
alarm everywhere if it were not divided out. Standardised distances are (mu_b - mu)_j / sqrt((S_b - V)_jj).

Assumptions: shards near Gaussian, prior weak. Where the prior rules a shard the distance is too small, never
too large.

Fails: a chain that got stuck has a far too small S_b and stands out for that reason; S_b - V is
floored at 5 % of S_b, because its estimate may be near zero or negative where one shard holds nearly all the
information.

Limits are Bonferroni's at 5 % in all: half for each shard in each parameter, half for each shard in all
parameters together. When shards differ by chance alone, at most one report in twenty names any.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from consilience.numerics import weighted_covariance, weighted_mean
from consilience.report.text import fixed, shard_name
from consilience.report.views import DrawsView

Array = np.ndarray
FLOOR = 0.05
LEVEL = 0.05


@dataclass(frozen=True)
class Disagreement:
    """Standardised distances of shards from the combined posterior.

    ``distances`` is (B, d), NaN where a shard has no spread; ``overall`` (B,) is the squared distance in all
    parameters together, a chi-squared variable with ``dimension`` degrees of freedom by chance, NaN where
    draws are too few.
    """

    names: tuple[str, ...]
    labels: tuple[str, ...]
    distances: Array
    overall: Array
    limit: float
    overall_limit: float
    usual: tuple[float, float]

    @property
    def dimension(self) -> int:
        """How many parameters were compared."""
        return len(self.names)

    def largest(self) -> Array:
        """Each shard's largest absolute distance (B,); 0 where it has none."""
        return np.max(np.nan_to_num(np.abs(self.distances)), axis=1)

    def worst_parameter(self) -> Array:
        """Index of the parameter in which each shard is furthest away (B,)."""
        return np.argmax(np.nan_to_num(np.abs(self.distances)), axis=1)

    def ranked(self) -> Array:
        """Shards from the furthest to the nearest."""
        return np.argsort(-self.largest(), kind="stable")

    def outstanding(self) -> list[int]:
        """Shards beyond the limit in some parameter or in all together, furthest first."""
        beyond = (self.largest() > self.limit) | (np.nan_to_num(self.overall) > self.overall_limit)
        return [int(b) for b in self.ranked() if beyond[b]]

    def sentence(self, shard: int, most: int = 3) -> str:
        """Say where a shard stands out."""
        who = shard_name(shard, self.labels[shard])
        row = np.nan_to_num(self.distances[shard])
        order = np.argsort(-np.abs(row), kind="stable")
        places = [j for j in order if abs(row[j]) > self.limit][:most]
        if not places:
            return (
                f"{who} stands out in no single parameter but in all together: "
                f"squared distance {self.overall[shard]:.0f}, about {self.dimension} by chance"
            )
        said = "; ".join(f"{self.names[j]}: {fixed(abs(row[j]), 1)} sd {_side(row[j])}" for j in places)
        more = int(np.sum(np.abs(row) > self.limit)) - len(places)
        return f"{who} stands out in {said}" + (f" (and {more} more parameters)" if more > 0 else "")


def _side(value: float) -> str:
    return "above" if value > 0 else "below"


def shard_disagreement(view: DrawsView) -> Disagreement | None:
    """Compare each shard's mean with the combined one; None when there are not two shards to compare.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> shards = tuple(rng.normal(m, 1.0, size=(500, 1)) for m in (0.0, 1.0, -1.0, 40.0))
    >>> view = DrawsView(("x",), rng.normal(10.0, 1.0, size=(500, 1)), None, shards, tuple("0123"),
    ...                  np.full(4, 0.25), "inflated")
    >>> found = shard_disagreement(view)
    >>> found.outstanding()[0], found.sentence(3)
    (3, 'shard 3 stands out in x: 17.4 sd above')
    """
    from scipy.stats import chi2, norm

    if view.num_shards < 2:
        return None
    mean = weighted_mean(view.combined, view.log_weights)
    covariance = weighted_covariance(view.combined, view.log_weights)
    compared = np.sqrt(np.diag(covariance)) > 1e-12 * np.maximum(1.0, np.abs(mean))
    compared &= np.all([np.isfinite(draws).all(axis=0) for draws in view.shards], axis=0)
    if not compared.any():
        return None
    mean, covariance = mean[compared], covariance[np.ix_(compared, compared)]
    dimension = int(compared.sum())
    distances = np.full((view.num_shards, dimension), np.nan)
    overall = np.full(view.num_shards, np.nan)
    for b, draws in enumerate(view.shards):
        weight = float(view.shard_weights[b])
        distances[b], overall[b] = _distances(draws[:, compared], weight, view.kind, mean, covariance)
    usual = tuple(float(norm.isf((1 - p ** (1 / dimension)) / 2)) for p in (0.05, 0.95))
    return Disagreement(
        names=tuple(name for name, used in zip(view.names, compared, strict=True) if used),
        labels=view.labels,
        distances=distances,
        overall=overall,
        limit=float(norm.isf(LEVEL / 2 / (2 * view.num_shards * dimension))),
        overall_limit=float(chi2.isf(LEVEL / 2 / view.num_shards, dimension)),
        usual=(usual[0], usual[1]),
    )


def _distances(draws: Array, weight: float, kind: str, mean: Array, covariance: Array) -> tuple[Array, float]:
    count, dimension = draws.shape
    shard_covariance = weighted_covariance(draws)
    spread = shard_covariance / weight if kind == "inflated" else shard_covariance
    variance = np.diag(spread)
    gap = draws.mean(axis=0) - mean
    chance = np.maximum(variance - np.diag(covariance), FLOOR * variance)
    with np.errstate(divide="ignore", invalid="ignore"):
        standardised = np.where(variance > 0, gap / np.sqrt(chance), np.nan)
    # An inverted covariance of few draws over-states distances by (n - 1) / (n - d - 2); below that it says
    # nothing.
    if count < 5 * dimension + 10 or not (variance > 0).all():
        return standardised, float("nan")
    scale = np.sqrt(variance)
    values, vectors = np.linalg.eigh(spread / np.outer(scale, scale))
    values = np.maximum(values, 1e-10 * values[-1])
    whiten = vectors / np.sqrt(values)
    ratio, turn = np.linalg.eigh(whiten.T @ (covariance / np.outer(scale, scale)) @ whiten)
    turned = turn.T @ (whiten.T @ (gap / scale))
    squared = float(np.sum(turned**2 / np.maximum(1.0 - ratio, FLOOR)))
    return standardised, squared * (count - dimension - 2) / (count - 1)
