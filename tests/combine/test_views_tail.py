"""Tail rules of marginal views, on shards whose dense regions are known."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.combine.views_density import Prior
from consilience.combine.views_product import Product
from consilience.combine.views_shard import Density, ShardView
from consilience.combine.views_tail import anchors_of, bridge, neighbours

RULES = Density("euwok", "sheather-jones", 0.05, 10.0, 2.0, 5.0)


def seen(draws, rules=RULES):
    return ShardView.of(
        draws,
        draws.mean(axis=0),
        np.cov(draws, rowvar=False).reshape([draws.shape[1]] * 2),
        1,
        float(len(draws)),
        rules,
    )


def log_density(view, theta, psi=None):
    psi = np.empty((len(theta), 0)) if psi is None else psi
    p = psi.shape[1]
    product = Product(1, len(theta), p, integrate=False)
    tails = view.add_density(product, theta[:, None], psi, Prior(), np.eye(p))
    return product.log_density()[0], tails


def gaussian(view, theta):
    u = (theta - view.centre) * view.theta_map[0, 0]
    n = len(view.u)
    return -0.5 * (n - len(view.r) - 3) / (n - 1) * u**2


def test_outside_the_density_goes_on_as_the_shard_s_gaussian_without_a_jump():
    draws = np.random.default_rng(0).gamma(3.0, size=(4_000, 1))
    view, theta = seen(draws), np.linspace(-3.0, 40.0, 2_000)
    found, tails = log_density(view, theta)
    assert tails[0] and tails[-1] and not tails[200]  # noqa: PT018
    for first, last in ((0, np.flatnonzero(~tails)[0]), (np.flatnonzero(~tails)[-1], len(theta) - 1)):
        beyond = slice(first, last + 1)
        slope = np.diff(found[beyond]) - np.diff(gaussian(view, theta)[beyond])
        np.testing.assert_allclose(slope, 0.0, atol=1e-9)


def test_between_dense_regions_the_log_density_is_interpolated():
    rng = np.random.default_rng(1)
    draws = np.concatenate([rng.normal(0.0, 0.1, 2_000), rng.normal(5.0, 0.1, 2_000)])[:, None]
    view, theta = seen(draws), np.linspace(-0.2, 5.2, 3_001)
    found, tails = log_density(view, theta)
    gap = np.flatnonzero(tails & (theta > 0.5) & (theta < 4.5))
    assert len(gap) > 1_000
    np.testing.assert_allclose(np.diff(found[gap], 2), 0.0, atol=1e-9)
    assert np.any(np.abs(np.diff(found[~tails], 2)) > 1e-6)
    # The shard's Gaussian, which the thesis puts there, would make the gap its highest place.
    assert found[gap].max() < found.max() - 3.0


def test_conditionals_go_on_along_the_shard_s_regression():
    rng = np.random.default_rng(2)
    theta = rng.normal(size=5_000)
    draws = np.stack([theta, 2.0 * theta + 0.5 * rng.normal(size=5_000)], axis=1)
    view, points = seen(draws), np.linspace(-8.0, 8.0, 161)
    on_line, tails = log_density(view, points, 2.0 * points[:, None])
    assert tails[0] and tails[-1]  # noqa: PT018
    off_line, _ = log_density(view, points, 2.0 * points[:, None] + 0.5)
    # One conditional standard deviation off costs about a half everywhere; without the slope it would gain or
    # lose dozens in the tails.
    assert np.all(np.abs(on_line - off_line - 0.5) < 1.2)


def test_without_dense_points_a_shard_is_its_gaussian():
    rng = np.random.default_rng(3)
    draws = rng.multivariate_normal([1.0, -1.0], [[2.0, 1.2], [1.2, 1.5]], size=3_000)
    view = seen(draws, Density("euwok", "sheather-jones", 0.05, 1e9, 1e9, 1e9))
    theta = np.linspace(-5.0, 6.0, 40)
    found, tails = log_density(view, theta, np.full((40, 1), 0.3))
    assert tails.all()
    apart = np.stack([theta, np.full(40, 0.3)], axis=1) - draws.mean(axis=0)
    precision = np.linalg.inv(np.cov(draws, rowvar=False)) * (3_000 - 4) / (3_000 - 1)
    expected = -0.5 * np.einsum("ni,ij,nj->n", apart, precision, apart)
    np.testing.assert_allclose(found - found[0], expected - expected[0], atol=1e-9)


@pytest.mark.parametrize("kernel", ["euwok", "gaussian"])
def test_smoothing_leaves_the_variance_of_the_draws(kernel):
    draws = np.random.default_rng(5).normal(size=(400, 1))
    view = seen(draws, Density(kernel, "sheather-jones", 0.05, 10.0, 2.0, 5.0))
    theta = np.linspace(-6.0, 6.0, 4_001)
    weights = np.exp(log_density(view, theta)[0])
    weights /= weights.sum()
    variance = weights @ theta**2 - (weights @ theta) ** 2
    # A kernel estimate of the draws where they are is wider by the kernel's variance.
    assert view.kernel.variance > 0.06
    assert variance == pytest.approx(draws.var(), rel=0.03)


@pytest.mark.parametrize("fewest", [2.0, 40.0])
def test_where_covariances_are_sparse_the_nearest_correlation_serves(fewest):
    """Three other parameters whose correlation is one number everywhere: both rules agree within noise."""
    rng = np.random.default_rng(4)
    theta = rng.normal(size=6_000)
    others = rng.multivariate_normal(np.zeros(3), np.eye(3) * 0.5 + 0.5, size=6_000)
    others *= 1.0 + 0.3 * np.tanh(theta)[:, None]
    draws = np.concatenate([theta[:, None], others], axis=1)
    view = seen(draws, Density("euwok", "sheather-jones", 0.05, 10.0, fewest, 5.0))
    points = np.linspace(-1.5, 1.5, 61)
    found, _ = log_density(view, points, np.zeros((61, 3)))
    # At psi = 0 the density is phi(theta) / (1 + 0.3 tanh theta)³ up to a constant.
    expected = -0.5 * points**2 - 3.0 * np.log1p(0.3 * np.tanh(points))
    assert np.std(found - expected) < 0.25
    assert np.std(found + 0.5 * points**2) > 0.5


def test_the_nearest_dense_point_in_two_dimensions():
    points = np.array([[0.0, 0.0], [1.0, 0.0], [0.1, 0.9], [5.0, 5.0]])
    found = bridge(np.array([True, False, False, True]), points)
    assert found is not None
    assert found.left.tolist() == found.right.tolist() == [0, 0, 0, 3]
    assert anchors_of([found, None]).tolist() == [0]
    assert bridge(np.zeros(4, bool), points) is None
    assert neighbours(points, points, 1.2).tolist() == [3, 2, 2, 1]
