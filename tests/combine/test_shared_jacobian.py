"""Bounded parameters of sub-posteriors: their product has one Jacobian, not one of every shard."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import digamma, polygamma

from consilience.combine import combine
from consilience.combine.inputs import gather

SHARDS, DRAWS = 10, 8_000
SHAPES = np.linspace(25.0, 35.0, SHARDS)
# The product of Gamma(a_b, r) densities is Gamma(sum a_b - B + 1, B r).
SHAPE, RATE = SHAPES.sum() - SHARDS + 1, 10.0 * SHARDS
MEAN, SD = SHAPE / RATE, np.sqrt(SHAPE) / RATE


def gamma_draws(seed: int, shards: int = SHARDS) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.gamma(a, 0.1, size=(DRAWS, 1)) for a in SHAPES[:shards]]


def gaussian_answer(shapes: np.ndarray) -> float:
    """Where Gaussians with the moments of log-gammas have their product, in logarithms."""
    means, variances = digamma(shapes) + np.log(0.1), polygamma(1, shapes)
    return float(np.sum(means / variances) / np.sum(1.0 / variances))


@pytest.mark.parametrize("method", ["consensus", "gaussian-product"])
def test_gaussian_rules_see_the_moments_with_one_jacobian(method: str) -> None:
    """J^(w - 1) turns the logarithm of Gamma(a) into that of Gamma(a + w - 1)."""
    right, wrong = gaussian_answer(SHAPES + 1 / SHARDS - 1), gaussian_answer(SHAPES)
    found = [
        combine(
            draws, method=method, kind="subposterior", names=["s"], supports={"s": "positive"}
        ).coordinates.mean()
        for draws in map(gamma_draws, range(4))
    ]
    error = max(float(np.std(found, ddof=1)) / 2, 0.1 / np.sqrt(SHAPE))
    assert abs(np.mean(found) - right) < 4 * error
    assert abs(wrong - right) > 8 * error / 2


@pytest.mark.parametrize("method", ["weierstrass", "semiparametric-product"])
def test_the_product_of_gamma_densities(method: str) -> None:
    """Rules that multiply densities are right in deviations of the posterior; without it they are half of one off."""
    off, naive = [], []
    for seed in range(4):
        draws = gamma_draws(seed)
        found = combine(draws, method=method, kind="subposterior", names=["s"], supports={"s": "positive"})
        off.append((found.mean()[0] - MEAN) / SD)
        wrong = combine([np.log(x) for x in draws], method=method, kind="subposterior")
        naive.append((np.exp(wrong.array[:, 0]).mean() - MEAN) / SD)
    error = max(np.std(off, ddof=1) / 2, 0.02)  # and smoothing by kernels adds a little
    assert abs(np.mean(off)) < 4 * error + 0.08
    # B - 1 Jacobians too many: (B - 1) / sqrt(sum a_b) deviations.
    assert np.mean(naive) == pytest.approx((SHARDS - 1) / np.sqrt(SHAPE), abs=4 * error + 0.08)
    assert np.mean(naive) > 0.4


def test_inflated_draws_are_left_alone() -> None:
    draws = gamma_draws(0)
    found = gather(draws, kind="inflated", names=["s"], supports={"s": "positive"}).subposteriors
    np.testing.assert_allclose(found.draws[3][:, 0], np.log(draws[3][:, 0]))


def test_one_shard_keeps_its_own_law() -> None:
    draws = gamma_draws(0, shards=1)
    found = gather(draws, kind="subposterior", names=["s"], supports={"s": "positive"})
    np.testing.assert_allclose(found.subposteriors.draws[0][:, 0], np.log(draws[0][:, 0]))
    assert not any("Jacobian" in note for note in found.notes)


def test_chains_densities_and_weights() -> None:
    rng = np.random.default_rng(3)
    logs = [rng.normal(0.0, 0.4, size=(3, 1_000)) for _ in range(2)]
    draws = [np.exp(x)[:, :, None] for x in logs]
    found = gather(draws, kind="subposterior", names=["s"], weights=[3, 1], supports={"s": "positive"})
    assert found.subposteriors.chain_lengths == ((1_000,) * 3,) * 2
    # A log-normal tilted by J^(w - 1) = exp((w - 1) u) moves by (w - 1) times its variance.
    for x, weight in zip(found.subposteriors.draws, (0.75, 0.25), strict=True):
        assert x.mean() == pytest.approx((weight - 1) * 0.16, abs=4 * 0.4 / np.sqrt(3_000))
    assert "Jacobian" in " ".join(found.notes)


def test_a_shard_that_knows_next_to_nothing_is_named() -> None:
    rng = np.random.default_rng(4)
    draws = [np.exp(rng.normal(0.0, 2.0, size=(2_000, 1))) for _ in range(2)]
    found = gather(draws, kind="subposterior", names=["s"], supports={"s": "positive"})
    assert "Shards 0, 1 know a bounded parameter so badly" in " ".join(found.warnings)
