"""Regressions fitted in shards and whole: each kind of target sampled once, then combined by every rule."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import consilience as cs
from papers.measuring import Reference, measured
from papers.rules import combine_all
from papers.tables import Collected

# Rows of the tables that look at the data again after combining: what is fitted, what refines it.
REFINED: dict[str, dict[str, Any]] = {
    "swiss, refined (auto)": {"method": "swiss", "refine": "auto"},
    "recentering, Newton centre": {"method": "recentering", "refine": "newton"},
}


@dataclass(frozen=True)
class Sizes:
    """How much is drawn.

    Attributes
    ----------
    shards : number of shards
    inflated, subposterior : draws of every shard, by kind
    full : draws of the runs on all rows, and of the refined fits
    """

    shards: int
    inflated: int
    subposterior: int
    full: int


def fit(model: Any, rows: Any, *, seed: int, refine: Any = None, **settings: Any) -> cs.Fit:
    """One quiet fit; shards that have not converged are named, and go into the tables as they are."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = cs.fit(model, rows, seed=seed, refine=refine, progress=False, **settings)
    for message in result.warnings:
        print(f"  {settings}: {message[:160]}", file=sys.stderr, flush=True)
    return result


def full_data(model: Any, rows: Any, draws: int, seed: int) -> cs.Posterior:
    """Draws from all rows at once."""
    return fit(model, rows, shards=1, draws=draws, seed=seed).posterior


def shard_draws(model: Any, rows: Any, sizes: Sizes, seed: int) -> dict[str, cs.Subposteriors]:
    """Draws of either kind from one partition, which the seed decides."""
    kinds = {
        "inflated": fit(
            model, rows, shards=sizes.shards, method="swiss", draws=sizes.inflated * sizes.shards, seed=seed
        ),
        "subposterior": fit(
            model, rows, shards=sizes.shards, method="consensus", draws=sizes.subposterior, seed=seed
        ),
    }
    return {kind: found.subposteriors for kind, found in kinds.items()}


def one_partition(
    model: Any,
    rows: Any,
    sizes: Sizes,
    reference: np.ndarray,
    seed: int,
    found: Mapping[str, Collected],
    **measuring: Any,
) -> None:
    """Every rule, and every refined row, of one partition; `found` may hold tables of parts of the columns.

    The keys of `found` are "" for all parameters, or the name of one that is measured on its own.
    """
    results = {name: p for name, p in combine_all(shard_draws(model, rows, sizes, seed), seed)}
    for row, settings in REFINED.items():
        results[row] = fit(model, rows, shards=sizes.shards, draws=sizes.full, seed=seed, **settings).posterior
    for row, posterior in results.items():
        record(row, posterior, reference, found, **measuring)


def record(
    row: str, posterior: cs.Posterior, reference: np.ndarray, found: Mapping[str, Collected], **measuring: Any
) -> None:
    """Measure a posterior as a whole, and each parameter that has a table of its own."""
    for part, collected in found.items():
        columns = slice(None) if not part else [posterior.names.index(part)]
        chosen = cs.Posterior(posterior.array[:, columns], log_weights=posterior.log_weights)
        collected.add(row, measured(chosen, Reference(reference[:, columns]), **measuring))
