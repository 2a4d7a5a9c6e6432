"""Rows that are in memory already: a dict of arrays, a pandas or Polars frame, an Arrow table.

Nothing is converted before it is asked for, so a frame with a hundred columns of which three are used costs
three. Numbers stay in the caller's arrays; text is turned once into objects.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from consilience.data.columns import (
    BLOCK_ROWS,
    Columns,
    ColumnType,
    Shown,
    arrow_type,
    from_arrow,
    from_numpy,
    numpy_type,
)
from consilience.data.source import Source
from consilience.errors import DataError, must_be


class MemorySource(Source):
    """Columns that are loaded on demand by one function each, and then kept."""

    in_memory = True

    def __init__(self, name: str, loaders: Mapping[str, Callable[[], Any]], num_rows: int) -> None:
        self.name = name
        self.columns = tuple(loaders)
        self._loaders = dict(loaders)
        self._num_rows = num_rows
        self._raw: dict[str, Any] = {}
        self._settled: dict[str, np.ndarray] = {}
        if not loaders:
            raise must_be(
                name, "data", "a table with columns", Shown("no columns"), "Pass at least one.", DataError
            )
        if not num_rows:
            raise must_be(
                name, "data", "a table with rows", Shown("no rows"), "Check how it was made.", DataError
            )

    @property
    def num_rows(self) -> int:
        """Return the number of rows."""
        return self._num_rows

    def type_of(self, column: str) -> ColumnType | None:
        """Return the type of a column; a column of objects has to be looked at for that."""
        raw = self._load(column)
        if isinstance(raw, np.ndarray):
            return numpy_type(raw)
        return arrow_type(raw.type, raw.null_count > 0)

    def _load(self, name: str) -> Any:
        """Return a column as a numeric NumPy array or an Arrow array."""
        if name not in self._raw:
            self._raw[name] = self._loaders[name]()
        return self._raw[name]

    def _values(self, name: str) -> tuple[np.ndarray, ColumnType]:
        """Return the column as a NumPy array, still as narrow as the caller's, and what it is to become."""
        known = self.type_of(name)
        assert known is not None  # `require` has refused the others
        raw = self._load(name)
        if isinstance(raw, np.ndarray):
            return raw, known
        if name not in self._settled:
            self._settled[name] = from_arrow(raw, known, name)
        return self._settled[name], known

    def gather(self, columns: Sequence[str], positions: np.ndarray | slice) -> Columns:
        """Return some columns of some rows."""
        picked = {}
        for name in columns:
            values, known = self._values(name)
            picked[name] = (
                from_numpy(values[positions], known, name) if known.kind != "string" else values[positions]
            )
        return picked

    def _pieces(self, columns: tuple[str, ...], batch_rows: int) -> Iterator[Columns]:
        for start in range(0, self._num_rows, batch_rows):
            yield self.gather(columns, slice(start, start + batch_rows))

    def fingerprint(self, columns: Sequence[str] | None = None) -> dict[str, Any]:
        """Return the hash of the content of some columns (all by default), whatever table holds them."""
        asked = sorted(self.require(columns))
        digest = hashlib.blake2b(digest_size=16)
        for name in asked:
            digest.update(f"{name}\0{self.type_of(name)}\0".encode())
            for batch in self.scan([name], batch_rows=16 * BLOCK_ROWS):
                _hash_array(digest, batch[name])
        return {"kind": "memory", "rows": self._num_rows, "columns": asked, "content": digest.hexdigest()}


def _hash_array(digest: Any, values: np.ndarray) -> None:
    if values.dtype != object:
        digest.update(str(values.shape).encode())
        digest.update(np.ascontiguousarray(values).view(np.uint8).data)
        return
    for text in values.tolist():
        # The length goes first, so that "ab", "c" and "a", "bc" differ.
        encoded = b"" if text is None else text.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % (-1 if text is None else len(encoded)) + encoded)


