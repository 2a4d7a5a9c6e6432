"""Merging identical rows into weighted ones, which changes no sum over rows.

Binary features and counts repeat: 100,000 rows of five binary features and a binary outcome are 64
different ones. Equal means equal in every bit of every array.
"""

from __future__ import annotations

import numpy as np

__all__ = ["merge_identical_rows"]

_SAMPLE = 4_096


def merge_identical_rows(rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Merge identical rows, their weights added, when at most half as many are left; else change nothing.

    Examples
    --------
    >>> import numpy as np
    >>> merged = merge_identical_rows({"y": np.array([0.0, 1.0, 1.0, 1.0], dtype=np.float32)})
    >>> merged["y"].tolist(), merged["row_weight"].tolist()
    ([0.0, 1.0], [1.0, 3.0])
    """
    keyed = {name: value for name, value in rows.items() if name != "row_weight"}
    count = len(next(iter(keyed.values())))
    if count < 2:
        return rows
    # Mostly different rows in a sample: not worth sorting them all. (A sample shows fewer repetitions than
    # the whole has.)
    step = max(count // _SAMPLE, 1)
    if count > 4 * _SAMPLE and len(np.unique(_keys(keyed, slice(0, None, step)))) > 0.9 * _SAMPLE:
        return rows
    _, first, inverse = np.unique(_keys(keyed, slice(None)), return_index=True, return_inverse=True)
    if 2 * len(first) > count:
        return rows
    weights = np.bincount(inverse.reshape(-1), weights=rows.get("row_weight"), minlength=len(first))
    order = np.argsort(first, kind="stable")  # the order in which they were met, so that shards look alike
    merged = {name: value[first[order]] for name, value in keyed.items()}
    merged["row_weight"] = weights[order].astype(np.float32)
    return merged


def _keys(rows: dict[str, np.ndarray], part: slice) -> np.ndarray:
    """One opaque value per row, made of its bytes."""
    pieces = []
    for name in sorted(rows):
        value = np.ascontiguousarray(rows[name][part])
        pieces.append(value.reshape(len(value), -1).view(np.uint8).reshape(len(value), -1))
    together = np.ascontiguousarray(np.concatenate(pieces, axis=1))
    return together.view(np.dtype((np.void, together.shape[1]))).reshape(-1)
