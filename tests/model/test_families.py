"""Each family's log-likelihood per row against scipy.stats, for every link, in float64 and float32."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln

from consilience.errors import ModelError
from consilience.model.families import FAMILIES, get_family, get_link, link_function
from consilience.model.space import double_precision
from consilience.model.special import gamma_normaliser, log_rising

CASES = [(family, link) for family in FAMILIES for link in family.links]
EXTRA = {"sigma": 0.7, "dispersion": 0.4, "shape": 2.5, "degrees_of_freedom": 4.0}

INVERSE = {
    "identity": lambda eta: eta,
    "log": np.exp,
    "sqrt": np.square,
    "inverse": lambda eta: 1.0 / eta,
    "logit": lambda eta: 1.0 / (1.0 + np.exp(-eta)),
    "probit": stats.norm.cdf,
    "cloglog": lambda eta: -np.expm1(-np.exp(eta)),
    "cauchit": stats.cauchy.cdf,
}


def reference(family, link, eta, y, trials, extra):
    """scipy's log density."""
    mean = INVERSE[link](eta)
    if family.name == "gaussian":
        return stats.norm.logpdf(y, mean, extra["sigma"])
    if family.name == "student-t":
        return stats.t.logpdf(y, extra["degrees_of_freedom"], mean, extra["sigma"])
    if family.name in ("bernoulli", "binomial"):
        return stats.binom.logpmf(y, trials if family.name == "binomial" else 1, mean)
    if family.name == "poisson":
        return stats.poisson.logpmf(y, mean)
    if family.name == "gamma":
        return stats.gamma.logpdf(y, extra["shape"], scale=mean / extra["shape"])
    size = 1.0 / extra["dispersion"]
    return stats.nbinom.logpmf(y, size, size / (size + mean))


def make_rows(family, link, seed=1, count=200):
    rng = np.random.default_rng(seed)
    positive = family.name in ("poisson", "negative-binomial", "gamma") and link != "log"
    eta = rng.uniform(0.2, 3.0, count) if positive else rng.uniform(-2.5, 2.5, count)
    trials = rng.integers(1, 30, count).astype(float)
    y = {
        "bernoulli": rng.integers(0, 2, count),
        "binomial": rng.binomial(trials.astype(int), 0.4),
        "poisson": rng.poisson(3.0, count),
        "negative-binomial": rng.poisson(4.0, count),
        "gamma": rng.gamma(2.0, 1.0, count),
    }.get(family.name, rng.normal(size=count))
    return eta, y.astype(float), trials


def evaluate(family, link, eta, y, trials, extra, dtype):
    with double_precision():
        rows = {"y": jnp.asarray(y, dtype), "trials": jnp.asarray(trials, dtype)}
        extra = {name: jnp.asarray(v, dtype) for name, v in extra.items()}
        compiled = jax.jit(family.log_likelihood, static_argnums=0)
        values = compiled(link, jnp.asarray(eta, dtype), rows, extra)
        assert values.dtype == dtype
        values = np.asarray(values, dtype=np.float64)
    return values if family.constant is None else values + family.constant(y, trials)


@pytest.mark.parametrize(("family", "link"), CASES, ids=lambda v: getattr(v, "name", v))
def test_likelihood_is_that_of_scipy(family, link):
    eta, y, trials = make_rows(family, link)
    expected = reference(family, link, eta, y, trials, EXTRA)
    found = evaluate(family, link, eta, y, trials, EXTRA, jnp.float64)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    single = evaluate(family, link, eta, y, trials, EXTRA, jnp.float32)
    np.testing.assert_allclose(single, expected, rtol=2e-5, atol=2e-5)
    # The oracle rejects a wrong link and a wrong extra parameter.
    positive = np.abs(eta) + 0.1
    right = evaluate(family, link, positive, y, trials, EXTRA, jnp.float64)
    for other in set(family.links) - {link}:
        wrong = reference(family, other, positive, y, trials, EXTRA)
        assert not np.allclose(right, wrong, rtol=1e-3, atol=1e-3)
    for name in family.extra:
        wrong = reference(family, link, eta, y, trials, {**EXTRA, name: 1.01 * EXTRA[name]})
        assert not np.allclose(found, wrong, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("family", "link"), CASES, ids=lambda v: getattr(v, "name", v))
