"""A posterior known in closed form, and a test that tells draws from it from draws of anything else.

The model is a linear regression with unit noise beside waiting times with an unknown rate. Rows are raised
to the power 1 / w ("inflated") or the prior to the power w ("subposterior"); either way the coefficients stay
Gaussian, correlated by the design, and the rate is a gamma in disguise: it is sampled through its logarithm,
where few waiting times leave it skewed.

Many shards with the same rows and different random streams are drawn. Their averages are independent, so
their spread is the Monte Carlo error, whatever the chains' autocorrelation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy import stats

from consilience.model.model import Model
from consilience.sample.shard import ShardDraws, ShardSampler, ShardTask
from consilience.sample.vectorised import sample_chunks

REPLICATES = 64
PRIOR_SD = 2.0
SHAPE, RATE = 2.0, 1.5
# Standard errors beyond which one of 21 averages is not chance (a right sampler: one run in 1,500).
LIMIT = 4.5


class Rows:
    """A reference to rows in memory."""

    def __init__(self, columns: dict[str, np.ndarray]) -> None:
        self.columns = columns

    def read(self) -> dict[str, np.ndarray]:
        return self.columns


def log_likelihood(params: dict[str, Any], rows: dict[str, Any]) -> Any:
    residual = rows["y"] - rows["x"] @ params["beta"]
    waiting = jnp.log(params["rate"]) - params["rate"] * rows["wait"]
    return -0.5 * residual**2 + rows["waited"] * waiting


def model() -> Model:
    prior = {
        "beta": dist.Normal(0, PRIOR_SD).expand([3]).to_event(1),
        "rate": dist.Gamma(SHAPE, RATE),
    }
    return Model(prior, log_likelihood)


def rows() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    x = rng.normal(size=(20, 3))
    x[:, 1] = 0.98 * x[:, 0] + 0.2 * x[:, 1]
    waited = np.zeros(20)
    waited[:2] = 1.0
    return {
        "x": x.astype(np.float32),
        "y": (x @ [1.0, -1.0, 0.5] + rng.normal(size=20)).astype(np.float32),
        "wait": np.where(waited > 0, rng.exponential(size=20), 1.0).astype(np.float32),
        "waited": waited.astype(np.float32),
    }


@dataclass(frozen=True)
class Truth:
    """The exact law of one kind of target."""

    mean: np.ndarray
    covariance: np.ndarray
    rate: Any

    @classmethod
    def of(cls, kind: str, weight: float) -> Truth:
        data = {name: np.asarray(values, np.float64) for name, values in rows().items()}
        prior, likelihood = (1.0, 1.0 / weight) if kind == "inflated" else (weight, 1.0)
        precision = likelihood * data["x"].T @ data["x"] + prior * np.eye(3) / PRIOR_SD**2
        covariance = np.linalg.inv(precision)
        mean = covariance @ (likelihood * data["x"].T @ data["y"])
        # The Jacobian of the logarithm is raised to the prior's power with the prior, so in u = log rate the
        # density is exp(u)^(prior (SHAPE - 1 + 1) + likelihood n) exp(-...): a gamma with this shape.
        shape = prior * SHAPE + likelihood * data["waited"].sum()
        rate = prior * RATE + likelihood * (data["waited"] * data["wait"]).sum()
        return cls(mean, covariance, stats.gamma(shape, scale=1 / rate))

    def scores(self, draws: np.ndarray) -> np.ndarray:
        """What each draw says about the law: every column has mean zero under the truth.

        Whitened coordinates, their squares and products, the gamma's uniform score in quarters, and its tail.
        """
        root = np.linalg.cholesky(np.linalg.inv(self.covariance))
        z = (draws[:, :3] - self.mean) @ root
        uniform = self.rate.cdf(np.exp(draws[:, 3]))
        products = [z[:, i] * z[:, j] - (i == j) for i in range(3) for j in range(i + 1)]
        inside = [(uniform < q) - q for q in (0.05, 0.25, 0.5, 0.75, 0.95)]
        tails = [(np.abs(z[:, i]) > 1.959964) - 0.05 for i in range(3)]
        both = [z[:, i] * (uniform - 0.5) for i in range(3)]
        return np.stack([*z.T, *products, *inside, *tails, *both, uniform - 0.5], axis=1)


def replicated(
    sampler: Any,
    *,
    kind: str = "inflated",
    weight: float = 0.25,
    draws: int = 200,
    precision: str = "float32",
    tried: Model | None = None,
) -> list[ShardDraws]:
    """The same shard drawn many times with different random streams."""
    chosen = model() if tried is None else tried
    sample = ShardSampler(chosen, chosen.fingerprint(), kind, sampler, draws, seed=11, precision=precision)
    tasks = [ShardTask(i, f"copy {i}", weight, Rows(rows())) for i in range(REPLICATES)]
    return list(sample_chunks(sample, [tasks], size=REPLICATES, workers=1))


def surprise(results: list[ShardDraws], truth: Truth) -> float:
    """Largest distance from the truth of any average, in standard errors."""
    averages = np.stack([truth.scores(result.draws).mean(axis=0) for result in results])
    error = averages.std(axis=0, ddof=1) / np.sqrt(len(averages))
    return float(np.max(np.abs(averages.mean(axis=0)) / error))
