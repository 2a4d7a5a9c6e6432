"""Posteriors with a known truth, behind a real pass-back."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from consilience.model.model import Model
from consilience.refine import PassBack

try:
    from consilience.sample.shard import ShardTask
except ImportError:
    from collections import namedtuple

    ShardTask = namedtuple("ShardTask", "index label weight reference")


@dataclass(frozen=True)
class Rows:
    """A shard's rows, in memory."""

    columns: dict[str, np.ndarray]

    def read(self) -> dict[str, np.ndarray]:
        return self.columns


def shard_tasks(columns: dict[str, np.ndarray], num_shards: int) -> list[ShardTask]:
    """Unequal shards of given rows."""
    total = len(next(iter(columns.values())))
    edges = np.linspace(0, 1, num_shards + 1) ** 1.2 * total
    edges = edges.round().astype(int)
    return [
        ShardTask(b, f"part {b}", (high - low) / total, Rows({k: v[low:high] for k, v in columns.items()}))
        for b, (low, high) in enumerate(itertools.pairwise(edges))
    ]


def pass_back_of(
    model: Model, columns: dict[str, np.ndarray], num_shards: int = 3, **options: Any
) -> PassBack:
    tasks = shard_tasks(columns, num_shards)
    example = {name: np.asarray(values[:8]) for name, values in columns.items()}
    return PassBack(model, model.fingerprint(example), tasks, **options)


@dataclass(frozen=True)
class Gaussian:
    """Linear regression with known noise and a Gaussian prior: everything in closed form."""

    columns: dict[str, np.ndarray]
    mean: np.ndarray
    covariance: np.ndarray
    model: Model

    @classmethod
    def of(cls, dimension: int, rows: int = 500, seed: int = 0) -> Gaussian:
        rng = np.random.default_rng(seed)
        mixing = np.eye(dimension) + 0.5 * rng.normal(size=(dimension, dimension)) / np.sqrt(dimension)
        x = (rng.normal(size=(rows, dimension)) @ mixing).astype(np.float32)
        y = (x @ np.ones(dimension) + rng.normal(size=rows)).astype(np.float32)
        wide = x.astype(np.float64)
        precision = wide.T @ wide + np.eye(dimension) / 100.0
        covariance = np.linalg.inv(precision)
        model = Model({"beta": dist.Normal(0, 10).expand([dimension]).to_event(1)}, linear)
        return cls({"x": x, "y": y}, covariance @ (wide.T @ y.astype(np.float64)), covariance, model)

    def draws(self, number: int, rng: np.random.Generator) -> np.ndarray:
        return rng.multivariate_normal(self.mean, self.covariance, size=number)

    def pass_back(self, **options: Any) -> PassBack:
        return pass_back_of(self.model, self.columns, **options)

    def mahalanobis(self, draws: np.ndarray, log_weights: np.ndarray | None = None) -> float:
        return mahalanobis(draws, self.mean, self.covariance)


def linear(params: dict[str, Any], rows: dict[str, Any]) -> Any:
    return -0.5 * (rows["y"] - rows["x"] @ params["beta"]) ** 2


def logistic(params: dict[str, Any], rows: dict[str, Any]) -> Any:
    eta = rows["x"] @ params["beta"]
    return rows["y"] * eta - jnp.logaddexp(0.0, eta)


def exponential(params: dict[str, Any], rows: dict[str, Any]) -> Any:
    return jnp.log(params["rate"]) - params["rate"] * rows["y"]


def from_prior(prior: dict[str, Any]) -> PassBack:
    """A posterior that is its prior: rows that say nothing."""
    model = Model(prior, nothing)
    return pass_back_of(model, {"y": np.zeros(40, np.float32)}, precision="float64")


def nothing(params: dict[str, Any], rows: dict[str, Any]) -> Any:
    return 0.0 * rows["y"]


def mahalanobis(draws: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> float:
    off = draws.mean(axis=0) - mean
    return float(np.sqrt(off @ np.linalg.solve(covariance, off)))
