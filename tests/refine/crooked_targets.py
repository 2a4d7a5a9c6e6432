"""Posteriors that no affine map mends, as models with rows, with exact draws of the whole and of each shard."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from refinement_targets import Rows

from consilience.combine.swiss import Swiss
from consilience.draws import Subposteriors
from consilience.model.model import Model
from consilience.refine import PassBack
from consilience.sample.shard import ShardTask


@dataclass(frozen=True, eq=False)
class Target:
    """A posterior behind a pass-back, with exact draws."""

    pass_back: PassBack
    exact: np.ndarray
    shards: Subposteriors

    @property
    def swiss(self) -> np.ndarray:
        return Swiss().combine(self.shards).array

    def mahalanobis(self, draws: np.ndarray, log_weights: np.ndarray | None = None) -> float:
        mean, covariance = self.moments
        off = np.average(draws, axis=0, weights=natural(log_weights)) - mean
        return float(np.sqrt(off @ np.linalg.solve(covariance, off)))

    @cached_property
    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        return self.exact.mean(axis=0), np.cov(self.exact, rowvar=False)

    @cached_property
    def bins(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Edges of fifty bins of every marginal, and the exact draws' shares of them."""
        found = []
        for y in self.exact.T:
            edges = np.quantile(y, np.arange(1, 50) / 50)
            found.append((edges, np.bincount(np.searchsorted(edges, y), minlength=50) / len(y)))
        return found

    def iad(self, draws: np.ndarray, log_weights: np.ndarray | None = None) -> float:
        """Integrated absolute distance of binned marginals, mean over parameters."""
        found = []
        for x, (edges, true) in zip(draws.T, self.bins, strict=True):
            share = np.bincount(np.searchsorted(edges, x), weights=natural(log_weights), minlength=50)
            found.append(0.5 * np.sum(np.abs(share / share.sum() - true)))
        return float(np.mean(found))


def natural(log_weights: np.ndarray | None) -> np.ndarray | None:
    return None if log_weights is None else np.exp(log_weights - np.max(log_weights))


def behind(model: Model, columns: dict[str, np.ndarray], num_shards: int) -> PassBack:
    """Even shards, in order."""
    total = len(next(iter(columns.values())))
    edges = np.linspace(0, total, num_shards + 1).round().astype(int)
    tasks = [
        ShardTask(b, str(b), 1.0 / num_shards, Rows({k: v[low:high] for k, v in columns.items()}))
        for b, (low, high) in enumerate(itertools.pairwise(edges))
    ]
    example = {name: values[:4] for name, values in columns.items()}
    return PassBack(model, model.fingerprint(example), tasks, precision="float64")


def on_grid(log_density: Any, axes: list[np.ndarray], number: int, rng: np.random.Generator) -> np.ndarray:
    """Draws of a density on a grid of cells, uniform within each cell."""
    mesh = np.meshgrid(*axes, indexing="ij")
    values = log_density(*mesh).ravel()
    chance = np.exp(values - values.max())
    places = (np.arange(number) + rng.uniform()) / number
    cell = np.searchsorted(np.cumsum(chance / chance.sum()), places).clip(max=len(chance) - 1)
    columns = [
        m.ravel()[cell] + (a[1] - a[0]) * (rng.uniform(size=number) - 0.5)
        for m, a in zip(mesh, axes, strict=True)
    ]
    return rng.permutation(np.column_stack(columns))


# -- a bent posterior: theta_1 ~ N(ybar_1, 1), theta_2 + theta_1^2 ~ N(ybar_2, 1) --


def bent(params: dict[str, Any], rows: dict[str, Any]) -> Any:
    t, number = params["t"], rows["n"]
    return -0.5 * ((rows["y"][:, 0] - t[0]) ** 2 + (rows["y"][:, 1] - t[1] - t[0] ** 2) ** 2) / number


def banana(rng: np.random.Generator, *, shards: int = 10, draws: int = 1000) -> Target:
    """Shards alike in shape, at places that scatter along the bend."""
    number = 400
    y = np.sqrt(number) * rng.normal(size=(number, 2)) * 0.25
    y = y - y.mean(axis=0) + rng.normal(size=2) * 0.1
    model = Model({"t": dist.ImproperUniform(dist.constraints.real_vector, (), (2,))}, bent)

    def law(part: np.ndarray, count: int) -> np.ndarray:
        centre = part.mean(axis=0) + rng.normal(size=(count, 2))
        return np.column_stack([centre[:, 0], centre[:, 1] - centre[:, 0] ** 2])

    parts = [law(part, draws) for part in np.split(y, shards)]
    columns = {"y": y, "n": np.full(number, float(number))}
    exact = law(y, 400_000)
    return Target(behind(model, columns, shards), exact, Subposteriors.of(parts, kind="inflated"))


