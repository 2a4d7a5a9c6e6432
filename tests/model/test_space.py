"""Bijections, Jacobians and names of the parameter space, and the checks of a plain model."""

from __future__ import annotations

import subprocess
import sys

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from consilience.errors import ModelError
from consilience.model.model import Model
from consilience.model.space import ParameterSpace, double_precision

PRIOR = {
    "beta": dist.Normal(5, 10).expand([3]).to_event(1),
    "scale": dist.HalfCauchy(1.0),
    "root": dist.LKJCholesky(3, 1.0),
    "mix": dist.Dirichlet(jnp.ones(4)).expand([2]),
    "share": dist.Beta(2.0, 2.0),
    "bounded": dist.Uniform(0.0, jnp.arange(1.0, 4.0)),
    "ordered": dist.TransformedDistribution(
        dist.Normal(0, 1).expand([3]).to_event(1), dist.transforms.OrderedTransform()
    ),
}


def log_likelihood(params, rows):
    return dist.Normal(params["beta"][0], params["scale"]).log_prob(rows["y"])


def test_round_trip_and_agreement_of_both_directions():
    space = ParameterSpace(PRIOR)
    points = np.random.default_rng(0).normal(size=(7, space.dimension))
    user = space.to_user(points)
    assert user.dtype == np.float64
    assert user.shape == (7, len(space.names)) == (7, 3 + 1 + 9 + 8 + 1 + 3 + 3)
    assert len(space.coordinate_names) == space.dimension == len(set(space.coordinate_names))
    mapped = jax.jit(jax.vmap(space.to_params))(jnp.asarray(points, jnp.float32))
    flat = np.concatenate([np.asarray(mapped[name]).reshape(7, -1) for name in PRIOR], axis=1)
    np.testing.assert_allclose(flat, user, rtol=2e-5, atol=2e-6)
    assert all(value.dtype == jnp.float32 for value in mapped.values())
    sizes = np.cumsum([int(np.prod(shape)) for shape in space.shapes.values()])[:-1]
    row = {
        name: part.reshape(space.shapes[name])
        for name, part in zip(PRIOR, np.split(user[3], sizes), strict=True)
    }
    np.testing.assert_allclose(space.from_params(row), points[3], rtol=1e-7, atol=1e-7)


def test_log_prior_is_a_density_of_the_unconstrained_point():
    """In one dimension each density of u must integrate to one; without its Jacobian it does not."""
    grid = np.linspace(-30, 30, 60_001)
    for prior in (dist.HalfNormal(2.0), dist.Beta(2.0, 3.0), dist.Gamma(2.0, 0.1), dist.Uniform(1.0, 3.0)):
        space = ParameterSpace({"x": prior})
        with double_precision():
            points = jnp.asarray(grid, jnp.float64)[:, None]
            density = np.exp(np.asarray(jax.jit(jax.vmap(space.log_prior))(points)))
            bare = np.exp(np.asarray(prior.log_prob(jax.vmap(space.to_params)(points)["x"])))
        assert np.isclose(np.trapezoid(density, grid), 1.0, atol=1e-4)
        assert not np.isclose(np.trapezoid(bare, grid), 1.0, atol=0.1)


def test_log_prior_in_float32_and_its_gradient():
    space = ParameterSpace(PRIOR)
    point = jnp.asarray(np.random.default_rng(1).normal(size=space.dimension), jnp.float32)
    value, gradient = jax.jit(jax.value_and_grad(space.log_prior))(point)
    assert value.dtype == gradient.dtype == jnp.float32
    with double_precision():
        exact = float(jax.jit(space.log_prior)(jnp.asarray(np.asarray(point), jnp.float64)))
    assert np.isclose(float(value), exact, rtol=1e-5)
    assert np.isfinite(np.asarray(gradient)).all()


def test_the_global_flag_stays_as_it_was():
    ParameterSpace({"p": dist.Beta(2.0, 2.0)}).to_user(np.zeros((1, 1)))
    assert not jax.config.jax_enable_x64
    assert jnp.zeros(1).dtype == jnp.float32


def test_start_is_the_prior_mean_where_there_is_one():
    start = ParameterSpace(PRIOR).start
    assert start.dtype == np.float64
    np.testing.assert_allclose(start[:4], [5, 5, 5, 0])


