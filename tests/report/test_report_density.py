"""Binned densities against SciPy's exact ones."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import gaussian_kde

from consilience.report.density import binned_densities


def exact(draws: np.ndarray, points: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    lower, upper = np.quantile(draws, [0.25, 0.75])
    bandwidth = 0.9 * min(draws.std(), (upper - lower) / 1.34) * len(draws) ** -0.2
    return gaussian_kde(draws, bw_method=bandwidth / draws.std(ddof=1), weights=weights)(points)


@pytest.mark.parametrize("shape", ["normal", "two modes"])
def test_agrees_with_the_exact_estimate(shape: str) -> None:
    rng = np.random.default_rng(0)
    draws = rng.normal(size=3000) * 2 + 5
    if shape == "two modes":
        draws[::3] += 12
    points = np.linspace(draws.min() + 1.0, draws.max() - 1.0, 60)
    binned = binned_densities(draws[:, None], points[None, :])[0]
    reference = exact(draws, points)
    assert np.abs(binned - reference).max() < 0.01 * reference.max()
    assert np.abs(binned - exact(draws + 0.5, points)).max() > 0.05 * reference.max()


def test_integrates_to_one_up_to_a_boundary() -> None:
    draws = np.random.default_rng(1).exponential(size=20_000)
    points = np.linspace(draws.min(), draws.max(), 4000)
    density = binned_densities(draws[:, None], points[None, :])[0]
    assert abs(np.trapezoid(density, points) - 1.0) < 0.01
    assert density[0] > 0.85  # an estimate that leaks below zero has half of the true 1 there
    assert exact(draws, points[:1])[0] < 0.65


def test_weights_count() -> None:
    rng = np.random.default_rng(2)
    draws = rng.normal(size=(8000, 1))
    weights = np.exp(draws[:, 0])  # tilts a standard normal to mean 1
    weights /= weights.sum()
    points = np.array([[1.0, -1.0]])
    assert binned_densities(draws, points, weights)[0] == pytest.approx([0.399, 0.054], abs=0.03)
    assert binned_densities(draws, points)[0] == pytest.approx([0.242, 0.242], abs=0.02)


def test_constant_and_missing_columns_have_no_density() -> None:
    draws = np.column_stack([np.full(50, 2.0), np.full(50, np.nan), np.linspace(0, 1, 50)])
    density = binned_densities(draws, np.tile([0.2, 0.5], (3, 1)))
    assert np.isnan(density[:2]).all()
    assert np.isfinite(density[2]).all()
