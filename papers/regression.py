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

# Rows that look at the data again after combining: what combines, what refines. The shards' draws of the first
# are those that every rule gets.
SWISS_REFINED = {"swiss, refined (auto)": {"method": "swiss", "refine": "auto"}}
NEWTON_CENTRE = {"recentering, Newton centre": {"method": "recentering", "refine": "newton"}}


@dataclass(frozen=True)
class Sizes:
    """How much is drawn.

    Attributes
    ----------
    shards : number of shards
    inflated, subposterior : draws of every shard, by kind
    full : draws of the runs on all rows
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


def one_partition(
    model: Any,
    rows: Any,
    sizes: Sizes,
    reference: np.ndarray,
    seed: int,
    found: Mapping[str, Collected],
    refined: Mapping[str, Mapping[str, Any]] = SWISS_REFINED,
    **measuring: Any,
) -> None:
    """Every rule and every refined row on one partition, which the seed decides.

    The keys of `found` are "" for all parameters, or the name of one that is measured on its own.
    """
    inflated = {"shards": sizes.shards, "draws": sizes.inflated * sizes.shards, "seed": seed}
    fits = {row: fit(model, rows, **inflated, **how) for row, how in refined.items()}
    whole = fit(model, rows, shards=sizes.shards, draws=sizes.subposterior, seed=seed, method="consensus")
    draws = {
        "inflated": next(iter(fits.values())).subposteriors,
        "subposterior": whole.subposteriors,
    }
    for name, posterior in combine_all(draws, seed):
        record(name, posterior, reference, found, **measuring)
    for row, result in fits.items():
        record(row, result.posterior, reference, found, **measuring)


def record(
    row: str, posterior: cs.Posterior, reference: np.ndarray, found: Mapping[str, Collected], **measuring: Any
) -> None:
    """Measure a posterior as a whole, and each parameter that has a table of its own."""
    for part, collected in found.items():
        columns = slice(None) if not part else [posterior.names.index(part)]
        chosen = cs.Posterior(posterior.array[:, columns], log_weights=posterior.log_weights)
        collected.add(row, measured(chosen, Reference(reference[:, columns]), **measuring))