def test_names():
    space = ParameterSpace({"a": dist.Normal(0, 1).expand([2]).to_event(1), "s": dist.HalfNormal(1.0)})
    assert space.names == ("a[0]", "a[1]", "s")
    assert space.coordinate_names == ("a[0]", "a[1]", "log(s)")
    assert ParameterSpace({"L": dist.LKJCholesky(2, 1.0)}).names == ("L[0,0]", "L[0,1]", "L[1,0]", "L[1,1]")


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        ({}, "at least one parameter"),
        (None, "at least one parameter"),
        ({"a": 3.0}, "NumPyro distribution"),
        ({"a": dist.Poisson(3.0)}, "continuous"),
        ({"a": dist.Delta(3.0)}, "continuous"),
        ({3: dist.Normal(0, 1)}, "names"),
    ],
)
def test_priors_that_cannot_be_used(prior, message):
    with pytest.raises(ModelError, match=message):
        Model(prior=prior, log_likelihood=log_likelihood)


def test_model_validates_what_the_likelihood_returns():
    prior = {"beta": dist.Normal(0, 1).expand([1]).to_event(1), "scale": dist.HalfNormal(1.0)}
    rows = {"y": np.arange(5.0)}
    Model(prior, log_likelihood).validate(rows)
    with pytest.raises(ModelError, match="a function"):
        Model(prior, "likelihood")
    with pytest.raises(ModelError, match=r"shape \(5,\).*Got \(\)"):
        Model(prior, lambda p, r: log_likelihood(p, r).sum()).validate(rows)
    with pytest.raises(ModelError, match=r"asks for 'z'.*'y'"):
        Model(prior, lambda p, r: r["z"]).validate(rows)
    with pytest.raises(ModelError, match=r"1 of 5 rows are not, first row 0"):
        Model(prior, lambda p, r: jnp.log(r["y"])).validate(rows)
    with pytest.raises(ModelError, match=r"jax\.jit"):
        Model(prior, lambda p, r: r["y"] @ jnp.ones(3)).validate(rows)


def test_rows_leave_strings_out():
    model = Model({"m": dist.Normal(0, 1)}, log_likelihood)
    rows = model.rows({"y": np.ones(2), "s": np.array(["a", None], dtype=object), "X": np.ones((2, 3))})
    assert set(rows) == {"y", "X"}
    assert model.prepare(lambda columns: iter([])) is model
    assert model.compress(rows) is rows


def test_pickle_and_fingerprint():
    rows = {"y": np.ones(4, np.float32)}
    model = Model(PRIOR, log_likelihood)
    again = cloudpickle.loads(cloudpickle.dumps(model))
    assert again.fingerprint(rows) == model.fingerprint(rows)
    assert again.fingerprint() == model.fingerprint()
    other_rows = {"y": np.zeros(9, np.float32)}
    assert model.fingerprint(other_rows) == model.fingerprint(rows)
    changed = Model(PRIOR, lambda p, r: 2.0 * log_likelihood(p, r))
    assert changed.fingerprint(rows) != model.fingerprint(rows)
    assert changed.fingerprint() != model.fingerprint()
    wider = Model({**PRIOR, "scale": dist.HalfCauchy(2.0)}, log_likelihood)
    assert wider.fingerprint(rows) != model.fingerprint(rows)


SCRIPT = """
import numpy as np, numpyro.distributions as dist
from consilience.model.glm import glm
from consilience.model.model import Model
c = np.arange(3.0)
def f(params, rows):
    return dist.StudentT(4.0, params["m"] + c.sum(), params["s"]).log_prob(rows["y"])
m = Model({"m": dist.Normal(0, 1), "s": dist.HalfNormal(1.0)}, f)
print(m.fingerprint({"y": np.ones(3)}), m.fingerprint())
data = {"y": np.arange(8.0) % 3, "x": np.arange(8.0) ** 2, "g": np.array(list("abcaabbc"), dtype=object)}
g = glm("y ~ bs(x, df=4) + g", family="poisson").prepare(lambda columns: iter([data]))
print(g.fingerprint())
"""


def test_fingerprints_are_the_same_in_every_process():
    outputs = set()
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PATH": "", "JAX_PLATFORMS": "cpu"},
        )
        outputs.add(done.stdout)
    assert len(outputs) == 1
    assert len(outputs.pop().split()) == 3
