"""One view from start to end: points, the shards' log densities at them, weights, and what they are worth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from consilience.draws import Subposteriors
from consilience.numerics import normalised_weights, weighted_covariance
from consilience.pareto import effective_draws, pareto_shape
from consilience.progress import tell

from .base import Floats
from .moments import GaussianProduct, ShardMoments
from .views_density import Prior
from .views_product import Product
from .views_proposal import Student, refined
from .views_shard import Density, ShardView

RUNS, JACKKNIFE_POINTS = 16, 128
# Points are drawn again where weights of the first ones are worth a smaller share of them.
ENOUGH = 0.5


@dataclass(frozen=True, eq=False)
class View:
    """Shards in the coordinates (theta, psi) of one function."""

    name: str
    width: int  # columns of theta
    draws: Callable[[int], Floats]  # of shard b, (J_b, d), theta first
    spacing: Callable[[int], Floats | None]  # theta of the draws that a bandwidth is found from, if not those
    moments: ShardMoments
    effective: Floats  # (B,)
    product: GaussianProduct


@dataclass(frozen=True, eq=False)
class Seen:
    """A view, combined."""

    name: str
    points: Floats  # (M, k), sorted by the first column
    log_weights: Floats
    sizes: Floats  # (k,) effective
    shape: float  # Pareto k-hat
    integrated: bool  # psi out of the product of local conditionals, where these are not constant
    in_tails: float  # share of the posterior where a shard has few draws, averaged over the shards
    warnings: tuple[str, ...]

    @property
    def worth(self) -> float:
        """Kish's effective number of points."""
        return effective_draws(self.log_weights)


