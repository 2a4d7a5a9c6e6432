"""The mode is found, or what is in the way is said."""

from __future__ import annotations

import functools

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from shard_models import Rows, jnp_log_sum, logistic_model, mean_model, sample

from consilience.errors import ShardError
from consilience.model.model import Model
from consilience.model.space import ParameterSpace
from consilience.sample.compiling import Program
from consilience.sample.program import Programs
from consilience.sample.rows import pad_rows
from consilience.sample.search import found, one_search
from consilience.sample.target import ShardData, derivatives, values_at


class From(ParameterSpace):
    """Starts where it is told to."""

    start = np.zeros(1)


def starting_at(model: Model, *start: float) -> Model:
    space = From(model.space.prior)
    space.start = np.array(start)
    model._space = space
    return model


def mode_of(model: Model, **columns: np.ndarray):
    arrays, weight = pad_rows({name: np.asarray(values) for name, values in columns.items()})
    data = ShardData(arrays, weight, np.float32(1), np.float32(1))
    programs = Programs(
        derivatives=Program(functools.partial(derivatives, model), "float32"),
        run=Program(print, "float32"),
        values=Program(functools.partial(values_at, model), "float32"),
    )
    return one_search(programs, data, model.space.start.astype(np.float32))


def poisson_likelihood(params, rows):
    eta = params["a"] + 0.0 * rows["y"]
    # Near the mode, and so that no digits are lost: y eta - exp(eta) up to a constant of the row.
    gap = eta - jnp.log(rows["y"])
    return rows["y"] * (gap - jnp.expm1(gap))


def test_a_gaussian_is_found_with_its_exact_curvature():
    y = np.array([1.0, 2.0, 6.0])
    mode = mode_of(mean_model(), y=y)
    variance = 1 / (3 + 0.01)
    assert abs(float(mode.point[0]) - variance * 9) < 0.04 * variance**0.5
    np.testing.assert_allclose(mode.root @ mode.root.T, variance, rtol=1e-5)
    assert mode.iterations <= 4
    assert not mode.flat


@pytest.mark.parametrize("start", [50.0, -1e4, 1e6])
def test_a_start_far_away_is_no_obstacle(start):
    mode = mode_of(starting_at(mean_model(), start), y=np.array([1.0, 2.0, 6.0]))
    assert mode.decrement < 1e-3
    np.testing.assert_allclose(mode.point, 9 / 3.01, atol=0.03)


def test_separated_rows_leave_the_prior_to_make_the_mode():
    x = np.linspace(-1, 1, 40)[:, None]
    mode = mode_of(logistic_model(1, prior_sd=10.0), x=x, y=(x[:, 0] > 0).astype(float))
    assert mode.decrement < 1e-3
    assert 10 < float(mode.point[0]) < 60
    assert np.all(np.isfinite(mode.root))


@pytest.mark.parametrize("prior_sd", [1e3, 1e8])
def test_a_parameter_that_no_row_sees_keeps_its_prior(prior_sd):
    prior = {"mu": dist.Normal(0, 10.0), "idle": dist.Normal(5.0, prior_sd)}
    model = Model(prior, mean_model()._log_likelihood)
    result = sample(model, Rows(y=np.linspace(0, 1, 5000)), draws=2000)
    assert result.record["status"] == "converged"
    assert result.record["repeats"] == 0
    error = 4 / np.sqrt(result.record["ess_tail"])
    assert abs(result.draws[:, 1].std() / prior_sd - 1) < error
    assert abs(result.draws[:, 0].std() * np.sqrt(5000) - 1) < error


def test_huge_counts():
    y = np.random.default_rng(0).poisson(1e6, size=50).astype(float)
    mode = mode_of(Model({"a": dist.Normal(0, 10.0)}, poisson_likelihood), y=y)
    assert mode.decrement < 1e-3
    np.testing.assert_allclose(mode.point, np.log(y.mean()), atol=1e-5)


def student_likelihood(params, rows):
    return dist.StudentT(3.0, params["mu"], params["sigma"]).log_prob(rows["y"])


def test_outliers_under_a_student_t_from_a_start_where_it_is_not_concave():
    y = np.concatenate([np.random.default_rng(0).normal(size=60), [300.0, 500.0]])
    prior = {"mu": dist.Normal(0, 100.0), "sigma": dist.HalfNormal(10.0)}
    model = starting_at(Model(prior, student_likelihood), 40.0, -3.0)
    result = sample(model, Rows(y=y), draws=800)
    assert result.record["status"] == "converged"
    assert abs(np.median(result.draws[:, 0])) < 0.5


def scaled_likelihood(params, rows):
    eta = rows["x"] @ params["beta"]
    return -0.5 * (rows["y"] - eta) ** 2


def test_parameters_of_very_different_scales():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 3)) @ np.array([[1.0, 0.5, 0], [0, 1.0, 0.5], [0, 0, 1.0]])
    scales = np.array([1e-4, 1.0, 1e4])
    beta = np.array([1.0, -1.0, 0.5]) / scales
    y = (x * scales) @ beta + rng.normal(size=400)
    prior = {"beta": dist.Normal(0, np.array([1e6, 1e2, 1e2], np.float32)).to_event(1)}
    result = sample(Model(prior, scaled_likelihood), Rows(x=x * scales, y=y), draws=2000)
    assert result.record["status"] == "converged"
    covariance = np.linalg.inv((x * scales).T @ (x * scales))
    sd = np.sqrt(np.diag(covariance))
    error = 4 / np.sqrt(result.record["ess_tail"])
    np.testing.assert_allclose(result.draws.std(axis=0) / sd, 1, atol=error)


def positive_likelihood(params, rows):
    return jnp.log(params["a"] - rows["low"]) - params["a"]


def test_a_start_of_no_density_is_replaced_by_a_better_one():
    # Only above 0.5 have the rows a density; at the prior's centre it is the logarithm of something negative.
    model = Model({"a": dist.Normal(0, 5.0)}, positive_likelihood)
    result = sample(model, Rows(low=np.full(40, 0.5)), draws=400)
    assert result.record["status"] == "converged"
    assert result.draws.min() > 0.5


def never_finite(params, rows):
    return jnp.log(-1.0 - params["a"] ** 2) + rows["y"]


def test_no_density_anywhere_is_an_error_that_says_so():
    with pytest.raises(ShardError, match=r"shard 0 \(shard 0\): the log density .* NaN or infinite"):
        sample(Model({"a": dist.Normal(0, 1)}, never_finite), Rows(y=np.zeros(3)))


def two_modes(params, rows):
    return jnp_log_sum(-0.5 * (params["a"] - rows["m"]) ** 2, -0.5 * (params["a"] + rows["m"]) ** 2)


def test_two_far_modes_are_found_from_the_saddle_between_them_and_not_hidden():
    result = sample(Model({"a": dist.Normal(0, 10.0)}, two_modes), Rows(m=np.full(4, 6.0)), draws=200)
    record = result.record
    assert record["modes"] == 2
    assert record["status"] == "not converged"
    assert record["repeats"] == 2
    assert record["draws"] == 200 * 16
    assert any("a" in problem.split() for problem in record["problems"])
    assert (result.draws > 3).any()
    assert (result.draws < -3).any()


def test_a_search_that_stops_short_is_reported_as_such():
    mode = mode_of(Model({"a": dist.Normal(0, 1)}, never_finite), y=np.zeros(3))
    assert not found(mode)
