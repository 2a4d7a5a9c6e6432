"""From what users hold in their hands (arrays, files, objects of other libraries) to `Subposteriors`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from consilience.draws import KINDS, Subposteriors, default_names
from consilience.draws.checks import check_finite, check_names, split_index
from consilience.errors import DrawsError, must_be

from .base import Floats
from .hints import chains_as_shards, column_hints, divergent_shards, positive_columns
from .reading import ShardDraws, columns_like, read_shards
from .shared_jacobian import Tilted, once_a_jacobian
from .supports import SupportSpace, check_supports


@dataclass(frozen=True, eq=False)
class Gathered:
    """Draws of all shards, and what was noticed while they were brought together.

    `positive` are the columns that are positive in all draws though nothing was declared of them, and
    `unconstrained_densities` says that log densities are those of the sampler's own coordinates.
    """

    subposteriors: Subposteriors
    positive: tuple[int, ...] = ()
    unconstrained_densities: bool = False
    divergences: tuple[int | None, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def user_names(self) -> tuple[str, ...]:
        """The columns as the user knows them."""
        space = self.subposteriors.space
        return tuple(self.subposteriors.names if space is None else space.names)


def gather(
    draws: Any,
    *,
    kind: str | None = None,
    weights: Any = None,
    names: Sequence[str] | None = None,
    supports: Mapping[str, str] | None = None,
    parameters: Sequence[str] | None = None,
) -> Gathered:
    """Bring draws of any accepted form together.

    Parameters
    ----------
    draws
        What `combine` takes.
    kind, weights, names, supports, parameters
        As in `combine`; what draws carry themselves must not be contradicted.

    Examples
    --------
    >>> integers = np.random.default_rng(0).integers(9, size=(2, 50, 1))
    >>> shards = gather(integers, kind="inflated", weights=[1, 3]).subposteriors
    >>> shards.weights, shards.draws[0].dtype
    (array([0.25, 0.75]), dtype('float64'))
    """
    declared = check_supports(supports)
    _check_parameters(parameters)
    if isinstance(draws, Subposteriors):
        _check_not_contradicted(draws, kind=kind, weights=weights, names=names)
        if not declared and parameters is None:
            positive = positive_columns(draws.draws) if draws.space is None else ()
            return Gathered(draws, positive, notes=column_hints(draws.draws, draws.names, positive))
        _check_without_space(draws, supports=supports, parameters=parameters)
        shards, kind, weights = _as_shards(draws), draws.kind, draws.weights
    else:
        kind = None if kind is None else _required_kind(kind)
        shards = read_shards(draws)
        weights, kind = _weights_and_kind(shards, kind, weights)
    columns = _matched(shards, names, parameters)
    space = SupportSpace(columns.names, declared) if declared else None
    positive = positive_columns(columns.arrays, () if space is None else space.declared_columns)
    arrays, densities = columns.arrays, [shard.log_densities for shard in shards]
    tilted = Tilted((), ())
    if space is not None:
        arrays, densities = _unconstrained(space, shards, columns)
        if kind == "subposterior":
            parts = np.full(len(shards), 1.0 / len(shards)) if weights is None else np.asarray(weights)
            tilted = once_a_jacobian(space, arrays, densities, [shard.chains for shard in shards], parts)
            arrays, densities = tilted.arrays, list(tilted.densities)
    complete = all(x is not None for x in densities)
    subposteriors = Subposteriors.of(
        arrays,
        kind=kind,
        weights=weights,
        names=columns.names if space is None else None,
        space=space,
        labels=[shard.label for shard in shards],
        chain_lengths=[shard.chains for shard in shards],
        log_densities=densities if complete else None,
    )
    return Gathered(
        subposteriors,
        positive,
        complete and any(shard.unconstrained_densities for shard in shards),
        tuple(shard.divergences for shard in shards),
        (*column_hints(columns.arrays, columns.names, positive), *tilted.notes),
        (*chains_as_shards(shards), *divergent_shards(shards), *tilted.warnings),
    )


def normalised(weights: Any, num_shards: int) -> Floats | None:
    """Check weights and divide them by their sum; None stays None.

    Examples
    --------
    >>> normalised([1, 3], 2)
    array([0.25, 0.75])
    """
    if weights is None:
        return None
    try:
        array = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.empty(0)
    if array.shape != (num_shards,) or not np.all(np.isfinite(array) & (array > 0)):
        raise must_be(
            "combine",
            "weights",
            f"{num_shards} positive numbers, one per shard",
            weights,
            "Pass each shard's number of rows, or leave it out for equal shards.",
            error=DrawsError,
        )
    return array / array.sum()


# ------------------------------------------------------------------------------------------
# What was sampled
# ------------------------------------------------------------------------------------------


def _required_kind(kind: str | None) -> str:
    if kind in KINDS:
        return str(kind)
    raise must_be(
        "combine",
        "kind",
        "'subposterior' or 'inflated'",
        kind,
        "Say whether the shards' target was prior^w x likelihood ('subposterior') or prior x "
        "likelihood^(1/w) ('inflated'): they differ by a factor sqrt(B) in scale, which draws do not show.",
        error=DrawsError,
    )


def _weights_and_kind(
    shards: Sequence[ShardDraws], kind: str | None, weights: Any
) -> tuple[Floats | None, str]:
    """What the files say, or what was said where they do not."""
    found = {shard.kind for shard in shards if shard.kind is not None}
    if len(found) > 1 or (found and kind is not None and found != {kind}):
        odd = next(shard for shard in shards if shard.kind not in (None, kind or shards[0].kind))
        raise must_be(
            "combine",
            "kind",
            "the same for all shards, and what the files say",
            f"{odd.kind!r} in {odd.label}" + (f" and kind={kind!r}" if kind else ""),
            "Combine draws of one kind.",
            error=DrawsError,
        )
    carried = [shard.weight for shard in shards]
    if weights is None and None not in carried:
        weights = carried
    return normalised(weights, len(shards)), _required_kind(kind or next(iter(found), None))


# ------------------------------------------------------------------------------------------
# Which columns
# ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Columns:
    """The same columns of every shard, in one order."""

    names: tuple[str, ...]
    arrays: tuple[Floats, ...]


def _check_parameters(parameters: Any) -> None:
    right = isinstance(parameters, Sequence) and not isinstance(parameters, str) and len(parameters) > 0
    if parameters is not None and not (right and all(isinstance(name, str) for name in parameters)):
        advice = "For example parameters=['mu', 'sigma']."
        raise must_be("combine", "parameters", "a list of parameters' names", parameters, advice)


def _matched(
    shards: Sequence[ShardDraws], names: Sequence[str] | None, parameters: Sequence[str] | None
) -> _Columns:
    """Put the columns of all shards in the order of the first that names them.

    Columns without names are taken to be in that order.
    """
    reference = next((shard for shard in shards if shard.names is not None), shards[0])
    if parameters is not None and reference.names is not None:
        all_names = reference.names
        wanted = _chosen(all_names, parameters, reference.label)
        chosen = [all_names[i] for i in wanted]
        shards = [_narrowed(shard, chosen, wanted, len(all_names)) for shard in shards]
        reference = next(shard for shard in shards if shard.names is not None)
    first, dimension = reference.names, reference.array.shape[1]
    arrays = tuple(columns_like(shard, first, reference.label) for shard in shards)
    found = check_names(names or first or default_names(dimension), dimension, "combine")
    if parameters is not None and first is None:
        wanted = _chosen(found, parameters, "names")
        arrays = tuple(array[:, wanted] for array in arrays)
        found = tuple(found[i] for i in wanted)
    return _Columns(found, arrays)


def _chosen(names: Sequence[str], parameters: Sequence[str], label: str) -> list[int]:
    """Columns of the parameters asked for, in the order in which they were asked for."""
    found: dict[int, None] = {}
    for parameter in parameters:
        own = [i for i, name in enumerate(names) if parameter in (name, split_index(name)[0])]
        if not own:
            known = list(dict.fromkeys(split_index(name)[0] for name in names))
            close = difflib.get_close_matches(parameter, known, n=1)
            advice = f"Did you mean {close[0]!r}?" if close else f"There are {', '.join(known[:8])}."
            raise must_be("combine", "parameters", f"among those of {label}", parameter, advice)
        found.update(dict.fromkeys(own))
    return list(found)


def _narrowed(shard: ShardDraws, wanted: Sequence[str], positions: Sequence[int], width: int) -> ShardDraws:
    """A shard with the wanted columns only; one that is missing is refused by name later."""
    if shard.names is None:
        same = shard.array.shape[1] == width
        return replace(shard, array=shard.array[:, positions]) if same else shard
    names = shard.names
    kept = [name for name in wanted if name in names]
    return replace(shard, array=shard.array[:, [names.index(name) for name in kept]], names=tuple(kept))


# ------------------------------------------------------------------------------------------
# Where they are combined
# ------------------------------------------------------------------------------------------


def _unconstrained(
    space: SupportSpace, shards: Sequence[ShardDraws], columns: _Columns
) -> tuple[tuple[Floats, ...], list[Floats | None]]:
    """Coordinates of all draws, and the log densities of these."""
    for b, array in enumerate(columns.arrays):
        check_finite(array, columns.names, "combine", "draws", f" in shard {b} ({shards[b].label})")
    arrays = space.to_coordinates(columns.arrays, [shard.label for shard in shards])
    densities = [
        shard.log_densities
        if shard.log_densities is None or shard.unconstrained_densities
        else shard.log_densities + space.log_jacobian(array)
        for shard, array in zip(shards, arrays, strict=True)
    ]
    return arrays, densities


# ------------------------------------------------------------------------------------------
# Subposteriors
# ------------------------------------------------------------------------------------------


def _check_not_contradicted(draws: Subposteriors, *, kind: str | None, weights: Any, names: Any) -> None:
    if kind is not None and kind != draws.kind:
        raise must_be(
            "combine", "kind", f"{draws.kind!r}, as the draws say", kind, "Leave it out.", error=DrawsError
        )
    for parameter, value in (("weights", weights), ("names", names)):
        if value is not None:
            advice = "Set it when the Subposteriors are made."
            raise must_be("combine", parameter, "left out: these draws carry their own", value, advice)


def _check_without_space(draws: Subposteriors, **given: Any) -> None:
    if draws.space is None:
        return
    parameter, value = next((name, value) for name, value in given.items() if value)
    advice = "They are unconstrained already, by the model that was sampled."
    raise must_be("combine", parameter, "left out: these draws have a space of their own", value, advice)


def _as_shards(draws: Subposteriors) -> list[ShardDraws]:
    densities = draws.log_densities or (None,) * draws.num_shards
    parts = zip(draws.draws, draws.chain_lengths, draws.labels, densities, strict=True)
    return [
        ShardDraws(array, chains, label, draws.names, log_densities=density)
        for array, chains, label, density in parts
    ]