def from_mapping(data: Mapping[str, Any]) -> MemorySource:
    """Open a dict of arrays with a common first axis."""
    arrays: dict[str, Any] = {}
    for key, values in data.items():
        arrays[_name(key)] = _as_column(values, str(key))
    lengths = {name: len(values) for name, values in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise must_be(
            "dict of arrays",
            "data",
            "arrays with a common first axis",
            Shown(", ".join(f"{name}: {length:,} rows" for name, length in lengths.items())),
            "Give every column one entry per row.",
            DataError,
        )
    rows = next(iter(lengths.values()), 0)
    return MemorySource("dict of arrays", {name: _holding(values) for name, values in arrays.items()}, rows)


def from_pandas(frame: Any) -> MemorySource:
    """Open a pandas DataFrame; its index is not a column."""
    names = _distinct("pandas DataFrame", frame.columns)
    # By position: labels need not be text.
    loaders = {name: _pandas_loader(frame, place, name) for place, name in enumerate(names)}
    return MemorySource("pandas DataFrame", loaders, len(frame))


def from_polars(frame: Any) -> MemorySource:
    """Open a Polars DataFrame."""
    loaders = {name: _polars_loader(frame, name) for name in frame.columns}
    return MemorySource("Polars DataFrame", loaders, frame.height)


def from_table(table: Any) -> MemorySource:
    """Open an Arrow table."""
    names = _distinct("Arrow table", table.column_names)
    loaders = {name: _holding(table.column(place)) for place, name in enumerate(names)}
    return MemorySource("Arrow table", loaders, table.num_rows)


def _holding(values: Any) -> Callable[[], Any]:
    return lambda: values


def _pandas_loader(frame: Any, place: int, name: str) -> Callable[[], Any]:
    def load() -> Any:
        series = frame.iloc[:, place]
        if isinstance(series.dtype, np.dtype) and series.dtype.kind in "fiubmM":
            return series.to_numpy()
        return _objects_to_arrow(series, name)

    return load


def _polars_loader(frame: Any, name: str) -> Callable[[], Any]:
    def load() -> Any:
        try:
            return frame.get_column(name).to_arrow()
        except Exception as error:  # Polars raises its own panics for objects that Arrow cannot hold
            raise _unusable(name, error) from error

    return load


def _as_column(values: Any, name: str) -> Any:
    """Bring whatever stands in a dict to a numeric NumPy array or an Arrow array."""
    module = type(values).__module__.split(".")[0]
    if module == "pandas":
        import pandas as pd

        return _pandas_loader(pd.Series(values).to_frame(), 0, name)()
    if module == "polars":
        return values.to_arrow()
    if module == "pyarrow":
        return values
    if isinstance(values, np.ma.MaskedArray) and values.ndim == 1:
        import pyarrow as pa

        return pa.array(values.data, mask=np.ma.getmaskarray(values))
    try:
        array = np.asarray(values)
    except ValueError as error:  # ragged lists
        raise _unusable(name, error) from error
    if array.ndim == 0:
        raise must_be(
            "dict of arrays", name, "an array with one entry per row", values, "Repeat the value.", DataError
        )
    if numpy_type(array) is not None:
        return array
    if array.ndim > 1 or array.dtype.kind == "c":
        raise must_be(
            "dict of arrays",
            name,
            "real numbers where it is not one column",
            Shown(array.dtype),
            "Split it.",
            DataError,
        )
    # np.asarray turns [1, None] to objects, but ["a", 1] to text: only the list itself shows the mixture.
    return _objects_to_arrow(array if isinstance(values, np.ndarray) else list(values), name)


def _objects_to_arrow(values: Any, name: str) -> Any:
    import pyarrow as pa

    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError, ValueError) as error:
        raise _unusable(name, error) from error


def _unusable(name: str, error: Exception) -> Exception:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return must_be(
        "data", name, "values of one type", Shown(reason), "Make them all numbers, or all text.", DataError
    )


def _name(key: Any) -> str:
    return key if isinstance(key, str) else str(key)


def _distinct(what: str, labels: Sequence[Any]) -> list[str]:
    names = [_name(label) for label in labels]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise must_be(
            what, "data", "a table whose columns have distinct names", twice, "Rename one of them.", DataError
        )
    return names
