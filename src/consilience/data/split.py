"""Split the rows of a source into shards: the one function that the rest of the package calls.

Rows in memory stay where they are, and a shard is a list of positions. Rows in files are spooled (see
:mod:`consilience.data.spool`), into a given directory, where a second run finds them again, or into a
temporary one.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from consilience.data.columns import BLOCK_ROWS
from consilience.data.missing import FilteredSource, filter_missing
from consilience.data.partition import Partition, Plan
from consilience.data.reference import MemoryShard, ShardReference, SpooledShard, memory_table
from consilience.data.source import Source
from consilience.data.spool import FORMAT, read_marker, write_marker, write_spool
from consilience.errors import DataError, StoreError, must_be


class Shards:
    """The shards of some rows.

    Attributes
    ----------
    sizes : tuple of int
        Rows per shard.
    labels : tuple of str
        What the shards are called.
    weights : numpy.ndarray
        Rows per shard over all rows; they sum to 1.
    notes : tuple of str
        What was done to the rows, for the report.
    dropped_rows : int
        Rows left out for missing values.
    directory : Path or None
        Where the rows were spooled.
    """

    def __init__(
        self,
        references: Sequence[ShardReference],
        notes: tuple[str, ...],
        dropped_rows: int,
        directory: Path | None = None,
    ) -> None:
        self._references = tuple(references)
        self.sizes = tuple(reference.num_rows for reference in self._references)
        self.labels = tuple(reference.label for reference in self._references)
        self.weights = np.array(self.sizes, dtype=np.float64) / sum(self.sizes)
        self.notes, self.dropped_rows, self.directory = notes, dropped_rows, directory

    @property
    def num_shards(self) -> int:
        """Return the number of shards."""
        return len(self._references)

    def reference(self, shard: int) -> ShardReference:
        """Return the handle on one shard's rows, which can be sent to another process."""
        if not 0 <= shard < self.num_shards:
            step = "Shards are numbered from 0."
            raise must_be("reference", "shard", f"from 0 to {self.num_shards - 1}", shard, step, DataError)
        return self._references[shard]

    def close(self) -> None:
        """Remove the spool if it is temporary."""
        owner = next((getattr(reference, "_owner", None) for reference in self._references), None)
        if isinstance(owner, _Temporary):
            owner.remove()

    def __enter__(self) -> Shards:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{self.num_shards} shards of {min(self.sizes):,} to {max(self.sizes):,} rows>"


class _Temporary:
    """A folder that goes when nobody refers to it any more."""

    def __init__(self) -> None:
        try:
            self.path = Path(tempfile.mkdtemp(prefix="consilience-rows-"))
        except OSError as error:
            step = "Set TMPDIR to a folder that can be written."
            raise must_be(
                "split", "TMPDIR", "a folder that can be written", str(error), step, StoreError
            ) from error
        self.remove = weakref.finalize(self, _remove, self.path, os.getpid())


def _remove(path: Path, maker: int) -> None:
    if os.getpid() == maker:  # a forked worker that ends must not take the rows of the others along
        shutil.rmtree(path, ignore_errors=True)


