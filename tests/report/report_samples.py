"""Reports to test with: Gaussian shards whose posterior is known, under names that try to break the page."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from consilience.draws import Posterior, Subposteriors
from consilience.report import ReportInput, RulesInput

HOSTILE_NAMES = (
    "<script>alert(1)</script>",
    "a & b",
    "price in $US$ and $x_1^2$",
    "\"><img src=x onerror='alert(2)'>",
    "line\nbreak \x07",
)
HOSTILE_LABEL = "Leeds & <b>Bradford</b>"


def gaussian_shards(
    rng: np.random.Generator, weights: np.ndarray, dimension: int, kind: str, num_draws: int = 400
) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Draws of shards of one population, and the exact posterior's mean and covariance.

    Shard b's information is w_b I, so that S_b = I / w_b and V = I, seen through a correlated map.
    """
    root = np.linalg.cholesky(0.4 + 0.6 * np.eye(dimension))
    means = rng.normal(size=(len(weights), dimension)) / np.sqrt(weights)[:, None]
    scale = np.ones(len(weights)) if kind == "inflated" else 1 / np.sqrt(weights)
    noise = [rng.normal(size=(num_draws, dimension)) for _ in weights]
    draws = [(m + s * z) @ root.T for m, s, z in zip(means, scale, noise, strict=True)]
    return draws, root @ (weights @ means), root @ root.T


def sample_report(
    dimension: int = 6,
    num_shards: int = 10,
    kind: str = "inflated",
    num_draws: int = 400,
    seed: int = 0,
    moved: float = 0.0,
    **fields: Any,
) -> ReportInput:
    """A report over Gaussian shards; shard 7 is moved by so many posterior sd in parameter 1."""
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.full(num_shards, 30.0))
    draws, mean, covariance = gaussian_shards(rng, weights, dimension, kind, num_draws)
    if moved:
        draws[7][:, 1] += moved
    names = ("Intercept", *HOSTILE_NAMES, *(f"x{j}" for j in range(dimension)))[:dimension]
    labels = [f"site {b}" for b in range(num_shards)]
    labels[-1] = HOSTILE_LABEL
    combined = rng.multivariate_normal(mean, covariance, size=2000)
    table = pd.DataFrame(
        {
            "rows": rng.integers(900, 1100, num_shards),
            "weight": weights,
            "draws": num_draws,
            "rhat": np.full(num_shards, 1.002),
            "ess_bulk": np.full(num_shards, 350.0),
            "ess_tail": np.full(num_shards, 340.0),
            "divergences": np.zeros(num_shards, dtype=int),
            "seconds": rng.gamma(9, 0.1, num_shards),
            "status": "converged",
        },
        index=pd.Index(labels, name="shard"),
    )
    given: dict[str, Any] = {
        "title": "late ~ a & b <c>",
        "posterior": Posterior(combined, names=names, effective_sizes=np.full(dimension, 1800.0)),
        "subposteriors": Subposteriors.of(draws, kind=kind, weights=weights, names=names, labels=labels),
        "shard_table": table,
        "cost": {"seconds": {"prepare": 0.5, "sample": 12.0}, "full_data_gradients": {"sample": 480.0}},
        "model": {"formula": "late ~ a & b <c>", "prior": dict.fromkeys(names, "Normal(0, 2.5)")},
        "settings": {"method": "swiss", "seed": 3, "command": "consilience fit 'y ~ <x>' data.parquet"},
        "notes": ["A note with <i>markup</i>."],
    }
    return ReportInput(**{**given, **fields})


def sample_rules(dimension: int = 6, num_shards: int = 5, num_rules: int = 3, **fields: Any) -> RulesInput:
    """Rules that agree, but for the last, whose mean of parameter 1 is 2 sd away; one is weighted."""
    report = sample_report(dimension, num_shards)
    rng = np.random.default_rng(1)
    names = report.posterior.names
    posteriors = {}
    for k in range(num_rules):
        draws = rng.normal(size=(1000, dimension)) * report.posterior.sd()
        draws[:, 1] += 2 * report.posterior.sd()[1] * (k == num_rules - 1)
        posteriors[f"rule-{k} <b>"] = Posterior(
            draws,
            names=names,
            log_weights=np.zeros(1000) if k == 1 else None,
            info={"options": {"output": "moved"} if k else {}, "notes": ["A <note>."], "warnings": []},
        )
    given: dict[str, Any] = {
        "title": f"{num_shards} shards & <b>rules</b>",
        "posteriors": posteriors,
        "subposteriors": report.subposteriors,
        "seconds": dict.fromkeys(posteriors, 0.01),
        "shard_table": report.shard_table,
        "settings": {"seed": 0, "files": ["<a>.csv"]},
    }
    return RulesInput(**{**given, **fields})
