"""Rows in Parquet files, read a few thousand at a time.

A row group can be larger than memory allows, so it is streamed: each wanted column has a buffer of fixed size
(`buffer_size`) and is decoded as far as the batch needs. Reading ahead is off for the same reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from consilience.data.columns import ARRAY, Columns, arrow_type, from_arrow
from consilience.data.files import FileSource, reading

_BUFFER_BYTES = 1 << 17


class ParquetSource(FileSource):
    """One or more Parquet files with one schema."""

    kind = "parquet"

    def __init__(self, name: str, paths: Sequence[Path], root: Path) -> None:
        super().__init__(name, paths, root)
        self._rows: list[int] = []
        # Columns without a missing value in any file, by the files' own statistics.
        complete: set[str] = set()
        for place, path in enumerate(self.paths):
            with reading(self.called(path)), _open(path) as file:
                names = file.schema_arrow.names
                if place == 0:
                    self.columns, complete = tuple(names), set(names)
                self._same_columns(self.columns, path, names)
                gaps = {column for column in names if _has_nulls(file, column)}
                complete -= gaps
                self._rows.append(file.metadata.num_rows)
                for column in self.columns:
                    known = arrow_type(file.schema_arrow.field(column).type, column in gaps)
                    if place:
                        known = self._widened(path, column, self._types[column], known)
                    self._types[column] = known
        self._complete = complete
        if not self.num_rows:
            raise self._no_rows()

    @property
    def num_rows(self) -> int:
        """Return the number of rows, from the files' footers."""
        return sum(self._rows)

    def may_be_missing(self, column: str) -> bool:
        """Return False for text, dates and whole numbers that have no nulls; other numbers may hold NaN."""
        known = self._types[column]
        return column not in self._complete or known is None or known.kind in ("number", "array")

    def _pieces(self, columns: tuple[str, ...], batch_rows: int) -> Iterator[Columns]:
        types = {column: self._types[column] for column in columns}
        for path in self.paths:
            with reading(self.called(path)), _open(path) as file:
                for batch in file.iter_batches(batch_rows, columns=list(columns), use_threads=True):
                    piece = {}
                    for column, known in types.items():
                        assert known is not None  # `require` has refused the others
                        piece[column] = from_arrow(batch.column(column), known, column)
                    del batch  # its memory can go back before the next one is decoded
                    yield piece


def _open(path: Path) -> Any:
    import pyarrow.parquet as pq

    return pq.ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER_BYTES, memory_map=False)


def _has_nulls(file: Any, column: str) -> bool:
    """Say whether a column has missing values: from the statistics, or by looking where there are none."""
    field = file.schema_arrow.field(column)
    if not field.nullable or arrow_type(field.type, False) in (None, ARRAY):
        return field.nullable
    place = next((i for i, known in enumerate(file.schema) if known.path == column), None)
    if place is not None:
        groups = [
            file.metadata.row_group(i).column(place).statistics for i in range(file.metadata.num_row_groups)
        ]
        if all(known is not None and known.has_null_count for known in groups):
            return any(known.null_count for known in groups)
    return any(batch.column(0).null_count for batch in file.iter_batches(1 << 16, columns=[column]))
