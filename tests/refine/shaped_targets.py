"""Posteriors that no affine map mends, behind a real pass-back, with draws that nothing tested here has made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from refinement_targets import exponential, logistic, pass_back_of

from consilience.model.model import Model
from consilience.refine import PassBack

Generator = np.random.Generator


def from_grid(grid: np.ndarray, log_density: np.ndarray, number: int, rng: Generator) -> np.ndarray:
    """Draws of a density of one variable, known on a fine even grid."""
    cumulative = np.cumsum(np.exp(log_density - log_density.max()))
    return np.interp(rng.random(number), cumulative / cumulative[-1], grid)


@dataclass(frozen=True)
class Banana:
    """y_i ~ N(b + a^2, 1) with a ~ N(0, 1), b ~ N(0, 1): bent, and exactly known."""

    columns: dict[str, np.ndarray]
    dimension = 2

    @classmethod
    def of(cls, rows: int = 12, seed: int = 0) -> Banana:
        y = 1.0 + np.random.default_rng(seed).normal(size=rows)
        return cls({"y": y.astype(np.float32)})

    def pass_back(self) -> PassBack:
        prior = {"t": dist.Normal(0.0, 1.0).expand([2]).to_event(1)}
        return pass_back_of(Model(prior, bent), self.columns)

    def draws(self, number: int, rng: Generator) -> np.ndarray:
        """a from its marginal, where b is integrated out; then b."""
        y = self.columns["y"].astype(np.float64)
        grid = np.linspace(-5.0, 5.0, 40_001)
        spread = 1.0 + 1.0 / len(y)
        a = from_grid(grid, -0.5 * grid**2 - 0.5 * (y.mean() - grid**2) ** 2 / spread, number, rng)
        precision = 1.0 + len(y)
        b = len(y) * (y.mean() - a**2) / precision + rng.normal(size=number) / np.sqrt(precision)
        return np.column_stack([a, b])


def bent(params: dict[str, Any], rows: dict[str, Any]) -> Any:
    return -0.5 * (rows["y"] - params["t"][1] - params["t"][0] ** 2) ** 2


@dataclass(frozen=True)
class FewEvents:
    """Five rates with a few waiting times each: log-gamma posteriors, skewed, exactly known."""

    columns: dict[str, np.ndarray]
    dimension = 5
    shape = 1.0

    @classmethod
    def of(cls, seed: int = 0) -> FewEvents:
        rng = np.random.default_rng(seed)
        which = np.repeat(np.arange(5), [2, 3, 4, 6, 9])
        return cls({"which": which, "y": rng.exponential(size=len(which)).astype(np.float32)})

    def pass_back(self) -> PassBack:
        prior = {"rate": dist.Gamma(self.shape, 1.0).expand([5]).to_event(1)}
        return pass_back_of(Model(prior, of_its_kind), self.columns)

    def draws(self, number: int, rng: Generator) -> np.ndarray:
        which, y = self.columns["which"], self.columns["y"].astype(np.float64)
        total = 1.0 + np.bincount(which, weights=y)
        return np.log(rng.gamma(self.shape + np.bincount(which), 1.0 / total, size=(number, 5)))


def of_its_kind(params: dict[str, Any], rows: dict[str, Any]) -> Any:
    return exponential({"rate": params["rate"][rows["which"]]}, rows)


@dataclass(frozen=True)
class ShortLogistic:
    """Logistic regression in d = 20 with ten rows per coefficient: skewed in all directions a little."""

    columns: dict[str, np.ndarray]
    dimension = 20

    @classmethod
    def of(cls, rows: int = 200, seed: int = 0) -> ShortLogistic:
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(rows, cls.dimension)).astype(np.float32)
        x[:, 0] = 1.0
        beta = 0.7 * rng.normal(size=cls.dimension)
        y = rng.uniform(size=rows) < 1 / (1 + np.exp(1 - x @ beta))
        return cls({"x": x, "y": y.astype(np.float32)})

    def pass_back(self) -> PassBack:
        prior = {"beta": dist.Normal(0.0, 2.5).expand([self.dimension]).to_event(1)}
        return pass_back_of(Model(prior, logistic), self.columns)

    def log_density(self, beta: np.ndarray) -> np.ndarray:
        eta = beta @ self.columns["x"].T.astype(np.float64)
        return eta @ self.columns["y"] - np.logaddexp(0, eta).sum(1) - 0.5 * np.sum(beta**2, axis=1) / 6.25

    def mode(self) -> tuple[np.ndarray, np.ndarray]:
        """The mode and the inverse of the curvature there."""
        x, beta = self.columns["x"].astype(np.float64), np.zeros(self.dimension)
        for _ in range(30):
            chance = 1 / (1 + np.exp(-x @ beta))
            hessian = (x.T * (chance * (1 - chance))) @ x + np.eye(self.dimension) / 6.25
            beta = beta + np.linalg.solve(hessian, x.T @ (self.columns["y"] - chance) - beta / 6.25)
        return beta, np.linalg.inv(hessian)

    def draws(self, number: int, rng: Generator, steps: int = 600) -> np.ndarray:
        """Many independence-and-random-walk chains in parallel, from a normal at the mode: no gradients."""
        mode, covariance = self.mode()
        root = np.linalg.cholesky(covariance)
        at = mode + rng.normal(size=(number, self.dimension)) @ root.T
        height = self.log_density(at)
        for _ in range(steps):
            # The autoregressive proposal keeps the normal at the mode invariant; the rest is corrected.
            share = rng.choice([0.3, 0.6, 1.0])
            noise = rng.normal(size=at.shape) @ root.T
            there = mode + np.sqrt(1 - share**2) * (at - mode) + share * noise
            new = self.log_density(there)
            normal = [-0.5 * np.sum(np.linalg.solve(root, (u - mode).T) ** 2, axis=0) for u in (at, there)]
            taken = np.log(rng.uniform(size=number)) < new - height - normal[1] + normal[0]
            at, height = np.where(taken[:, None], there, at), np.where(taken, new, height)
        return at


@dataclass(frozen=True)
class Needle:
    """Ornstein-Uhlenbeck process seen densely for a short time: a well known sigma, and a drift with a long tail.

    X_{t+dt} | X_t ~ N(X_t e^{-theta dt / 2}, sigma (1 - e^{-theta dt}) / theta), coordinates (log theta, log sigma).
    """

    columns: dict[str, np.ndarray]
    step: float = 0.02
    dimension = 2

    @classmethod
    def of(cls, rows: int = 400, seed: int = 3) -> Needle:
        rng = np.random.default_rng(seed)
        x = [0.0]
        for _ in range(rows):
            x.append(x[-1] * np.exp(-0.5 * cls.step) + rng.normal() * np.sqrt(1 - np.exp(-cls.step)))
        path = np.array(x, np.float32)
        return cls({"x": path[:-1], "y": path[1:]})

    def pass_back(self, shards: int = 3) -> PassBack:
        prior = {"t": dist.Normal(0.0, 2.0).expand([2]).to_event(1)}
        return pass_back_of(Model(prior, self.transition), self.columns, shards, precision="float64")

    def transition(self, params: dict[str, Any], rows: dict[str, Any]) -> Any:
        theta, sigma = jnp.exp(params["t"][0]), jnp.exp(params["t"][1])
        variance = -sigma * jnp.expm1(-theta * self.step) / theta
        off = rows["y"] - rows["x"] * jnp.exp(-0.5 * theta * self.step)
        return -0.5 * off**2 / variance - 0.5 * jnp.log(variance)

    def draws(self, number: int, rng: Generator, part: slice = slice(None), power: float = 1.0) -> np.ndarray:
        """By a grid of both coordinates; of some rows, and with their likelihood to a power, if asked for."""
        x, y = (self.columns[name][part].astype(np.float64) for name in "xy")
        first, second = np.linspace(-12, 5, 1201), np.linspace(-1.5, 1.5, 601)
        theta = np.exp(first)
        decay = np.exp(-0.5 * theta * self.step)
        unit = -np.expm1(-theta * self.step) / theta
        squares = np.sum(y**2) - 2 * decay * np.sum(x * y) + decay**2 * np.sum(x**2)
        fit = -0.5 * (squares / unit)[:, None] * np.exp(-second) - 0.5 * len(y) * (
            np.log(unit)[:, None] + second
        )
        height = power * fit - 0.125 * (first**2)[:, None] - 0.125 * second**2
        chance = np.exp(height - height.max()).ravel()
        at = rng.choice(chance.size, size=number, p=chance / chance.sum())
        cells = np.column_stack([first[at // 601], second[at % 601]])
        return cells + (rng.random((number, 2)) - 0.5) * [first[1] - first[0], second[1] - second[0]]
