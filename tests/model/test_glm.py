"""Generalised linear models: posterior on the raw scale, round trips, weights, merging, and every refusal."""

from __future__ import annotations

import json

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

from consilience.errors import DataError, InputError, ModelError
from consilience.model.glm import glm
from consilience.model.space import double_precision


def make_data(count=400, seed=5):
    rng = np.random.default_rng(seed)
    x, g = rng.normal(3.0, 2.0, count), rng.integers(0, 3, count)
    eta = 0.4 - 0.3 * x + 0.5 * (g == 1)
    trials = rng.integers(1, 9, count)
    p = 1.0 / (1.0 + np.exp(-eta))
    return {
        "x": x,
        "g": np.array(["a", "b", "c"], dtype=object)[g],
        "y": (rng.random(count) < p).astype(np.int64),
        "k": rng.binomial(trials, p),
        "n": trials,
        "count": rng.poisson(np.exp(eta)),
        "amount": rng.gamma(2.0, np.exp(eta) / 2.0),
        "value": 1e6 + eta + rng.normal(size=count),
        "w": rng.integers(0, 4, count).astype(float),
        "e": rng.uniform(1.0, 5.0, count),
        "late": np.array(["no", "yes"], dtype=object)[(rng.random(count) < p).astype(int)],
    }


def scan_of(data, step=97):
    def scan(columns):
        total = len(next(iter(data.values())))
        names = list(data) if columns is None else columns
        for begin in range(0, total, step):
            yield {name: data[name][begin : begin + step] for name in names}

    return scan


def fitted(formula, data, **options):
    return glm(formula, **options).prepare(scan_of(data))


def log_posterior(model, data, points):
    """The log density of the unconstrained points, in float64."""
    rows = model.rows(data)
    weight = rows.pop("row_weight", 1.0)
    with double_precision():
        rows = {name: jnp.asarray(value, jnp.float64) for name, value in rows.items()}

        def one(u):
            return jnp.sum(
                weight * model.log_likelihood(model.space.to_params(u), rows)
            ) + model.space.log_prior(u)

        return np.asarray(jax.jit(jax.vmap(one))(jnp.asarray(points, jnp.float64)))


def raw_design(data):
    return np.column_stack([np.ones(len(data["x"])), data["x"], data["g"] == "b", data["g"] == "c"])


def random_points(model, seed=0, count=6):
    rng = np.random.default_rng(seed)
    return model.space.start + 0.3 * rng.normal(size=(count, model.space.dimension))


def check_up_to_a_constant(found, expected, tolerance=1e-3):
    difference = found - expected
    assert np.ptp(difference) < tolerance, np.ptp(difference)
    assert np.ptp(expected) > 10 * tolerance  # otherwise the comparison says nothing


def test_bernoulli_posterior_with_priors_on_the_raw_scale():
    data = make_data()
    prior = {"Intercept": dist.Normal(1.0, 0.5), "x": dist.Laplace(0.2, 0.3)}
    model = fitted("y ~ x + C(g)", data, family="bernoulli", prior=prior)
    assert model.space.names == ("Intercept", "x", "C(g)[T.b]", "C(g)[T.c]")
    points = random_points(model)
    raw = model.space.to_user(points)
    eta = raw @ raw_design(data).T
    likelihood = stats.bernoulli.logpmf(data["y"], 1 / (1 + np.exp(-eta))).sum(axis=1)
    sds = np.array([np.std(data["g"] == level) for level in ("b", "c")])
    expected = likelihood + stats.norm.logpdf(raw[:, 0], 1.0, 0.5) + stats.laplace.logpdf(raw[:, 1], 0.2, 0.3)
    expected += stats.norm.logpdf(raw[:, 2:], 0, 2.5 / sds).sum(axis=1)
    found = log_posterior(model, data, points)
    check_up_to_a_constant(found, expected)
    wrong = expected - stats.norm.logpdf(raw[:, 0], 1.0, 0.5)
    wrong += stats.norm.logpdf(raw[:, 0] + raw[:, 1] * data["x"].mean(), 1.0, 0.5)
    with pytest.raises(AssertionError):
        check_up_to_a_constant(found, wrong)  # the intercept's prior at the means instead of at zero


def test_gaussian_posterior_and_default_priors():
    data = make_data()
    model = fitted("value ~ x + C(g)", data, family="gaussian")
    assert model.space.names[-1] == "sigma"
    points = random_points(model)
    raw = model.space.to_user(points)
    design, y = raw_design(data), data["value"]
    sd = np.std(y)
    eta, sigma = raw[:, :4] @ design.T, raw[:, 4]
    expected = stats.norm.logpdf(y, eta, sigma[:, None]).sum(axis=1)
    expected += stats.norm.logpdf(raw[:, 1:4], 0, 2.5 * sd / design[:, 1:].std(axis=0)).sum(axis=1)
    expected += stats.norm.logpdf(raw[:, :4] @ design.mean(axis=0), y.mean(), 2.5 * sd)
    expected += stats.expon.logpdf(sigma, scale=sd) + np.log(sigma)
    found = log_posterior(model, data, points)
    check_up_to_a_constant(found, expected, 2e-3)
    with pytest.raises(AssertionError):
        check_up_to_a_constant(found, expected - np.log(sigma), 2e-3)  # without the Jacobian
    text = model.describe()["prior"]
    assert text["Intercept"].endswith("at the means of the predictors")
    assert "1e+06" in text["Intercept"]
    assert text["x"] == f"Normal(loc=0, scale={2.5 * sd / np.std(data['x']):.4g})"
    assert text["sigma"].startswith("Exponential(rate=")