def look(
    view: View,
    number: int,
    density: Density,
    generator: np.random.Generator,
    *,
    shrinkage: float,
    place: tuple[int, int],
) -> Seen:
    """Combine one view; ``place`` is which view it is, of how many."""
    num_shards = len(view.effective)
    shards = _shard_views(view, density)
    prior = _prior(shards, shrinkage)

    p = view.product.mean.size - view.width
    held = number * (p * (p + 1) // 2)
    integrate = not prior.whole and held <= sum(len(shard.u) for shard in shards) * (p + view.width)
    scale = _conditional_root(view)

    def at(theta: Floats) -> tuple[Floats, Floats]:
        """Log density and share of shards in their tails, at sorted points."""
        psi, sparse = _conditional_mean(theta, view), np.zeros(len(theta))
        product = Product(1, len(theta), p, integrate=integrate)
        for b, shard in enumerate(shards):
            tell("densities", place[0] * num_shards + b, place[1] * num_shards)
            sparse += shard.add_density(product, theta, psi, prior, scale)
        return product.log_density()[0], sparse / num_shards

    k = view.width
    student = Student(view.product.mean[:k], view.product.covariance[:k, :k])
    points = _sorted(student.draw(number, generator))
    total, sparse = at(points)
    log_weights = total - student.log_density(points)
    if k == 1 and effective_draws(log_weights) < ENOUGH * number:
        points, log_proposal = refined(points[:, 0], total, student, number, generator)
        order = np.argsort(points[:, 0], kind="stable")
        points, log_proposal = points[order], log_proposal[order]
        total, sparse = at(points)
        log_weights = total - log_proposal
    log_weights -= log_weights.max()
    tell("densities", place[1] * num_shards, place[1] * num_shards)
    weights = normalised_weights(log_weights)
    return Seen(
        name=view.name,
        points=points,
        log_weights=log_weights,
        sizes=_sizes(view, shards, points, log_weights, prior, integrate),
        shape=pareto_shape(log_weights),
        integrated=integrate or prior.whole or not p,
        in_tails=float(weights @ sparse),
        warnings=view.product.warnings,
    )


def resampled(points: Floats, log_weights: Floats, number: int) -> np.ndarray:
    """Indices of systematic resampling, at the middles of equal steps.

    Examples
    --------
    >>> resampled(np.zeros((2, 1)), np.log([0.25, 0.75]), 4)
    array([0, 1, 1, 1])
    """
    edges = np.cumsum(normalised_weights(log_weights))
    positions = (np.arange(number) + 0.5) / number
    return np.minimum(np.searchsorted(edges, positions, side="right"), len(points) - 1)


def equal_draws(view: Seen, number: int) -> Floats:
    """Equally weighted draws, sorted by the first column: quantiles of one column, chosen rows of several."""
    if view.points.shape[1] > 1:
        return view.points[resampled(view.points, view.log_weights, number)]
    weights = normalised_weights(view.log_weights)
    middles = np.cumsum(weights) - 0.5 * weights
    return np.interp((np.arange(number) + 0.5) / number, middles, view.points[:, 0])[:, None]


def view_of_column(
    column: int, shards: Subposteriors, moments: ShardMoments, product: GaussianProduct
) -> View:
    """The view of one coordinate: the others complete it, and moments only change places."""
    order = np.array([column, *(i for i in range(shards.dimension) if i != column)])
    square = np.ix_(order, order)
    return View(
        name=shards.names[column],
        width=1,
        draws=lambda b: shards.draws[b][:, order],
        spacing=lambda b: None,
        moments=replace(
            moments, means=moments.means[:, order], covariances=moments.covariances[:, order[:, None], order]
        ),
        effective=moments.effective_draws,
        product=replace(product, mean=product.mean[order], covariance=product.covariance[square]),
    )


def _shard_views(view: View, density: Density) -> list[ShardView]:
    return [
        ShardView.of(
            view.draws(b),
            view.moments.means[b],
            view.moments.covariances[b],
            view.width,
            float(effective),
            density,
            view.spacing(b),
        )
        for b, effective in enumerate(view.effective)
    ]


def _prior(shards: list[ShardView], shrinkage: float) -> Prior:
    """How much the shards' Gaussians count beside local estimates: empirical Bayes over all shards.

    If local estimates scatter with variance tau² about the Gaussian's beyond their noise 1 / n, a sum of B of them
    has noise B / n, and what is common to all shards is B² tau²: the best linear estimate of the sum takes
    n / (n + 1 / (B tau²)) of what was found. tau² is what is found over the noise, less two standard errors of that:
    a sum over many shards must not be made of noise, and where all are Gaussian within noise nothing local is left.
    """
    if not shrinkage:
        return Prior()
    found = [shard.evidence() for shard in shards]
    windows = np.array([x.windows for x in found])
    draws = float(windows @ [x.draws for x in found] / windows.sum())

    def worth(excess: list[float], numbers: int) -> float:
        noise = 2.0 * float(np.sqrt(2.0 / (windows.sum() * max(numbers, 1))))
        over = float(windows @ excess / windows.sum()) - noise
        return shrinkage * draws / (over * len(shards)) if over > 0.0 else np.inf

    return Prior(
        density=worth([x.density for x in found], 1),
        mean=worth([x.mean for x in found], len(shards[0].r)),
        covariance=worth([x.covariance for x in found], found[0].products),
    )


def _conditional_mean(theta: Floats, view: View) -> Floats:
    """psi*, the mean of psi given theta under g~."""
    k, mean, covariance = view.width, view.product.mean, view.product.covariance
    slope = np.linalg.solve(covariance[:k, :k], covariance[:k, k:])
    return mean[k:] + (theta - mean[:k]) @ slope


def _conditional_root(view: View) -> Floats:
    """A root of the covariance of psi given theta under g~: the units of psi that all shards share."""
    k, covariance = view.width, view.product.covariance
    across = covariance[:k, k:]
    left = covariance[k:, k:] - across.T @ np.linalg.solve(covariance[:k, :k], across)
    return np.asarray(np.linalg.cholesky(left)) if len(left) else left


def _sizes(
    view: View,
    shards: list[ShardView],
    points: Floats,
    log_weights: Floats,
    prior: Prior,
    integrate: bool,
) -> Floats:
    """Independent draws that the means are worth: the jackknife over runs of draws, and the points' own error."""
    p = view.product.mean.size - view.width
    few = max(16, min(JACKKNIFE_POINTS, 10_000 // (p * (p + 1) // 2 + 1)))
    theta = points[resampled(points, log_weights, few)]
    psi = _conditional_mean(theta, view)
    runs = min(RUNS, min(len(shard.u) for shard in shards))
    product, scale = Product(1 + runs, few, p, integrate=integrate), _conditional_root(view)
    for shard in shards:
        shard.add_densities_without(product, theta, psi, prior, scale, runs)
    total = product.log_density()
    changed = total[1:] - total[0]
    weights = np.exp(changed - changed.max(axis=1, keepdims=True))
    means = (weights / weights.sum(axis=1, keepdims=True)) @ theta
    jackknife = (runs - 1) / runs * np.sum((means - means.mean(axis=0)) ** 2, axis=0)
    variance = np.diagonal(np.atleast_2d(weighted_covariance(points, log_weights)))
    worth = effective_draws(log_weights)
    error = jackknife + variance / (worth**2 if view.width == 1 else worth)
    return variance / np.maximum(error, 1e-16 * variance)


def _sorted(points: Floats) -> Floats:
    return points[np.argsort(points[:, 0], kind="stable")]
