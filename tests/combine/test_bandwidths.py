"""Bandwidths against their own formulas without a grid, and against what they are known to do."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq

from consilience.combine.bandwidths import sheather_jones, silverman, spread


def plain_sheather_jones(x):
    """The solve-the-equation rule over all pairs, as in R's bw.SJ."""
    n = len(x)
    apart = x[:, None] - x

    def functional(width, order):
        delta = (apart / width) ** 2
        polynomial = delta**2 - 6 * delta + 3 if order == 4 else delta**3 - 15 * delta**2 + 45 * delta - 15
        total = np.sum(np.exp(-delta / 2) * polynomial)
        return total / (n * (n - 1) * width ** (order + 1) * np.sqrt(2 * np.pi))

    scale = spread(x)
    ratio = functional(1.24 * scale * n ** (-1 / 7), 4) / -functional(1.23 * scale * n ** (-1 / 9), 6)
    pilot = 1.357 * ratio ** (1 / 7)

    def gap(h):
        return (1 / (2 * np.sqrt(np.pi) * n * functional(pilot * h ** (5 / 7), 4))) ** 0.2 - h

    largest = 1.144 * scale * n**-0.2
    return brentq(gap, 0.02 * largest, 3.0 * largest)


SAMPLES = {
    "normal": lambda rng, n: rng.normal(size=n),
    "skewed": lambda rng, n: rng.gamma(1.5, size=n),
    "two modes": lambda rng, n: rng.normal(6.0 * rng.integers(2, size=n), 1.0),
}


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("number", [60, 1_200])
def test_the_grid_changes_nothing(sample, number):
    x = SAMPLES[sample](np.random.default_rng(0), number)
    assert sheather_jones(x) == pytest.approx(plain_sheather_jones(x), rel=5e-3)


def test_without_the_factor_of_pairs_the_answer_is_another():
    """Counting each pair once is the slip that the comparison above must reject."""
    x = np.random.default_rng(0).normal(size=1_200)
    assert abs(2**-0.2 * sheather_jones(x) / plain_sheather_jones(x) - 1.0) > 0.1


def test_near_the_best_for_a_normal_distribution():
    # The asymptotically best bandwidth of a normal sample is (4 / 3)^(1/5) n^(-1/5); the rule's own relative
    # error is about n^(-5/14).
    n = 50_000
    x = np.random.default_rng(1).normal(size=n)
    assert sheather_jones(x) == pytest.approx((4 / 3) ** 0.2 * n**-0.2, rel=5 * n ** (-5 / 14))


@pytest.mark.parametrize("rule", [sheather_jones, silverman])
def test_scale_shift_and_effective_draws(rule):
    x = np.random.default_rng(2).gamma(3.0, size=2_000)
    assert rule(1e6 + 1e-3 * x) == pytest.approx(1e-3 * rule(x), rel=1e-3)
    assert rule(x, 200.0) == pytest.approx(10**0.2 * rule(x), rel=1e-9)


def test_ties_and_far_outliers_have_a_bandwidth():
    ties = np.repeat([0.0, 1.0, 2.0, 5.0], 50)
    assert 0.0 < sheather_jones(ties) < 2.0
    cauchy = np.random.default_rng(0).standard_t(1, size=5_000)
    assert 0.01 < sheather_jones(cauchy) < 1.0
    assert 0.0 < sheather_jones(np.concatenate([np.zeros(150), np.arange(50.0)])) < 50.0


def test_silverman_in_several_dimensions():
    x = np.random.default_rng(0).normal(size=(1_000, 2))
    assert silverman(x) == pytest.approx(1_000 ** (-1 / 6))
