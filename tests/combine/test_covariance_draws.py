"""How many draws a covariance is worth: against the error that covariances of such draws really have."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.combine.covariance_draws import covariance_draws
from consilience.combine.moments import shard_moments
from consilience.draws import Subposteriors


def autoregression(number: int, d: int, rho: float, rng: np.random.Generator) -> np.ndarray:
    noise = rng.normal(size=(number, d))
    x = noise.copy()
    for t in range(1, number):
        x[t] = rho * x[t - 1] + np.sqrt(1 - rho**2) * noise[t]
    return x


def found_and_true(number: int, d: int, rho: float, repeats: int) -> tuple[np.ndarray, float]:
    """What is found, and n from the mean square error of the covariances about the known truth."""
    rng = np.random.default_rng([number, d, repeats])
    found, squares = [], []
    for _ in range(repeats):
        x = autoregression(number, d, rho, rng)
        centred = x - x.mean(axis=0)
        covariance = centred.T @ centred / (number - 1)
        found.append(covariance_draws(centred, (number,), np.linalg.inv(covariance)))
        squares.append(np.sum((covariance - np.eye(d)) ** 2))
    return np.array(found), (d * d + d) / float(np.mean(squares))


@pytest.mark.parametrize("rho", [0.0, 0.7, -0.7])
@pytest.mark.parametrize(("number", "d"), [(400, 20), (2_000, 5)])
def test_covariances_err_as_those_of_so_many_draws(number: int, d: int, rho: float) -> None:
    found, truth = found_and_true(number, d, rho, repeats=60)
    # The truth's own Monte Carlo error is about 1 / sqrt(30 d); the method claims to be right within 10 %.
    assert np.mean(found) == pytest.approx(truth, rel=0.1 + 3 / np.sqrt(30 * d))
    # The draws that the mean is worth are another number, and would be the wrong one here.
    of_mean = number * (1 - rho) / (1 + rho)
    if rho:
        assert abs(of_mean / truth - 1) > 2 * (0.1 + 3 / np.sqrt(30 * d)) / 1.5


def test_independent_draws_count_in_full() -> None:
    found, _ = found_and_true(500, 3, 0.0, repeats=200)
    assert np.mean(found == 500) > 0.97


def test_coordinates_do_not_matter() -> None:
    x = autoregression(1_000, 3, 0.8, np.random.default_rng(1))
    turned = x @ np.array([[1.0, 50.0, 0.0], [0.0, 1e-3, 2.0], [1.0, 0.0, 1.0]]) + 1e3
    one, two = (
        shard_moments(Subposteriors.of([y], kind="inflated")).covariance_draws[0] for y in (x, turned)
    )
    assert one == pytest.approx(two, rel=1e-6)


def test_heavy_tails_count_for_less() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(4_000, 10)) / np.sqrt(rng.chisquare(6, size=(4_000, 1)) / 6)
    centred = x - x.mean(axis=0)
    # Squares of t_6 have twice the variance of a Gaussian's.
    assert 1_400 < covariance_draws(centred, (4_000,), np.linalg.inv(np.cov(x.T))) < 3_000
