"""Shards that are consecutive blocks of time.

The times are sorted and cut near the multiples of n / B, but only where the time changes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from consilience.data.columns import Columns, Shown
from consilience.data.partition import Partition, Plan, check_rows, check_shards, refuse_missing
from consilience.data.source import Source
from consilience.errors import DataError, must_be


@dataclasses.dataclass(frozen=True)
class TimePartition(Partition):
    """Consecutive blocks of time of nearly equal size; rows inside a shard are in time order.

    Rows of the same time stay together. This one column is held in memory.

    Parameters
    ----------
    shards : int
        How many.
    column : str
        Dates, or numbers that grow with time.

    Examples
    --------
    >>> TimePartition(12, "departure").describe()
    {'partition': 'time', 'shards': 12, 'column': 'departure'}
    """

    shards: int
    column: str
    name: ClassVar[str] = "time"

    def __post_init__(self) -> None:
        check_shards(self)

    def plan(self, source: Source, *, columns: Sequence[str], seed: int, outcome: str | None = None) -> Plan:
        """Sort the times and cut them where times change."""
        check_rows(self, self.shards, source)
        source.require([self.column])
        kind = source.dtypes[self.column]
        if kind not in ("date", "number", "integer"):
            step = "Convert it to dates or numbers."
            raise must_be(
                "time partition",
                "column",
                "a column of dates or numbers",
                Shown(f"{self.column} ({kind})"),
                step,
                DataError,
            )
        parts = []
        for batch in source.scan([self.column]):
            refuse_missing(batch[self.column], self.column, self)
            parts.append(batch[self.column])
        times, counts = np.unique(np.concatenate(parts), return_counts=True)
        if len(times) < self.shards:
            got = Shown(f"{self.shards:,} shards for {len(times):,} different times")
            step = f"Use at most {len(times):,} shards."
            raise must_be(
                "time partition", "shards", "at most the number of different times", got, step, DataError
            )
        firsts = _cuts(counts, self.shards)
        starts = times[firsts]
        lasts = np.append(firsts[1:], len(times)) - 1
        labels = tuple(f"{times[low]!s} to {times[high]!s}" for low, high in zip(firsts, lasts, strict=True))

        def label(_: int, rows: int, seen: Columns) -> np.ndarray:
            return np.searchsorted(starts, seen[self.column], side="right") - 1

        return Plan(labels, (self.column,), label, order_by=self.column)


def _cuts(counts: np.ndarray, shards: int) -> np.ndarray:
    """Return the first distinct time of every shard: nearest to equal sizes, with no shard empty."""
    ends = np.cumsum(counts)
    firsts = [0]
    for shard in range(1, shards):
        wanted = ends[-1] * shard / shards
        place = int(
            np.searchsorted(ends, wanted)
        )  # the first time by whose end at least the wanted rows have passed
        before = int(ends[place - 1]) if place else 0
        nearest = place if wanted - before <= ends[place] - wanted else place + 1
        firsts.append(min(max(nearest, firsts[-1] + 1), len(counts) - (shards - shard)))
    return np.array(firsts)
