"""EUWoK, the exponential-uniform window kernel, and its sums in time linear in points and draws.

Formula. With a flat top of half-width eps and exponential tails of length lam,

    K(x) = exp(-max(|x| - eps, 0) / lam) / (2 (lam + eps)),

and for points t_1 <= … <= t_M and draws x_1 <= … <= x_N that carry rows s_i of C numbers,

    s_K(t_j) = sum_i K(t_j - x_i) s_i = [S_j + W_j + U_j] / (2 (lam + eps)).

Lower tail, window and upper tail are carried from point to point:

    S_j = exp(-(t_j - t_{j-1}) / lam) S_{j-1} + sum over t_{j-1} - eps <= x_i < t_j - eps of
          exp(-(t_j - eps - x_i) / lam) s_i,
    W_j = prefix sum of s up to t_j + eps, less the one up to t_j - eps,

and U_j as S_j from the right. Each draw enters once and leaves once: O((M + N) C) after sorting.

How it is done here. Within a block of neighbouring points the recursion is one cumulative sum of
exp((x_i - anchor) / lam) s_i, with one anchor for a block that is at most `LONGEST` lam wide, so that nothing
overflows and the exponent keeps its digits. A block has at most `BLOCK` points and draws,
and fewer where C is large: memory does not grow with M and N. Rows are asked for block by block too: C may be of the
order d².

Errata of the thesis. Its display of the recursion drops signs, Algorithm 3 multiplies by lam where it divides and
takes D_j at the first point in the place of t_j, and the window's sum counts draws where it should add s. Its
constants (3.21), lam = 0.8362 rho and eps = 0.3111 rho, are said to minimise the Kullback-Leibler divergence
between EUWoK and the Gaussian kernel of bandwidth rho; they do in neither direction (0.040 and 0.098). KL(Gaussian
|| EUWoK) has its minimum, 0.0105, where d/d lam and d/d eps of log(lam + eps) + E(|Z| - eps)+ / lam vanish: the
constants below.

Reference. Vyner's thesis, section 3.2.4, (3.17) to (3.20).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from .base import Floats

# lam / rho and eps / rho.
DECAY, HALF_WINDOW = 0.5566951, 0.8484647
# Points and draws in a block, and numbers that all of its draws carry.
BLOCK, NUMBERS = 1_024, 200_000
# exp(300) leaves room in float64 for rows of any size, and rounding of the exponent costs 3e-14.
LONGEST = 300.0

# Values that draws [start, stop) carry: one row per number, (C, stop - start).
Rows = Callable[[int, int], Floats]


@dataclass(frozen=True)
class Euwok:
    """The kernel that stands in for a Gaussian one of the given bandwidth.

    Examples
    --------
    >>> kernel = Euwok(0.5)
    >>> points, draws = np.array([0.0, 1.0]), np.array([-0.2, 0.4, 3.0])
    >>> [(start, sums)] = kernel.sums(points, draws, lambda a, z: np.ones((1, z - a)))
    >>> np.allclose(sums, kernel.matrix(points, draws).sum(axis=1))
    True
    """

    bandwidth: float

    @property
    def decay(self) -> float:
        return DECAY * self.bandwidth

    @property
    def half_window(self) -> float:
        return HALF_WINDOW * self.bandwidth

    @property
    def peak(self) -> float:
        return 1.0 / (2.0 * (self.decay + self.half_window))

    @property
    def variance(self) -> float:
        """Integral of x² K(x)."""
        lam, eps = self.decay, self.half_window
        return (eps**3 / 3.0 + lam * (eps**2 + 2.0 * eps * lam + 2.0 * lam**2)) / (lam + eps)

    @property
    def roughness(self) -> float:
        """Integral of K(x)²."""
        return (2.0 * self.half_window + self.decay) * self.peak**2

    def central(self, alpha: float) -> float:
        """Half-width of the region that holds 1 - alpha of the kernel."""
        lam, eps = self.decay, self.half_window
        if alpha >= lam / (lam + eps):
            return (1.0 - alpha) * (lam + eps)
        return eps + lam * float(np.log(lam / ((lam + eps) * alpha)))

    def matrix(self, points: Floats, draws: Floats) -> Floats:
        """K(t_j - x_i) for all pairs, (M, N): the brute force."""
        beyond = np.abs(np.ravel(points)[:, None] - np.ravel(draws)) - self.half_window
        return np.exp(-np.maximum(beyond, 0.0) / self.decay) * self.peak

    def sums(self, points: Floats, draws: Floats, rows: Rows) -> Iterator[tuple[int, Floats]]:
        """The sums at sorted points over sorted draws, block by block: (first point, (C, points))."""
        points, draws = np.ravel(points), np.ravel(draws)
        low = np.searchsorted(draws, points - self.half_window, side="left")
        high = np.searchsorted(draws, points + self.half_window, side="right")
        block = max(16, min(BLOCK, NUMBERS // len(rows(0, 0))))
        sweep = _Sweep(points, draws, rows, low, high, self.decay, self.half_window, block)
        for start, total in sweep.run():
            total *= self.peak
            yield start, total


@dataclass(frozen=True, eq=False)
class _Sweep:
    points: Floats
    draws: Floats
    rows: Rows
    low: np.ndarray  # draws [0, low_j) are in the lower tail at point j
    high: np.ndarray  # draws [high_j, N) in the upper one
    decay: float
    half_window: float
    block: int

    def run(self) -> Iterator[tuple[int, Floats]]:
        starts = self._block_starts()
        last = starts[1:] - 1
        above = self._upper_at(last)
        lower, window = np.zeros(len(above[0])), np.zeros(len(above[0]))
        before = -1
        for start, end, upper in zip(starts[:-1], last, above, strict=True):
            lower = self._lower_at(start, before, lower)
            window = self._window_at(start, before, window)
            lowers, left = self._lower_in(start, end, lower)
            uppers, entered = self._upper_in(start, end, upper)
            windows = window[:, None] + entered - left
            # Far out all that is left is a tail of 1e-100: nothing may remain of rounding.
            windows[:, self.low[start : end + 1] == self.high[start : end + 1]] = 0.0
            lower, window, before = lowers[:, -1].copy(), windows[:, -1].copy(), end
            lowers += windows
            lowers += uppers
            yield int(start), lowers

    def _block_starts(self) -> np.ndarray:
        """First points of the blocks, and M: few points, few draws, and not too wide for one anchor."""
        starts, number = [0], len(self.points)
        while starts[-1] < number:
            j = starts[-1]
            stop = min(
                j + self.block,
                int(np.searchsorted(self.points, self.points[j] + LONGEST * self.decay, side="right")),
                int(np.searchsorted(self.low, self.low[j] + self.block, side="right")),
                int(np.searchsorted(self.high, self.high[j] + self.block, side="right")),
            )
            starts.append(max(stop, j + 1))
        return np.array(starts)

    def _upper_at(self, last: np.ndarray) -> list[Floats]:
        """The upper tail at the last point of every block, carried from the right."""
        found: list[Floats] = []
        stop = len(self.draws)
        for index, j in enumerate(last[::-1]):
            fresh = self._decayed(int(self.high[j]), stop, self.points[j] + self.half_window)
            if index:
                fresh += found[-1] * self._decay_between(j, last[::-1][index - 1])
            found.append(fresh)
            stop = int(self.high[j])
        return found[::-1]

    def _lower_at(self, start: int, before: int, lower: Floats) -> Floats:
        """The lower tail at a block's first point, from that at the point before."""
        entered = int(self.low[before]) if before >= 0 else 0
        fresh = self._decayed(entered, int(self.low[start]), self.points[start] - self.half_window)
        return lower * self._decay_between(before, start) + fresh if before >= 0 else fresh

    def _window_at(self, start: int, before: int, window: Floats) -> Floats:
        """The window at a block's first point: afresh where that is cheap, else from the point before."""
        low, high = int(self.low[start]), int(self.high[start])
        if before < 0 or high - low <= 2 * self.block:
            return self._plain(low, high)
        entered, left = int(self.high[before]), int(self.low[before])
        return window + self._plain(entered, high) - self._plain(left, low)

    def _lower_in(self, start: int, end: int, lower: Floats) -> tuple[Floats, Floats]:
        """The lower tail at all points of a block, and what has left the window since its first point."""
        first, stop = int(self.low[start]), int(self.low[end])
        at = self.low[start : end + 1] - first
        rows = self.rows(first, stop)
        anchor = self.points[start] - self.half_window
        grown = rows * np.exp((self.draws[first:stop] - anchor) / self.decay)
        decay = np.exp((self.points[start] - self.points[start : end + 1]) / self.decay)
        return (lower[:, None] + _prefix(grown, at)) * decay, _prefix(rows, at)

    def _upper_in(self, start: int, end: int, upper: Floats) -> tuple[Floats, Floats]:
        """The upper tail at all points of a block, and what has entered the window since its first point."""
        first, stop = int(self.high[start]), int(self.high[end])
        at = self.high[start : end + 1] - first
        rows = self.rows(first, stop)
        anchor = self.points[end] + self.half_window
        grown = rows * np.exp((anchor - self.draws[first:stop]) / self.decay)
        decay = np.exp((self.points[start : end + 1] - self.points[end]) / self.decay)
        from_right = _prefix(grown[:, ::-1], (stop - first) - at)
        return (upper[:, None] + from_right) * decay, _prefix(rows, at)

    def _decay_between(self, first: int, second: int) -> float:
        return float(np.exp(-abs(self.points[second] - self.points[first]) / self.decay))

    def _decayed(self, start: int, stop: int, anchor: float) -> Floats:
        """sum exp(-|x_i - anchor| / lam) s_i over draws [start, stop)."""
        return self._total(start, stop, lambda x: np.exp(-np.abs(x - anchor) / self.decay))

    def _plain(self, start: int, stop: int) -> Floats:
        return self._total(start, stop, np.ones_like)

    def _total(self, start: int, stop: int, weight: Callable[[Floats], Floats]) -> Floats:
        total = np.zeros(len(self.rows(0, 0)))
        for first in range(start, stop, self.block):
            end = min(first + self.block, stop)
            total += self.rows(first, end) @ weight(self.draws[first:end])
        return total


def _prefix(rows: Floats, at: np.ndarray) -> Floats:
    """Sums of the first `at` columns."""
    sums = np.zeros((len(rows), rows.shape[1] + 1))
    np.cumsum(rows, axis=1, out=sums[:, 1:])
    return sums[:, at]
