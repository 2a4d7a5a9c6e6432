"""One shard's draws from whatever holds them: a path, an object in memory, or several of these as its chains."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from consilience.draws.checks import shard_arrays
from consilience.errors import DrawsError, must_be

from .base import Floats


@dataclass(frozen=True, eq=False)
class ShardDraws:
    """One shard's draws before columns are matched between shards."""

    array: Floats  # (J_b, d)
    chains: tuple[int, ...]
    label: str
    names: tuple[str, ...] | None = None
    kind: str | None = None
    weight: float | None = None
    log_densities: Floats | None = None
    unconstrained_densities: bool = False
    divergences: int | None = None
    runs: tuple[tuple[str, str], ...] = ()


def is_path(value: Any) -> bool:
    return isinstance(value, str | os.PathLike)


def read_shards(draws: Any) -> list[ShardDraws]:
    """Read every shard of what `combine` takes, but `Subposteriors`.

    Examples
    --------
    >>> shards = read_shards([{"mu": np.zeros(3)}, [{"mu": np.ones(2)}, {"mu": np.ones(4)}]])
    >>> [shard.chains for shard in shards]
    [(3,), (2, 4)]
    """
    if is_path(draws):
        advice = "Pass [path, path, …]."
        raise must_be("combine", "draws", "a list with one entry per shard", draws, advice, error=DrawsError)
    if isinstance(draws, Sequence) and any(map(_is_readable, draws)):
        return [_read_shard(value, b) for b, value in enumerate(draws)]
    arrays, lengths = shard_arrays(draws, "Subposteriors")
    return [ShardDraws(array, n, str(b)) for b, (array, n) in enumerate(zip(arrays, lengths, strict=True))]


def _is_readable(value: Any) -> bool:
    if is_path(value):
        return True
    if isinstance(value, np.ndarray):
        return False
    if isinstance(value, list | tuple):
        return bool(value) and all(_is_readable(part) or _is_chain(part) for part in value)
    from consilience.draws.objects import is_object

    return is_object(value)


def _is_chain(value: Any) -> bool:
    """An array that can only be a chain: (draws, parameters)."""
    return isinstance(value, np.ndarray) and value.ndim == 2


def _read_shard(value: Any, b: int) -> ShardDraws:
    if isinstance(value, list | tuple) and _is_readable(value):
        parts = [part for one in value for part in _read(one, f"draws[{b}]", str(b))]
        label = os.fspath(value[0]) + ", …" if is_path(value[0]) and len(value) > 1 else parts[0].label
        return _as_chains(parts, label)
    parts = _read(value, f"draws[{b}]", str(b))
    return _as_chains(parts, os.fspath(value) if is_path(value) and len(parts) > 1 else parts[0].label)


def _read(value: Any, where: str, label: str) -> list[ShardDraws]:
    from consilience.draws.files import check_record, read_draws
    from consilience.draws.objects import is_object, read_object

    if is_path(value):
        return [_from_record(read_draws(path), os.fspath(path)) for path in _files(value)]
    if not isinstance(value, np.ndarray) and is_object(value):
        record = read_object(value, where)
        check_record(record, where)
        return [_from_record(record, label)]
    arrays, lengths = shard_arrays([value], "Subposteriors")
    return [ShardDraws(arrays[0], lengths[0], label)]


def _files(path: Any) -> list[Any]:
    """A file; or the files of a folder or a pattern, which are the chains of one shard."""
    from consilience.draws.files import readable

    text = os.fspath(path)
    folder = Path(text).is_dir() and not readable(text)
    pattern = any(character in text for character in "*?[") and not Path(text).exists()
    if not folder and not pattern:
        return [path]
    if folder:
        found = sorted(str(file) for file in Path(text).iterdir() if file.name[0] != "." and readable(file))
    else:
        found = sorted(file for file in glob.glob(text) if readable(file))
    if not found:
        got = f"none in {text}" if folder else f"none called {text}"
        advice = "A folder or a pattern stands for the chains of one shard; check it."
        raise must_be("combine", "draws", "files of draws", got, advice, error=DrawsError)
    forms = sorted({Path(file).suffix.lower() for file in found})
    if folder and len(forms) > 1:  # the same draws twice, more likely than chains in different forms
        advice = "Name the chains by a pattern such as '*.csv'."
        raise must_be(
            "combine",
            "draws",
            f"of one form in the folder {text}",
            " and ".join(forms),
            advice,
            error=DrawsError,
        )
    return found


def _from_record(found: Any, label: str) -> ShardDraws:
    if found.log_weights is not None:
        advice = "Resample them first: consilience.load(path).resample(n)."
        raise must_be(
            "combine", "draws", "unweighted", f"weighted draws in {label}", advice, error=DrawsError
        )
    # What a finished posterior was made from says nothing about what it would be as a shard.
    posterior = found.content == "posterior"
    return ShardDraws(
        array=found.array,
        chains=(len(found.array),) if found.chains is None else found.chains,
        label=found.label or label,
        names=found.names,
        kind=None if posterior else found.kind,
        weight=None if posterior else found.weight,
        log_densities=found.log_densities,
        unconstrained_densities=found.unconstrained_densities,
        divergences=found.divergences,
        runs=() if found.run is None else (found.run,),
    )


def _as_chains(parts: list[ShardDraws], label: str) -> ShardDraws:
    """Files of one shard, one after the other."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    for part in parts[1:]:
        if (part.kind, part.weight) != (first.kind, first.weight):
            got = f"{part.kind!r} with weight {part.weight} in {part.label}"
            advice = f"{first.label} says {first.kind!r} with weight {first.weight}."
            raise must_be(
                "combine", "draws", "chains of one target in a shard", got, advice, error=DrawsError
            )
    names = next((part.names for part in parts if part.names is not None), None)
    arrays = [columns_like(part, names, first.label) for part in parts]
    if len({array.shape[1] for array in arrays}) > 1:
        got = f"{' and '.join(str(array.shape[1]) for array in arrays[:4])} columns in {label}"
        advice = "Write the same parameters for every chain."
        raise must_be("combine", "draws", "of the same columns in a shard", got, advice, error=DrawsError)
    densities = [part.log_densities for part in parts]
    divergences = [part.divergences for part in parts if part.divergences is not None]
    complete = [x for x in densities if x is not None]
    return ShardDraws(
        array=np.concatenate(arrays),
        chains=tuple(n for part in parts for n in part.chains),
        label=label,
        names=names,
        kind=first.kind,
        weight=first.weight,
        log_densities=np.concatenate(complete) if len(complete) == len(parts) else None,
        unconstrained_densities=any(part.unconstrained_densities for part in parts),
        divergences=sum(divergences) if divergences else None,
        runs=tuple(run for part in parts for run in part.runs),
    )


def columns_like(shard: ShardDraws, names: tuple[str, ...] | None, reference: str) -> Floats:
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
            "Write the same parameters for every shard, or name those to combine (parameters).",
            error=DrawsError,
        )
    position = {name: column for column, name in enumerate(shard.names)}
    return shard.array[:, [position[name] for name in names]]
