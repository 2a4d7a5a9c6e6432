"""Before shards are made: open the rows, find what the model must know about all of them, decide the split."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from consilience.data import RandomPartition, Source, automatic_shards, open_source
from consilience.data.columns import Columns, rows_at_once
from consilience.errors import DataError, must_be
from consilience.machine import usable_cores
from consilience.request import Request
from consilience.versions import versions

# Kinds of columns that a log-likelihood in JAX can take.
NUMERIC = ("number", "integer", "boolean", "array")


@dataclass(frozen=True)
class Ready:
    """Model and rows after everything that must be known about all rows is known."""

    model: Any
    source: Source
    columns: tuple[str, ...]
    partition: Any
    fingerprint: str
    notes: tuple[str, ...]

    def manifest(self, request: Request) -> dict[str, Any]:
        """What a run directory remembers, so that another run is not mistaken for this one."""
        plan = "one task per shard" if request.engine is not None else "vectorised"
        return {
            "versions": versions(),
            "model": {**self.model.describe(), "fingerprint": self.fingerprint},
            "data": self.source.fingerprint(self.columns),
            "settings": {**request.settings(), "partition": self.partition.describe()},
            "plan": plan,
        }


def prepare(request: Request, model: Any, data: Any) -> Ready:
    """Open the rows, find the model's state over all of them, and decide how to split them."""
    if not hasattr(model, "log_likelihood"):
        raise must_be(
            "fit", "model", "a cs.Model", model, "Make one with cs.glm(formula, ...) or cs.Model(...)."
        )
    source = open_source(data)
    if source.num_rows == 0:
        raise must_be("fit", "data", "at least one row", source.name, "Look at how it was made.", DataError)
    columns = _needed_columns(request, model, source)
    source = source.filtered(request.missing, columns)
    if source.num_rows == 0:
        raise DataError(
            f"fit: every row of {source.name} has a missing value. Look at what fills its columns."
        )
    model = model.prepare(partial(_in_small_batches, source))
    example = model.rows(next(iter(source.scan(columns, 1024))))
    model.validate(example)
    partition, notes = request.shards, tuple(source.notes) + tuple(model.notes)
    if partition == "auto":
        cores = request.workers or usable_cores()
        enough = request.enough_shards(model.space.dimension)
        number, why = automatic_shards(source.num_rows, model.space.dimension, cores, enough)
        partition, notes = RandomPartition(number), (*notes, why)
    elif isinstance(partition, int):
        partition = RandomPartition(partition)
    return Ready(model, source, columns, partition, model.fingerprint(example), notes)


def _in_small_batches(source: Source, columns: Sequence[str] | None) -> Iterator[Columns]:
    wide = len(source.columns if columns is None else columns)
    return source.scan(columns, rows_at_once(wide))


def _needed_columns(request: Request, model: Any, source: Source) -> tuple[str, ...]:
    wanted = model.columns
    if wanted is None:
        usable = [name for name, kind in source.dtypes.items() if kind in NUMERIC]
        wanted = model.columns_read(next(iter(source.scan(usable, 64)))) if usable else ()
    extra = getattr(request.shards, "columns", None) or ()
    column = getattr(request.shards, "column", None)
    return source.require([*wanted, *extra, *([column] if column else [])])
