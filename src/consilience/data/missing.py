"""Rows with missing or infinite values: refused by name and number, or left out and reported.

One pass over the columns that can hold such values at all. What is remembered is one bit per row, and only
for blocks that lose a row, so that later walks see the same kept rows and need no second look at the columns
checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from consilience.data.columns import BLOCK_ROWS, Columns, ColumnType, Shown, count_rows, not_finite, rebatch
from consilience.data.source import Source
from consilience.errors import DataError, must_be


class FilteredSource(Source):
    """The rows of another source that have every value they need."""

    def __init__(
        self,
        base: Source,
        missing: str,
        checked: tuple[str, ...],
        bad_blocks: dict[int, np.ndarray],
        notes: tuple[str, ...],
        dropped_rows: int,
    ) -> None:
        self.base, self.missing, self.checked = base, missing, checked
        self.name, self.columns, self.in_memory = base.name, base.columns, base.in_memory
        self.notes, self.dropped_rows = base.notes + notes, base.dropped_rows + dropped_rows
        self._bad_blocks = bad_blocks
        self._num_rows = base.num_rows - dropped_rows

    @property
    def num_rows(self) -> int:
        """Return the number of rows that were kept."""
        return self._num_rows

    def type_of(self, column: str) -> ColumnType | None:
        """Return the type in the base, so that dropping rows does not change a column's type."""
        return self.base.type_of(column)

    def may_be_missing(self, column: str) -> bool:
        """Return False also for the columns that were checked."""
        return column not in self.checked and self.base.may_be_missing(column)

    def fingerprint(self, columns: Sequence[str] | None = None) -> dict[str, Any]:
        """Return the fingerprint of the base and of what was dropped."""
        record = dict(self.base.fingerprint(columns))
        if self.dropped_rows:
            record |= {"dropped_rows": self.dropped_rows, "complete_in": sorted(self.checked)}
        return record

    def kept_positions(self) -> np.ndarray | None:
        """Return where the kept rows stand in the base; None if all were kept."""
        if not self._bad_blocks:
            return None
        keep = np.ones(self.base.num_rows, dtype=bool)
        for block, packed in self._bad_blocks.items():
            start = block * BLOCK_ROWS
            rows = min(BLOCK_ROWS, self.base.num_rows - start)
            keep[start : start + rows] = ~np.unpackbits(packed, count=rows).astype(bool)
        return np.flatnonzero(keep)

    def _pieces(self, columns: tuple[str, ...], batch_rows: int) -> Iterator[Columns]:
        if not self._bad_blocks:
            return self.base.scan(columns, batch_rows)
        # Walking in the batches asked for keeps memory what the caller wants; a bit mask cuts at any row.
        return rebatch(self._kept_pieces(columns, min(batch_rows, BLOCK_ROWS)), batch_rows)

    def _kept_pieces(self, columns: tuple[str, ...], batch_rows: int) -> Iterator[Columns]:
        start = 0
        for batch in self.base.scan(columns, batch_rows):
            rows = count_rows(batch)
            keep = self._keep(start, rows)
            start += rows
            if keep is None:
                yield batch
            elif keep.any():
                yield {name: values[keep] for name, values in batch.items()}

    def _keep(self, start: int, rows: int) -> np.ndarray | None:
        """Return the kept rows of a range that spans at most two blocks."""
        touched = range(start // BLOCK_ROWS, (start + rows - 1) // BLOCK_ROWS + 1)
        if not any(block in self._bad_blocks for block in touched):
            return None
        bad = np.concatenate(
            [
                np.unpackbits(self._bad_blocks[block], count=BLOCK_ROWS)
                if block in self._bad_blocks
                else np.zeros(BLOCK_ROWS, dtype=np.uint8)
                for block in touched
            ]
        )
        offset = start - touched[0] * BLOCK_ROWS
        return bad[offset : offset + rows] == 0


def filter_missing(
    source: Source, missing: str = "refuse", columns: Sequence[str] | None = None
) -> FilteredSource:
    """Check that every row has a finite value in every column that is needed.

    Parameters
    ----------
    source : Source
    missing : {"refuse", "drop"}
        Whether such rows are an error or are left out (and counted in `dropped_rows` and `notes`).
    columns : sequence of str, optional
        The columns that are needed; all by default. A source checked for them already is returned as it is.

    Returns
    -------
    FilteredSource

    Examples
    --------
    >>> from consilience.data import open_source
    >>> source = open_source({"x": [1.0, float("nan"), 3.0], "y": [0, 1, 1]})
    >>> kept = source.filtered("drop", ["x", "y"])
    >>> kept.num_rows, kept.notes
    (2, ('1 of 3 rows dropped for missing or infinite values (x: 1).',))
    """
    if missing not in ("refuse", "drop"):
        raise must_be(
            source.name, "missing", "'refuse' or 'drop'", missing, "'refuse' is the default.", DataError
        )
    asked = source.require(columns)
    if isinstance(source, FilteredSource) and set(asked) <= set(source.checked):
        return source
    doubtful = tuple(name for name in asked if source.may_be_missing(name))
    counts, bad_blocks, bad_rows = _count(source, doubtful)
    if not bad_rows:
        return FilteredSource(source, missing, asked, {}, (), 0)
    per_column = ", ".join(f"{name}: {count:,}" for name, count in counts.items() if count)
    if missing == "refuse":
        raise must_be(
            source.name,
            "rows",
            "complete and finite in the columns that are used",
            Shown(f"{bad_rows:,} of {source.num_rows:,} rows with missing or infinite values ({per_column})"),
            'Mend them, or leave these rows out with missing="drop" (--missing drop).',
            DataError,
        )
    if bad_rows == source.num_rows:
        raise must_be(
            source.name,
            "rows",
            "complete and finite in at least one row",
            Shown(f"missing or infinite values in every row ({per_column})"),
            "Leave out the column that is never filled.",
            DataError,
        )
    note = f"{bad_rows:,} of {source.num_rows:,} rows dropped for missing or infinite values ({per_column})."
    return FilteredSource(source, missing, asked, bad_blocks, (note,), bad_rows)


def _count(source: Source, columns: tuple[str, ...]) -> tuple[dict[str, int], dict[int, np.ndarray], int]:
    """Return bad rows per column, one packed mask per block with bad rows, and the number of bad rows."""
    counts = dict.fromkeys(columns, 0)
    bad_blocks: dict[int, np.ndarray] = {}
    bad_rows = 0
    if not columns:
        return counts, bad_blocks, bad_rows
    for block, batch in enumerate(source.scan(columns, BLOCK_ROWS)):
        bad = np.zeros(count_rows(batch), dtype=bool)
        for name, values in batch.items():
            marks = not_finite(values)
            if marks is not None and marks.any():
                counts[name] += int(marks.sum())
                bad |= marks
        if bad.any():
            bad_blocks[block] = np.packbits(bad)
            bad_rows += int(bad.sum())
    return counts, bad_blocks, bad_rows
