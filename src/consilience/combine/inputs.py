"""From what users hold in their hands (arrays, files, ArviZ objects) to `Subposteriors`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.draws import KINDS, Subposteriors
from consilience.errors import DrawsError, InputError, must_be


@dataclass(frozen=True, eq=False)
class _Shard:
    """One shard's draws before columns are matched between shards."""

    array: np.ndarray  # (J_b, d)
    chains: tuple[int, ...]
    label: str
    names: tuple[str, ...] | None = None
    kind: str | None = None
    weight: float | None = None
    log_densities: np.ndarray | None = None


def as_subposteriors(
    draws: Any, *, kind: str | None = None, weights: Any = None, names: Sequence[str] | None = None
) -> Subposteriors:
    """Bring draws of any accepted form together.

    Parameters
    ----------
    draws
        (B, J, d) array, list of (J_b, d) arrays, list of paths, list of ArviZ objects, or `Subposteriors`.
    kind, weights, names
        As in `combine`; what draws carry themselves must not be contradicted.

    Examples
    --------
    >>> integers = np.random.default_rng(0).integers(9, size=(2, 50, 1))
    >>> shards = as_subposteriors(integers, kind="inflated", weights=[1, 3])
    >>> shards.weights, shards.draws[0].dtype
    (array([0.25, 0.75]), dtype('float64'))
    """
    if isinstance(draws, Subposteriors):
        return _checked_subposteriors(draws, kind, weights, names)
    if isinstance(draws, str | os.PathLike):
        raise must_be(
            "combine",
            "draws",
            "a list with one entry per shard",
            draws,
            "Pass [path, path, …].",
            error=DrawsError,
        )
    if isinstance(draws, Sequence) and draws and all(map(_is_path, draws)):
        return _matched([_read(path) for path in draws], kind, weights, names)
    if isinstance(draws, Sequence) and draws and all(map(_is_arviz, draws)):
        return _matched([_from_arviz(x, b) for b, x in enumerate(draws)], kind, weights, names)
    return Subposteriors.of(
        draws, kind=_required_kind(kind), weights=normalised(weights, _length(draws)), names=names
    )


def normalised(weights: Any, num_shards: int) -> np.ndarray | None:
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


def _checked_subposteriors(
    draws: Subposteriors, kind: str | None, weights: Any, names: Sequence[str] | None
) -> Subposteriors:
    if kind is not None and kind != draws.kind:
        raise must_be(
            "combine", "kind", f"{draws.kind!r}, as the draws say", kind, "Leave it out.", error=DrawsError
        )
    for parameter, value in (("weights", weights), ("names", names)):
        if value is not None:
            raise must_be(
                "combine",
                parameter,
                "left out: these draws carry their own",
                value,
                "Set it when the Subposteriors are made.",
                error=InputError,
            )
    return draws


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


def _length(draws: Any) -> int:
    try:
        return len(draws)
    except TypeError:
        return 0


def _is_path(value: Any) -> bool:
    return isinstance(value, str | os.PathLike)


def _is_arviz(value: Any) -> bool:
    """InferenceData, or the DataTree that ArviZ 1 returns: both hold a posterior group."""
    return not isinstance(value, np.ndarray) and hasattr(value, "posterior")


def _read(path: Any) -> _Shard:
    from consilience.draws.files import read_draws

    found = read_draws(path)
    if found.log_weights is not None:
        raise must_be(
            "combine",
            "draws",
            "unweighted",
            f"weighted draws in {os.fspath(path)}",
            "Resample them first: consilience.load(path).resample(n).",
            error=DrawsError,
        )
    # What a finished posterior was made from says nothing about what it would be as a shard.
    posterior = found.content == "posterior"
    return _Shard(
        array=found.array,
        chains=(len(found.array),) if found.chains is None else found.chains,
        label=found.label or os.fspath(path),
        names=found.names,
        kind=None if posterior else found.kind,
        weight=None if posterior else found.weight,
        log_densities=found.log_densities,
    )


def _from_arviz(data: Any, shard: int) -> _Shard:
    """Stack the variables of the posterior group: chains one after the other, one column per scalar."""
    columns, names = [], []
    shape: tuple[int, ...] = ()
    for variable in data.posterior.data_vars:
        values = np.asarray(data.posterior[variable].transpose("chain", "draw", ...).values)
        shape = values.shape[:2]
        columns.append(values.reshape(shape[0] * shape[1], -1))
        for index in np.ndindex(*values.shape[2:]):
            names.append(f"{variable}[{','.join(map(str, index))}]" if index else str(variable))
    return _Shard(np.concatenate(columns, axis=1), (shape[1],) * shape[0], str(shard), tuple(names))


def _matched(
    shards: list[_Shard], kind: str | None, weights: Any, names: Sequence[str] | None
) -> Subposteriors:
    """Put the columns of all shards in the order of the first one, and agree on kind and weights."""
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
    first, densities = shards[0].names, [shard.log_densities for shard in shards]
    return Subposteriors.of(
        [_columns_like(shard, first, shards[0].label) for shard in shards],
        kind=_required_kind(kind or next(iter(found), None)),
        weights=normalised(weights, len(shards)),
        names=first if names is None else names,
        labels=[shard.label for shard in shards],
        chain_lengths=[shard.chains for shard in shards],
        log_densities=None if any(x is None for x in densities) else densities,
    )


def _columns_like(shard: _Shard, names: tuple[str, ...] | None, reference: str) -> np.ndarray:
    """The shard's columns in the order of `names`."""
    if names is None or shard.names is None or shard.names == names:
        return shard.array
    missing = [name for name in names if name not in shard.names]
    added = [name for name in shard.names if name not in names]
    if missing or added:
        what = f"no column {missing[0]}" if missing else f"column {added[0]}, which {reference} has not,"
        raise must_be(
            "combine",
            "draws",
            f"of the same columns in every shard ({', '.join(names[:6])}{', …' if len(names) > 6 else ''})",
            f"{what} in {shard.label}",
            "Write the same parameters for every shard.",
            error=DrawsError,
        )
    return shard.array[:, [shard.names.index(name) for name in names]]
