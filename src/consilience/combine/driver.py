"""`combine`: draws in any form, a rule by name, a posterior out."""

from __future__ import annotations

import warnings as python_warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from consilience.draws import Posterior, Subposteriors
from consilience.errors import ConsilienceWarning, DrawsError, InputError, must_be
from consilience.progress import Progress, is_shown

from .base import Combined, Combiner, Floats, require_targets
from .functions import recorded_options
from .hints import densities_hint, no_longer_positive
from .inputs import Gathered, gather
from .registry import COMBINERS, get_combiner

# Rows on which columns in the user's space are matched to the coordinates in which draws were combined.
MATCHING_ROWS = 2_000


def combine(
    draws: Any,
    *,
    method: str,
    kind: str | None = None,
    weights: Any = None,
    names: Sequence[str] | None = None,
    supports: Mapping[str, str] | None = None,
    parameters: Sequence[str] | None = None,
    seed: int = 0,
    **options: Any,
) -> Posterior:
    """Combine the draws of all shards into draws of the posterior.

    Parameters
    ----------
    draws
        (B, J, d) array, `Subposteriors`, or a list with one entry per shard: an array (J_b, d) or (chains, J,
        d), the path of a file, ArviZ's InferenceData (which PyMC returns) or DataTree, NumPyro's MCMC, a dict of
        (J_b, …) arrays, a table of pandas, Polars or Arrow; or, for several chains, a list of these, a folder or
        a pattern such as ``"shard3-*.csv"``.
    method : str
        Name of a rule, see `methods`.
    kind : "subposterior" or "inflated"
        What the shards sampled: prior^w x likelihood, or prior x likelihood^(1/w). Required for draws that
        do not carry it.
    weights : sequence of B numbers, optional
        The shards' shares of the rows; normalised to sum 1. Equal if not given.
    names : sequence of d str, optional
        Names of the columns. Columns with names are matched by them, in whatever order shards have them.
    supports : dict of str to str, optional
        Bounded parameters: "positive", "unit" (between 0 and 1), "simplex", "ordered" or "correlation". They
        are combined unconstrained and mapped back.
    parameters : sequence of str, optional
        Which parameters to combine; all if not given.
    seed : int
        Seed of rules that permute or draw.
    **options
        Options of the rule.

    Returns
    -------
    Posterior
        ``posterior.info`` records method, kind, weights, options, notes and warnings.

    Examples
    --------
    Two shards that inflated their likelihoods, around 0 and 2 with the same spread:

    >>> shards = np.random.default_rng(0).normal([[[0.0]], [[2.0]]], 1.0, size=(2, 1000, 1))
    >>> posterior = combine(shards, method="swiss", kind="inflated", names=["slope"])
    >>> round(float(posterior.mean()[0]), 1), round(float(posterior.cov()[0, 0]), 1)
    (0.9, 1.0)
    """
    rule = get_combiner(method, **options)
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise must_be(
            "combine", "seed", "a whole number, 0 or more", seed, "Leave it out for 0.", error=InputError
        )
    gathered = gather(
        draws, kind=kind, weights=weights, names=names, supports=supports, parameters=parameters
    )
    return combine_gathered(rule, gathered, seed=int(seed))


def combine_gathered(rule: Combiner, gathered: Gathered, *, seed: int = 0) -> Posterior:
    """Combine draws that were brought together already, for callers who try several rules on them.

    Examples
    --------
    >>> shards = gather(np.random.default_rng(0).normal(size=(2, 50, 1)), kind="inflated")
    >>> [combine_gathered(get_combiner(name), shards).info["method"] for name in ("swiss", "pool")]
    ['swiss', 'pool']
    """
    subposteriors = gathered.subposteriors
    check_kind(rule, subposteriors.kind)
    check_needs(rule, subposteriors)
    # Within `fit` the stage is shown already; alone, work of over a second shows itself.
    with nullcontext() if is_shown() else Progress(patience=1.0) as shown:
        if shown is not None:
            shown.stage(f"combine by {rule.name}")
        combined = rule.combine(subposteriors, seed=seed)
    posterior = _posterior(rule, gathered, combined, seed)
    for message in posterior.info["warnings"]:
        python_warnings.warn(f"{rule.name}: {message}", ConsilienceWarning, stacklevel=3)
    return posterior