def split(
    source: Source,
    partition: Partition,
    *,
    columns: Sequence[str] | None,
    seed: int,
    directory: str | os.PathLike[str] | None = None,
    missing: str = "refuse",
    outcome: str | None = None,
) -> Shards:
    """Assign every row to a shard and make each shard readable on its own.

    Parameters
    ----------
    source : Source
        From :func:`open_source`.
    partition : Partition
        How rows are assigned.
    columns : sequence of str or None
        The columns that the model needs; None for all.
    seed : int
        The same rows, partition and seed make the same shards, from memory and from files.
    directory : path, optional
        Where rows from files are sorted by shard. The same call finds them there again. By default a
        temporary folder, removed with the returned object and its references.
    missing : {"refuse", "drop"}
        What to do with rows that miss a value in `columns`.
    outcome : str, optional
        The outcome's column, for stratification.

    Returns
    -------
    Shards

    Examples
    --------
    >>> from consilience.data import RandomPartition, open_source, split
    >>> source = open_source({"x": np.arange(10.0)})
    >>> shards = split(source, RandomPartition(3), columns=["x"], seed=1)
    >>> shards.sizes
    (4, 3, 3)
    >>> sorted(x for b in range(3) for x in shards.reference(b).read()["x"].tolist()) == list(range(10))
    True
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise must_be("split", "seed", "a whole number of at least 0", seed, "The default is 0.", DataError)
    asked = source.require(columns)
    if source.in_memory:
        return _split_memory(filter_missing(source, missing, asked), partition, asked, int(seed), outcome)
    key = _key(source, partition, asked, int(seed), missing, outcome)
    if directory is not None:
        record = read_marker(Path(directory), key)
        if record is not None:
            return _spooled(record, source.name, asked, Path(directory), None)
    kept = filter_missing(source, missing, asked)
    plan = partition.plan(kept, columns=asked, seed=int(seed), outcome=outcome)
    owner = None if directory is not None else _Temporary()
    target = Path(directory) if owner is None else owner.path  # type: ignore[arg-type]
    spooled = tuple(dict.fromkeys((*asked, *([plan.order_by] if plan.order_by else []))))
    parts, sizes = write_spool(kept, spooled, label_blocks(kept, plan), len(plan.labels), target)
    record = {
        "format": FORMAT,
        "key": key,
        "parts": parts,
        "sizes": sizes.tolist(),
        "labels": list(plan.labels),
        "order_by": plan.order_by,
        "notes": [*kept.notes, *plan.notes],
        "dropped_rows": kept.dropped_rows,
    }
    write_marker(target, record)
    return _spooled(record, source.name, asked, target, owner)


def label_blocks(source: Source, plan: Plan) -> Iterator[np.ndarray]:
    """Yield the shards of the rows, a block at a time."""
    if not plan.columns:
        for block, start in enumerate(range(0, source.num_rows, BLOCK_ROWS)):
            yield plan.label(block, min(BLOCK_ROWS, source.num_rows - start), {})
        return
    for block, batch in enumerate(source.scan(plan.columns, BLOCK_ROWS)):
        yield plan.label(block, len(batch[plan.columns[0]]), batch)


def _split_memory(
    source: FilteredSource, partition: Partition, columns: tuple[str, ...], seed: int, outcome: str | None
) -> Shards:
    plan = partition.plan(source, columns=columns, seed=seed, outcome=outcome)
    labels = np.concatenate(list(label_blocks(source, plan)))
    table, kept = memory_table(source)
    order = np.argsort(labels, kind="stable")
    if plan.order_by:
        times = np.concatenate([batch[plan.order_by] for batch in source.scan([plan.order_by])])
        order = np.lexsort((times, labels))  # stable, as the sort of a spooled shard is
    bounds = np.searchsorted(labels[order], np.arange(len(plan.labels) + 1))
    rows = order if kept is None else kept[order]
    references = [
        MemoryShard(shard, label, table, columns, rows[bounds[shard] : bounds[shard + 1]])
        for shard, label in enumerate(plan.labels)
    ]
    return Shards(references, (*source.notes, *plan.notes), source.dropped_rows)


def _spooled(
    record: dict[str, Any], source: str, columns: tuple[str, ...], directory: Path, owner: _Temporary | None
) -> Shards:
    # Absolute, because a worker may run in another folder.
    parts = tuple(directory.resolve() / part["name"] for part in record["parts"])
    references = [
        SpooledShard(shard, label, source, rows, parts, columns, record["order_by"], owner)
        for shard, (label, rows) in enumerate(zip(record["labels"], record["sizes"], strict=True))
    ]
    return Shards(references, tuple(record["notes"]), record["dropped_rows"], directory)


def _key(
    source: Source,
    partition: Partition,
    columns: tuple[str, ...],
    seed: int,
    missing: str,
    outcome: str | None,
) -> str:
    """Return what tells one spool from another."""
    record = {
        "source": source.fingerprint(),
        "partition": partition.describe(),
        "columns": columns,
        "seed": seed,
        "missing": missing,
        "outcome": outcome,
    }
    return hashlib.blake2b(json.dumps(record, sort_keys=True).encode(), digest_size=16).hexdigest()
