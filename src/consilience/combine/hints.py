"""What should make a reader look twice at draws made elsewhere, in sentences."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from consilience.draws.checks import split_index

from .base import Floats
from .bijections import ROUNDING
from .reading import ShardDraws


def positive_columns(arrays: Sequence[Floats], declared: Collection[int] = ()) -> tuple[int, ...]:
    """Columns that are positive in all draws of all shards, but those of which something was declared.

    Examples
    --------
    >>> positive_columns([np.array([[1.0, -1.0], [2.0, 1.0]])])
    (0,)
    """
    # Most columns are out after one draw of each shard, and then the others need not be looked at.
    left = [c for c in range(arrays[0].shape[1]) if c not in declared]
    for rows in (slice(0, 1), slice(None)):
        for array in arrays:
            if left and max(left) < array.shape[1]:
                lowest = array[rows].min(axis=0)
                left = [c for c in left if lowest[c] > 0]
    return tuple(left)


def column_hints(arrays: Sequence[Floats], names: Sequence[str], columns: Sequence[int]) -> tuple[str, ...]:
    """What may have to be declared of positive columns.

    Examples
    --------
    >>> shares = np.array([[0.2, 0.8], [0.5, 0.5]])
    >>> [hint.partition(" ")[0] for hint in column_hints([shares], ["p[0]", "p[1]"], (0, 1))]
    ['p[0]', 'the']
    """
    if not columns:
        return ()
    return (*_positive_hint(names, columns), *_simplex_hint(arrays, names, columns))


def _positive_hint(names: Sequence[str], columns: Sequence[int]) -> tuple[str, ...]:
    """Say how columns that may be scales would be combined as such."""
    first = names[columns[0]]
    one = len(columns) == 1
    return (
        f"{listed([names[c] for c in columns])} {'is' if one else 'are'} positive in all draws. If a parameter cannot "
        f"be negative, declare it (supports={{{first!r}: 'positive'}}, or --support {first}=positive): it is then "
        "combined as its logarithm.",
    )


def _simplex_hint(arrays: Sequence[Floats], names: Sequence[str], columns: Sequence[int]) -> tuple[str, ...]:
    """Say which parameters look like shares: vectors of positive entries that sum to 1 in every draw."""
    vectors: dict[str, list[int]] = {}
    for column in columns:
        stem, index = split_index(names[column])
        if len(index) == 1:
            vectors.setdefault(stem, []).append(column)
    found = [
        stem
        for stem, own in vectors.items()
        if len(own) > 1 and all(np.abs(array[:, own].sum(axis=1) - 1).max() < ROUNDING for array in arrays)
    ]
    return tuple(
        f"the entries of {stem} sum to 1 in all draws, so that they depend on each other: declare it "
        f"(supports={{{stem!r}: 'simplex'}}, or --support {stem}=simplex)."
        for stem in found
    )


def no_longer_positive(array: Floats, names: Sequence[str], columns: Sequence[int]) -> tuple[str, ...]:
    """Warn of combined draws below zero where no shard had one."""
    lost = [(names[c], float(np.mean(array[:, c] <= 0))) for c in columns if array[:, c].min() <= 0]
    if not lost:
        return ()
    shown = listed([f"{name} ({100 * share:.2g} %)" for name, share in lost])
    return (
        f"combined draws are not positive where all draws of the shards are: {shown}. Declare the support.",
    )


def densities_hint(names: Sequence[str], columns: Sequence[int]) -> tuple[str, ...]:
    """Warn where log densities are of other coordinates than the draws that are combined."""
    if not columns:
        return ()
    return (
        "the log densities are the sampler's, of unconstrained parameters, and the draws are combined as they are. "
        f"Declare the support of bounded parameters, or {listed([names[c] for c in columns])} may be combined wrongly.",
    )


def chains_as_shards(shards: Sequence[ShardDraws]) -> tuple[str, ...]:
    """Warn where two shards look like chains of one run: the same file of rows, and another number of chain."""
    seen: dict[str, tuple[str, str]] = {}
    for shard in shards:
        for data, chain in shard.runs:
            before, label = seen.setdefault(data, (chain, shard.label))
            if chain != before and label != shard.label:
                return (
                    f"{label} and {shard.label} were sampled from the same file {data} as chains {before} and {chain}: "
                    "chains of one shard belong together, in a list, a folder or a pattern, or the result is too "
                    "narrow.",
                )
    return ()


def divergent_shards(shards: Sequence[ShardDraws]) -> tuple[str, ...]:
    """Warn of divergent transitions that the sampler wrote."""
    found = [f"{shard.label} ({shard.divergences:,})" for shard in shards if shard.divergences]
    if not found:
        return ()
    return (
        f"divergent transitions in {listed(found)}: these shards' draws may miss a part of their target.",
    )


def listed(items: Sequence[str], most: int = 6) -> str:
    """Some items in one sentence.

    Examples
    --------
    >>> listed(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    if len(items) > most:
        return f"{', '.join(items[:most])} and {len(items) - most} more"
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