def test_prior_density_is_normalised_over_the_internal_coordinates():
    """With a prior given for the slope, exp(log_prior) integrates to one over the standardised slope."""
    data = make_data()
    model = fitted("y ~ 0 + x", data, family="bernoulli", prior=dist.Normal(0.3, 0.7))
    grid = np.linspace(-40, 40, 20_001)
    with double_precision():
        density = np.exp(np.asarray(jax.jit(jax.vmap(model.space.log_prior))(jnp.asarray(grid)[:, None])))
    assert np.isclose(np.trapezoid(density, grid), 1.0, atol=1e-6)


@pytest.mark.parametrize(
    ("formula", "options"),
    [
        ("k ~ x + C(g)", {"family": "binomial", "trials": "n", "link": "probit"}),
        ("count ~ x + C(g) + offset(log(e))", {"family": "poisson"}),
        ("count ~ x", {"family": "negative binomial", "offset": "e"}),
        ("amount ~ x*g", {"family": "gamma"}),
        ("value ~ 0 + C(g) + x", {"family": "student-t"}),
        ("late ~ bs(x, df=4)", {"family": "bernoulli", "link": "cloglog"}),
        ("amount ~ 1", {"family": "gamma", "link": "identity"}),
        ("count ~ 1", {"family": "poisson", "link": "sqrt"}),
        ("np.log(amount) ~ x", {"family": "gaussian"}),
        ("amount ~ x", {"family": "gaussian", "link": "log"}),
    ],
)
def test_every_kind_of_model_is_ready_and_picklable(formula, options):
    data = make_data()
    model = fitted(formula, data, **options)
    rows = model.rows(data)
    assert all(value.dtype == np.float32 and len(value) == 400 for value in rows.values())
    model.validate(rows)
    parts = [model.rows(chunk) for chunk in scan_of(data, 41)(model.columns)]
    for name, value in rows.items():
        np.testing.assert_array_equal(np.concatenate([part[name] for part in parts]), value)
    again = cloudpickle.loads(cloudpickle.dumps(model))
    assert again.fingerprint() == model.fingerprint()
    np.testing.assert_array_equal(again.rows(data)["X"], rows["X"])
    json.dumps(model.describe())
    assert any("Priors" in note for note in model.notes)
    points = random_points(model)
    assert model.space.to_user(points).shape == (6, len(model.space.names))
    assert model.space.shapes == dict.fromkeys(model.space.names, ())
    assert len(model.space.coordinate_names) == model.space.dimension
    values = log_posterior(model, data, points)
    assert not np.isnan(values).any()
    assert model.fingerprint() != fitted(formula, make_data(seed=6), **options).fingerprint()


