"""Which shard a row belongs to: what all partitions share, and the random one.

A partition is a frozen record of what the user asked for. Its `plan` looks at the rows as often as it has to
and returns a `Plan`, which labels the rows block by block of 65,536. Labels depend on the number of a row and
on the seed alone, never on how the rows are stored, so the same rows in an array and in a file make the same
shards.

At random: the rows of block k carry the numbers i mod B of their global positions i, shuffled within the
block by a generator seeded with (seed, k). Sizes differ by at most one, every shard gets its share of every
block, and sorted rows are as good as shuffled ones. The sort of raw generator output is used as the shuffle
because NumPy promises the bits of its bit generators, and not those of `permutation`, to stay the same
between versions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from consilience.data.columns import BLOCK_ROWS, Columns, Shown, not_finite
from consilience.data.source import Source
from consilience.errors import DataError, must_be


@dataclasses.dataclass
class Plan:
    """A partition of the rows of one source, ready to label them.

    Attributes
    ----------
    labels : tuple of str
        What the shards are called.
    columns : tuple of str
        The columns that labelling needs to see.
    label : callable
        From block number, number of rows and columns to the shard of each row. To be called for every block,
        in order.
    order_by : str, optional
        The column by which the rows inside a shard are sorted.
    notes : tuple of str
        What the report should say.
    """

    labels: tuple[str, ...]
    columns: tuple[str, ...]
    label: Callable[[int, int, Columns], np.ndarray]
    order_by: str | None = None
    notes: tuple[str, ...] = ()


class Partition:
    """What all partitions share: a name, a description, a plan."""

    name: ClassVar[str] = ""

    def describe(self) -> dict[str, Any]:
        """Return a JSON-able record of the partition."""
        settings = dataclasses.asdict(self)  # type: ignore[call-overload]
        return {"partition": self.name} | {
            key: list(value) if isinstance(value, tuple) else value for key, value in settings.items()
        }

    def plan(self, source: Source, *, columns: Sequence[str], seed: int, outcome: str | None = None) -> Plan:
        """Look at the rows and decide how they are labelled."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class RandomPartition(Partition):
    """Shards of equal size (to one row), drawn at random.

    Parameters
    ----------
    shards : int
        How many.

    Examples
    --------
    >>> RandomPartition(32).describe()
    {'partition': 'random', 'shards': 32}
    """

    shards: int
    name: ClassVar[str] = "random"

    def __post_init__(self) -> None:
        check_shards(self)

    def plan(self, source: Source, *, columns: Sequence[str], seed: int, outcome: str | None = None) -> Plan:
        """Need nothing but the number of rows."""
        check_rows(self, self.shards, source)

        def label(block: int, rows: int, _: Columns) -> np.ndarray:
            labels = np.empty(rows, dtype=np.int64)
            labels[shuffled(seed, block, rows)] = (block * BLOCK_ROWS + np.arange(rows)) % self.shards
            return labels

        return Plan(numbered(self.shards), (), label)


def shuffled(seed: int, block: int, rows: int) -> np.ndarray:
    """Return the positions of a block in a random order that depends on (seed, block) alone."""
    generator = np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(block,)))
    return np.argsort(generator.random_raw(rows), kind="stable")


def numbered(shards: int) -> tuple[str, ...]:
    """Return the names of shards that have none of their own."""
    return tuple(str(shard) for shard in range(shards))


def check_shards(partition: Any) -> None:
    """Refuse a number of shards that is none."""
    shards = partition.shards
    if isinstance(shards, bool) or not isinstance(shards, int | np.integer) or shards < 1:
        step = 'The default is "auto".'
        raise must_be(
            f"{partition.name} partition", "shards", "a whole number of at least 1", shards, step, DataError
        )
    # A NumPy integer would not go into JSON.
    object.__setattr__(partition, "shards", int(shards))


def check_rows(partition: Partition, shards: int, source: Source) -> None:
    """Refuse more shards than rows."""
    if source.num_rows < shards:
        got = Shown(f"{shards:,} shards for {source.num_rows:,} rows")
        step = f"Use at most {source.num_rows:,} shards; far fewer are better."
        raise must_be(
            f"{partition.name} partition", "shards", "at most the number of rows", got, step, DataError
        )


def refuse_missing(values: np.ndarray, column: str, partition: Partition) -> None:
    """Refuse rows that belong to no group, site or time."""
    marks = not_finite(values)
    if marks is not None and marks.any():
        raise must_be(
            f"{partition.name} partition",
            "column",
            "a column without missing values",
            Shown(f"{column}, where they occur"),
            "Fill them, or drop those rows first.",
            DataError,
        )


def encode(values: np.ndarray) -> tuple[list[Any], np.ndarray]:
    """Return the distinct values, and for each row which of them it has (-1 where text is missing)."""
    if values.dtype == object:
        import pandas as pd

        codes, levels = pd.factorize(values)
        return list(levels), codes
    plain = values.view(np.int64) if values.dtype.kind == "M" else values
    distinct, codes = np.unique(plain, return_inverse=True)
    return distinct.tolist(), codes
