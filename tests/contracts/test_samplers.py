"""What every registered sampler must satisfy. There is no way to skip any of it."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import pickle
import pkgutil
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from sampler_oracles import LIMIT, Rows, Truth, model, replicated, surprise
from wrong_samplers import WRONG_NOISE, model_without_jacobian

import consilience.sample
from consilience.errors import InputError
from consilience.model.model import Model
from consilience.sample import shard
from consilience.sample.convergence import judge
from consilience.sample.hmc import HMC
from consilience.sample.registry import SAMPLERS, get_sampler
from consilience.sample.shard import ShardSampler, ShardTask

every_sampler = pytest.mark.parametrize("name", [sampler.name for sampler in SAMPLERS])


def looks_like_a_sampler(value: Any) -> bool:
    return (
        inspect.isclass(value)
        and dataclasses.is_dataclass(value)
        and callable(getattr(value, "kernel", None))
    )


def test_every_sampler_of_the_room_is_registered():
    found = set()
    for module in pkgutil.iter_modules(consilience.sample.__path__, "consilience.sample."):
        members = vars(importlib.import_module(module.name)).values()
        found |= {
            value for value in members if looks_like_a_sampler(value) and value.__module__ == module.name
        }
    assert found == set(SAMPLERS)
    assert len({sampler.name for sampler in SAMPLERS}) == len(SAMPLERS)


@every_sampler
def test_the_configuration_survives_pickle_and_json(name):
    configured = get_sampler(name, chains=3, warmup=11)
    assert pickle.loads(pickle.dumps(configured)) == configured
    settings = json.loads(json.dumps(dataclasses.asdict(configured)))
    assert get_sampler(name, **settings) == configured
    assert isinstance(configured.reference, str)
    assert configured.reference


@every_sampler
@pytest.mark.parametrize(
    "setting", [{"chains": 0}, {"warmup": 2.5}, {"target_acceptance": 1.0}, {"stepp": 1}]
)
def test_settings_that_cannot_work_are_refused_in_one_sentence(name, setting):
    with pytest.raises(InputError, match=next(iter(setting))):
        get_sampler(name, **setting)


@every_sampler
@pytest.mark.parametrize(("kind", "weight"), [("inflated", 0.25), ("subposterior", 0.25), ("inflated", 1.0)])
def test_draws_have_the_exact_law(name, kind, weight):
    results = replicated(get_sampler(name), kind=kind, weight=weight)
    assert surprise(results, Truth.of(kind, weight)) < LIMIT
    assert all(result.record["status"] == "converged" for result in results)


def test_with_one_shard_of_weight_one_both_kinds_are_the_posterior():
    ours, other = Truth.of("inflated", 1.0), Truth.of("subposterior", 1.0)
    np.testing.assert_allclose(ours.covariance, other.covariance)
    np.testing.assert_allclose(ours.mean, other.mean)
    one, two = (
        replicated(get_sampler("hmc"), kind=kind, weight=1.0)[0] for kind in ("inflated", "subposterior")
    )
    np.testing.assert_array_equal(one.draws, two.draws)


@pytest.mark.parametrize("wrong", WRONG_NOISE)
def test_the_oracle_notices_a_wrong_sampler(wrong, monkeypatch):
    monkeypatch.setattr(shard, "MAX_REPEATS", 0)  # the judge may notice too; here the oracle stands alone
    right = HMC.noise
    monkeypatch.setattr(HMC, "noise", lambda *arguments: wrong(*right(*arguments)))
    assert surprise(replicated(HMC()), Truth.of("inflated", 0.25)) > 1.5 * LIMIT


@pytest.mark.parametrize(("drawn", "claimed"), [("subposterior", "inflated"), ("inflated", "subposterior")])
def test_the_oracle_notices_the_other_kind(drawn, claimed):
    results = replicated(get_sampler("hmc"), kind=drawn)
    assert surprise(results, Truth.of(claimed, 0.25)) > 2 * LIMIT


def test_the_oracle_notices_a_missing_jacobian():
    results = replicated(get_sampler("hmc"), tried=model_without_jacobian())
    assert surprise(results, Truth.of("inflated", 0.25)) > 2 * LIMIT


def one_mean(params: dict[str, Any], rows: dict[str, Any]) -> Any:
    return -0.5 * (rows["y"] - params["mu"]) ** 2


@every_sampler
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_one_dimension_in_either_precision(name, precision):
    y = np.array([2.0, 3.0, 4.5])
    chosen = Model({"mu": dist.Normal(0, 10)}, one_mean)
    sample = ShardSampler(chosen, "one", "inflated", get_sampler(name), 4000, seed=0, precision=precision)
    result = sample(ShardTask(0, "one", 1.0, Rows({"y": y})))
    assert result.draws.shape == (4000, 1)
    assert result.draws.dtype == np.float64
    assert sum(result.chain_lengths) == 4000
    assert not jax.config.jax_enable_x64
    sd = (3 + 0.01) ** -0.5
    error = sd / np.sqrt(result.record["ess_bulk"])
    assert abs(result.draws.mean() - sd**2 * y.sum()) < 4 * error
    assert abs(result.draws.std() / sd - 1) < 4 / np.sqrt(result.record["ess_tail"])


@every_sampler
def test_same_seed_same_bits_other_seed_or_shard_other_draws(name):
    def drawn(seed: int, index: int) -> np.ndarray:
        chosen = Model({"mu": dist.Normal(0, 10)}, one_mean)
        sample = ShardSampler(chosen, "one", "inflated", get_sampler(name), 4000, seed=seed)
        return sample(ShardTask(index, "one", 1.0, Rows({"y": np.array([2.0, 3.0, 4.5])}))).draws[:, 0]

    first = drawn(3, 0)
    np.testing.assert_array_equal(first, drawn(3, 0))
    for other in (drawn(4, 0), drawn(3, 1)):
        assert abs(np.corrcoef(first, other)[0, 1]) < 0.1


@every_sampler
def test_the_log_density_belongs_to_its_draw(name):
    y = np.array([2.0, 3.0, 4.5])
    chosen = Model({"mu": dist.Normal(0, 10)}, one_mean)
    result = ShardSampler(chosen, "one", "inflated", get_sampler(name), 4000, seed=0)(
        ShardTask(0, "one", 0.5, Rows({"y": y}))
    )
    exact = -0.5 * ((y - result.draws) ** 2).sum(axis=1) / 0.5 - 0.5 * (result.draws[:, 0] / 10) ** 2
    assert np.ptp(exact - result.log_density) < 1e-4


@every_sampler
def test_its_noise_is_new_in_every_iteration_and_chain(name):
    sampler = get_sampler(name)
    leaves = jax.tree.leaves(sampler.noise(np.random.default_rng(0), 50, 3))
    for leaf in leaves:
        assert leaf.shape[:2] == (50, sampler.chains)
        assert len(np.unique(leaf.reshape(50 * sampler.chains, -1), axis=0)) == 50 * sampler.chains


def test_judge_is_used_on_every_shard():
    results = replicated(get_sampler("hmc"))
    lengths = results[0].chain_lengths
    u = results[0].draws.reshape(len(lengths), lengths[0], -1)
    names = model().space.coordinate_names
    record = results[0].record
    again = judge(u, results[0].log_density.reshape(u.shape[:2]), record["acceptance"], 0, names)
    assert again.rhat == record["rhat"]
