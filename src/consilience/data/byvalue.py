"""Shards by the value of a column: whole groups packed together, or one shard per site.

Both count the rows per value in one pass over the column. A group that exceeds a shard cannot be cut:
combination rules would still be right, but whoever asked for groups has a reason (local latents) why rows
must stay together.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from consilience.data.columns import Columns, Shown
from consilience.data.partition import (
    Partition,
    Plan,
    check_rows,
    check_shards,
    encode,
    numbered,
    refuse_missing,
    shuffled,
)
from consilience.data.source import Source
from consilience.errors import DataError, must_be

#: A site partition with more shards than this is a column of identifiers taken for one of sites.
MOST_SITES = 10_000

#: How much larger than the mean shard one group may be.
LARGEST_GROUP = 1.5


@dataclasses.dataclass(frozen=True)
class GroupPartition(Partition):
    """Shards of whole groups: rows with the same value of a column stay together.

    The largest group goes first, always to the shard with the fewest rows; groups of one size are shuffled.

    Parameters
    ----------
    shards : int
        How many.
    column : str
        What names the group.

    Examples
    --------
    >>> GroupPartition(8, "school").describe()
    {'partition': 'group', 'shards': 8, 'column': 'school'}
    """

    shards: int
    column: str
    name: ClassVar[str] = "group"

    def __post_init__(self) -> None:
        check_shards(self)

    def plan(self, source: Source, *, columns: Sequence[str], seed: int, outcome: str | None = None) -> Plan:
        """Count the rows of every group, then pack them."""
        check_rows(self, self.shards, source)
        sizes = count_values(source, self.column, self)
        mean = source.num_rows / self.shards
        largest = max(sizes, key=lambda value: sizes[value])
        if len(sizes) < self.shards:
            got = Shown(f"{self.shards:,} shards for {len(sizes):,} groups")
            step = f"Use at most {len(sizes):,} shards."
            raise must_be("group partition", "shards", "at most the number of groups", got, step, DataError)
        if sizes[largest] > LARGEST_GROUP * mean:
            fitting = max(1, int(LARGEST_GROUP * source.num_rows / sizes[largest]))
            raise must_be(
                "group partition",
                "column",
                "a column without one group larger than a shard allows "
                f"({LARGEST_GROUP} times the mean shard of {mean:,.0f} rows)",
                Shown(f"{self.column} = {largest!r} with {sizes[largest]:,} rows"),
                f"Use at most {fitting:,} shards, or a column with smaller groups.",
                DataError,
            )
        shard_of = _packed(sizes, self.shards, seed)
        return Plan(numbered(self.shards), (self.column,), _by_value(self.column, shard_of))


@dataclasses.dataclass(frozen=True)
class SitePartition(Partition):
    """One shard per value of a column, called by that value.

    Parameters
    ----------
    column : str
        What names the site.

    Examples
    --------
    >>> SitePartition("hospital").describe()
    {'partition': 'site', 'column': 'hospital'}
    """

    column: str
    name: ClassVar[str] = "site"

    def plan(self, source: Source, *, columns: Sequence[str], seed: int, outcome: str | None = None) -> Plan:
        """Find the sites, sorted."""
        sizes = count_values(source, self.column, self, most=MOST_SITES)
        sites = sorted(sizes)
        shard_of = {value: shard for shard, value in enumerate(sites)}
        labels = tuple(_shown_value(value, source, self.column) for value in sites)
        return Plan(labels, (self.column,), _by_value(self.column, shard_of))


def count_values(
    source: Source, column: str, partition: Partition, most: int | None = None
) -> dict[Any, int]:
    """Return how many rows have each value of a column."""
    source.require([column])
    kind = source.dtypes[column]
    if kind == "array":
        raise must_be(
            f"{partition.name} partition", "column", "one value per row", column, "Name another.", DataError
        )
    counts: dict[Any, int] = {}
    for batch in source.scan([column]):
        refuse_missing(batch[column], column, partition)
        levels, codes = encode(batch[column])
        for value, rows in zip(levels, np.bincount(codes, minlength=len(levels)).tolist(), strict=True):
            counts[value] = counts.get(value, 0) + rows
        if most is not None and len(counts) > most:
            raise must_be(
                f"{partition.name} partition",
                "column",
                f"a column of at most {most:,} different values",
                Shown(f"{column} with more"),
                "One shard is made per value; to keep groups whole in fewer shards use GroupPartition.",
                DataError,
            )
    return counts


def _by_value(column: str, shard_of: dict[Any, int]) -> Callable[[int, int, Columns], np.ndarray]:
    def label(_: int, rows: int, seen: Columns) -> np.ndarray:
        levels, codes = encode(seen[column])
        return np.fromiter((shard_of[value] for value in levels), dtype=np.int64, count=len(levels))[codes]

    return label


def _packed(sizes: dict[Any, int], shards: int, seed: int) -> dict[Any, int]:
    """Return the shard of every group: largest first, to the emptiest shard."""
    values = sorted(sizes)  # so that the order of rows does not matter
    tie = shuffled(seed, 0, len(values))
    order = sorted(range(len(values)), key=lambda place: (-sizes[values[place]], tie[place]))
    loads = [(0, shard) for shard in range(shards)]
    shard_of = {}
    for place in order:
        load, shard = loads[0]
        shard_of[values[place]] = shard
        heapq.heapreplace(loads, (load + sizes[values[place]], shard))
    return shard_of


def _shown_value(value: Any, source: Source, column: str) -> str:
    known = source.type_of(column)
    if known is not None and known.kind == "date":
        return str(np.int64(value).view(known.dtype))
    return str(value)
