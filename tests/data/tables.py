"""Tables that the tests of this room share."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq


def make_columns(rows: int, seed: int = 3) -> dict[str, np.ndarray]:
    """Return rows of every type, sorted by `x` and with a rare level in `carrier`."""
    rng = np.random.default_rng(seed)
    hours = rng.integers(0, 5000, rows) * np.timedelta64(3600, "s")
    carriers = np.array(["AA", "UA", "DL", "rare"], dtype=object)
    return {
        "row": np.arange(rows),
        "x": np.sort(rng.standard_normal(rows)),
        "y": rng.integers(0, 2, rows),
        "carrier": carriers[rng.choice(4, size=rows, p=[0.5, 0.3, 0.19, 0.01])],
        "school": rng.integers(0, max(2, rows // 40), rows),
        "when": np.datetime64("2020-01-01T00:00:00", "us") + hours,
        "late": rng.random(rows) < 0.5,
    }


def arrow_table(columns: dict[str, np.ndarray]) -> pa.Table:
    return pa.table({name: pa.array(values) for name, values in columns.items()})


def write_parquet(columns: dict[str, np.ndarray], path: Path, group_rows: int = 997) -> Path:
    pq.write_table(arrow_table(columns), path, row_group_size=group_rows)
    return path


def write_csv(columns: dict[str, np.ndarray], path: Path) -> Path:
    """Write plain or, by the extension, compressed text."""
    with pa.output_stream(str(path)) as file:  # compresses by extension
        pyarrow.csv.write_csv(arrow_table(columns), file)
    return path


def pieces(columns: dict[str, np.ndarray], *cuts: int) -> list[dict[str, np.ndarray]]:
    """Cut a table into consecutive ones."""
    bounds = [0, *cuts, len(next(iter(columns.values())))]
    return [
        {name: values[low:high] for name, values in columns.items()}
        for low, high in itertools.pairwise(bounds)
    ]


def all_forms(columns: dict[str, np.ndarray], folder: Path) -> dict[str, Any]:
    """Return the same rows in every form that can be opened."""
    import pandas as pd
    import polars as pl

    parts = folder / "parts"
    parts.mkdir()
    third = len(columns["row"]) // 3
    for number, piece in enumerate(pieces(columns, third, 2 * third + 1)):
        write_parquet(piece, parts / f"part-{number}.parquet", 501 + number)
    texts = folder / "texts"
    texts.mkdir()
    for number, piece in enumerate(pieces(columns, third)):
        write_csv(piece, texts / f"{number}.csv")
    categories = pd.DataFrame(columns).astype({"carrier": "category", "school": "Int64", "y": "int8"})
    dictionaries = arrow_table(columns)
    place = dictionaries.column_names.index("carrier")
    dictionaries = dictionaries.set_column(place, "carrier", dictionaries.column(place).dictionary_encode())
    return {
        "dict": columns,
        "dict of lists": {name: values.tolist() for name, values in columns.items()},
        "pandas": pd.DataFrame(columns),
        "pandas, other types": categories,
        "polars": pl.DataFrame({n: v.tolist() if v.dtype == object else v for n, v in columns.items()}),
        "arrow": arrow_table(columns),
        "arrow dictionary": dictionaries,
        "parquet": write_parquet(columns, folder / "odd.parquet"),
        "folder": parts,
        "glob": str(parts / "part-*.parquet"),
        "csv": str(write_csv(columns, folder / "one.csv")),
        "csv.gz": write_csv(columns, folder / "two.csv.gz"),
        "csv folder": texts,
    }
