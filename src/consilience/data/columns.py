"""What a table looks like inside this package: one NumPy array per column, in few and safe types.

Rows arrive as NumPy, pandas, Polars, Arrow, Parquet or CSV. They leave here alike, so that the same rows
give the same arrays wherever they came from:

======== ============================= ==========================================
kind     array                         comes from
======== ============================= ==========================================
number   float64 (float32 stays)       floats, decimals, durations (in seconds),
                                       integers and booleans with missing values
integer  int64                         whole numbers of any width, because narrow
                                       ones overflow silently in a formula
boolean  bool                          booleans
string   object, None where missing    text, categories
date     datetime64[us] (ns stays)     dates and times, in UTC where they have a zone
array    2-D or more, as numbers       arrays in a dict, fixed-size lists
======== ============================= ==========================================
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from consilience.errors import DataError, must_be

Columns = dict[str, np.ndarray]

#: Rows that are read, labelled and checked together. Part of the definition of the random partition: do not
#: change.
BLOCK_ROWS = 65_536

#: Bytes of rows that are read at once where nothing but memory decides.
_BYTES_AT_ONCE = 4 << 20


@dataclasses.dataclass(frozen=True)
class ColumnType:
    """The kind of a column, and the type of the array that it becomes."""

    kind: str
    dtype: np.dtype


class Shown(str):
    """Text that an error message shows without quotation marks."""

    def __repr__(self) -> str:
        return str(self)


NUMBER = ColumnType("number", np.dtype(np.float64))
SINGLE = ColumnType("number", np.dtype(np.float32))
INTEGER = ColumnType("integer", np.dtype(np.int64))
BOOLEAN = ColumnType("boolean", np.dtype(np.bool_))
STRING = ColumnType("string", np.dtype(object))
DATE = ColumnType("date", np.dtype("datetime64[us]"))
FINE_DATE = ColumnType("date", np.dtype("datetime64[ns]"))
ARRAY = ColumnType("array", np.dtype(np.float64))


def count_rows(columns: Columns) -> int:
    """Return the common length of the columns (0 for none)."""
    return len(next(iter(columns.values()))) if columns else 0


def rows_at_once(columns: int) -> int:
    """Return how many rows of so many columns to read at once; batches divide a block, so both end together.

    Examples
    --------
    >>> rows_at_once(3), rows_at_once(31), rows_at_once(100_000)
    (65536, 16384, 1024)
    """
    rows = BLOCK_ROWS
    while rows > 1024 and rows * columns * 8 > _BYTES_AT_ONCE:
        rows //= 2
    return rows


def arrow_type(kind: Any, nullable: bool) -> ColumnType | None:
    """Return what an Arrow type becomes here, or None for what cannot be used (structs, bytes)."""
    import pyarrow as pa

    t = pa.types
    if t.is_dictionary(kind):
        return arrow_type(kind.value_type, nullable)
    if t.is_string(kind) or t.is_large_string(kind) or kind == pa.string_view():
        return STRING
    if t.is_integer(kind):
        return NUMBER if nullable else INTEGER
    if t.is_boolean(kind):
        return NUMBER if nullable else BOOLEAN
    if t.is_float32(kind) or t.is_float16(kind):
        return SINGLE
    if t.is_floating(kind) or t.is_decimal(kind) or t.is_null(kind) or t.is_duration(kind) or t.is_time(kind):
        return NUMBER
    if t.is_date(kind):
        return DATE
    if t.is_timestamp(kind):
        return FINE_DATE if kind.unit == "ns" else DATE
    if t.is_fixed_size_list(kind) and arrow_type(kind.value_type, False) in (NUMBER, SINGLE, INTEGER):
        return ARRAY
    return None


def from_arrow(values: Any, wanted: ColumnType, column: str) -> np.ndarray:
    """Turn an Arrow array (or chunked array) into the array that `wanted` describes."""
    import pyarrow as pa

    if isinstance(values, pa.ChunkedArray):
        parts = [from_arrow(chunk, wanted, column) for chunk in values.chunks]
        return np.concatenate(parts) if parts else np.empty(0, wanted.dtype)
    if wanted.kind == "string":
        return _strings(values)
    if wanted.kind == "array":
        return _fixed_lists(values)
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    try:
        if wanted.kind == "date":
            unit = np.datetime_data(wanted.dtype)[0]
            zone = getattr(values.type, "tz", None)
            # Through integers: a cast that drops the zone would be refused, and nulls become NaT.
            ticks = values.cast(pa.timestamp(unit, zone), safe=False).cast(pa.int64())
            return ticks.fill_null(np.iinfo(np.int64).min).to_numpy(zero_copy_only=False).view(wanted.dtype)
        if pa.types.is_duration(values.type) or pa.types.is_time(values.type):
            values = _seconds(values)
        target = pa.from_numpy_dtype(wanted.dtype)
        if values.type != target:
            values = values.cast(target, safe=wanted.kind == "integer")
    except pa.ArrowInvalid as error:
        raise must_be(
            "data",
            column,
            "numbers that fit in 64 bits",
            Shown(str(error).splitlines()[0]),
            "Scale them, or turn them into text.",
            DataError,
        ) from error
    return values.to_numpy(zero_copy_only=False)


def _strings(values: Any) -> np.ndarray:
    """Make one Python object per distinct text, shared by its rows: fast and small for categories."""
    import pyarrow as pa

    if not pa.types.is_dictionary(values.type):
        if values.type == pa.string_view():
            values = values.cast(pa.large_string())
        values = values.dictionary_encode()
    levels = values.dictionary.to_numpy(zero_copy_only=False)
    table = np.empty(len(levels) + 1, dtype=object)  # the last entry stays None: the code of a missing value
    table[:-1] = levels
    codes = values.indices.cast(pa.int64()).fill_null(len(levels)).to_numpy(zero_copy_only=False)
    return table[codes]


def _fixed_lists(values: Any) -> np.ndarray:
    import pyarrow as pa

    width = values.type.list_size
    item = SINGLE if values.type.value_type == pa.float32() else NUMBER
    flat = values.values.slice(values.offset * width, len(values) * width)
    out = np.array(from_arrow(flat, item, "values")).reshape(len(values), width)
    if values.null_count:
        out[values.is_null().to_numpy(zero_copy_only=False)] = np.nan
    return out


def _seconds(values: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    per_second = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[values.type.unit]
    whole = values.cast(pa.int32() if values.type.bit_width == 32 else pa.int64())
    return pc.divide(whole.cast(pa.float64(), safe=False), per_second)


def numpy_type(values: np.ndarray) -> ColumnType | None:
    """Return what a NumPy array becomes; None for objects and text, which must be looked at."""
    kind = values.dtype.kind
    if kind not in "fiubmM":
        return None
    if values.ndim > 1:
        return ColumnType(
            "array", np.dtype(np.float32) if values.dtype in (np.float16, np.float32) else _wide(values.dtype)
        )
    if kind == "M":
        return FINE_DATE if np.datetime_data(values.dtype)[0] == "ns" else DATE
    if kind == "f":
        return SINGLE if values.dtype.itemsize <= 4 else NUMBER
    return {"i": INTEGER, "u": INTEGER, "b": BOOLEAN, "m": NUMBER}[kind]


def _wide(dtype: np.dtype) -> np.dtype:
    return np.dtype({"i": np.int64, "u": np.int64, "b": np.bool_}.get(dtype.kind, np.float64))


def from_numpy(values: np.ndarray, wanted: ColumnType, column: str) -> np.ndarray:
    """Turn a NumPy array into the array that `wanted` describes; no copy where none is needed."""
    if values.dtype.kind == "m":
        seconds = values / np.timedelta64(1, "s")
        return np.asarray(seconds, dtype=wanted.dtype)
    if values.dtype == np.uint64 and values.size and int(values.max()) > np.iinfo(np.int64).max:
        raise must_be(
            "data",
            column,
            "numbers that fit in 64 bits",
            int(values.max()),
            "Scale them, or turn them into text.",
            DataError,
        )
    return values.astype(wanted.dtype, copy=False)


def not_finite(values: np.ndarray) -> np.ndarray | None:
    """Return which rows are missing or infinite, or None when the type of the column rules that out."""
    if values.dtype.kind in "iub":
        return None
    if values.dtype.kind == "f":
        bad = ~np.isfinite(values)
        return bad.any(axis=tuple(range(1, bad.ndim))) if bad.ndim > 1 else bad
    if values.dtype.kind == "M":
        return np.isnat(values)
    return np.fromiter((text is None for text in values), dtype=bool, count=len(values))


def rebatch(pieces: Iterable[Columns], batch_rows: int) -> Iterator[Columns]:
    """Cut pieces of any length into batches of exactly `batch_rows` rows; the last one may be shorter.

    Examples
    --------
    >>> pieces = ({"x": np.arange(n)} for n in (2, 3))
    >>> [batch["x"].tolist() for batch in rebatch(pieces, 4)]
    [[0, 1, 0, 1], [2]]
    """
    waiting: list[Columns] = []
    held = 0
    for piece in pieces:
        start, rows = 0, count_rows(piece)
        while held + rows - start >= batch_rows:
            stop = start + batch_rows - held
            waiting.append({name: values[start:stop] for name, values in piece.items()})
            yield join(waiting)
            waiting, held, start = [], 0, stop
        if start < rows:
            waiting.append({name: values[start:] for name, values in piece.items()})
            held += rows - start
    if waiting:
        yield join(waiting)


def join(pieces: list[Columns]) -> Columns:
    """Put pieces with the same columns one below the other."""
    if len(pieces) == 1:
        return pieces[0]
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
