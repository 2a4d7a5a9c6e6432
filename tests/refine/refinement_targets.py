"""Posteriors with a known truth, behind a real pass-back."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from consilience.model.model import Model
from consilience.numerics import weighted_mean
from consilience.refine import PassBack
from consilience.sample.shard import ShardTask


@dataclass(frozen=True)
class Rows:
    """A shard's rows, in memory."""

    columns: dict[str, np.ndarray]

    def read(self) -> dict[str, np.ndarray]:
        return self.columns


def shard_tasks(columns: dict[str, np.ndarray], num_shards: int, *, even: bool = False) -> list[ShardTask]:
    """Shards of given rows, unequal unless they shall be even."""
    total = len(next(iter(columns.values())))
    edges = np.linspace(0, 1, num_shards + 1) ** (1.0 if even else 1.2) * total
    edges = edges.round().astype(int)
    return [
        ShardTask(b, f"part {b}", (high - low) / total, Rows({k: v[low:high] for k, v in columns.items()}))
        for b, (low, high) in enumerate(itertools.pairwise(edges))
    ]


def pass_back_of(
    model: Model, columns: dict[str, np.ndarray], num_shards: int = 3, *, even: bool = False, **options: Any
) -> PassBack:
    """The real thing, over shards in memory."""
    tasks = shard_tasks(columns, num_shards, even=even)
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
        return mahalanobis(draws, self.mean, self.covariance, log_weights)


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


def mahalanobis(
    draws: np.ndarray, mean: np.ndarray, covariance: np.ndarray, log_weights: np.ndarray | None = None
) -> float:
    off = weighted_mean(draws, log_weights) - mean
    return float(np.sqrt(off @ np.linalg.solve(covariance, off)))


class Bimodal:
    """Two modes in every coordinate, 30 % and 70 %, as a prior with rows that say nothing."""

    dimension = 2

    @classmethod
    def pass_back(cls) -> PassBack:
        weights = np.array([0.3, 0.7], np.float32)
        mixture = dist.MixtureSameFamily(
            dist.Categorical(probs=weights), dist.Normal(np.array([-3.0, 3.0], np.float32), 1.0)
        )
        return from_prior({"t": mixture.expand([cls.dimension]).to_event(1)})

    @classmethod
    def draws(cls, number: int, rng: np.random.Generator) -> np.ndarray:
        shape = (number, cls.dimension)
        return np.where(rng.uniform(size=shape) < 0.3, -3.0, 3.0) + rng.normal(size=shape)


def rare_features(rng: np.random.Generator, rows: int = 100_000) -> dict[str, np.ndarray]:
    """Section 4.3 of the SwISS paper: five binary features, one of them in a thousandth of the rows."""
    x = (rng.uniform(size=(rows, 5)) < [1, 0.02, 0.03, 0.05, 0.001]).astype(np.float32)
    eta = x @ np.array([-3.0, 1.2, -0.5, 0.8, 3.0])
    y = (rng.uniform(size=rows) < 1 / (1 + np.exp(-eta))).astype(np.float32)
    return {"x": x, "y": y}


def merged(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Equal rows counted: the same likelihood from a handful of rows."""
    table = np.column_stack([columns["x"], columns["y"]])
    rows, counts = np.unique(table, axis=0, return_counts=True)
    return {"x": rows[:, :-1], "y": rows[:, -1], "row_weight": counts.astype(np.float64)}


def logistic_model(dimension: int) -> Model:
    return Model({"beta": dist.Normal(0, 10).expand([dimension]).to_event(1)}, logistic)


def importance_truth(
    pass_back: PassBack, number: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance by importance sampling from a t_8 around the mode: nothing that is tested is used."""
    from consilience.refine.newton import find_mode

    peak = find_mode(pass_back, np.zeros(pass_back.dimension), 30)
    root = np.linalg.cholesky(peak.covariance)
    dimension = len(peak.point)
    z = rng.normal(size=(number, dimension)) / np.sqrt(rng.chisquare(8, size=(number, 1)) / 8)
    found = pass_back.densities(peak.point + z @ root.T)
    ratio = found.log_density + 0.5 * (8 + dimension) * np.log1p(np.sum(z**2, axis=1) / 8)
    weights = np.exp(ratio - ratio.max())
    weights /= weights.sum()
    assert 1 / np.sum(weights**2) > 0.2 * number
    mean = weights @ found.points
    off = found.points - mean
    return mean, (off * weights[:, None]).T @ off
