"""Where rows come from: one protocol for arrays, frames and files, and the scan that all of them share."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from consilience.data.columns import BLOCK_ROWS, Columns, ColumnType, Shown, rebatch
from consilience.errors import DataError, must_be

if TYPE_CHECKING:
    from consilience.data.missing import FilteredSource


class Source:
    """Rows that can be walked over as often as needed, and never changes under the walk.

    A kind of source implements `type_of`, `num_rows`, `fingerprint` and `_pieces`; everything else is shared.

    Attributes
    ----------
    name : str
        How messages call these rows: the file, or the kind of the table.
    columns : tuple of str
        Every column, in the order of the data.
    in_memory : bool
        Whether all rows are held by the caller anyway.
    notes : tuple of str
        What was done to the rows, for the report.
    dropped_rows : int
        How many rows were left out because of missing values.
    """

    name: str = "data"
    columns: tuple[str, ...] = ()
    in_memory: bool = False
    notes: tuple[str, ...] = ()
    dropped_rows: int = 0

    @property
    def num_rows(self) -> int:
        """Return the number of rows."""
        raise NotImplementedError

    def type_of(self, column: str) -> ColumnType | None:
        """Return the type of a column; None for those that cannot be used (structs, bytes)."""
        raise NotImplementedError

    def fingerprint(self, columns: Sequence[str] | None = None) -> dict[str, Any]:
        """Return a JSON-able record that changes when the rows change."""
        raise NotImplementedError

    def _pieces(self, columns: tuple[str, ...], batch_rows: int) -> Iterator[Columns]:
        """Yield the rows of some columns, in order, in pieces of any length near `batch_rows`."""
        raise NotImplementedError

    @property
    def dtypes(self) -> dict[str, str]:
        """Return the kind of every column: number, integer, boolean, string, date, array (or unsupported)."""
        return {name: self._kind_of(name) for name in self.columns}

    def _kind_of(self, column: str) -> str:
        try:
            known = self.type_of(column)
        except DataError:  # said in full to whoever asks for this column
            return "unsupported"
        return known.kind if known else "unsupported"

    def may_be_missing(self, column: str) -> bool:
        """Return False only where it is known without a look that every value is there and finite."""
        known = self.type_of(column)
        return known is None or known.kind not in ("integer", "boolean")

    def require(self, columns: Sequence[str] | None) -> tuple[str, ...]:
        """Return the columns asked for (None: all), or refuse with the closest names there are.

        Examples
        --------
        >>> from consilience.data import open_source
        >>> open_source({"distance": [1.0, 2.0]}).require(["distanc"])
        Traceback (most recent call last):
            ...
        consilience.errors.DataError: dict of arrays: `columns` must be among the columns of the data.
        Got 'distanc'. Did you mean 'distance'? The data has 'distance'.
        """
        asked = self.columns if columns is None else tuple(dict.fromkeys(columns))
        unknown = [name for name in asked if name not in self.columns]
        if unknown:
            raise self._unknown(unknown)
        for name in asked:
            if self.type_of(name) is None:
                raise must_be(
                    self.name,
                    "columns",
                    "columns of numbers, text, booleans or dates",
                    name,
                    "Convert this column, or name the columns to use without it.",
                    DataError,
                )
        return asked

    def _unknown(self, unknown: list[str]) -> Exception:
        close = [
            match
            for name in unknown
            for match in difflib.get_close_matches(str(name), self.columns, n=1, cutoff=0.6)
        ]
        folded = {name.lower(): name for name in self.columns}
        close += [folded[str(name).lower()] for name in unknown if str(name).lower() in folded]
        more = len(self.columns) - 12
        listed = ", ".join(map(repr, self.columns[:12])) + (f" and {more} more" if more > 0 else "")
        guess = f"Did you mean {' and '.join(map(repr, dict.fromkeys(close)))}? " if close else ""
        got = Shown(", ".join(map(repr, unknown)))
        constraint = "among the columns of the data"
        return must_be(self.name, "columns", constraint, got, f"{guess}The data has {listed}.", DataError)

    def scan(self, columns: Sequence[str] | None = None, batch_rows: int = BLOCK_ROWS) -> Iterator[Columns]:
        """Walk over all rows in batches of exactly `batch_rows` (the last one may be shorter).

        Parameters
        ----------
        columns : sequence of str, optional
            The columns wanted; only these are decoded. All of them by default.
        batch_rows : int
            Rows per batch, whatever the file's own row groups are.

        Returns
        -------
        iterator of dict of str to numpy.ndarray

        Examples
        --------
        >>> from consilience.data import open_source
        >>> source = open_source({"x": [1.0, 2.0, 3.0], "site": ["a", "b", None]})
        >>> [batch["x"].tolist() for batch in source.scan(["x"], batch_rows=2)]
        [[1.0, 2.0], [3.0]]
        """
        if batch_rows < 1:
            raise must_be(
                self.name, "batch_rows", "at least 1", batch_rows, "The default is 65,536.", DataError
            )
        asked = self.require(columns)
        return rebatch(self._pieces(asked, batch_rows), batch_rows)

    def filtered(self, missing: str = "refuse", columns: Sequence[str] | None = None) -> FilteredSource:
        """Return these rows without those that miss a value in `columns`, or refuse if there are any.

        See :func:`consilience.data.missing.filter_missing`.
        """
        from consilience.data.missing import filter_missing

        return filter_missing(self, missing, columns)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {self.num_rows:,} rows, {len(self.columns)} columns>"
