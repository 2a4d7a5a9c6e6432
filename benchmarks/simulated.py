"""Rows of a logistic regression with correlated features, for the benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

CORRELATION = 0.7
INTERCEPT = -0.5


def coefficients(features: int) -> np.ndarray:
    """Effects of both signs that leave the outcome neither rare nor certain."""
    return np.random.default_rng(11).normal(size=features) / np.sqrt(features)


def logistic_rows(rows: int, features: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Features with correlation 0.7^|i - j|, and a binary outcome."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, features))
    for j in range(1, features):
        x[:, j] = CORRELATION * x[:, j - 1] + np.sqrt(1 - CORRELATION**2) * x[:, j]
    probability = 1 / (1 + np.exp(-(INTERCEPT + x @ coefficients(features))))
    return x, (rng.random(rows) < probability).astype(np.int64)


def logistic_columns(rows: int, features: int, seed: int) -> dict[str, np.ndarray]:
    """The same as columns y, x0, x1, ..."""
    x, y = logistic_rows(rows, features, seed)
    return {"y": y, **{f"x{j}": np.ascontiguousarray(x[:, j]) for j in range(features)}}


def formula(features: int) -> str:
    return "y ~ " + " + ".join(f"x{j}" for j in range(features))


def write_parquet(path: str, rows: int, features: int, group: int = 250_000) -> dict[str, Any]:
    """Write such rows, a row group at a time; nothing larger than a group is ever in memory."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    writer = None
    for place, start in enumerate(range(0, rows, group)):
        part = pa.table(logistic_columns(min(group, rows - start), features, 1000 + place))
        writer = writer or parquet.ParquetWriter(path, part.schema, compression="snappy")
        writer.write_table(part)
    if writer is not None:
        writer.close()
    return {"bytes": Path(path).stat().st_size}
