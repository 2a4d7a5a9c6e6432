"""A task's handle on its rows: small to send, reads only its own shard."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.data.columns import Columns, arrow_type, count_rows, from_arrow, join
from consilience.data.source import Source
from consilience.errors import StoreError, must_be

if TYPE_CHECKING:
    from consilience.data.memory import MemorySource


class ShardReference:
    """The rows of one shard.

    Attributes
    ----------
    index : int
        The number of the shard.
    label : str
        What the shard is called.
    source : str
        What the data are called, for messages.
    num_rows : int
        How many rows it has.
    """

    index: int
    label: str
    source: str
    num_rows: int

    def read(self) -> Columns:
        """Return the rows of this shard."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<shard {self.index} ({self.label}) of {self.source}: {self.num_rows:,} rows>"


class MemoryShard(ShardReference):
    """Positions in a table that is in memory; sent elsewhere, it takes its own rows and nothing else."""

    def __init__(
        self, index: int, label: str, table: MemorySource, columns: tuple[str, ...], positions: np.ndarray
    ) -> None:
        self.index, self.label, self.source, self.num_rows = index, label, table.name, len(positions)
        self._table: MemorySource | None = table
        self._columns, self._positions = columns, positions
        self._rows: Columns | None = None

    def read(self) -> Columns:
        """Return the rows of this shard, copied out of the table."""
        if self._table is None:
            assert self._rows is not None
            return dict(self._rows)
        return self._table.gather(self._columns, self._positions)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_rows": self.read(), "_table": None, "_positions": None}


class SpooledShard(ShardReference):
    """One record batch of each spool file (see :mod:`consilience.data.spool`)."""

    def __init__(
        self,
        index: int,
        label: str,
        source: str,
        num_rows: int,
        parts: tuple[Path, ...],
        columns: tuple[str, ...],
        order_by: str | None = None,
        owner: object = None,
    ) -> None:
        self.index, self.label, self.source, self.num_rows = index, label, source, num_rows
        self.parts, self._columns, self._order_by = parts, columns, order_by
        self._owner = owner  # keeps a temporary spool alive as long as this reference is

    def read(self) -> Columns:
        """Return the rows of this shard; the files are mapped, so other shards' bytes stay on the disk."""
        import pyarrow as pa

        asked = tuple(dict.fromkeys((*self._columns, *([self._order_by] if self._order_by else []))))
        pieces: list[Columns] = []
        try:
            for path in self.parts:
                with pa.memory_map(str(path)) as file:
                    batch = pa.ipc.open_file(file).get_batch(self.index)
                    # Copied, because the file may go before the rows do.
                    pieces.append({name: _copied(batch.column(name), name) for name in asked})
        except (pa.ArrowException, OSError, KeyError) as error:
            raise self._broken((str(error).splitlines() or ["unreadable"])[0]) from error
        rows = join(pieces)
        if count_rows(rows) != self.num_rows:
            raise self._broken(f"{count_rows(rows):,} rows instead of {self.num_rows:,}")
        if self._order_by:
            order = np.argsort(rows[self._order_by], kind="stable")
            rows = {name: rows[name][order] for name in self._columns}
        return rows

    def _broken(self, reason: str) -> Exception:
        return must_be(
            f"shard {self.index} ({self.label}) of {self.source}",
            "rows",
            "in the files written when the data were split",
            reason,
            f"Remove {self.parts[0].parent if self.parts else 'the folder'} and start again.",
            StoreError,
        )

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_owner": None}


def _copied(values: Any, column: str) -> np.ndarray:
    known = arrow_type(values.type, False)
    assert known is not None  # only such types are spooled
    return np.array(from_arrow(values, known, column))


def memory_table(source: Source) -> tuple[MemorySource, np.ndarray | None]:
    """Return the table below a source in memory, and which of its rows are left (None: all)."""
    from consilience.data.memory import MemorySource
    from consilience.data.missing import FilteredSource

    if isinstance(source, FilteredSource):
        table, below = memory_table(source.base)
        kept = source.kept_positions()
        if kept is None or below is None:
            return table, below if kept is None else kept
        return table, below[kept]
    assert isinstance(source, MemorySource)
    return source, None
