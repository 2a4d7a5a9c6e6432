"""The Gaussian kernel in one or several dimensions, and its sums by brute force.

Formula. K(x) = (2 pi rho²)^{-k/2} exp(-|x|² / (2 rho²)) in k dimensions. (The thesis, section 2.2 and 3.2.3,
writes rho^-d (2 pi)^{-1/2}.)

Cost. O(M N C) for M points, N draws and rows of C numbers, less what lies farther than `FARTHEST` bandwidths
away along the first axis, where the kernel is under 1e-17 of its peak.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .base import Floats
from .euwok import Rows

FARTHEST = 9.0
POINTS, DRAWS = 512, 2_048


@dataclass(frozen=True)
class GaussianKernel:
    """An isotropic Gaussian kernel.

    Examples
    --------
    >>> kernel = GaussianKernel(0.5, dimension=2)
    >>> points, draws = np.zeros((1, 2)), np.array([[0.0, 0.5], [3.0, 3.0]])
    >>> [(start, sums)] = kernel.sums(points, draws, lambda a, z: np.ones((1, z - a)))
    >>> np.allclose(sums, kernel.matrix(points, draws).sum(axis=1))
    True
    """

    bandwidth: float
    dimension: int = 1

    @property
    def peak(self) -> float:
        return float((2.0 * np.pi * self.bandwidth**2) ** (-self.dimension / 2))

    @property
    def variance(self) -> float:
        """Integral of x_1² K(x)."""
        return self.bandwidth**2

    @property
    def roughness(self) -> float:
        """Integral of K(x)²."""
        return float((4.0 * np.pi * self.bandwidth**2) ** (-self.dimension / 2))

    def central(self, alpha: float) -> float:
        """Radius of the ball that holds 1 - alpha of the kernel."""
        from scipy.stats import chi2

        return float(self.bandwidth * np.sqrt(chi2.ppf(1.0 - alpha, self.dimension)))

    def matrix(self, points: Floats, draws: Floats) -> Floats:
        """K(t_j - x_i) for all pairs, (M, N)."""
        from scipy.spatial.distance import cdist

        points, draws = points.reshape(-1, self.dimension), draws.reshape(-1, self.dimension)
        found = cdist(points, draws, "sqeuclidean")
        found *= -0.5 / self.bandwidth**2
        np.exp(found, out=found)
        found *= self.peak
        return found

    def sums(self, points: Floats, draws: Floats, rows: Rows) -> Iterator[tuple[int, Floats]]:
        """The sums at points over draws, both sorted by their first axis, block by block."""
        points, draws = points.reshape(-1, self.dimension), draws.reshape(-1, self.dimension)
        reach = FARTHEST * self.bandwidth
        for start in range(0, len(points), POINTS):
            block = points[start : start + POINTS]
            first = int(np.searchsorted(draws[:, 0], block[0, 0] - reach))
            stop = int(np.searchsorted(draws[:, 0], block[-1, 0] + reach))
            total = np.zeros((len(rows(0, 0)), len(block)))
            for begin in range(first, stop, DRAWS):
                end = min(begin + DRAWS, stop)
                total += rows(begin, end) @ self.matrix(block, draws[begin:end]).T
            yield start, total
