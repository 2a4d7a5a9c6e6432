"""What float32 can resolve, and what happens where it cannot."""

from __future__ import annotations

import numpy as np
import numpyro.distributions as dist
import pytest
from shard_models import Rows, logistic_model, logistic_rows, mean_model, sample

from consilience.model.model import Model


def naive_poisson(params, rows):
    """Loses its digits: y eta - exp(eta) is 10^7 where differences of 1 matter."""
    eta = params["a"] + 0.0 * rows["y"]
    return rows["y"] * eta - jax_exp(eta)


def jax_exp(eta):
    import jax.numpy as jnp

    return jnp.exp(eta)


@pytest.mark.parametrize("num_rows", [20_000, pytest.param(200_000, marks=pytest.mark.long)])
def test_many_rows_in_float32_are_those_of_float64(num_rows):
    rows = logistic_rows(num_rows, 4)
    single, double = (
        sample(logistic_model(4), rows, weight=0.05, draws=600, precision=precision)
        for precision in ("float32", "float64")
    )
    assert abs(single.record["acceptance"] - double.record["acceptance"]) < 0.1
    assert single.record["at_mode"]
    sd = double.draws.std(axis=0)
    error = np.sqrt(2 / 300)
    np.testing.assert_allclose(single.draws.std(axis=0) / sd, 1, atol=4 * error)
    np.testing.assert_allclose(
        (single.draws.mean(axis=0) - double.draws.mean(axis=0)) / sd, 0, atol=4 * error
    )


@pytest.mark.long
def test_a_million_rows_in_float32():
    rows = logistic_rows(1_000_000, 8)
    x = rows.columns["x"].astype(float)
    result = sample(logistic_model(8), rows, weight=0.1, draws=600)
    mean = result.draws.mean(axis=0)
    p = 1 / (1 + np.exp(-x @ mean))
    precision = 10 * (x.T * (p * (1 - p))) @ x
    assert result.record["acceptance"] > 0.65
    assert result.record["status"] == "converged"
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    np.testing.assert_allclose(result.draws.std(axis=0) / sd, 1, atol=4 * np.sqrt(1 / 300))


def test_where_float32_cannot_resolve_the_rows_the_shard_is_sampled_in_float64():
    y = np.random.default_rng(0).poisson(1e6, size=200).astype(float)
    result = sample(Model({"a": dist.Normal(14, 1.0)}, naive_poisson), Rows(y=y), draws=400)
    assert result.record["precision"] == "float64"
    assert any("float32 rounds the log density" in note for note in result.record["notes"])
    assert result.record["status"] == "converged"
    sd = y.sum() ** -0.5
    assert abs(result.draws.std() / sd - 1) < 4 / np.sqrt(2 * result.record["ess_tail"])
    assert abs(result.draws.mean() - np.log(y.mean())) < 4 * sd / np.sqrt(result.record["ess_bulk"])


def test_double_precision_leaves_no_trace():
    import jax
    import jax.numpy as jnp

    sample(mean_model(), Rows(y=np.arange(4.0)), precision="float64")
    assert not jax.config.jax_enable_x64
    assert jnp.zeros(1).dtype == jnp.float32
