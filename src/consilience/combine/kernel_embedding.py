"""Shards' draws as points of a reproducing kernel Hilbert space: inner products, in blocks, and the bandwidth.

The empirical measure of m draws x_i is the point (1/m) sum k(x_i, .), so that the inner product of two shards is the
mean of k(x, y) over their pairs of draws, with k(x, y) = exp(-|x - y|² / (2 h²)) here.

Draws come standardised. Kernels are evaluated between some draws of every shard, evenly spread over its chains, and
a block of rows at a time: memory is a block and, with the results, one row of B numbers per draw.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from consilience.progress import tell

from .base import Floats

# Draws on which the bandwidth rests, of all shards together.
BANDWIDTH_DRAWS = 600
# Kernels evaluated at a time: they stay in the processor's cache (256 kB), and up to 32 parameters their matrix
# products are too small to be spread over threads, which on a busy machine wait for each other longer than they work.
BLOCK, SMALLEST_BLOCK, SMALL_PRODUCT, COLUMNS = 2**15, 2**13, 2**18, 2**10
# Means of kernels that are kept (32 MB) instead of being found again when they are needed again.
MOST_KEPT = 4_000_000


@dataclass(frozen=True, eq=False)
class Embedding:
    """Standardised draws of all shards, with the kernel between them.

    Attributes
    ----------
    points : (M, d), one shard after the other
    sizes : draws of each shard among the points
    bandwidth : h
    block : kernels evaluated at a time, at most
    """

    points: Floats
    sizes: tuple[int, ...]
    bandwidth: float
    block: int = BLOCK

    def mean_kernels(self) -> Iterator[tuple[slice, Floats]]:
        """For a run of points at a time, the mean of k over the draws of each shard: (r, B).

        Examples
        --------
        >>> embedding = Embedding(np.array([[0.0], [0.0], [2.0]]), (2, 1), 2.0, 100)
        >>> [kernels.round(3).tolist() for _, kernels in embedding.mean_kernels()]
        [[[1.0, 0.607], [1.0, 0.607], [0.607, 1.0]]]
        """
        if len(self.points) * len(self.sizes) <= MOST_KEPT:
            yield slice(0, len(self.points)), self._kept
        else:
            yield from self._blocks()

    @cached_property
    def _kept(self) -> Floats:
        return np.concatenate([kernels for _, kernels in self._blocks()])

    def _blocks(self) -> Iterator[tuple[slice, Floats]]:
        total, ends = len(self.points), np.cumsum(self.sizes)
        # exp(x.y / h² - |x|² / 2h² - |y|² / 2h²): the matrix product does all the work in d.
        scaled = self.points / self.bandwidth
        halves = 0.5 * np.einsum("ij,ij->i", scaled, scaled)
        groups = _groups(self.sizes, COLUMNS)
        block = min(self.block, max(SMALLEST_BLOCK, SMALL_PRODUCT // scaled.shape[1]))
        rows = max(
            1, block // max(ends[last - 1] - ends[first] + self.sizes[first] for first, last in groups)
        )
        for start in range(0, total, rows):
            if start % (64 * rows) == 0:
                tell("kernels between draws", start, total)
            part = slice(start, min(start + rows, total))
            kernels = np.empty((part.stop - start, len(self.sizes)))
            for first, last in groups:
                columns = slice(ends[first] - self.sizes[first], ends[last - 1])
                exponents = scaled[part] @ scaled[columns].T
                exponents -= halves[part, None]
                exponents -= halves[columns]
                # Rounding may put the kernel of a point with itself above 1 by a hair.
                np.minimum(exponents, 0.0, out=exponents)
                np.exp(exponents, out=exponents)
                starts = ends[first:last] - self.sizes[first:last] - columns.start
                kernels[:, first:last] = np.add.reduceat(exponents, starts, axis=1)
            kernels /= self.sizes
            yield part, kernels
        tell("kernels between draws", total, total)

    def gram(self) -> Floats:
        """Inner products (B, B) of the shards' empirical measures.

        Examples
        --------
        >>> Embedding(np.array([[0.0], [0.0], [2.0]]), (2, 1), 2.0, 100).gram().round(3)
        array([[1.   , 0.607],
               [0.607, 1.   ]])
        """
        shard = np.repeat(np.arange(len(self.sizes)), self.sizes)
        found = np.zeros((len(self.sizes), len(self.sizes)))
        for part, kernels in self.mean_kernels():
            inside, first = np.unique(shard[part], return_index=True)
            found[inside] += np.add.reduceat(kernels, first, axis=0)
        found /= np.array(self.sizes)[:, None]
        return 0.5 * (found + found.T)


def median_distance(points: Floats, sizes: Sequence[int], weights: Floats) -> float:
    """Median over shards of the median distance between a shard's draws and those of the others.

    A median of medians: shards of less than half of the weight, however far away, cannot carry it off, which the
    plain median over all pairs would allow from 29 % on.

    Examples
    --------
    >>> x = np.array([[0.0], [1.0], [2.0], [1e9]])
    >>> median_distance(x, (1, 1, 1, 1), np.full(4, 0.25))
    2.0
    """
    ends = np.cumsum(sizes)
    count = max(1, BANDWIDTH_DRAWS // len(sizes))
    chosen = [end - n + evenly_from_shard(n, count) for end, n in zip(ends, sizes, strict=True)]
    shard = np.repeat(np.arange(len(sizes)), [len(index) for index in chosen])
    few = points[np.concatenate(chosen)]
    lengths = np.einsum("ij,ij->i", few, few)
    medians = np.zeros(len(sizes))
    for b in range(len(sizes)):
        own = shard == b
        squared = lengths[own][:, None] + lengths[~own] - 2.0 * few[own] @ few[~own].T
        medians[b] = np.sqrt(max(float(np.median(squared)), 0.0)) if squared.size else 0.0
    order = np.argsort(medians)
    total = np.cumsum(weights[order])
    return float(medians[order[np.searchsorted(total, 0.5 * total[-1])]])


def evenly_from_shard(total: int, wanted: int) -> np.ndarray:
    """At most `wanted` indices, evenly spread over `total`."""
    wanted = min(total, wanted)
    return np.floor((np.arange(wanted) + 0.5) * (total / wanted)).astype(np.int64)


def _groups(sizes: Sequence[int], most: int) -> list[tuple[int, int]]:
    """Runs of shards (first, last + 1) with no more than `most` draws together, or of one shard."""
    groups, first, together = [], 0, 0
    for b, n in enumerate(sizes):
        if b > first and together + n > most:
            groups.append((first, b))
            first, together = b, 0
        together += n
    return [*groups, (first, len(sizes))]