def check_kind(rule: Combiner, kind: str) -> None:
    """Refuse draws of the kind that the rule was not made for.

    Examples
    --------
    >>> check_kind(get_combiner("swiss"), "subposterior")
    Traceback (most recent call last):
        ...
    consilience.errors.DrawsError: combine: `kind` must be 'inflated'
    for method 'swiss'. Got 'subposterior'. ...
    """
    if rule.kind in ("any", kind):
        return
    target = "prior x likelihood^(1/w)" if rule.kind == "inflated" else "prior^w x likelihood"
    others = ", ".join(other.name for other in COMBINERS if other.kind in ("any", kind))
    raise must_be(
        "combine",
        "kind",
        f"{rule.kind!r} for method {rule.name!r}",
        kind,
        f"Sample {target} in each shard, or use a rule for {kind} draws ({others}).",
        error=DrawsError,
    )


def check_needs(rule: Combiner, subposteriors: Subposteriors) -> None:
    """Refuse draws that lack the log densities on which the rule rests, and rules that lack their targets.

    Examples
    --------
    >>> shards = Subposteriors.of(np.random.default_rng(0).normal(size=(2, 50, 1)), kind="inflated")
    >>> check_needs(get_combiner("swiss"), shards)
    """
    require_targets(rule)
    if "log densities" not in rule.needs or subposteriors.log_densities is not None:
        return
    raise must_be(
        "combine",
        "draws",
        f"stored with the log densities of their targets for method {rule.name!r}",
        "draws without log densities",
        "Pass Subposteriors.of(..., log_densities=...), files that consilience wrote, or CmdStan files with lp__.",
        error=DrawsError,
    )


def _posterior(rule: Combiner, gathered: Gathered, combined: Combined, seed: int) -> Posterior:
    """Map combined draws to the user's parameters and record how they were made."""
    subposteriors = gathered.subposteriors
    space = subposteriors.space
    array, names, sizes = combined.array, tuple(subposteriors.names), combined.effective_sizes
    shapes, coordinates = {}, None
    declared = getattr(space, "supports", None)
    if combined.names is not None:
        names = combined.names
    elif space is not None:
        coordinates, array = array, np.asarray(space.to_user(array), dtype=np.float64)
        names, shapes = tuple(space.names), dict(space.shapes)
        if sizes is not None:
            sizes = _matching_sizes(sizes, coordinates, array)
    warnings = [*combined.warnings, *gathered.warnings]
    if names == gathered.user_names:
        warnings += no_longer_positive(array, names, gathered.positive)
    if gathered.unconstrained_densities and "log densities" in rule.needs:
        warnings += densities_hint(gathered.user_names, gathered.positive)
    return Posterior(
        array=array,
        names=names,
        log_weights=combined.log_weights,
        shapes=shapes,
        coordinates=coordinates,
        effective_sizes=sizes,
        chain_lengths=combined.chain_lengths,
        info={
            "method": rule.name,
            "kind": subposteriors.kind,
            "weights": [float(w) for w in subposteriors.weights],
            **({"supports": dict(declared)} if declared else {}),
            "options": recorded_options(rule),
            "seed": seed,
            "draws_per_shard": list(subposteriors.num_draws),
            "notes": [*combined.notes, *gathered.notes],
            "warnings": warnings,
        },
    )


def _matching_sizes(sizes: Floats, coordinates: Floats, array: Floats) -> Floats:
    """Give each of the user's columns the effective size of the coordinate that it follows most closely.

    A bijection mixes few coordinates, so ranks of one coordinate and its image mostly agree; the exact
    value would need the Jacobian at every draw for an error of an error.
    """
    rows = slice(None, None, max(1, len(array) // MATCHING_ROWS))
    inner, outer = _standardised(coordinates[rows]), _standardised(array[rows])
    return sizes[np.abs(outer.T @ inner).argmax(axis=1)]


def _standardised(x: Floats) -> Floats:
    ranks = np.argsort(np.argsort(x, axis=0), axis=0).astype(np.float64)
    ranks -= ranks.mean(axis=0)
    return ranks / np.linalg.norm(ranks, axis=0)
