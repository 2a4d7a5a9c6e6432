"""Exact quantiles of a column that is too long to hold.

As long as there are few distinct values, they are kept with their counts. Beyond the capacity the order
statistics are found by radix selection: floating-point numbers, read as suitably flipped 64-bit integers,
keep their order, and each of four passes counts the next 16 bits of the values that agree with what is known
of an order statistic so far. Fails: not at all for finite values (NaN must be gone). With `distinct`,
quantiles of the distinct values are wanted; beyond the capacity those of all values are given instead.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

__all__ = ["ExactQuantiles"]

_BUFFER = 2_000_000
_DIGITS = 4
_DIGIT_BITS = 16
_SIGN = np.uint64(1 << 63)


def _sortable(x: np.ndarray) -> np.ndarray:
    """Integers in the same order as the floats: flip the sign bit, and every bit of negative numbers."""
    bits = (x + 0.0).view(np.uint64)  # + 0.0 makes one zero of two
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def _from_sortable(key: int) -> float:
    bits = np.array([key], dtype=np.uint64)
    return float(np.where(bits & _SIGN, bits & ~_SIGN, ~bits).view(np.float64)[0])


@dataclass
class _Rank:
    """What is known of one order statistic: its leading bits, and the number of values below them."""

    rank: int
    prefix: int = 0
    below: int = 0
    histogram: np.ndarray = field(default_factory=lambda: np.zeros(1 << _DIGIT_BITS, dtype=np.int64))

    def add(self, keys: np.ndarray, digit: int) -> None:
        shift = np.uint64(64 - _DIGIT_BITS * (digit + 1))
        shifted = keys >> shift
        if digit:
            shifted = shifted[(shifted >> np.uint64(_DIGIT_BITS)) == np.uint64(self.prefix)]
        digits = (shifted & np.uint64((1 << _DIGIT_BITS) - 1)).astype(np.int64)
        self.histogram += np.bincount(digits, minlength=self.histogram.size)

    def narrow(self) -> None:
        cumulated = np.cumsum(self.histogram)
        index = int(np.searchsorted(cumulated, self.rank - self.below, side="right"))
        self.below += int(cumulated[index - 1]) if index else 0
        self.prefix = (self.prefix << _DIGIT_BITS) | index
        self.histogram[:] = 0


class ExactQuantiles:
    """Quantiles with linear interpolation, from passes over chunks.

    Call `add` for every chunk and `finish` after each pass, until that returns True.

    Examples
    --------
    >>> import numpy as np
    >>> finder = ExactQuantiles([0.5])
    >>> finder.add(np.array([3.0, 1.0])); finder.add(np.array([2.0]))
    >>> finder.finish(), finder.quantiles
    (True, [2.0])
    """

    def __init__(
        self, probabilities: list[float], *, distinct: bool = False, capacity: int = 4_000_000
    ) -> None:
        self.probabilities = probabilities
        self.distinct = distinct
        self.capacity = capacity
        self.count = 0
        self.quantiles: list[float] = []
        self._values, self._counts = np.empty(0), np.empty(0, dtype=np.int64)
        self._buffer: list[np.ndarray] = []
        self._overflow = False
        self._digit: int | None = None  # None while distinct values are collected
        self._selected: list[_Rank] = []

    def add(self, values: np.ndarray) -> None:
        """Take one chunk in."""
        x = np.asarray(values, dtype=np.float64).reshape(-1)
        if x.size == 0:
            return
        if self._digit is None:
            self._collect(x)
            return
        keys = _sortable(x)
        for rank in self._selected:
            rank.add(keys, self._digit)

    def finish(self) -> bool:
        """End one pass; True when `quantiles` is there, False when another pass is needed."""
        if self._digit is None:
            self._merge()
            if not self._overflow:
                self.quantiles = self._from_counts()
                return True
            self._selected = [_Rank(rank) for rank in self._ranks()]
            self._digit = 0
            return False
        for rank in self._selected:
            rank.narrow()
        self._digit += 1
        if self._digit < _DIGITS:
            return False
        self.quantiles = self._interpolate({r.rank: _from_sortable(r.prefix) for r in self._selected})
        self._selected = []
        return True

    def _collect(self, x: np.ndarray) -> None:
        self.count += x.size
        if self._overflow:
            return
        self._buffer.append(x)
        if sum(part.size for part in self._buffer) > min(_BUFFER, self.capacity):
            self._merge()

    def _merge(self) -> None:
        """Fold the buffer into the sorted distinct values and their counts."""
        if not self._buffer:
            return
        new, new_counts = np.unique(np.concatenate(self._buffer), return_counts=True)
        self._buffer = []
        merged, place = np.unique(np.concatenate([self._values, new]), return_inverse=True)
        counts = np.zeros(merged.size, dtype=np.int64)
        np.add.at(counts, place, np.concatenate([self._counts, new_counts]))
        self._values, self._counts = merged, counts
        if merged.size > self.capacity:
            self._overflow = True
            self._values, self._counts = np.empty(0), np.empty(0, dtype=np.int64)

    def _ranks(self) -> list[int]:
        """The order statistics between which the quantiles lie."""
        places = [p * (self.count - 1) for p in self.probabilities]
        ranks = {int(np.floor(h)) for h in places} | {int(np.ceil(h)) for h in places}
        return sorted(ranks)

    def _from_counts(self) -> list[float]:
        if self.count == 0:
            return []
        if self.distinct:
            return [float(q) for q in np.quantile(self._values, self.probabilities)]
        cumulated = np.cumsum(self._counts)
        ranks = self._ranks()
        at = {
            r: float(v)
            for r, v in zip(ranks, self._values[np.searchsorted(cumulated, ranks, "right")], strict=True)
        }
        return self._interpolate(at)

    def _interpolate(self, at: dict[int, float]) -> list[float]:
        found = []
        for p in self.probabilities:
            h = p * (self.count - 1)
            low, high = at[int(np.floor(h))], at[int(np.ceil(h))]
            found.append(low + (high - low) * (h - np.floor(h)))
        return [float(q) for q in found]
