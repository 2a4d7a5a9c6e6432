"""Shards of known shape in one dimension, what their kernel estimates are on average, and products on a grid."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.stats import gamma, norm

from consilience.combine import Combined, Combiner
from consilience.combine.kernel_combination import Schedule, prepare
from consilience.draws import Subposteriors

SHAPES, RATES = (2.0, 3.0, 4.0), (1.0, 1.5, 1.2)
SIZES = (4_000, 6_000, 5_000)
GRID = np.linspace(-4.0, 16.0, 501)


def skewed_shards(seed: int, sizes: tuple[int, ...] = SIZES) -> Subposteriors:
    """Gamma sub-posteriors, whose product is Gamma(sum shapes - 2, sum rates)."""
    rng = np.random.default_rng(seed)
    draws = [rng.gamma(a, 1.0 / r, size=(n, 1)) for a, r, n in zip(SHAPES, RATES, sizes, strict=True)]
    return Subposteriors.of(draws, kind="subposterior", weights=np.array(sizes) / sum(sizes))


def skewed_densities() -> list[np.ndarray]:
    return [gamma(a, scale=1.0 / r).pdf(GRID) for a, r in zip(SHAPES, RATES, strict=True)]


def skewed_product() -> np.ndarray:
    """Distribution function of the product on the grid."""
    return gamma(sum(SHAPES) - len(SHAPES) + 1, scale=1.0 / sum(RATES)).cdf(GRID)


def average_product(
    rule: Combiner, shards: Subposteriors, densities: list[np.ndarray], tilted: bool
) -> np.ndarray:
    """Distribution function of the product of what the shards' estimates are on average.

    Densities are those of the shards as they were given; bandwidths, centres and moments are the rule's.
    """
    problem = prepare(shards, pull=0.0 if not tilted else None)
    by_draws = {id(x): p for x, p in zip(shards.draws, densities, strict=True)}
    step = GRID[1] - GRID[0]
    total = np.zeros_like(GRID)
    for fraction, read in Schedule(max(shards.num_draws), 1).fractions():
        if not read:
            continue
        factors = rule._ingredients(problem, fraction).factors
        log_product = np.zeros_like(GRID)
        for b, x in enumerate(problem.shards.draws):
            mean = problem.moments.means[b, 0]
            root = problem.frame.root[0, 0]
            deviation = root / np.sqrt(problem.product.precisions[b, 0, 0])
            centres = mean + factors.shrinkage[b] * (GRID - mean)
            weights = by_draws[id(x)] * step
            start = norm(mean, deviation)
            if tilted:
                weights = np.where(weights > 0, weights / np.maximum(start.pdf(GRID), 1e-300), 0.0)
            kernels = norm.pdf(GRID[:, None], centres[None, :], factors.bandwidths[b] * deviation)
            estimate = kernels @ weights
            log_product += np.log(np.maximum(estimate, 1e-300)) + (start.logpdf(GRID) if tilted else 0.0)
        product = np.exp(log_product - log_product.max())
        total += product / product.sum()
    cumulative = np.cumsum(total)
    return cumulative / cumulative[-1]


def distance(combined: Combined, distribution: np.ndarray) -> float:
    """Largest difference of distribution functions, times the root of what the draws' mean is worth."""
    ordered = np.sort(combined.array[:, 0])
    expected = np.interp(ordered, GRID, distribution)
    found = (np.arange(len(ordered)) + 0.5) / len(ordered)
    assert combined.effective_sizes is not None
    return float(np.abs(found - expected).max() * np.sqrt(combined.effective_sizes[0]))


def largest_difference(combined: Combined, distribution: np.ndarray) -> float:
    ordered = np.sort(combined.array[:, 0])
    found = (np.arange(len(ordered)) + 0.5) / len(ordered)
    return float(np.abs(found - np.interp(ordered, GRID, distribution)).max())


def peak_over_draws(run: Callable[[], object], shards: Subposteriors) -> float:
    """Most memory that a run holds at once, in copies of the draws."""
    import tracemalloc

    run()
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1] / sum(x.nbytes for x in shards.draws)
    finally:
        tracemalloc.stop()