def test_gradients_are_finite_at_extreme_predictors(family, link):
    _, y, trials = make_rows(family, link, count=40)
    rows = {"y": jnp.asarray(y, jnp.float32), "trials": jnp.asarray(trials, jnp.float32)}
    extra = {name: jnp.float32(EXTRA[name]) for name in family.extra}
    eta = jnp.repeat(jnp.array([-300.0, -30.0, 0.0, 30.0, 300.0], jnp.float32), 8)

    def finite_part(v):
        values = family.log_likelihood(link, v, rows, extra)
        return jnp.sum(jnp.where(jnp.isfinite(values), values, 0.0)), values

    (_, values), gradient = jax.jit(jax.value_and_grad(finite_part, has_aux=True))(eta)
    assert not np.isnan(np.asarray(values)).any()
    assert not np.isnan(np.asarray(gradient)).any()


@pytest.mark.parametrize("link", ["logit", "probit", "cloglog", "cauchit"])
def test_binary_tails_keep_their_digits(link):
    family = get_family("bernoulli")
    tails = {"logit": stats.logistic, "probit": stats.norm, "cauchit": stats.cauchy}
    eta = np.array([-40.0, -20.0, -9.0, -4.1, -3.9, -1.0, 0.5, 2.0, 3.0])
    one = evaluate(family, link, eta, np.ones(9), np.ones(9), {}, jnp.float32)
    zero = evaluate(family, link, eta, np.zeros(9), np.ones(9), {}, jnp.float32)
    expected = (
        (np.log(-np.expm1(-np.exp(eta))), -np.exp(eta))
        if link == "cloglog"
        else (tails[link].logcdf(eta), tails[link].logsf(eta))
    )
    np.testing.assert_allclose(one, expected[0], rtol=5e-5, atol=1e-30)
    np.testing.assert_allclose(zero, expected[1], rtol=5e-5, atol=1e-30)


def test_large_shapes_and_counts_keep_their_digits_in_float32():
    poisson, y = get_family("poisson"), np.array([1e6, 2e6])
    found = evaluate(poisson, "log", np.log(y) + 1e-3, y, y, {}, jnp.float32)
    expected = stats.poisson.logpmf(y, y * np.exp(1e-3))
    np.testing.assert_allclose(found, expected, atol=0.1)
    textbook = np.float32(y) * np.float32(np.log(y) + 1e-3) - np.exp(np.float32(np.log(y) + 1e-3))
    textbook = textbook - np.float32(gammaln(y + 1.0))
    assert np.abs(textbook - expected).max() > 0.5
    family, y = get_family("negative-binomial"), np.array([0.0, 2.0, 9.0])
    extra = {"dispersion": 1e-6}
    found = evaluate(family, "log", np.full(3, 1.0), y, y, extra, jnp.float32)
    np.testing.assert_allclose(found, reference(family, "log", 1.0, y, y, extra), rtol=1e-4)
    family, y = get_family("gamma"), np.array([0.99, 1.0, 1.02])
    extra = {"shape": 1e5}
    found = evaluate(family, "log", np.zeros(3), y, y, extra, jnp.float32)
    np.testing.assert_allclose(found, reference(family, "log", np.zeros(3), y, y, extra), atol=1e-2)
    family, y = get_family("student-t"), np.array([0.0, 2.0])
    extra = {"sigma": 1.0, "degrees_of_freedom": 1e6}
    found = evaluate(family, "identity", np.zeros(2), y, y, extra, jnp.float32)
    np.testing.assert_allclose(found, stats.norm.logpdf(y), rtol=1e-5)


def test_special_functions_join_at_the_switch():
    r = np.array([0.01, 1.0, 7.999, 8.0, 8.001, 50.0, 1e4])
    with double_precision():
        rising = np.asarray(log_rising(jnp.asarray(r, jnp.float64), 3.0))
        normal = np.asarray(gamma_normaliser(jnp.asarray(r, jnp.float64)))
    np.testing.assert_allclose(rising, gammaln(r + 3.0) - gammaln(r), rtol=1e-9)
    np.testing.assert_allclose(normal, r * np.log(r) - r - gammaln(r), rtol=1e-8)


def test_names_of_families_and_links():
    assert get_family("Negative_Binomial") is get_family("negative binomial")
    with pytest.raises(ModelError, match="Did you mean 'poisson'"):
        get_family("poison")
    with pytest.raises(ModelError, match="logit, probit"):
        get_link(get_family("bernoulli"), "log")
    for family, link in CASES:
        mean = 0.3
        assert np.isclose(INVERSE[link](link_function(link, mean)), mean), (family.name, link)
