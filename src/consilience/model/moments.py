"""Means, standard deviations and correlations of a design's columns, over all rows while they stream by.

Pairwise update of the centred cross-products in float64 (Chan, Golub & LeVeque 1983, eq. 2.1, with
weights), so that a column of mean 10^9 and sd 1 keeps its digits. From them: constant columns, and columns
that are linear combinations of others.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from consilience.errors import DataError

__all__ = ["Moments", "check_full_rank"]

# Residual share of variance below which a column is its predecessors' combination. At 1e-10 a standardised
# column's own part is 1e-5, and the rounding of float32 would be near a percent of it.
_COLLINEAR = 1e-10


@dataclass
class Moments:
    """Weighted moments of columns, updated chunk by chunk.

    Examples
    --------
    >>> import numpy as np
    >>> moments = Moments(1)
    >>> moments.add(np.array([[1.0], [2.0]])); moments.add(np.array([[6.0]]))
    >>> float(moments.mean[0]), int(moments.count)
    (3.0, 3)
    """

    dimension: int
    count: int = 0
    weight: float = 0.0
    mean: np.ndarray = field(default_factory=lambda: np.empty(0))
    products: np.ndarray = field(default_factory=lambda: np.empty(0))
    low: np.ndarray = field(default_factory=lambda: np.empty(0))
    high: np.ndarray = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        d = self.dimension
        self.mean, self.products = np.zeros(d), np.zeros((d, d))
        self.low, self.high = np.full(d, np.inf), np.full(d, -np.inf)

    def add(self, matrix: np.ndarray, weights: np.ndarray | None = None) -> None:
        """Take one chunk in."""
        if matrix.shape[0] == 0:
            return
        self.count += matrix.shape[0]
        self.low = np.minimum(self.low, matrix.min(axis=0))
        self.high = np.maximum(self.high, matrix.max(axis=0))
        w = np.ones(matrix.shape[0]) if weights is None else np.asarray(weights, dtype=np.float64)
        weight = float(w.sum())
        if weight == 0.0:
            return
        mean = w @ matrix / weight
        centred = matrix - mean
        if weights is not None:
            centred *= np.sqrt(w)[:, None]
        total = self.weight + weight
        shift = mean - self.mean
        self.products += centred.T @ centred  # one array with itself: BLAS computes half of it
        self.products += np.outer(shift, shift) * (self.weight * weight / total)
        self.mean = self.mean + shift * (weight / total)
        self.weight = total

    @property
    def sd(self) -> np.ndarray:
        """Standard deviation of every column (divided by the sum of weights)."""
        return np.sqrt(np.maximum(np.diag(self.products), 0.0) / self.weight)

    @property
    def constant(self) -> np.ndarray:
        """Which columns never change."""
        return (self.low == self.high) | (self.sd <= 1e-13 * np.abs(self.mean))


def check_full_rank(moments: Moments, names: tuple[str, ...], intercept: int | None) -> None:
    """Refuse constant columns and perfectly collinear ones, by name."""
    kept = [i for i in range(len(names)) if i != intercept]
    constant = [names[i] for i in kept if moments.constant[i]]
    # Without an intercept one constant column is an intercept under another name.
    allowed = 1 if intercept is None else 0
    if len(constant) > allowed:
        raise DataError(
            f"glm: column(s) {_quoted(constant)} of the design are constant over all rows, so their "
            "coefficients cannot be estimated. Leave them out of the formula."
        )
    gram = moments.products[np.ix_(kept, kept)]
    if intercept is None:
        gram = gram + moments.weight * np.outer(moments.mean[kept], moments.mean[kept])
    scale = np.sqrt(np.diag(gram))
    correlation = gram / np.outer(scale, scale)
    if len(kept) < 2 or np.linalg.eigvalsh(correlation)[0] > _COLLINEAR:
        return
    found = _dependent(correlation)
    if found is None:
        return
    column, others = found
    combination = _quoted([names[kept[i]] for i in others])
    extra = " and the intercept" if intercept is not None else ""
    raise DataError(
        f"glm: column {names[kept[column]]!r} of the design is perfectly collinear: a linear combination of "
        f"{combination}{extra}. Leave one of them out of the formula."
    )


def _dependent(correlation: np.ndarray) -> tuple[int, list[int]] | None:
    """The first column that its predecessors explain, and which of them do (Cholesky, column by column)."""
    factor = np.zeros_like(correlation)
    independent: list[int] = []
    for j in range(correlation.shape[0]):
        lower = factor[np.ix_(independent, independent)]
        row = np.linalg.solve(lower, correlation[independent, j]) if independent else np.empty(0)
        rest = correlation[j, j] - row @ row
        if rest <= _COLLINEAR:
            coefficients = np.linalg.solve(lower.T, row)
            return j, [i for i, c in zip(independent, coefficients, strict=True) if abs(c) > 1e-6]
        factor[j, independent] = row
        factor[j, j] = np.sqrt(rest)
        independent.append(j)
    return None


def _quoted(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:8])
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8} more"
