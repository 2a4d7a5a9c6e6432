"""Shards at random that agree, to one row, in how many rows of each stratum they hold.

A stratum is a combination of values of a few columns. Its rows are dealt to the shards in turn, in shuffled
order. The deal of a stratum starts where that of the stratum before it ended (the order of strata is shuffled
too), so the sizes of the whole shards differ by at most one as well. That needs the number of rows per
stratum beforehand: two passes over the columns that define the strata.

Rare levels matter because a shard that lacks a level has a flat sub-posterior in its direction, and a shard
with three rows of it a very skewed one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from consilience.data.columns import Columns, Shown
from consilience.data.partition import Partition, Plan, check_rows, check_shards, encode, numbered, shuffled
from consilience.data.source import Source
from consilience.errors import DataError, must_be

#: An outcome with at most this many values is stratified on.
FEW_VALUES = 20

#: A level is rare when a shard can expect fewer rows of it than this: their number varies by 18 % or more at
#: random.
RARE_ROWS = 30

#: A column of text with more levels than this is an identifier, not a category.
MANY_LEVELS = 1_000

#: More strata than this are no strata.
MOST_STRATA = 10_000


@dataclasses.dataclass(frozen=True)
class StratifiedPartition(Partition):
    """Shards at random, balanced within every stratum.

    Parameters
    ----------
    shards : int
        How many.
    columns : tuple of str, optional
        The columns whose combinations of values are the strata. By default the outcome, where it has at most
        20 values, and the rare levels of columns of text.

    Examples
    --------
    >>> StratifiedPartition(32, ("late", "carrier")).describe()
    {'partition': 'stratified', 'shards': 32, 'columns': ['late', 'carrier']}
    """

    shards: int
    columns: tuple[str, ...] | None = None
    name: ClassVar[str] = "stratified"

    def __post_init__(self) -> None:
        check_shards(self)
        if self.columns is not None:
            chosen = (self.columns,) if isinstance(self.columns, str) else tuple(self.columns)
            object.__setattr__(self, "columns", chosen)

    def plan(self, source: Source, *, columns: Sequence[str], seed: int, outcome: str | None = None) -> Plan:
        """Count levels, then strata."""
        check_rows(self, self.shards, source)
        levels, note = self._levels(source, columns, outcome)
        counts = _count_strata(source, levels)
        if len(counts) > MOST_STRATA:
            if self.columns is not None:
                raise self._too_many(f"more than {MOST_STRATA:,} combinations")
            # Rare levels of many columns at once: the outcome alone is what every shard needs most.
            levels = {name: known for name, known in levels.items() if name == outcome}
            note = f"Strata: {outcome}." if levels else "No strata: plain random shards."
            counts = _count_strata(source, levels)
        deal = _Deal(levels, counts, self.shards, seed)
        return Plan(numbered(self.shards), tuple(levels), deal.label, notes=(note,))

    def _levels(
        self, source: Source, columns: Sequence[str], outcome: str | None
    ) -> tuple[dict[str, dict[Any, int]], str]:
        """Return, per column that defines strata, a code from 1 for each level that counts; 0 is the rest."""
        if self.columns is not None:
            asked = source.require(self.columns)
            if any(source.dtypes[name] == "array" for name in asked):
                raise self._too_many("columns with several values per row")
            found = _count_levels(source, asked, MOST_STRATA)
            crowded = [name for name in asked if name not in found]
            if crowded:
                raise self._too_many(f"{', '.join(crowded)} with more than {MOST_STRATA:,} values")
            levels = {
                name: {value: code + 1 for code, value in enumerate(known)} for name, known in found.items()
            }
            return levels, f"Strata: {', '.join(asked)}."
        kinds = source.dtypes
        text = [name for name in columns if kinds[name] == "string" and name != outcome]
        levels, said = {}, []
        if outcome is not None and kinds[source.require([outcome])[0]] != "array":
            known = _count_levels(source, (outcome,), FEW_VALUES).get(outcome)
            if known:
                levels[outcome] = {value: code + 1 for code, value in enumerate(known)}
                said.append(outcome)
        for name, known in _count_levels(source, text, MANY_LEVELS).items():
            rare = sorted(value for value, rows in known.items() if rows < RARE_ROWS * self.shards)
            if rare:
                levels[name] = {value: code + 1 for code, value in enumerate(rare)}
                said.append(f"{len(rare)} rare levels of {name}")
        return levels, f"Strata: {', '.join(said)}." if said else "No strata: plain random shards."

    def _too_many(self, got: str) -> Exception:
        step = "Name columns with few values, or cut them into classes."
        return must_be(
            "stratified partition", "columns", "columns of few values", Shown(got), step, DataError
        )


class _Deal:
    """Hands the rows of every stratum to the shards in turn."""

    def __init__(
        self, levels: dict[str, dict[Any, int]], counts: dict[int, int], shards: int, seed: int
    ) -> None:
        self.levels, self.shards, self.seed = levels, shards, seed
        keys = np.array(sorted(counts), dtype=np.int64)
        order = shuffled(seed, 0, len(keys))
        sizes = np.array([counts[key] for key in keys.tolist()], dtype=np.int64)[order]
        self.keys = keys
        self.next = np.empty(
            len(keys), dtype=np.int64
        )  # the shard for the next row of each stratum, before mod B
        self.next[order] = np.cumsum(sizes) - sizes

    def label(self, block: int, rows: int, seen: Columns) -> np.ndarray:
        """Return the shard of every row of a block; blocks must come in order, since the deal goes on."""
        strata = np.searchsorted(self.keys, _strata(seen, self.levels, rows))
        order = shuffled(self.seed, block, rows)
        order = order[np.argsort(strata[order], kind="stable")]  # shuffled within each stratum
        counts = np.bincount(strata, minlength=len(self.keys))
        rank = np.arange(rows) - np.repeat(np.cumsum(counts) - counts, counts)
        labels = np.empty(rows, dtype=np.int64)
        labels[order] = (self.next[strata[order]] + rank) % self.shards
        self.next += counts
        return labels


def _strata(seen: Columns, levels: dict[str, dict[Any, int]], rows: int) -> np.ndarray:
    """Return one number per row for its combination of levels."""
    key = np.zeros(rows, dtype=np.int64)
    for name, codes_of in levels.items():
        values, codes = encode(seen[name])
        # Missing text has the code -1 and takes the last entry; NaN is no key of any dict. Both are "the
        # rest".
        table = np.array([*(codes_of.get(value, 0) for value in values), 0], dtype=np.int64)
        key = key * (len(codes_of) + 1) + table[codes]
    return key


def _count_strata(source: Source, levels: dict[str, dict[Any, int]]) -> dict[int, int]:
    radix = 1
    for known in levels.values():
        radix *= len(known) + 1
    if radix >= 2**62:
        got = Shown(f"{len(levels)} columns with up to {radix:.0e} combinations")
        step = "Name fewer columns."
        raise must_be("stratified partition", "columns", "columns of few values", got, step, DataError)
    if not levels:
        return {0: source.num_rows}
    counts: dict[int, int] = {}
    for batch in source.scan(tuple(levels)):
        rows = len(next(iter(batch.values())))
        keys, found = np.unique(_strata(batch, levels, rows), return_counts=True)
        for key, number in zip(keys.tolist(), found.tolist(), strict=True):
            counts[key] = counts.get(key, 0) + number
    return counts


def _count_levels(source: Source, columns: Sequence[str], most: int) -> dict[str, dict[Any, int]]:
    """Return the rows of each level of each column, without the columns that have more than `most` levels."""
    counts: dict[str, dict[Any, int]] = {name: {} for name in columns}
    if not counts:
        return counts
    for batch in source.scan(tuple(columns)):
        for name in list(counts):
            values, codes = encode(batch[name])
            rows = np.bincount(codes[codes >= 0], minlength=len(values)).tolist()
            known = counts[name]
            for value, number in zip(values, rows, strict=True):
                known[value] = known.get(value, 0) + number
            if len(known) > most:
                del counts[name]
        if not counts:
            break
    return counts
