"""The mode is found, and the draws' offset between mean and mode is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpyro.distributions as dist
from refinement_targets import Gaussian, exponential, logistic_model, pass_back_of, rare_features

from consilience.model.model import Model
from consilience.refine.newton import Newton, find_mode


def test_gaussian_draws_are_recentred_and_keep_their_covariance() -> None:
    target = Gaussian.of(4)
    start = target.draws(4000, np.random.default_rng(0)) + 5 * np.sqrt(np.diagonal(target.covariance))
    found = Newton().refine(start, None, target.pass_back())
    # What is left is the noise of the draws' own offset, E[z |z|^2] / 2, of variance (d + 2) / (2 N) each.
    assert target.mahalanobis(found.array) < 2 * np.sqrt(4 * (4 + 2) / (2 * 4000))
    np.testing.assert_allclose(np.cov(found.array, rowvar=False), np.cov(start, rowvar=False))


def test_skewed_draws_keep_the_offset_of_their_mean() -> None:
    """log-gamma: mean and mode differ by 0.2 sd, which a plain recentring would take for an error."""
    rng = np.random.default_rng(0)
    pass_back = pass_back_of(
        Model({"rate": dist.Gamma(1.0, 1.0)}, exponential), {"y": np.ones(5, np.float32)}, 2
    )
    exact = np.log(rng.gamma(6.0, 1 / 6.0, size=(20_000, 1)))
    scale = float(exact.std())
    moved = Newton().refine(exact + 2.0, None, pass_back).array
    assert abs(float(moved.mean() - exact.mean())) / scale < 0.06
    assert abs(0.0 - float(exact.mean())) / scale > 0.15, "the mode would have passed for the mean: no test"


def test_search_survives_a_bad_start() -> None:
    pass_back = pass_back_of(logistic_model(5), rare_features(np.random.default_rng(0), 20_000), 4, even=True)
    peaks = [find_mode(pass_back, start, 40) for start in (np.zeros(5), np.full(5, 8.0), np.full(5, -8.0))]
    assert all(peak.found for peak in peaks)
    for peak in peaks[1:]:
        off = peak.point - peaks[0].point
        assert off @ peaks[0].hessian @ off < 1e-2


def test_no_mode_leaves_the_draws_and_says_so() -> None:
    def slope(params: dict[str, Any], rows: dict[str, Any]) -> Any:
        return params["a"] + 0.0 * rows["y"]

    model = Model({"a": dist.ImproperUniform(dist.constraints.real, (), ())}, slope)
    start = np.random.default_rng(0).normal(size=(500, 1))
    found = Newton(max_steps=3).refine(start, None, pass_back_of(model, {"y": np.zeros(50, np.float32)}, 2))
    np.testing.assert_array_equal(found.array, start)
    assert found.warnings
