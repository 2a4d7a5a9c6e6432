"""Stein weights make mean and covariance exact where the posterior is Gaussian, and say so where none exist."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpyro.distributions as dist
import pytest
from refinement_targets import Gaussian, from_prior, pass_back_of

from consilience.model.model import Model
from consilience.numerics import weighted_covariance, weighted_mean
from consilience.refine import stein_weights
from consilience.refine.reweight import Reweight
from consilience.refine.stein_weights import identities, least_variance_weights


def off(target: Gaussian, rng: np.random.Generator) -> np.ndarray:
    """Draws half a standard deviation away, and 1.3 times as wide."""
    exact = target.draws(4000, rng)
    return target.mean + 1.3 * (exact - target.mean) + 0.5 * np.linalg.cholesky(target.covariance)[:, 0]


def relative_errors(
    target: Gaussian, draws: np.ndarray, log_weights: np.ndarray | None
) -> tuple[float, float]:
    root = np.linalg.inv(np.linalg.cholesky(target.covariance))
    mean = root @ (weighted_mean(draws, log_weights) - target.mean)
    # The identities hold for the second moment about the true mean, with weights that sum to 1.
    share = np.exp(log_weights) if log_weights is not None else np.full(len(draws), 1 / len(draws))
    z = (draws - weighted_mean(draws, log_weights)) @ root.T
    return float(np.linalg.norm(mean)), float(np.linalg.norm((z * share[:, None]).T @ z - np.eye(len(mean))))


def test_mean_and_covariance_of_a_gaussian_are_exact() -> None:
    target = Gaussian.of(3)
    start = off(target, np.random.default_rng(0))
    back = target.pass_back(precision="float64")
    found = Reweight(weights="stein").refine(start, None, back)
    assert found.log_weights is not None
    assert max(relative_errors(target, found.array, found.log_weights)) < 1e-4
    assert min(relative_errors(target, start, None)) > 0.4
    assert back.ledger.full_data_gradients < 260
    assert found.record["effective_draws"] > 50


def test_linear_functions_alone_are_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    target = Gaussian.of(3)
    start = off(target, np.random.default_rng(0))
    monkeypatch.setattr(stein_weights, "identities", lambda z, h: identities(z, h)[:, : 1 + z.shape[1]])
    found = Reweight(weights="stein").refine(start, None, target.pass_back(precision="float64"))
    mean, covariance = relative_errors(target, found.array, found.log_weights)
    assert mean < 1e-4
    assert covariance > 0.3


def test_least_variance_among_nonnegative_weights() -> None:
    """Against a general solver of the same programme."""
    from scipy.optimize import minimize

    rng = np.random.default_rng(0)
    z = rng.normal(size=(40, 1)) + 0.4
    psi = identities(z, -z)
    found = least_variance_weights(psi)
    assert found is not None
    assert found.min() >= 0
    np.testing.assert_allclose(found @ psi, [1.0, 0.0, 0.0], atol=1e-5)
    constraint: Any = {"type": "eq", "fun": lambda w: psi.T @ w - [1, 0, 0], "jac": lambda w: psi.T}
    other = minimize(
        lambda w: w @ w,
        np.full(40, 1 / 40),
        jac=lambda w: 2 * w,
        bounds=[(0, None)] * 40,
        constraints=[constraint],
        options={"maxiter": 500},
    )
    assert other.success
    assert found @ found <= other.fun * (1 + 1e-4)


def test_draws_to_one_side_are_left_alone_and_flagged() -> None:
    target = Gaussian.of(2)
    start = target.draws(2000, np.random.default_rng(0)) + 8 * np.sqrt(np.diagonal(target.covariance))
    found = Reweight(weights="stein").refine(start, None, target.pass_back())
    np.testing.assert_array_equal(found.array, start)
    assert "no nonnegative weights" in found.warnings[0]


def test_exact_draws_are_left_alone() -> None:
    """Of 40 sets of exact draws, Gaussian and skewed, none is reweighted: one in a thousand would be."""
    rng = np.random.default_rng(0)
    target, back = Gaussian.of(2), Gaussian.of(2).pass_back()
    skewed = from_prior({"t": dist.Gumbel(0.0, 1.0)})
    for seed in range(20):
        gaussian = Reweight(weights="stein").refine(target.draws(4000, rng), None, back, seed=seed)
        gumbel = Reweight(weights="stein").refine(rng.gumbel(size=(4000, 1)), None, skewed, seed=seed)
        assert not gaussian.record["kept"]
        assert not gumbel.record["kept"]


def test_a_skewed_posterior_gets_its_mean_from_few_draws() -> None:
    """Weights do better than their number: the error of the mean is that of a control variate."""
    rng = np.random.default_rng(1)
    back = from_prior({"t": dist.Gumbel(0.0, 1.0)})
    start = 1.2 * rng.gumbel(size=(4000, 1)) + 0.7
    found = Reweight(weights="stein", points=1000).refine(start, None, back)
    spread = np.pi / np.sqrt(6.0)
    assert abs(float(weighted_mean(found.array, found.log_weights)[0]) - np.euler_gamma) < 0.15 * spread
    assert abs(float(start.mean()) - np.euler_gamma) > 0.6 * spread
    deviation = float(np.sqrt(weighted_covariance(found.array, found.log_weights)[0, 0]))
    assert abs(deviation / spread - 1) < 0.1


def test_scores_that_are_not_finite_change_nothing() -> None:
    def root(params: dict[str, Any], rows: dict[str, Any]) -> Any:
        import jax.numpy as jnp

        return jnp.sqrt(params["a"]) + 0.0 * rows["y"]

    back = pass_back_of(
        Model({"a": dist.Normal(1, 1)}, root), {"y": np.zeros(30, np.float32)}, reference_point=[1.0]
    )
    start = np.random.default_rng(0).normal(size=(500, 1))
    found = Reweight(weights="stein").refine(start, None, back)
    np.testing.assert_array_equal(found.array, start)
    assert "NaN or infinite" in found.warnings[0]
