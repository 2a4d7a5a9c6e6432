"""Far from Gaussian: the law is right, or the shard is called not converged. The truth is found on a grid."""

from __future__ import annotations

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from shard_models import Rows, grid_moments, logistic_model, on_grid, sample

from consilience.model.model import Model
from consilience.sample.hmc import HMC
from consilience.sample.nuts import NUTS
from consilience.sample.shard import ShardSampler, ShardTask
from consilience.sample.vectorised import sample_chunks

COPIES = 32
LIMIT = 4.5


def log_logistic(x: np.ndarray, y: np.ndarray, beta: np.ndarray) -> np.ndarray:
    eta = beta @ x.T
    return (y * eta - np.logaddexp(0, eta)).sum(axis=-1)


def copies(model: Model, rows: Rows, *, draws: int = 316, kernel=None, power: float = 1.0) -> list:
    """Independent runs of one shard; those that did not converge at once are repeated alone, as for users."""
    run = ShardSampler(model, model.fingerprint(), "inflated", kernel or HMC(), draws, seed=21)
    tasks = [ShardTask(b, "copy", 1 / power, rows) for b in range(COPIES)]
    return list(sample_chunks(run, [tasks], size=COPIES, workers=1))


def surprise(results: list, means: np.ndarray, sds: np.ndarray) -> float:
    """Largest distance of the copies' average mean and spread from the truth, in their own standard errors."""
    scores = np.stack(
        [
            np.concatenate([r.draws.mean(axis=0) - means, ((r.draws - means) ** 2).mean(axis=0) - sds**2])
            for r in results
        ]
    )
    return float(np.max(np.abs(scores.mean(axis=0)) / (scores.std(axis=0, ddof=1) / np.sqrt(len(scores)))))


def rare_event() -> tuple[Rows, np.ndarray, np.ndarray]:
    """2,000 rows, three events, one of them where a rare feature is present: skewed in both coordinates."""
    x = np.stack([np.ones(2000), np.arange(2000) < 30], axis=1).astype(float)
    y = np.isin(np.arange(2000), [5, 100, 200]).astype(float)
    axes = np.linspace(-13, -3, 400), np.linspace(-12, 9, 400)

    def log_density(beta: np.ndarray) -> np.ndarray:
        cells = np.unique(np.column_stack([x, y]), axis=0, return_counts=True)
        terms = 0.0
        for (one, rare, event), count in zip(*cells, strict=True):
            eta = beta[..., 0] * one + beta[..., 1] * rare
            terms = terms + count * (event * eta - np.logaddexp(0, eta))
        return terms - (beta**2).sum(axis=-1) / (2 * 4.0**2)

    means, sds = grid_moments(on_grid(log_density, *axes), *axes)
    return Rows(x=x, y=y), means, sds


@pytest.mark.parametrize("kernel", [HMC(), pytest.param(NUTS(), marks=pytest.mark.long)], ids=["hmc", "nuts"])
def test_rare_events(kernel):
    rows, means, sds = rare_event()
    results = copies(logistic_model(2, prior_sd=4.0), rows, kernel=kernel)
    assert surprise(results, means, sds) < LIMIT
    # The oracle is not blind: it sees one standard error of one shard's mean, and 15 % of its spread.
    assert surprise(results, means + sds / np.sqrt(200), sds) > LIMIT
    assert surprise(results, means, 1.15 * sds) > LIMIT
    assert sum(result.record["status"] != "converged" for result in results) == 0


def test_a_separated_direction_keeps_the_shape_the_prior_gives_it():
    x = np.linspace(-1, 1, 30)[:, None]
    y = (x[:, 0] > 0).astype(float)
    axis = np.linspace(-5, 80, 6000)
    weights = on_grid(lambda b: log_logistic(x, y, b) - (b[..., 0] / 10.0) ** 2 / 2, axis)
    means, sds = grid_moments(weights, axis)
    results = copies(logistic_model(1, prior_sd=10.0), Rows(x=x, y=y))
    assert surprise(results, means, sds) < LIMIT
    # Laplace alone is wrong here, so that the draws and not the start are tested.
    quantile = np.interp(0.9, np.cumsum(weights), axis)
    below = np.array([(result.draws < quantile).mean() for result in results])
    assert abs(below.mean() - 0.9) < LIMIT * below.std() / np.sqrt(COPIES)


def funnel_likelihood(params, rows):
    return dist.Normal(params["m"], jax.numpy.exp(params["s"])).log_prob(rows["y"])


def test_a_mild_funnel():
    """A mean and a log standard deviation from four rows: wide where it is wide, narrow where it is narrow."""
    y = np.array([-0.6, -0.1, 0.2, 0.9])
    m, s = np.linspace(-6, 6, 800), np.linspace(-4, 4, 800)

    def log_density(u: np.ndarray) -> np.ndarray:
        scaled = (y[:, None, None] - u[..., 0]) / np.exp(u[..., 1])
        return (-0.5 * scaled**2 - u[..., 1]).sum(axis=0) - 0.5 * (u[..., 0] / 2) ** 2 - 0.5 * u[..., 1] ** 2

    means, sds = grid_moments(on_grid(log_density, m, s), m, s)
    results = copies(
        Model({"m": dist.Normal(0, 2.0), "s": dist.Normal(0, 1.0)}, funnel_likelihood), Rows(y=y)
    )
    assert surprise(results, means, sds) < LIMIT
    assert sum(result.record["status"] != "converged" for result in results) <= 1


def deep_funnel_likelihood(params, rows):
    return dist.Normal(0.0, jax.numpy.exp(1.5 * params["v"])).log_prob(params["x"]).sum() * rows["one"]


def test_a_deep_funnel_is_not_passed_off_as_converged():
    model = Model(
        {"v": dist.Normal(0, 1.0), "x": dist.Normal(0, 50.0).expand([8]).to_event(1)}, deep_funnel_likelihood
    )
    record = sample(model, Rows(one=np.ones(1)), draws=316).record
    assert record["status"] == "not converged"
    assert record["repeats"] == 2
    assert record["problems"]


@pytest.mark.long
@pytest.mark.parametrize("kernel", [HMC(), NUTS()], ids=["hmc", "nuts"])
@pytest.mark.parametrize("dimension", [1, 5, 28])
@pytest.mark.parametrize("draws", [316, 2000])
def test_healthy_shards_are_rarely_repeated(kernel, dimension, draws):
    rng = np.random.default_rng(dimension)
    x = rng.normal(size=(200, dimension))
    rows = Rows(x=x, y=(rng.random(200) < 0.5).astype(float))
    model = logistic_model(dimension)
    run = ShardSampler(model, model.fingerprint(), "inflated", kernel, draws, seed=1)
    tasks = [ShardTask(b, "copy", 1.0, rows) for b in range(200)]
    groups = [tasks[i : i + 50] for i in range(0, 200, 50)]
    repeats = sum(result.record["repeats"] > 0 for result in sample_chunks(run, groups, size=50))
    # One in a thousand each is aimed at; four of 200 would happen once in 10,000 times.
    assert repeats <= 3
