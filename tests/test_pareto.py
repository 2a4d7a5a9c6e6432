"""Pareto smoothing against ArviZ, and against a distribution whose shape is known."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.errors import InputError
from consilience.pareto import (
    effective_draws,
    fit_generalised_pareto,
    pareto_shape,
    pareto_smoothed,
    shape_limit,
)


@pytest.mark.parametrize(
    "log_weights",
    [
        np.random.default_rng(0).normal(size=1_000) * 2.0,
        np.random.default_rng(1).normal(size=250) - 1e4,
        -0.5 * np.random.default_rng(2).normal(size=5_000) ** 2,
        0.3 * np.random.default_rng(3).standard_t(3, size=999),
        np.random.default_rng(4).pareto(1.0, size=200),
    ],
    ids=["normal", "far below", "bounded", "heavy", "very heavy"],
)
def test_as_arviz_has_it(log_weights):
    arviz = pytest.importorskip("arviz")
    if not hasattr(arviz, "psislw"):
        pytest.skip("this ArviZ keeps it elsewhere")
    expected, shape = arviz.psislw(log_weights.copy())
    found = pareto_smoothed(log_weights)
    assert found.shape == pytest.approx(float(shape), rel=1e-9)
    np.testing.assert_allclose(found.log_weights, expected, atol=1e-9)


def test_the_shape_of_a_pareto_tail():
    # Weights U^(-k) have a Pareto tail of shape k; the fit to 3 sqrt(S) of them is within (1 + k) / sqrt(3 sqrt(S)).
    uniform = np.random.default_rng(0).uniform(size=200_000)
    for k in (0.2, 0.5, 0.9):
        error = (1.0 + k) / np.sqrt(3.0 * np.sqrt(len(uniform)))
        assert abs(pareto_shape(-k * np.log(uniform)) - k) < 4.5 * error
        assert abs(pareto_shape(-(k + 0.6) * np.log(uniform)) - k) > 4.5 * error


def test_smoothing_keeps_order_and_truncates():
    log_weights = np.random.default_rng(5).pareto(1.0, size=400)
    smoothed = pareto_smoothed(log_weights).log_weights
    order = np.argsort(log_weights)
    assert np.all(np.diff(smoothed[order]) >= -1e-12)
    assert np.exp(smoothed).sum() == pytest.approx(1.0)
    assert effective_draws(smoothed) >= effective_draws(log_weights)


def test_equal_weights_and_weights_of_nothing():
    assert pareto_shape(np.zeros(500)) == -np.inf
    assert effective_draws(np.full(500, -1e5)) == pytest.approx(500.0)
    some = np.full(500, -np.inf)
    some[:3] = 0.0
    assert pareto_shape(some) == np.inf
    for bad in ([], [np.nan, 0.0], [-np.inf, -np.inf], [np.inf, 0.0], [[0.0]]):
        with pytest.raises(InputError, match="`log_weights`"):
            pareto_smoothed(bad)


def test_limit_and_fit_of_an_exponential():
    assert shape_limit(100) == pytest.approx(0.5)
    assert shape_limit(10_000) == 0.7
    shape, scale = fit_generalised_pareto(np.sort(np.random.default_rng(0).exponential(2.0, size=20_000)))
    assert abs(shape) < 4.5 / np.sqrt(20_000)
    assert scale == pytest.approx(2.0, rel=4.5 * np.sqrt(2 / 20_000))
