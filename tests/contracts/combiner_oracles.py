"""Scenarios with known answers, and oracles for combination rules: each returns how far off a rule is.

Statistical oracles run a rule on fresh draws many times over and return z-scores, so that their limits come
from the rule's own Monte Carlo error and not from a chosen tolerance.
"""

from __future__ import annotations

import dataclasses
import itertools
import tracemalloc
import typing
from dataclasses import dataclass

import numpy as np

from consilience.combine import COMBINERS, Combined, Combiner
from consilience.draws import Subposteriors
from consilience.numerics import normalised_weights, weighted_covariance, weighted_mean

# P(|t| > 6) is 4e-6 with 23 degrees of freedom.
Z_LIMIT = 6.0

# Rules that need the shards' densities as well as draws are handed plain draws here and asked to take the densities
# from them. Nothing else may be set: all other options are the rule's defaults, or listed choices.
TARGETS_FROM_DRAWS = {"fusion": {"targets": "gaussian"}}


def default(rule: type[Combiner]) -> Combiner:
    """A registered rule with its defaults."""
    return rule(**TARGETS_FROM_DRAWS.get(rule.name, {}))


def variants() -> list[Combiner]:
    """Every registered rule with every combination of its options of listed choices; defaults first."""
    found: list[Combiner] = []
    for rule in COMBINERS:
        hints = typing.get_type_hints(rule)
        listed = {
            name: typing.get_args(hint)
            for name, hint in hints.items()
            if typing.get_origin(hint) is typing.Literal and name in getattr(rule, "__match_args__", ())
        }
        found.append(default(rule))
        for choice in itertools.product(*listed.values()):
            candidate = dataclasses.replace(default(rule), **dict(zip(listed, choice, strict=True)))
            if candidate not in found:
                found.append(candidate)
    return found


def kinds(rule: Combiner) -> tuple[str, ...]:
    return ("subposterior", "inflated") if rule.kind == "any" else (rule.kind,)


