"""Calibration lands on the truth, leaves exact draws alone, and its guards are needed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpyro.distributions as dist
import pytest
from refinement_targets import (
    Bimodal,
    Gaussian,
    exponential,
    from_prior,
    importance_truth,
    logistic_model,
    mahalanobis,
    merged,
    pass_back_of,
    rare_features,
)

from consilience.errors import InputError
from consilience.model.model import Model
from consilience.refine import calibrate, fallbacks, stein
from consilience.refine.calibrate import Calibrate
from consilience.refine.evidence import Gain
from consilience.refine.stein import fit_scores
from consilience.refine.steps import propose

NUMBER = 4000


def floor(dimension: int, number: int = NUMBER) -> float:
    """Expected Mahalanobis distance of two sets of exact draws."""
    return float(np.sqrt(2 * dimension / number))


def spectrum(draws: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    found = np.atleast_2d(np.cov(draws, rowvar=False))
    return np.linalg.eigvals(np.linalg.solve(covariance, found)).real


@pytest.mark.parametrize("dimension", [1, 5, 28])
@pytest.mark.parametrize(("scale", "shift"), [(1.5, 3.0), (1 / 3, 3.0), (1.0, 12.0)])
def test_gaussian_starts_land_on_the_truth(dimension: int, scale: float, shift: float) -> None:
    target = Gaussian.of(dimension)
    rng = np.random.default_rng(dimension)
    off = np.linalg.cholesky(target.covariance)[:, 0] * shift
    start = target.mean + scale * (target.draws(NUMBER, rng) - target.mean) + off
    found = Calibrate().refine(start, None, target.pass_back())
    assert target.mahalanobis(found.array) < floor(dimension) / 3
    assert np.all(np.abs(spectrum(found.array, target.covariance) - 1) < 0.1)
    assert not found.warnings
    assert found.record["cost"]["full_data_gradients"] < 750


def test_the_oracle_rejects_a_map_with_the_wrong_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    target = Gaussian.of(3)
    start = target.draws(NUMBER, np.random.default_rng(0)) + np.sqrt(np.diagonal(target.covariance))

    def backwards(*arguments: Any) -> Any:
        step = propose(*arguments)
        return replace(step, shift=-step.shift)

    for module in (calibrate, fallbacks):
        monkeypatch.setattr(module, "propose", backwards)
    guarded = Calibrate().refine(start, None, target.pass_back())
    np.testing.assert_array_equal(guarded.array, start)
    assert "no step raised the evidence bound" in guarded.warnings[0]
    monkeypatch.setattr(calibrate, "evidence_gain", lambda *_: Gain(1.0, 0.0))
    unguarded = Calibrate(max_rounds=2).refine(start, None, target.pass_back())
    assert target.mahalanobis(unguarded.array) > 2 * target.mahalanobis(start)


def test_scores_without_information_keep_the_covariance(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    z, noise = rng.normal(size=(24, 10)), rng.normal(size=(24, 10))
    assert np.linalg.norm(fit_scores(z, noise - z).slope) < 0.5
    monkeypatch.setattr(stein, "RIDGES", np.array([0.0]))
    assert np.linalg.norm(fit_scores(z, noise - z).slope) > 1.5, "without the ridge this would have passed"


def test_exact_draws_stay_exact() -> None:
    """Skewed, heavy-tailed and bimodal posteriors: what calibration does to exact draws is within their own noise."""
    rng = np.random.default_rng(2)
    counts = np.ones(5, np.float32)
    skewed = pass_back_of(Model({"rate": dist.Gamma(1.0, 1.0)}, exponential), {"y": counts}, 2)
    heavy = from_prior({"t": dist.StudentT(3.0, 0.0, 1.0).expand([2]).to_event(1)})
    cases = {
        "skewed": (skewed, lambda n: np.log(rng.gamma(6.0, 1 / 6.0, size=(n, 1)))),
        "heavy": (heavy, lambda n: rng.standard_t(3, size=(n, 2))),
        "bimodal": (Bimodal.pass_back(), lambda n: Bimodal.draws(n, rng)),
    }
    for name, (pass_back, sample) in cases.items():
        reference = sample(200_000)
        mean, covariance = reference.mean(axis=0), np.atleast_2d(np.cov(reference, rowvar=False))
        for seed in range(4):
            exact = sample(NUMBER)
            found = Calibrate().refine(exact, None, pass_back, seed=seed)
            before, after = (mahalanobis(x, mean, covariance) for x in (exact, found.array))
            # Three standard errors of a mean of exact draws, or what they came with.
            limit = max(before, 3 * np.sqrt(len(mean) / NUMBER))
            assert after <= limit, (name, seed, before, after)
            middle = [np.quantile(x, [0.16, 0.84], axis=0) for x in (found.array, reference)]
            width = (middle[0][1] - middle[0][0]) / (middle[1][1] - middle[1][0])
            assert np.all(np.abs(np.log(width)) < 0.12), (name, seed, width)


def test_a_skewed_posterior_is_reached_from_a_displaced_start() -> None:
    rng = np.random.default_rng(0)
    pass_back = pass_back_of(
        Model({"rate": dist.Gamma(1.0, 1.0)}, exponential), {"y": np.ones(5, np.float32)}, 2
    )
    exact = np.log(rng.gamma(6.0, 1 / 6.0, size=(200_000, 1)))
    start = 1.5 * exact[:NUMBER] + 1.0
    found = Calibrate().refine(start, None, pass_back)
    mean, covariance = exact.mean(axis=0), np.atleast_2d(np.cov(exact, rowvar=False))
    assert mahalanobis(start, mean, covariance) > 1.5
    assert mahalanobis(found.array, mean, covariance) < 0.12


def test_flat_directions_are_left_alone() -> None:
    def half(params: dict[str, Any], rows: dict[str, Any]) -> Any:
        return -0.5 * (rows["y"] - params["a"][0]) ** 2

    rng = np.random.default_rng(0)
    model = Model({"a": dist.Normal(0, 1e6).expand([2]).to_event(1)}, half)
    y = rng.normal(size=100).astype(np.float32)
    start = rng.normal(size=(NUMBER, 2)) * [0.1, 20.0] + [0.2 + y.mean(), 5.0]
    found = Calibrate().refine(start, None, pass_back_of(model, {"y": y}, 2))
    assert abs(found.array[:, 0].mean() - y.mean()) < 0.01
    assert 15 < found.array[:, 1].std() < 25
    assert any(entry.get("flat") for entry in found.record["history"])


def test_too_few_points_are_refused() -> None:
    target = Gaussian.of(5)
    with pytest.raises(InputError, match=r"at least 2 d = 10. Got 4"):
        Calibrate(points=4).refine(target.draws(100, np.random.default_rng(0)), None, target.pass_back())


def test_scores_with_nan_return_the_input_and_say_so() -> None:
    def root(params: dict[str, Any], rows: dict[str, Any]) -> Any:
        import jax.numpy as jnp

        return jnp.sqrt(params["a"]) + 0.0 * rows["y"]

    pass_back = pass_back_of(
        Model({"a": dist.Normal(1, 1)}, root), {"y": np.zeros(30, np.float32)}, reference_point=[1.0]
    )
    start = np.random.default_rng(0).normal(size=(500, 1))
    found = Calibrate().refine(start, None, pass_back)
    np.testing.assert_array_equal(found.array, start)
    assert "NaN or infinite" in found.warnings[0]


def test_weighted_draws() -> None:
    target = Gaussian.of(3)
    rng = np.random.default_rng(0)
    wide = target.mean + 1.4 * (target.draws(NUMBER, rng) - target.mean)
    off = wide - target.mean
    squares = np.einsum("ni,ij,nj->n", off, np.linalg.inv(target.covariance), off)
    weights = -0.5 * squares * (1 - 1 / 1.4**2)
    shifted = wide + 2 * np.sqrt(np.diagonal(target.covariance))
    found = Calibrate().refine(shifted, weights, target.pass_back())
    mean = np.exp(weights - weights.max()) @ found.array / np.exp(weights - weights.max()).sum()
    assert mahalanobis(np.stack([mean, mean]), target.mean, target.covariance) < floor(3) / 3


def test_rare_features_from_a_badly_combined_start() -> None:
    """The case of the SwISS paper: N = 100,000, B = 25, Mahalanobis 1.8 after SwISS."""
    rng = np.random.default_rng(0)
    rows = rare_features(rng)
    exact = pass_back_of(logistic_model(5), merged(rows), 1, precision="float64")
    mean, covariance = importance_truth(exact, 20_000, rng)
    root = np.linalg.cholesky(covariance)
    start = mean + rng.normal(size=(NUMBER, 5)) @ root.T * 1.1 + root @ np.array([0.5, -1.0, 0.7, 0.2, 1.2])
    found = Calibrate().refine(start, None, pass_back_of(logistic_model(5), rows, 25, even=True))
    assert mahalanobis(start, mean, covariance) > 1.5
    assert mahalanobis(found.array, mean, covariance) < floor(5)
    assert found.record["cost"]["full_data_gradients"] < 500
