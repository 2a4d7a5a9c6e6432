"""Noise of kernel estimates against simulation, and precisions pulled together against what that should bring."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.combine.common_precision import pull_together
from consilience.combine.kernel_bandwidth import (
    annealed,
    noise_of_correction,
    noise_of_plain_kernels,
    noise_of_shrunk_kernels,
    noise_of_spread_kernels,
    smallest_bandwidths,
)
from consilience.combine.moments import gaussian_product, shard_moments
from consilience.draws import Subposteriors

MEASURED = {
    "shrunk": noise_of_shrunk_kernels,
    "plain": noise_of_plain_kernels,
    "spread": noise_of_spread_kernels,
    "correction": noise_of_correction,
}


def simulated_noise(kernels: str, h: float, distance: float, counts: int) -> tuple[float, float]:
    """Noise of a log estimate and its gradient at a point, and its standard error, from the draws of one big sample."""
    x = np.random.default_rng(0).normal(size=2_000_000)
    a = {"shrunk": np.sqrt(1 - h**2), "spread": np.sqrt(1 + h**2)}.get(kernels, 1.0)
    away = distance - a * x
    values = np.exp(-0.5 * (away / h) ** 2)
    if kernels == "correction":
        values *= np.exp(0.5 * x**2)
    mean = values.mean()
    slope = -away / h**2
    gradient = np.sum(slope * values) / np.sum(values)
    terms = (values / mean) ** 2 * (1.0 + (slope - gradient) ** 2)
    share = 1.0 / (1.0 + h**2) if kernels == "spread" else 1.0
    noise = np.sqrt(terms.mean() / counts) * share
    return noise, 0.5 * noise * terms.std() / terms.mean() / np.sqrt(len(x))


@pytest.mark.parametrize("kernels", MEASURED)
@pytest.mark.parametrize(("h", "distance"), [(0.3, 0.0), (0.3, 1.5), (0.7, 1.0), (0.9, 0.5)])
def test_noise_is_what_is_simulated(kernels, h, distance):
    found = MEASURED[kernels](np.array(h), np.array(5_000.0), np.array(distance**2), 1)
    expected, error = simulated_noise(kernels, h, distance, 5_000)
    assert abs(found - expected) < 5 * error + 1e-4 * expected


def test_noise_of_one_kernel_is_not_that_of_another():
    values = [noise(np.array(0.7), np.array(5_000.0), np.array(1.0), 1) for noise in MEASURED.values()]
    errors = [simulated_noise(kernels, 0.7, 1.0, 5_000)[1] for kernels in MEASURED]
    assert np.diff(np.sort(values)).min() > 10 * max(errors)


def test_annealing_is_the_papers_for_as_many_draws_as_come_out():
    i, total = 37, 5_000
    found = annealed(np.array([float(total)]), (i - 1) / (total - 1), 3)
    assert found[0] == pytest.approx(i ** (-1 / 7), rel=1e-12)


def test_the_limit_is_not_met_for_ever():
    """Asymptotically the bandwidth is the annealed one, in any dimension and at any distance."""
    for dimension, distance in ((1, 9.0), (3, 4.0), (5, 5.0)):
        for noise in MEASURED.values():
            counts = np.array([1e30])
            lowest = annealed(counts, 1.0, dimension)
            found = smallest_bandwidths(noise, lowest, counts, np.array([distance]), dimension, 0.3)
            np.testing.assert_array_equal(found, lowest)


def pulled(shards: Subposteriors, pull: float | None = None):
    moments = shard_moments(shards)
    return pull_together(
        moments, gaussian_product(moments, np.ones(shards.num_shards)), shards.weights, pull=pull
    )


def wishart_shards(seed: int, differ: bool) -> tuple[Subposteriors, np.ndarray]:
    """Shards in 5 dimensions of one covariance or of very different ones, means far apart, and the product's mean."""
    rng = np.random.default_rng(seed)
    d, sizes = 5, (150, 300, 600)
    weights = np.array(sizes) / sum(sizes)
    roots = [(np.eye(d) + (0.7 * rng.normal(size=(d, d)) if differ else 0.0)) / np.sqrt(w) for w in weights]
    means = 2.0 * rng.normal(size=(3, d))
    draws = [m + rng.normal(size=(400, d)) @ r.T for m, r in zip(means, roots, strict=True)]
    precisions = [np.linalg.inv(r @ r.T) for r in roots]
    mean = np.linalg.solve(sum(precisions), sum(p @ m for p, m in zip(precisions, means, strict=True)))
    return Subposteriors.of(draws, kind="subposterior", weights=weights), mean


def test_like_precisions_are_pulled_together_and_unlike_ones_are_not():
    alike = np.mean([pulled(wishart_shards(seed, differ=False)[0]).pull for seed in range(10)])
    unlike = np.mean([pulled(wishart_shards(seed, differ=True)[0]).pull for seed in range(10)])
    assert alike > 0.7
    assert unlike < 0.15


def squared_errors(pull: float | None, differ: bool, replicates: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Squared errors of the mean and what was promised for them, over the product's variance."""
    found, promised = [], []
    for seed in range(replicates):
        shards, mean = wishart_shards(seed, differ)
        product = pulled(shards, pull)
        variance = np.diagonal(product.covariance)
        found.append(np.mean((product.mean - mean) ** 2 / variance))
        variances = product.mean_variances + product.weight_variances
        promised.append(np.mean(variances.sum(axis=0) / variance))
    return np.array(found), np.array(promised)


def test_the_pull_lowers_the_error_where_shards_are_alike():
    as_estimated, _ = squared_errors(0.0, differ=False)
    found, _ = squared_errors(None, differ=False)
    assert found.mean() < 0.6 * as_estimated.mean()


def test_the_pull_does_not_hurt_where_they_differ_but_a_full_one_would():
    as_estimated, promised = squared_errors(0.0, differ=True)
    found, _ = squared_errors(None, differ=True)
    full, _ = squared_errors(1.0, differ=True)
    gained = as_estimated - found
    assert gained.mean() > -4 * gained.std() / np.sqrt(len(gained))
    assert full.mean() > 5 * as_estimated.mean()
    assert 0.5 < as_estimated.mean() / promised.mean() < 1.5


def test_the_pull_keeps_the_sum_of_precisions_and_of_shares():
    shards, _ = wishart_shards(0, differ=True)
    product, as_estimated = pulled(shards, 0.6), pulled(shards, 0.0)
    np.testing.assert_allclose(product.precisions.sum(axis=0), as_estimated.precisions.sum(axis=0))
    np.testing.assert_allclose(product.shares.sum(axis=0), np.eye(5), atol=1e-12)
    one = Subposteriors.of(shards.draws[:1], kind="subposterior")
    assert pulled(one).pull == 0.0
