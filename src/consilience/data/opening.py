"""Open whatever holds the rows."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from consilience.data.columns import Shown
from consilience.data.source import Source
from consilience.errors import DataError, must_be


def open_source(data: Any) -> Source:
    """Open rows in memory or in files as one kind of object.

    Parameters
    ----------
    data : dict of arrays, DataFrame, Table, str or path
        A dict of arrays with a common first axis; a pandas or Polars DataFrame; an Arrow table; or the path
        of a Parquet or CSV (.csv, .csv.gz) file, of a folder of them, or a glob. Files are read in sorted
        order.

    Returns
    -------
    Source
        With `columns`, `num_rows`, `dtypes`, `scan`, `filtered` and `fingerprint`. A `Source` is returned as
        it is.

    Examples
    --------
    >>> source = open_source({"late": [0, 1, 1], "carrier": ["AA", "UA", "AA"]})
    >>> source.num_rows, source.dtypes
    (3, {'late': 'integer', 'carrier': 'string'})
    """
    if isinstance(data, Source):
        return data
    if isinstance(data, str | os.PathLike):
        return _open_path(data)
    module, name = type(data).__module__.split(".")[0], type(data).__name__
    if isinstance(data, Mapping):
        from consilience.data.memory import from_mapping

        return from_mapping(data)
    if module == "pandas" and hasattr(data, "iloc") and hasattr(data, "columns"):
        from consilience.data.memory import from_pandas

        return from_pandas(data)
    if module == "polars" and name == "DataFrame":
        from consilience.data.memory import from_polars

        return from_polars(data)
    if module == "pyarrow" and name in ("Table", "RecordBatch"):
        import pyarrow as pa

        from consilience.data.memory import from_table

        return from_table(data if name == "Table" else pa.Table.from_batches([data]))
    if module == "polars" and name == "LazyFrame":
        # Collecting it here would silently hold everything in memory.
        raise must_be(
            "data",
            "data",
            "rows that exist",
            Shown("a Polars LazyFrame"),
            "Write it with .sink_parquet(path) and pass the path, or pass .collect() if it fits in memory.",
            DataError,
        )
    raise must_be(
        "data",
        "data",
        "a dict of arrays, a pandas, Polars or Arrow table, or a path",
        Shown(f"{module}.{name}"),
        "Convert it to one of these.",
        DataError,
    )


def _open_path(data: str | os.PathLike[str]) -> Source:
    from consilience.data.files import find_files

    name, paths, root, reader = find_files(data)
    if reader == "csv":
        from consilience.data.csvfile import CsvSource

        return CsvSource(name, paths, root)
    from consilience.data.parquet import ParquetSource

    return ParquetSource(name, paths, root)