def test_columns_are_standardised_over_all_rows_and_weights_count_as_repetitions():
    data = make_data()
    weighted = fitted("y ~ x + C(g)", data, family="bernoulli", weights="w")
    repeated = {name: np.repeat(value, data["w"].astype(int)) for name, value in data.items()}
    plain = fitted("y ~ x + C(g)", repeated, family="bernoulli")
    matrix = plain.rows(repeated)["X"]
    np.testing.assert_allclose(matrix[:, 1:].mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(matrix[:, 1:].std(axis=0), 1, atol=1e-5)
    points = random_points(plain)
    found, expected = log_posterior(weighted, data, points), log_posterior(plain, repeated, points)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    ignored = fitted("y ~ x + C(g)", data, family="bernoulli")
    assert not np.allclose(log_posterior(ignored, data, points), expected, rtol=1e-3)


def test_identical_rows_merge_exactly():
    rng = np.random.default_rng(2)
    data = {f"b{i}": (rng.random(20_000) < p).astype(int) for i, p in enumerate((0.5, 0.02, 0.1))}
    data["y"] = (rng.random(20_000) < 0.3).astype(int)
    model = fitted("y ~ b0 + b1 + b2", data, family="bernoulli")
    rows = model.rows(data)
    merged = model.compress(rows)
    assert len(merged["y"]) == 16
    assert merged["row_weight"].sum() == 20_000
    params = model.space.to_params(jnp.asarray(random_points(model)[0], jnp.float32))
    full = np.asarray(model.log_likelihood(params, rows), dtype=float).sum()
    short = np.asarray(model.log_likelihood(params, merged), dtype=float)
    assert np.isclose(short @ merged["row_weight"], full, rtol=1e-7)
    assert not np.isclose(short.sum(), full, rtol=1e-2)
    distinct = fitted("y ~ x", make_data(), family="bernoulli")
    rows = distinct.rows(make_data())
    assert distinct.compress(rows) is rows


def test_two_level_strings_and_booleans_are_bernoulli_outcomes():
    data = make_data()
    model = fitted("late ~ x", data, family="bernoulli")
    np.testing.assert_array_equal(model.rows(data)["y"], data["late"] == "yes")
    assert "'yes'" in model.notes[0]
    flags = {**data, "flag": data["late"] == "yes"}
    again = fitted("flag ~ x", flags, family="bernoulli")
    np.testing.assert_array_equal(again.rows(flags)["y"], model.rows(data)["y"])


def test_offset_moves_the_linear_predictor():
    data = make_data()
    model = fitted("count ~ x + offset(log(e))", data, family="poisson", offset="x")
    np.testing.assert_allclose(model.rows(data)["offset"], np.log(data["e"]) + data["x"], rtol=1e-6)
    assert model.columns == ("count", "e", "x")


def bad(name, index, value):
    data = make_data()
    column = data[name].astype(object if isinstance(value, str) else float)
    column[index] = value
    return {**data, name: column}


@pytest.mark.parametrize(
    ("formula", "options", "data", "message"),
    [
        ("y ~ x", {"family": "bernoulli"}, bad("y", [3, 8], 2.0), "0 or 1. Got 2.0. 2 row"),
        ("count ~ x", {"family": "poisson"}, bad("count", 3, -1.0), "Got -1.0. 1 row"),
        ("count ~ x", {"family": "poisson"}, bad("count", 3, 1.5), "whole numbers"),
        ("k ~ x", {"family": "binomial", "trials": "n"}, bad("k", 3, 99.0), "number of trials"),
        ("k ~ x", {"family": "binomial", "trials": "n"}, bad("n", 3, 2.5), "`n` must be whole"),
        ("amount ~ x", {"family": "gamma"}, bad("amount", 3, 0.0), "positive"),
        ("value ~ x", {}, bad("value", 3, np.nan), "finite"),
        ("value ~ x", {}, bad("x", 3, np.inf), "term `x` is not a finite"),
        ("value ~ log(x)", {}, make_data(), r"log\(x\).*finite"),
        ("late ~ x", {"family": "bernoulli"}, bad("late", 3, "maybe"), "two levels"),
        ("late ~ x", {"family": "poisson"}, make_data(), "bernoulli"),
        ("value ~ x", {"weights": "w"}, bad("w", 3, -1.0), "`w` must be finite numbers from 0"),
        ("value ~ x", {"weights": "g"}, make_data(), "numbers"),
        ("value ~ x + con", {}, {**make_data(), "con": np.ones(400)}, "'con'.*constant"),
        ("con ~ x", {}, {**make_data(), "con": np.ones(400)}, "different in some rows"),
        ("con ~ x", {"family": "bernoulli"}, {**make_data(), "con": np.ones(400)}, "different in some rows"),
        ("value ~ x + e + {x + 2*e + 1}", {}, make_data(), "collinear: a linear combination of 'x', 'e'"),
        ("value ~ 0 + x + {2*x}", {}, make_data(), "collinear"),
        ("value ~ x", {}, {name: value[:0] for name, value in make_data().items()}, "no rows"),
    ],
)
def test_data_that_cannot_be_modelled(formula, options, data, message):
    with pytest.raises(DataError, match=message) as caught:
        fitted(formula, data, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("formula", "options", "message"),
    [
        ("y ~ xx", {}, "'x'"),
        ("y ~ x", {"weights": "ww"}, "`weights`.*'w'"),
        ("y ~ x", {"family": "binom"}, "Did you mean 'binomial'"),
        ("y ~ x", {"link": "lgo"}, "identity, log"),
        ("y ~ x", {"family": "binomial"}, "trials"),
        ("y ~ x", {"trials": "n"}, "trials"),
        ("y ~ x", {"offset": np.ones(3)}, "name of a column"),
        ("y ~ x", {"prior": 3}, "scalar NumPyro distribution"),
        ("y ~ x", {"prior": dist.HalfNormal(1.0)}, "whole line"),
        ("y ~ x", {"prior": {"sigma": dist.Normal(0, 1)}}, "positive"),
        ("y ~ x", {"prior": {"z": dist.Normal(0, 1)}}, "names are Intercept, x, sigma"),
        ("y ~ x", {"prior": {"xx": dist.Normal(0, 1)}}, "Did you mean 'x'"),
        ("value ~ sigma", {}, "reserved"),
        ("y ~ X", {}, "one number per row"),
        ("y ~ day", {}, "dates"),
    ],
)
def test_usage_that_is_refused(formula, options, message):
    data = make_data() | {
        "sigma": np.arange(400.0),
        "X": np.ones((400, 2)),
        "day": np.arange(400).astype("datetime64[D]"),
    }
    with pytest.raises(ModelError, match=message) as caught:
        fitted(formula, data, **options)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, InputError)


def test_an_unprepared_model_says_so():
    with pytest.raises(ModelError, match="prepare"):
        _ = glm("y ~ x").space
    assert glm("y ~ x").columns == ("x", "y")
    assert glm("y ~ x").fingerprint() != glm("y ~ x", family="student-t").fingerprint()
