"""Draws in memory, as other libraries return them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from consilience.draws.objects import is_object, read_object
from consilience.errors import DrawsError


@pytest.fixture(scope="module")
def mcmc():
    """Two chains of a regression in NumPyro, with a site that is a function of others."""
    import jax
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import HMC, MCMC

    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0, 5))
        sigma = numpyro.sample("sigma", dist.HalfNormal(2))
        numpyro.deterministic("twice", 2 * mu)
        with numpyro.plate("group", 3):
            numpyro.sample("effect", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(mu, sigma), obs=y)

    y = np.random.default_rng(0).normal(1.0, 0.5, size=50)
    kernel = HMC(model, step_size=0.05, num_steps=5, adapt_step_size=False, adapt_mass_matrix=False)
    run = MCMC(
        kernel,
        num_warmup=20,
        num_samples=60,
        num_chains=2,
        chain_method="vectorized",
        progress_bar=False,
    )
    run.run(jax.random.PRNGKey(0), y, extra_fields=("potential_energy", "diverging"))
    return run


def test_numpyro(mcmc):
    file = read_object(mcmc, "draws[0]")
    samples = mcmc.get_samples()
    assert sorted(file.names) == ["effect[0]", "effect[1]", "effect[2]", "mu", "sigma", "twice"]
    assert file.chains == (60, 60)
    assert file.array.dtype == np.float64
    for name in ("mu", "sigma"):
        np.testing.assert_array_equal(file.array[:, file.names.index(name)], samples[name])
    np.testing.assert_array_equal(file.array[:, file.names.index("effect[2]")], samples["effect"][:, 2])
    energy = mcmc.get_extra_fields()["potential_energy"]
    np.testing.assert_array_equal(file.log_densities, -np.asarray(energy, dtype=np.float64))
    assert file.unconstrained_densities
    assert file.divergences is not None


def test_numpyro_log_densities_are_of_unconstrained_parameters(mcmc):
    """Against the model's joint density in (mu, log sigma, effect), up to a constant."""
    from scipy import stats

    file = read_object(mcmc, "draws[0]")
    y = np.random.default_rng(0).normal(1.0, 0.5, size=50)
    mu, sigma = (file.array[:, file.names.index(name)] for name in ("mu", "sigma"))
    effect = np.column_stack([file.array[:, file.names.index(f"effect[{i}]")] for i in range(3)])
    expected = stats.norm(0, 5).logpdf(mu) + stats.halfnorm(0, 2).logpdf(sigma)
    expected += stats.norm.logpdf(effect).sum(axis=1)
    expected += stats.norm.logpdf(y[:, None], mu, sigma).sum(axis=0)
    with_jacobian = file.log_densities - (expected + np.log(sigma))
    without = file.log_densities - expected
    assert np.ptp(with_jacobian) < 1e-3
    assert np.ptp(without) > 0.05


def test_arviz_from_numpyro_is_the_same(mcmc):
    arviz = pytest.importorskip("arviz")
    ours, theirs = read_object(mcmc, "draws[0]"), read_object(arviz.from_numpyro(mcmc), "draws[0]")
    assert set(ours.names) == set(theirs.names)
    for name in ours.names:
        np.testing.assert_array_equal(
            ours.array[:, ours.names.index(name)], theirs.array[:, theirs.names.index(name)]
        )
    np.testing.assert_array_equal(ours.log_densities, theirs.log_densities)
    assert theirs.unconstrained_densities


def test_numpyro_that_has_not_run():
    from numpyro.infer import MCMC, NUTS

    with pytest.raises(DrawsError, match=r"draws\[3\].*an MCMC that has run"):
        read_object(MCMC(NUTS(lambda: None), num_warmup=1, num_samples=1), "draws[3]")


def test_datatree_of_xarray():
    arviz = pytest.importorskip("arviz")
    draws = np.random.default_rng(0).normal(size=(2, 10, 3))
    data = arviz.from_dict(posterior={"b": draws}, sample_stats={"lp": draws[..., 0]}).to_datatree()
    file = read_object(data, "draws[0]")
    assert (file.names, file.chains) == (("b[0]", "b[1]", "b[2]"), (10, 10))
    np.testing.assert_array_equal(file.array, draws.reshape(20, 3))
    np.testing.assert_array_equal(file.log_densities, draws[..., 0].ravel())


def test_inference_data_without_a_posterior():
    arviz = pytest.importorskip("arviz")
    with pytest.raises(DrawsError, match=r"draws\[0\].*an InferenceData with a posterior"):
        read_object(arviz.from_dict(prior={"a": np.zeros((1, 5))}), "draws[0]")


def test_arrays_by_name():
    file = read_object({"beta": np.ones((5, 2)), "tau": np.arange(5)}, "draws[0]")
    assert file.names == ("beta[0]", "beta[1]", "tau")
    assert file.chains is None
    with pytest.raises(DrawsError, match=r"draws\[1\].*same number of draws"):
        read_object({"beta": np.ones((5, 2)), "tau": np.arange(4)}, "draws[1]")
    with pytest.raises(DrawsError, match="numbers"):
        read_object({"beta": np.array(["a", "b"])}, "draws[1]")
    with pytest.raises(DrawsError, match="numbers"):
        read_object({"beta": np.array([{}, {}])}, "draws[1]")


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_tables(library):
    module = pytest.importorskip(library)
    columns = {"a": [1.0, 2.0], "b": [3, 4]}
    table = module.table(columns) if library == "pyarrow" else module.DataFrame(columns)
    assert is_object(table)
    file = read_object(table, "draws[0]")
    assert file.names == ("a", "b")
    assert file.array.tolist() == [[1, 3], [2, 4]]


def test_tables_of_r_and_odd_tables():
    table = pd.DataFrame(
        {".chain": [1, 1, 2], ".iteration": [1, 2, 1], ".draw": [1, 2, 3], "mu": [5.0, 6, 7]}
    )
    file = read_object(table, "draws[0]")
    assert (file.names, file.chains) == (("mu",), (2, 1))
    filtered = table[table["mu"] != 6].set_index(".draw").drop(columns=[".chain", ".iteration"])
    assert read_object(filtered, "draws[0]").names == ("mu",)
    for odd in (pd.DataFrame({"a": ["x", "y"]}), pd.DataFrame({"a": [1.0, None]}), pd.DataFrame({"a": []})):
        with pytest.raises(DrawsError, match=r"draws\[2\]"):
            read_object(odd, "draws[2]")
