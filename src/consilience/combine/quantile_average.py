"""The average of quantile functions, on a grid of levels, and rows made of it.

The quantile function of J draws is a step function: the i-th smallest draw on ((i - 1)/J, i/J]. On N equal cells
it is represented by its averages over the cells, which keep the mean, and are the draws themselves when N = J.
An N-point sample with these values is, of all, the one nearest in Wasserstein-2 distance.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from consilience.draws.checks import evenly

from .base import Floats


def cell_averages(ordered: Floats, number: int) -> Floats:
    """Average step functions (d, J), sorted along the last axis, over `number` >= J equal cells.

    Examples
    --------
    >>> cell_averages(np.array([[1.0, 3.0]]), 3)
    array([[1., 2., 3.]])
    """
    size = ordered.shape[1]
    if size == number:
        return ordered
    # In whole numbers: cell i lies between i * size and (i + 1) * size, step k ends at (k + 1) * number. A cell
    # is no longer than a step, so it touches one step or two.
    begins = np.arange(number) * size
    first = begins // number
    share = (np.minimum((first + 1) * number, begins + size) - begins) / size
    second = np.minimum(first + 1, size - 1)
    return ordered[:, first] * share + ordered[:, second] * (1.0 - share)


def add_quantiles(total: Floats, columns: Floats, weight: float) -> None:
    """Add `weight` times the quantile function of each row of `columns` (d, J), which is sorted in place."""
    columns.sort(axis=1)
    levels = cell_averages(columns, total.shape[1])
    total += np.multiply(levels, weight, out=levels)


def rows_in_rank_order(quantiles: Floats, pattern: Floats) -> Floats:
    """Arrange sorted values (d, N) into N rows whose ranks are those of `pattern` (d, N).

    Examples
    --------
    >>> rows_in_rank_order(np.array([[1.0, 2.0, 3.0]]), np.array([[0.7, 0.9, 0.8]]))[:, 0]
    array([1., 3., 2.])
    """
    rows = np.empty_like(quantiles)
    np.put_along_axis(rows, np.argsort(pattern, axis=1), quantiles, axis=1)
    return np.ascontiguousarray(rows.T)


def shared_rows(sizes: Sequence[int], weights: Floats, order: Sequence[int], number: int) -> list[np.ndarray]:
    """Which rows of every shard, spread evenly, make up `number` rows shared out by weight.

    Shards are gone through in the given order, and so a rounded share does not depend on where a shard stands.

    Examples
    --------
    >>> shared_rows([4, 4], np.array([0.25, 0.75]), [0, 1], 4)
    [array([2]), array([0, 2, 3])]
    """
    ends = np.rint(np.cumsum([weights[b] for b in order]) * number).astype(np.int64)
    counts = dict(zip(order, np.diff(ends, prepend=0), strict=True))
    none = np.empty(0, dtype=np.int64)
    return [evenly(size, int(counts[b])) if counts[b] else none for b, size in enumerate(sizes)]