# -- Ornstein-Uhlenbeck: a needle whose direction only the prior ends --

STEP = 6.0


def transition(theta: Any, log_variance: Any, before: Any, after: Any) -> Any:
    """Equation (11) of the SwISS paper, in theta and the logarithm of the stationary variance."""
    decay = jnp.exp(-0.5 * theta * STEP)
    log_spread = log_variance + jnp.log1p(-(decay**2))
    return -0.5 * (log_spread + (after - before * decay) ** 2 * jnp.exp(-log_spread))


def needle(params: dict[str, Any], rows: dict[str, Any]) -> Any:
    log_theta, log_sigma = params["log"][0], params["log"][1]
    return transition(jnp.exp(log_theta), 2.0 * log_sigma - log_theta, rows["before"], rows["after"])


def ornstein_uhlenbeck(rng: np.random.Generator, *, shards: int = 10, draws: int = 1000) -> Target:
    """Ten series of 366 values as in section 4.4 of the SwISS paper; coordinates are log theta and log sigma."""
    length, rho = 366, np.exp(-0.5 * STEP)
    x = np.empty((shards, length))
    x[:, 0] = rng.normal(size=shards)
    for m in range(1, length):
        x[:, m] = rho * x[:, m - 1] + np.sqrt(1 - rho**2) * rng.normal(size=shards)
    columns = {"before": x[:, :-1].ravel(), "after": x[:, 1:].ravel()}
    model = Model({"log": dist.Normal(0.0, 1.0).expand([2]).to_event(1)}, needle)
    target = behind(model, columns, shards)

    def law(rows: slice, power: float, count: int) -> np.ndarray:
        a, b = x[rows, :-1].ravel(), x[rows, 1:].ravel()
        sums = np.array([np.sum(a * a), np.sum(a * b), np.sum(b * b)])

        def log_density(log_theta: np.ndarray, log_variance: np.ndarray) -> np.ndarray:
            decay = np.exp(-0.5 * np.exp(log_theta) * STEP)
            spread = log_variance + np.log1p(-(decay**2))
            residual = (sums[2] - 2 * decay * sums[1] + decay**2 * sums[0]) * np.exp(-spread)
            prior = -0.5 * (log_theta**2 + (0.5 * (log_variance + log_theta)) ** 2)
            return prior - 0.5 * power * (len(a) * spread + residual)

        middle = np.log(sums[2] / len(a))
        axes = [np.linspace(-1.6, 5.0, 1601), middle + np.linspace(-0.35, 0.35, 701)]
        found = on_grid(log_density, axes, count, rng)
        return np.column_stack([found[:, 0], 0.5 * (found[:, 1] + found[:, 0])])

    parts = [law(slice(b, b + 1), float(shards), draws) for b in range(shards)]
    exact = law(slice(None), 1.0, 400_000)
    return Target(target, exact, Subposteriors.of(parts, kind="inflated"))


# -- two modes in one of ten coordinates: section 3.3.4 of the thesis --

OTHERS, SD = 9, 0.1


def two_modes(params: dict[str, Any], rows: dict[str, Any]) -> Any:
    t = params["t"]
    modes = -0.5 * ((t[0] - rows["modes"]) / SD) ** 2
    rest = -0.5 * jnp.sum(((t[1:] - rows["rest"]) / SD) ** 2, axis=1)
    return jnp.logaddexp(modes[:, 0], modes[:, 1]) + rest


def bimodal(rng: np.random.Generator, *, shards: int = 10, draws: int = 1000, width: float = 0.1) -> Target:
    """One row per shard: its modes lie near 0 and 1, and scatter with standard deviation `width`."""
    modes = np.array([0.0, 1.0]) + width * rng.normal(size=(shards, 2))
    rest = np.tile(np.array([(-1.0) ** i for i in range(OTHERS)]), (shards, 1))
    model = Model({"t": dist.ImproperUniform(dist.constraints.real_vector, (), (OTHERS + 1,))}, two_modes)

    def law(rows: slice, power: float, count: int) -> np.ndarray:
        def log_density(t: np.ndarray) -> np.ndarray:
            halves = -0.5 * ((t[:, None, None] - modes[rows]) / SD) ** 2
            return power * np.logaddexp(halves[..., 0], halves[..., 1]).sum(axis=1)

        first = on_grid(log_density, [np.linspace(-0.8, 1.8, 26_001)], count, rng)
        spread = SD / np.sqrt(power * len(modes[rows]))
        return np.column_stack([first, rest[0] + spread * rng.normal(size=(count, OTHERS))])

    parts = [law(slice(b, b + 1), float(shards), draws) for b in range(shards)]
    target = behind(model, {"modes": modes, "rest": rest}, shards)
    exact = law(slice(None), 1.0, 200_000)
    return Target(target, exact, Subposteriors.of(parts, kind="inflated"))
