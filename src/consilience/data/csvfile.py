"""Rows in CSV files, with types that hold for the whole file.

Arrow infers a column's type from its first block and fails when a later block does not fit. Here one pass
over the text finds the narrowest type that fits every row, widening as it goes (integer, then number, then
text; date, then time, then text). Later passes decode only the columns asked for, with these types fixed.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from consilience.data.columns import (
    BOOLEAN,
    DATE,
    FINE_DATE,
    INTEGER,
    NUMBER,
    STRING,
    Columns,
    ColumnType,
    Shown,
    from_arrow,
)
from consilience.data.files import FileSource, reading
from consilience.errors import DataError, must_be

#: Text that means a missing value, in a column of text too.
MISSING_TEXT = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
_BLOCK_BYTES = 1 << 20

#: Where each type goes when a value does not fit it. The first type is tried first on a column not seen yet.
_ORDER = ("integer", "boolean", "number", "date", "time", "fine time", "zoned time", "text")
_WIDER = {
    "integer": ("number", "text"),
    "boolean": ("text",),
    "number": ("text",),
    "date": ("time", "fine time", "text"),
    "time": ("fine time", "text"),
    "fine time": ("text",),
    "zoned time": ("text",),
    "text": (),
}


class CsvSource(FileSource):
    """One or more CSV files (plain or gzip) with one header."""

    kind = "csv"

    def __init__(self, name: str, paths: Sequence[Path], root: Path) -> None:
        super().__init__(name, paths, root)
        self._num_rows = 0
        found: dict[str, str | None] = {}
        nulls: set[str] = set()
        infinite: set[str] = set()
        for path in self.paths:
            header = self._header(path)
            if not self.columns:
                self.columns, found = tuple(header), dict.fromkeys(header)
            self._same_columns(self.columns, path, header)
            for batch in self._batches(path, self.columns, dict.fromkeys(self.columns, "text")):
                self._num_rows += batch.num_rows
                for column in self.columns:
                    values = batch.column(column)
                    found[column] = _narrowest(values, found[column])
                    if values.null_count:
                        nulls.add(column)
                    if found[column] == "number" and _has_infinity(values):
                        infinite.add(column)
        if not self._num_rows:
            raise self._no_rows()
        self._found = {column: known or "number" for column, known in found.items()}
        self._types = {column: _column_type(known, column in nulls) for column, known in self._found.items()}
        self._doubtful = nulls | infinite

    @property
    def num_rows(self) -> int:
        """Return the number of rows, counted while the types were found."""
        return self._num_rows

    def may_be_missing(self, column: str) -> bool:
        """Return what the first pass has seen."""
        return column in self._doubtful

    def _pieces(self, columns: tuple[str, ...], batch_rows: int) -> Iterator[Columns]:
        for path in self.paths:
            for batch in self._batches(path, columns, self._found):
                piece = {}
                for column in columns:
                    known = self._types[column]
                    assert known is not None
                    piece[column] = from_arrow(batch.column(column), known, column)
                yield piece

    def _batches(
        self, path: Path, columns: Sequence[str], types: dict[str, str | None] | dict[str, str]
    ) -> Iterator[Any]:
        import pyarrow.csv as pc

        convert = pc.ConvertOptions(
            include_columns=list(columns),
            column_types={column: _arrow_types()[types[column] or "text"] for column in columns},
            null_values=list(MISSING_TEXT),
            strings_can_be_null=True,
        )
        with self._explained(path), _open(path, convert) as reader:
            yield from reader

    def _header(self, path: Path) -> list[str]:
        import pyarrow.csv as pc

        everything_text = pc.ConvertOptions(strings_can_be_null=True)
        with self._explained(path), _open(path, everything_text) as reader:
            names = list(reader.schema.names)
        if len(names) == 1 and any(sign in names[0] for sign in ";\t|"):
            raise must_be(
                self.called(path),
                "data",
                "separated by commas",
                names[0],
                "Write it again with commas.",
                DataError,
            )
        if all(_is_number(name) for name in names):
            raise must_be(
                self.called(path),
                "data",
                "a CSV file with column names in its first line",
                names,
                "Add them.",
                DataError,
            )
        return names

    @contextmanager
    def _explained(self, path: Path) -> Iterator[None]:
        """Find the line of a ragged row: Arrow does not count the lines that it skips."""
        import pyarrow as pa

        try:
            with reading(self.called(path)):
                yield
        except DataError as error:
            cause = error.__cause__
            if isinstance(cause, pa.ArrowInvalid) and "columns, got" in str(cause):
                ragged = _first_ragged(path)
                if ragged:
                    line, expected, got = ragged
                    raise must_be(
                        self.called(path),
                        f"line {line:,}",
                        f"a line of {expected:,} columns, like the header",
                        Shown(f"{got:,} columns"),
                        "Correct or remove that line; text with commas needs quotation marks.",
                        DataError,
                    ) from cause
            if isinstance(cause, pa.ArrowInvalid) and "invalid UTF8" in str(cause):
                raise must_be(
                    self.called(path),
                    "data",
                    "text in UTF-8",
                    Shown("another encoding"),
                    "Convert it to UTF-8.",
                    DataError,
                ) from cause
            raise


def _open(path: Path, convert: Any) -> Any:
    import pyarrow.csv as pc

    return pc.open_csv(
        path,
        read_options=pc.ReadOptions(block_size=_BLOCK_BYTES, use_threads=True),
        # Quoted text may run over several lines; without this such a file is refused as ragged.
        parse_options=pc.ParseOptions(newlines_in_values=True),
        convert_options=convert,
    )


def _arrow_types() -> dict[str, Any]:
    import pyarrow as pa

    return {
        "integer": pa.int64(),
        "boolean": pa.bool_(),
        "number": pa.float64(),
        "date": pa.date32(),
        "time": pa.timestamp("us"),
        "fine time": pa.timestamp("ns"),
        "zoned time": pa.timestamp("us", "UTC"),
        "text": pa.string(),
    }


def _narrowest(values: Any, known: str | None) -> str | None:
    """Return the narrowest type that fits what was seen before (`known`) and this block of text."""
    import pyarrow.compute as pc

    if values.null_count == len(values):
        return known
    candidates = _ORDER if known is None else (known, *_WIDER[known])
    if candidates[0] != "text":
        values = pc.utf8_trim_whitespace(values)  # as the reader does before it converts
    return next(candidate for candidate in candidates if candidate == "text" or _fits(values, candidate))


def _fits(values: Any, candidate: str) -> bool:
    import pyarrow as pa

    try:
        values.cast(_arrow_types()[candidate])
    except pa.ArrowInvalid:
        return False
    return True


def _has_infinity(values: Any) -> bool:
    import pyarrow.compute as pc

    return bool(pc.any(pc.match_substring(values, "inf", ignore_case=True)).as_py())


def _column_type(found: str, nullable: bool) -> ColumnType:
    if found in ("integer", "boolean"):
        return NUMBER if nullable else (INTEGER if found == "integer" else BOOLEAN)
    types = {
        "number": NUMBER,
        "date": DATE,
        "time": DATE,
        "zoned time": DATE,
        "fine time": FINE_DATE,
        "text": STRING,
    }
    return types[found]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _first_ragged(path: Path) -> tuple[int, int, int] | None:
    """Return line number, expected and found number of columns of the first ragged row."""
    opened: Any = gzip.open if path.name.lower().endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8", errors="replace", newline="") as file:
        rows = csv.reader(file)
        expected = 0
        for row in rows:
            if row and not expected:
                expected = len(row)
            elif row and len(row) != expected:
                return rows.line_num, expected, len(row)
    return None
