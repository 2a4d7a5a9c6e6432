"""Every registered rule on the same draws."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

import consilience as cs
from consilience.combine import MethodRecord, methods
from consilience.combine import combine as combine_draws
from consilience.errors import ConsilienceWarning

# The settings that the papers compare with, where they are not the defaults: their barycenter is a Gaussian.
PAPERS_OPTIONS: dict[str, dict[str, Any]] = {"gaussian-barycenter": {"output": "gaussian"}}

# Rules that walk over draws or build trees of them: minutes for every 10^5 draws of many shards.
SLOW = ("kernel-product", "semiparametric-product", "partition-trees")


def usable_rules() -> Iterator[MethodRecord]:
    """Rules that need nothing but draws."""
    return (record for record in methods() if set(record.needs) <= {"draws"})


def kind_of(record: MethodRecord) -> str:
    """The kind of draws that a rule is given here: inflated where it takes either."""
    return "inflated" if record.kind == "any" else str(record.kind)


def combine(name: str, draws: cs.Subposteriors, seed: int, **options: Any) -> cs.Posterior:
    """One rule, with the papers' settings; what it warns of is in the posterior's record."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConsilienceWarning)
        return combine_draws(draws, method=name, seed=seed, **PAPERS_OPTIONS.get(name, {}), **options)


def combine_all(
    draws: Mapping[str, cs.Subposteriors],
    seed: int,
    rules: Collection[str] | None = None,
    **options: Any,
) -> Iterator[tuple[str, cs.Posterior]]:
    """Every usable rule, or those named, on the draws of its kind; one that refuses says so and is left out."""
    for record in usable_rules():
        if rules is not None and record.name not in rules:
            continue
        try:
            yield record.name, combine(record.name, draws[kind_of(record)], seed, **options)
        except cs.ConsilienceError as refusal:
            print(f"{record.name} refused: {refusal}", file=sys.stderr)


def combine_linear(
    draws: Mapping[str, cs.Subposteriors], coefficients: Mapping[str, float], seed: int
) -> Iterator[tuple[str, cs.Posterior]]:
    """Every usable rule's draws of one linear function: rules for functions are given it, others' draws mapped."""
    for record in usable_rules():
        given = draws[kind_of(record)]
        try:
            if "functions" in record.options:
                function = {"linear": dict(coefficients)}
                yield record.name, combine(record.name, given, seed, functions=function)
            else:
                yield record.name, linear(combine(record.name, given, seed), coefficients)
        except cs.ConsilienceError as refusal:
            print(f"{record.name} refused: {refusal}", file=sys.stderr)


def linear(posterior: cs.Posterior, coefficients: Mapping[str, float]) -> cs.Posterior:
    """A linear function of every draw; parameters that are not named do not enter."""
    x = np.array([coefficients.get(name, 0.0) for name in posterior.names])
    return cs.Posterior((posterior.array @ x)[:, None], names=("linear",), log_weights=posterior.log_weights)
