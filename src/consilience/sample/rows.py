"""Ragged shards made rectangular: rows are padded to a common length and the padding is masked.

The padded length is a function of the number of rows alone, never of the other shards, so that one
shard's program, and with it every bit of its draws, is the same wherever and with whomever it runs.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from consilience.errors import DataError, must_be

ROW_WEIGHT = "row_weight"


def padded_length(num_rows: int) -> int:
    """Round up to a coarse grid: powers of two to 1,024, then eighths of them (at most 12.5 % is padding).

    Examples
    --------
    >>> [padded_length(n) for n in (1, 64, 65, 1024, 1025, 12_500)]
    [64, 64, 128, 1024, 1152, 13312]
    """
    power = max(64, 1 << (num_rows - 1).bit_length())
    if power <= 1024:
        return power
    step = power // 16
    return -(-num_rows // step) * step


def numeric(array: np.ndarray, precision: str) -> np.ndarray | None:
    """The array as a compiled program takes it, or None where it has no numbers in it."""
    real = np.float64 if precision == "float64" else np.float32
    if array.dtype.kind == "f":
        return array.astype(real, copy=False)
    if array.dtype.kind == "b":
        return array
    if array.dtype.kind in "iu":
        if array.size and (array.max() > np.iinfo(np.int32).max or array.min() < np.iinfo(np.int32).min):
            return array.astype(real)
        return array.astype(np.int32, copy=False)
    return None


def pad_rows(
    rows: Mapping[str, np.ndarray], precision: str = "float32"
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Split a model's rows into padded numeric arrays and the weight of each row (zero for padding).

    Rows of weight zero are left out. Padding repeats the first row that counts, so that whatever is
    evaluated, also for nothing, is as finite as the rows that matter.

    Examples
    --------
    >>> weights = np.array([2.0, 0.0, 1.0])
    >>> arrays, weight = pad_rows({"y": np.array([1.0, np.nan, 3.0]), "row_weight": weights})
    >>> arrays["y"][:4].tolist(), weight[:4].tolist()
    ([1.0, 3.0, 1.0, 1.0], [2.0, 1.0, 0.0, 0.0])
    """
    real = np.float64 if precision == "float64" else np.float32
    arrays = {}
    for name, values in rows.items():
        if (numbers := numeric(np.asarray(values), precision)) is not None:
            arrays[name] = numbers
    given = arrays.pop(ROW_WEIGHT, None)
    if not arrays:
        raise DataError("no column of the rows holds numbers. Give the model at least one column of numbers.")
    num_rows = len(next(iter(arrays.values())))
    weight: np.ndarray = np.ones(num_rows) if given is None else _checked(given)
    counted = np.asarray(weight > 0)
    if not counted.all():
        if not counted.any():
            raise DataError("every row has weight zero. Leave this shard out.")
        arrays = {name: values[counted] for name, values in arrays.items()}
        weight = weight[counted]
    extra = padded_length(len(weight)) - len(weight)
    return {name: lengthened(values, extra) for name, values in arrays.items()}, np.concatenate(
        [weight.astype(real), np.zeros(extra, real)]
    )


def lengthened(values: np.ndarray, extra: int) -> np.ndarray:
    """Repeat the first row at the end."""
    return np.concatenate([values, np.repeat(values[:1], extra, axis=0)]) if extra else values


def _checked(weight: np.ndarray) -> np.ndarray:
    bad = np.flatnonzero(~(np.isfinite(weight) & (weight >= 0)))
    if bad.size:
        raise must_be(
            "rows",
            ROW_WEIGHT,
            "finite and not negative",
            float(weight[bad[0]]),
            f"{bad.size} of {len(weight)} rows are not, first row {bad[0]}; weight 0 leaves a row out.",
            DataError,
        )
    return weight
