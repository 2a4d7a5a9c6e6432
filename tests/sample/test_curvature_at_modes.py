"""A shard says how sharp its mode is, in the coordinates of its draws, and keeps quiet where that means little."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from shard_models import Rows, logistic_model, sample

import consilience as cs
from consilience.model.model import Model

PRIOR_SD, D = 10.0, 3


def linear(params: dict[str, Any], rows: dict[str, Any]) -> Any:
    return -0.5 * (rows["y"] - rows["x"] @ params["beta"]) ** 2


def linear_model() -> Model:
    return cs.Model({"beta": dist.Normal(0, PRIOR_SD).expand([D]).to_event(1)}, linear)


def correlated_rows(num_rows: int, seed: int) -> dict[str, np.ndarray]:
    """Features of unequal scale that depend on each other, so that no transposed root goes unseen."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(num_rows, D)) @ np.array([[1.0, 2.0, -1.0], [0.0, 1.0, 3.0], [0.0, 0.0, 0.3]])
    return {"x": x, "y": x @ np.array([1.0, -1.0, 0.5]) + rng.normal(size=num_rows)}


def exact(x: np.ndarray, weight: float) -> np.ndarray:
    """Covariance of an inflated linear shard."""
    return np.asarray(np.linalg.inv(x.T @ x / weight + np.eye(D) / PRIOR_SD**2))


def error(found: np.ndarray, truth: np.ndarray) -> float:
    """Largest deviation from the identity in the truth's own units."""
    return float(np.abs(np.linalg.solve(truth, found) - np.eye(D)).max())


@pytest.mark.parametrize("engine", [None, "serial"])
def test_a_fit_keeps_the_covariance_of_gaussian_shards(engine: str | None) -> None:
    rows = correlated_rows(900, seed=1)
    site = np.repeat([0, 1, 2], [200, 300, 400])
    fit = cs.fit(
        linear_model(),
        {**rows, "site": site},
        shards="site",
        draws=600,
        refine=None,
        engine=engine,
        progress=False,
    )
    curvatures = fit.subposteriors.curvatures
    assert curvatures is not None
    for b, size in enumerate((200, 300, 400)):
        truth = exact(rows["x"][site == b], size / 900)
        assert error(curvatures[b], truth) < 2e-3
        root = np.linalg.cholesky(truth)
        assert error(root.T @ root, truth) > 0.1  # the factors in the wrong order
        assert error(exact(rows["x"][site == b], 1.0), truth) > 0.1  # the target of another kind


def two_modes(params: dict[str, Any], rows: dict[str, Any]) -> Any:
    mu = params["mu"]
    return jnp.logaddexp(-0.5 * (rows["y"] - mu) ** 2, -0.5 * (rows["y"] + mu) ** 2)


def test_several_modes_have_no_curvature_to_speak_of() -> None:
    rows = Rows(y=np.full(40, 4.0, np.float32))
    found = sample(Model({"mu": dist.Normal(0, 10)}, two_modes), rows)
    assert found.record["modes"] == 2
    assert np.isnan(found.curvature).all()
    regular = sample(
        logistic_model(2), Rows(x=np.eye(2, dtype=np.float32)[[0, 1] * 50], y=np.arange(100) % 3 == 0)
    )
    assert np.isfinite(regular.curvature).all()
