"""Random partition trees: boxes that cut all shards' draws alike, and the frame in which they are cut.

Formula. A node is a box. One of its axes is drawn at random and the box is cut there

    "median"      at the median of the draws in it (a KD tree), or
    "likelihood"  where the histogram of two boxes has the largest likelihood,
                  sum_b sum_side m_bs log(m_bs / length_s), with m_bs the share of shard b's draws on side s,

every draw of shard b counting as 1 / J_b times the shard's power, so that long shards do not cut for all. An
axis on which either side would hold less than the least share of the draws is passed over; when no axis is
left the box is a block. With one axis there is nothing random about the cuts, so the first one falls on a
random draw.

The frame. Cuts run along axes, so the axes are chosen by the draws: whitened by the pooled covariance, and
turned onto the eigenvectors of a matrix that turns with the shards, sum w_b (V_b² + (mu_b - m)(mu_b - m)').
Any invertible map of the draws leaves the whitened, turned draws as they were, up to signs, and so the rules
that cut them are affine equivariant.

Cost. O(N log(blocks)) per tree and pass over N draws.

Reference. Wang, Guo, Heller and Dunson (2015), Parallelizing MCMC with random partition trees, NIPS 28,
sections 2.1 and 2.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience.numerics import symmetric_root

from .base import Floats
from .moments import ShardMoments

Integers = NDArray[np.integer[Any]]
Cut = Literal["median", "likelihood"]

# No box gets narrower than this many standard deviations of all draws: chains that stand still would ask for it.
LEAST_SIDE = 1e-4
# Likelihood cuts are sought on a grid of so many quantiles; between them the likelihood hardly changes.
GRID = 64
# The outermost box reaches this share of its side beyond the draws, so that none lies on its border.
MARGIN = 0.01


class Frame(NamedTuple):
    """Coordinates z = (x - centre) transform, and back."""

    centre: Floats
    transform: Floats
    inverse: Floats


@dataclass(frozen=True, eq=False)
class Tree:
    """A tree of boxes; every array has one entry per node, `lower` and `upper` one row per block."""

    axes: Integers  # the axis that is cut, -1 in blocks
    cuts: Floats
    targets: Integers  # the first of two neighbouring children, or the number of the block
    lower: Floats  # (K, d)
    upper: Floats  # (K, d)

    @property
    def num_blocks(self) -> int:
        return len(self.lower)

    def blocks_of(self, points: Floats) -> Integers:
        """Number of the block that each point lies in; points outside go to the block they lie next to.

        Examples
        --------
        >>> x = np.linspace(-1.0, 1.0, 101)[:, None]
        >>> tree = grow_tree(x, np.full(101, 1 / 101), np.zeros(101, int), cut="median", least_share=0.1,
        ...                  generator=np.random.default_rng(0))
        >>> bool(np.bincount(tree.blocks_of(x)).min() >= 10)
        True
        """
        nodes = np.zeros(len(points), dtype=np.int64)
        inner = np.arange(len(points) if self.axes[0] >= 0 else 0)
        while inner.size:
            at = nodes[inner]
            nodes[inner] = self.targets[at] + (points[inner, self.axes[at]] > self.cuts[at])
            inner = inner[self.axes[nodes[inner]] >= 0]
        return self.targets[nodes]


def common_frame(moments: ShardMoments, weights: Floats) -> Frame:
    """Whiten by the pooled covariance and turn onto axes that the shards themselves define.

    Parameters
    ----------
    moments : ShardMoments
    weights : (B,) that sum to 1
    """
    centre = weights @ moments.means
    apart = moments.means - centre
    pooled = np.tensordot(weights, moments.covariances, 1) + (apart * weights[:, None]).T @ apart
    scale = np.sqrt(np.diagonal(pooled))
    root, _ = symmetric_root(pooled / np.outer(scale, scale), power=-0.5)
    whiten = root / scale[:, None]
    covariances = whiten.T @ moments.covariances @ whiten
    moved = apart @ whiten
    turning = np.einsum("b,bij,bjk->ik", weights, covariances, covariances)
    turning += (moved * weights[:, None]).T @ moved
    transform = whiten @ np.linalg.eigh(turning)[1]
    return Frame(centre, transform, np.linalg.inv(transform))


def grow_tree(
    points: Floats,
    mass: Floats,
    shards: Integers,
    *,
    cut: Cut,
    least_share: float,
    generator: np.random.Generator,
) -> Tree:
    """Grow one random tree on the draws of all shards.

    Parameters
    ----------
    points : (N, d) draws of all shards
    mass : (N,) what each draw counts, summing to 1
    shards : (N,) the shard of each draw
    cut : "median" or "likelihood"
    least_share : float
        Least mass in a block.
    generator : numpy.random.Generator
    """
    d = points.shape[1]
    low, high = points.min(axis=0), points.max(axis=0)
    margin = MARGIN * (high - low)
    axes, cuts, targets = [-1], [np.nan], [0]
    lower: list[Floats] = []
    upper: list[Floats] = []
    stack = [(0, np.arange(len(points), dtype=np.int32), low - margin, high + margin)]
    while stack:
        node, members, low, high = stack.pop()
        found = None
        if mass[members].sum() >= 2 * least_share:
            at_random = node == 0 and d == 1
            choose = _random_cut if at_random else _median_cut if cut == "median" else _likelihood_cut
            for axis in generator.permutation(d):
                arguments = _Box(points[members, axis], mass[members], shards[members], low[axis], high[axis])
                where = choose(arguments, least_share, generator)
                if where is not None:
                    found = int(axis), where
                    break
        if found is None:
            targets[node] = len(lower)
            lower.append(low)
            upper.append(high)
            continue
        axis_found, where = found
        axes[node], cuts[node], targets[node] = axis_found, where, len(axes)
        axes += [-1, -1]
        cuts += [np.nan, np.nan]
        targets += [0, 0]
        right = points[members, axis_found] > where
        middle_high, middle_low = high.copy(), low.copy()
        middle_high[axis_found] = middle_low[axis_found] = where
        stack.append((targets[node] + 1, members[right], middle_low, high))
        stack.append((targets[node], members[~right], low, middle_high))
    return Tree(np.array(axes), np.array(cuts), np.array(targets), np.array(lower), np.array(upper))


class _Box(NamedTuple):
    """What is in a box, seen along one axis."""

    values: Floats
    mass: Floats
    shards: Integers
    low: float
    high: float


def _median_cut(box: _Box, least_share: float, generator: np.random.Generator) -> float | None:
    return _cut_at_share(box, 0.5, least_share)


def _random_cut(box: _Box, least_share: float, generator: np.random.Generator) -> float | None:
    return _cut_at_share(box, generator.uniform(least_share, 1.0 - least_share), least_share)


def _cut_at_share(box: _Box, share: float, least_share: float) -> float | None:
    """Cut between two draws so that about this share of the mass lies below."""
    order = np.argsort(box.values)
    values = box.values[order]
    below = np.cumsum(box.mass[order])
    first = min(int(np.searchsorted(below, share * below[-1])), len(values) - 2)
    # Chains repeat draws: a cut goes between two different values.
    last = int(np.searchsorted(values, values[first], side="right")) - 1
    if last == len(values) - 1:
        last = int(np.searchsorted(values, values[first])) - 1
    if last < 0:
        return None
    where = 0.5 * (values[last] + values[last + 1])
    enough = min(below[last], below[-1] - below[last]) >= least_share * (1.0 - 1e-9)
    return float(where) if enough and _wide_enough(where, box) else None


def _likelihood_cut(box: _Box, least_share: float, generator: np.random.Generator) -> float | None:
    """Cut where the histogram with two boxes fits all shards best."""
    order = np.argsort(box.values)
    values, mass = box.values[order], box.mass[order]
    below = np.cumsum(mass)
    within = np.linspace(least_share, below[-1] - least_share, GRID)
    at = np.unique(np.searchsorted(below, within))
    at = at[(at >= 0) & (at < len(values) - 1)]
    at = at[values[at + 1] > values[at]]
    if not at.size:
        return None
    where = 0.5 * (values[at] + values[at + 1])
    labels, shards = np.unique(box.shards[order], return_inverse=True)
    # Mass of every shard between neighbouring candidates, added up from the left.
    piece = np.searchsorted(at, np.arange(len(values)))
    table = np.bincount(shards * (len(at) + 1) + piece, mass, len(labels) * (len(at) + 1))
    table = table.reshape(len(labels), -1)
    left = np.asarray(np.cumsum(table, axis=1)[:, :-1], dtype=np.float64)
    right = table.sum(axis=1, keepdims=True) - left
    gain = _entropy(left, where - box.low) + _entropy(right, box.high - where)
    enough = np.minimum(below[at], below[-1] - below[at]) >= least_share * (1.0 - 1e-9)
    gain[~enough | ~_wide_enough(where, box)] = -np.inf
    best = int(np.argmax(gain))
    return float(where[best]) if np.isfinite(gain[best]) else None


def _entropy(mass: Floats, length: Floats) -> Floats:
    """sum_b m_b log(m_b / length), where 0 log 0 = 0."""
    mass = np.maximum(mass, 0.0)
    return np.sum(mass * (np.log(np.where(mass > 0, mass, 1.0)) - np.log(length)), axis=0)


def _wide_enough(where: float | Floats, box: _Box) -> NDArray[np.bool_]:
    return (np.asarray(where) - box.low >= LEAST_SIDE) & (box.high - np.asarray(where) >= LEAST_SIDE)