@dataclass(frozen=True)
class GaussianScenario:
    """Gaussian shards of unequal weight, covariance and number of draws, whose posterior is known."""

    kind: str
    dimension: int = 2
    sizes: tuple[int, ...] = (700, 400, 1_000)

    def parts(self) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
        """Means and covariances of what the shards sample, and the weights."""
        rng = np.random.default_rng(7)
        weights = rng.uniform(1.0, 3.0, len(self.sizes))
        weights /= weights.sum()
        means, covariances = [], []
        for weight in weights:
            factor = np.eye(self.dimension) + 0.5 * rng.normal(size=(self.dimension, self.dimension))
            inflated = factor @ factor.T
            covariances.append(inflated if self.kind == "inflated" else inflated / weight)
            means.append(rng.normal(size=self.dimension))
        return means, covariances, weights

    def posterior(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance of the full posterior."""
        means, covariances, weights = self.parts()
        powers = weights if self.kind == "inflated" else np.ones_like(weights)
        precisions = [a * np.linalg.inv(v) for a, v in zip(powers, covariances, strict=True)]
        covariance = np.linalg.inv(sum(precisions))
        mean = covariance @ sum(p @ m for p, m in zip(precisions, means, strict=True))
        return mean, covariance

    def draw(self, seed: int) -> Subposteriors:
        means, covariances, weights = self.parts()
        rng = np.random.default_rng([seed, 99])
        draws = [
            rng.multivariate_normal(m, v, size=n)
            for m, v, n in zip(means, covariances, self.sizes, strict=True)
        ]
        densities = [
            -0.5 * np.einsum("ni,ij,nj->n", x - m, np.linalg.inv(v), x - m)
            for x, m, v in zip(draws, means, covariances, strict=True)
        ]
        return Subposteriors.of(draws, kind=self.kind, weights=weights, log_densities=densities)


def moments_of(combined: Combined) -> tuple[np.ndarray, np.ndarray]:
    return (
        weighted_mean(combined.array, combined.log_weights),
        weighted_covariance(combined.array, combined.log_weights),
    )


def counted(combined: Combined) -> float:
    """Draws that came out, weighted ones by Kish's effective size."""
    if combined.log_weights is None:
        return float(len(combined.array))
    weights = normalised_weights(combined.log_weights)
    return float(1.0 / np.sum(weights**2))


def shards_of(
    draws: object, *, kind: str, weights: object = None, names: object = None, log_densities: object = None
) -> Subposteriors:
    """Shards with log densities, of the Gaussians with each shard's moments where none are given."""
    arrays = [np.asarray(x, dtype=np.float64) for x in draws]  # type: ignore[attr-defined]
    return Subposteriors.of(
        draws,
        kind=kind,
        weights=weights,
        names=names,  # type: ignore[arg-type]
        log_densities=log_densities or [_gaussian_log_density(x) for x in arrays],  # type: ignore[arg-type]
    )


def _gaussian_log_density(x: np.ndarray) -> np.ndarray:
    if not np.all(np.isfinite(x)):
        return np.zeros(len(x))
    centred = x - x.mean(axis=0)
    precision = np.linalg.pinv(np.atleast_2d(np.cov(x, rowvar=False)), hermitian=True)
    return -0.5 * np.einsum("ni,ij,nj->n", centred, precision, centred)


def gaussian_exactness(rule: Combiner, kind: str, replicates: int = 24) -> float:
    """Largest |z| of the combined mean and covariance against the closed form, over fresh draws."""
    scenario = GaussianScenario(kind)
    mean, covariance = scenario.posterior()
    errors = []
    for seed in range(replicates):
        found_mean, found_covariance = moments_of(rule.combine(scenario.draw(seed), seed=seed))
        upper = np.triu_indices(scenario.dimension)
        errors.append(np.concatenate([found_mean - mean, (found_covariance - covariance)[upper]]))
    table = np.array(errors)
    return float(np.abs(table.mean(axis=0) / (table.std(axis=0, ddof=1) / np.sqrt(replicates))).max())


def effective_size_honesty(rule: Combiner, kind: str, replicates: int = 60) -> float:
    """Variance of the combined mean between fresh draws, over what effective sizes promise; 1 is honest."""
    scenario = GaussianScenario(kind, sizes=(160, 80, 120))
    means, promised = [], []
    for seed in range(replicates):
        combined = rule.combine(scenario.draw(seed), seed=seed)
        mean, covariance = moments_of(combined)
        means.append(mean)
        assert combined.effective_sizes is not None
        promised.append(np.diagonal(covariance) / combined.effective_sizes)
    actual = np.var(np.array(means), axis=0, ddof=1)
    return float(np.mean(actual / np.mean(promised, axis=0)))


def order_dependence(rule: Combiner, kind: str) -> float:
    """Largest difference between draws, each column sorted, of the same shards in two orders."""
    subposteriors = GaussianScenario(kind).draw(0)
    order = [2, 0, 1]
    assert subposteriors.log_densities is not None
    shuffled = shards_of(
        [subposteriors.draws[b] for b in order],
        kind=kind,
        weights=[subposteriors.weights[b] for b in order],
        log_densities=[subposteriors.log_densities[b] for b in order],
    )
    first, second = (rule.combine(x, seed=3) for x in (subposteriors, shuffled))
    apart = [np.abs(a - b).max() for a, b in zip(moments_of(first), moments_of(second), strict=True)]
    return float(max(np.abs(np.sort(first.array, axis=0) - np.sort(second.array, axis=0)).max(), *apart))


def equivariance_error(rule: Combiner, kind: str, group: str) -> float:
    """Largest |z| between moments of combined T x + c and T (combined x) + c, for a T of the group.

    Rules may permute or draw differently for T x, so the two differ by Monte Carlo noise.
    """
    subposteriors = GaussianScenario(kind, sizes=(4_000, 3_000, 5_000)).draw(1)
    rotation = np.array([[0.6, -0.8], [0.8, 0.6]])
    matrix = {
        "affine": rotation @ np.diag([1.0, 30.0]) @ np.array([[1.0, 2.0], [0.0, 1.0]]),
        "similarity": 30.0 * rotation,
        "diagonal": np.diag([1.0, 30.0]),
    }[group]
    shift = np.array([5.0, -100.0])
    mapped = shards_of(
        [x @ matrix.T + shift for x in subposteriors.draws],
        kind=kind,
        weights=subposteriors.weights,
        log_densities=subposteriors.log_densities,
    )
    expected = rule.combine(subposteriors, seed=1)
    found = rule.combine(mapped, seed=1)
    back = Combined((found.array - shift) @ np.linalg.inv(matrix).T, found.log_weights)
    mean, covariance = moments_of(expected)
    other_mean, other_covariance = moments_of(back)
    whiten = np.linalg.inv(np.linalg.cholesky(covariance))
    number = counted(expected)
    z_mean = np.abs(whiten @ (other_mean - mean)) / np.sqrt(2.0 / number)
    z_covariance = np.abs(whiten @ other_covariance @ whiten.T - np.eye(2)) / np.sqrt(2 * 2.0 / number)
    return float(max(z_mean.max(), z_covariance.max()))


def identical_shards_z(rule: Combiner, kind: str) -> float:
    """|z| of the combined standard deviation when eight shards hold the very same N(0, 1) draws.

    Right is 1 / sqrt(8) = 0.354 for sub-posterior draws and 1 for inflated ones, relative to the draws' own
    deviation.
    """
    draws = np.random.default_rng(5).normal(size=(2_000, 1))
    combined = rule.combine(shards_of([draws] * 8, kind=kind), seed=0)
    expected = draws.std() / (np.sqrt(8) if kind == "subposterior" else 1.0)
    deviation = np.sqrt(moments_of(combined)[1][0, 0])
    return float(abs(deviation / expected - 1.0) * np.sqrt(2 * counted(combined)))


def motion_asymmetry(rule: Combiner) -> float:
    """How far a rule's maps are from least motion: their asymmetry in whitened coordinates."""
    subposteriors = GaussianScenario("inflated", dimension=3).draw(2)
    combined = rule.combine(subposteriors, seed=0)
    covariance = np.cov(combined.array, rowvar=False)
    values, vectors = np.linalg.eigh(covariance)
    root = (vectors * np.sqrt(values)) @ vectors.T
    worst, start = 0.0, 0
    for x in subposteriors.draws:
        moved = combined.array[start : start + len(x)]
        start += len(x)
        map_ = np.linalg.lstsq(x - x.mean(axis=0), moved - moved.mean(axis=0), rcond=None)[0].T
        whitened = np.linalg.solve(root, map_ @ root)
        worst = max(worst, float(np.abs(whitened - whitened.T).max()))
    return worst


def kolmogorov_smirnov(first: Combined, second: Combined) -> float:
    """Largest distance of the columns' distributions, times sqrt(n m / (n + m)); 2.2 is p = 1e-4."""
    n, m = counted(first), counted(second)
    worst = 0.0
    for a, b in zip(first.array.T, second.array.T, strict=True):
        grid = np.concatenate([a, b])
        curves = []
        for values, combined in ((a, first), (b, second)):
            weights = np.full(len(values), 1.0 / len(values))
            if combined.log_weights is not None:
                weights = normalised_weights(combined.log_weights)
            order = np.argsort(values)
            cumulative = np.concatenate([[0.0], np.cumsum(weights[order])])
            curves.append(cumulative[np.searchsorted(values[order], grid, side="right")])
        worst = max(worst, float(np.abs(curves[0] - curves[1]).max()))
    return worst * float(np.sqrt(n * m / (n + m)))


def peak_in_copies(rule: Combiner, subposteriors: Subposteriors) -> float:
    """The most that NumPy allocates while a rule works, the result with it, in copies of all draws."""
    rule.combine(subposteriors.thinned(500))  # what is kept for later calls is not this one's
    tracemalloc.start()
    try:
        rule.combine(subposteriors)
        return tracemalloc.get_traced_memory()[1] / sum(x.nbytes for x in subposteriors.draws)
    finally:
        tracemalloc.stop()
