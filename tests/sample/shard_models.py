"""Models and rows for the tests of this room."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from consilience.model.model import Model
from consilience.sample.hmc import HMC
from consilience.sample.shard import ShardDraws, ShardSampler, ShardTask


class Rows:
    """A reference to rows in memory."""

    def __init__(self, **columns: Any) -> None:
        self.columns = {name: np.asarray(values) for name, values in columns.items()}

    def read(self) -> dict[str, np.ndarray]:
        return self.columns


def mean_likelihood(params: dict[str, Any], rows: dict[str, Any]) -> Any:
    return -0.5 * (rows["y"] - params["mu"]) ** 2


def mean_model(prior_sd: float = 10.0) -> Model:
    return Model({"mu": dist.Normal(0, prior_sd)}, mean_likelihood)


def logistic_likelihood(params: dict[str, Any], rows: dict[str, Any]) -> Any:
    eta = rows["x"] @ params["beta"]
    return rows["y"] * eta - jax.nn.softplus(eta)


def logistic_model(dimension: int, prior_sd: float = 2.0) -> Model:
    return Model({"beta": dist.Normal(0, prior_sd).expand([dimension]).to_event(1)}, logistic_likelihood)


def logistic_rows(num_rows: int, dimension: int, seed: int = 0) -> Rows:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(num_rows, dimension)).astype(np.float32)
    y = rng.random(num_rows) < 1 / (1 + np.exp(-x @ np.linspace(-1, 1, dimension)))
    return Rows(x=x, y=y.astype(np.float32))


def sample(
    model: Model,
    rows: Any,
    *,
    weight: float = 1.0,
    kind: str = "inflated",
    draws: int = 400,
    seed: int = 0,
    index: int = 0,
    **settings: Any,
) -> ShardDraws:
    sampler = settings.pop("sampler", HMC())
    task = ShardTask(index, f"shard {index}", weight, rows)
    return ShardSampler(model, model.fingerprint(), kind, sampler, draws, seed, **settings)(task)


def on_grid(log_density: Any, *axes: np.ndarray) -> np.ndarray:
    """Normalised weights of a density on a grid, in float64: the truth where there is no closed form."""
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    values = log_density(points)
    weights = np.exp(values - values.max())
    return weights / weights.sum()


def grid_moments(weights: np.ndarray, *axes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of every coordinate."""
    means, sds = [], []
    for i, axis in enumerate(axes):
        marginal = weights.sum(axis=tuple(j for j in range(len(axes)) if j != i))
        means.append(marginal @ axis)
        sds.append(np.sqrt(marginal @ (axis - means[-1]) ** 2))
    return np.array(means), np.array(sds)


def jnp_log_sum(*terms: Any) -> Any:
    return jax.scipy.special.logsumexp(jnp.stack(terms), axis=0)
