"""Effective draws, the corrections for few draws, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.combine import combine
from consilience.combine.moments import gaussian_product, shard_moments
from consilience.draws import Subposteriors
from consilience.errors import ConsilienceWarning, DrawsError


def autoregressive(rho: float, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Chains of unit variance along the second last axis, of autocorrelation time (1 + rho) / (1 - rho)."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=shape) * np.sqrt(1 - rho**2)
    out = np.empty(shape)
    out[..., 0, :] = rng.normal(size=(*shape[:-2], shape[-1]))
    for t in range(1, shape[-2]):
        out[..., t, :] = rho * out[..., t - 1, :] + noise[..., t, :]
    return out


def test_independent_draws_count_in_full():
    draws = np.random.default_rng(0).normal(size=(20, 2_000, 3))
    moments = shard_moments(Subposteriors.of(draws, kind="inflated"))
    assert np.count_nonzero(moments.effective_draws == 2_000) >= 19


@pytest.mark.parametrize("rho", [0.5, 0.9])
@pytest.mark.parametrize("shape", [(10, 5_000, 3), (10, 4, 1_250, 3)])
def test_correlated_draws_count_for_less(rho, shape):
    moments = shard_moments(Subposteriors.of(autoregressive(rho, shape), kind="inflated"))
    expected = 5_000 * (1 - rho) / (1 + rho)
    assert np.median(moments.effective_draws) == pytest.approx(expected, rel=0.25)
    errors = np.mean(np.diagonal(moments.mean_errors, axis1=1, axis2=2))
    assert errors == pytest.approx(1 / expected, rel=0.25)


def test_effective_draws_do_not_depend_on_coordinates():
    draws = autoregressive(0.7, (3, 1_000, 2))
    first = shard_moments(Subposteriors.of(draws, kind="inflated"))
    turned = draws @ np.array([[1.0, 50.0], [0.0, 1e-3]]) + 1e3
    second = shard_moments(Subposteriors.of(turned, kind="inflated"))
    np.testing.assert_allclose(second.effective_draws, first.effective_draws, rtol=1e-6)


def test_chains_of_unequal_length():
    chains = autoregressive(0.5, (1, 5_000, 1))[0]
    shards = Subposteriors.of([chains], kind="inflated", chain_lengths=[(700, 1_300, 3_000)])
    assert shard_moments(shards).effective_draws[0] == pytest.approx(5_000 / 3, rel=0.3)


def test_few_draws_give_the_right_width_where_the_plain_formula_is_too_narrow():
    d, n, num_shards = 10, 40, 10
    rng = np.random.default_rng(3)
    factors = np.eye(d) + 0.3 * np.tril(rng.normal(size=(num_shards, d, d)))
    covariances = factors @ np.swapaxes(factors, 1, 2)
    truth = np.linalg.inv(np.linalg.inv(covariances).mean(axis=0))
    ratios, plain = [], []
    for _ in range(60):
        draws = rng.normal(size=(num_shards, n, d)) @ np.swapaxes(factors, 1, 2)
        moments = shard_moments(Subposteriors.of(draws, kind="inflated"))
        product = gaussian_product(moments, np.full(num_shards, 1 / num_shards))
        naive = np.linalg.inv(np.linalg.inv(moments.covariances).mean(axis=0))
        ratios.append(np.trace(np.linalg.solve(truth, product.covariance)) / d)
        plain.append(np.trace(np.linalg.solve(truth, naive)) / d)
    error = np.std(ratios, ddof=1) / np.sqrt(len(ratios))
    assert abs(np.mean(ratios) - 1.0) < 4.5 * error + 0.01  # corrected to second order in d / n
    assert np.mean(plain) < 0.85


def test_few_draws_warn_with_the_shortfall():
    draws = np.random.default_rng(0).normal(size=(3, 60, 20))
    with pytest.warns(ConsilienceWarning, match="3 of 3 shards have fewer than 100 effective draws"):
        posterior = combine(draws, method="swiss", kind="inflated")
    assert "100" in posterior.info["warnings"][0]
    assert 0.5 < posterior.sd().mean() < 1.5


def test_correlated_draws_worth_too_few_are_refused():
    draws = autoregressive(0.99, (2, 120, 3))
    with pytest.raises(DrawsError, match=r"more than 7 independent ones.*120 draws worth \d+ in shard"):
        combine(draws, method="consensus", kind="subposterior")


@pytest.mark.parametrize(
    "method", ["swiss", "recentering", "gaussian-barycenter", "gaussian-product", "pool"]
)
def test_chains_too_short_to_show_how_slow_they_are_give_a_warning(method):
    draws = autoregressive(0.99, (2, 300, 3))
    with pytest.warns(ConsilienceWarning, match=r"2 of 2 shards are too short.*300 draws, worth \d at most"):
        combine(draws, method=method, kind="inflated")
    fast = combine(autoregressive(0.5, (2, 5_000, 3)), method=method, kind="inflated")
    assert fast.info["warnings"] == []


def test_parameters_of_very_different_scale():
    scales = np.array([1e-7, 1.0, 1e7])
    draws = np.random.default_rng(0).normal(size=(4, 500, 3))
    plain = combine(draws, method="swiss", kind="inflated")
    scaled = combine(draws * scales + 5.0, method="swiss", kind="inflated")
    assert scaled.info["warnings"] == []
    np.testing.assert_allclose((scaled.array - 5.0)[:, 1:] / scales[1:], plain.array[:, 1:], atol=1e-6)
