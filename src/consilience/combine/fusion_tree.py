"""The order in which fusion merges shards, what that costs, and what the result is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from consilience.progress import tell

from .base import Floats
from .fusion_merge import Law, Plan, merge

# Laws inside the tree have twice as many draws, which quietens the tree for little time.
INSIDE = 2


@dataclass(frozen=True)
class Cost:
    """Expected cost of a tree: proposals, and evaluations, one per proposal and shard and one per row on paths."""

    proposals: float
    evaluations: float

    def in_words(self) -> str:
        """One sentence."""
        return f"Expected before it began: {self.proposals:,.0f} proposals and {self.evaluations:,.0f} evaluations."


@dataclass(frozen=True, eq=False)
class Step:
    """One merge: positions of its parts among the laws, shards first and then results of earlier merges."""

    plan: Plan
    parts: tuple[int, ...]
    number: int


@dataclass(frozen=True, eq=False)
class Fused:
    """Draws of the product, and the way each took up the tree."""

    draws: Floats
    proposals: int
    steps: tuple[Step, ...]
    indices: tuple[np.ndarray, ...]
    sizes: tuple[int, ...]

    def mean_variance(self, autocorrelation: Floats) -> Floats:
        """Monte Carlo variance of the mean, per coordinate.

        Two draws are correlated when they share a draw of some law below. With S the sums of centred draws over those
        that share one draw of a law, the variance is the sum over laws of sum S², less that sum for the law
        above (whose sharers share everything below it), and the draws' own sum of squares for the root.
        """
        leaves, root = len(self.sizes) - len(self.steps), len(self.sizes) - 1
        sums = {root: (self.draws - self.draws.mean(axis=0)) / len(self.draws)}
        own = np.sum(sums[root] ** 2, axis=0)
        total = own.copy()
        for k in range(len(self.steps) - 1, -1, -1):
            above = sums.pop(leaves + k)
            squares = np.sum(above**2, axis=0)
            for c, part in enumerate(self.steps[k].parts):
                used, size = self.indices[k][:, c], self.sizes[part]
                below = np.column_stack([np.bincount(used, column, size) for column in above.T])
                longer = autocorrelation[part] if part < leaves else 1.0
                total += longer * (np.sum(below**2, axis=0) - squares)
                if part >= leaves:
                    sums[part] = below
        return np.maximum(total, own)


class Tree:
    """Merges in order, planned before anything is drawn."""

    def __init__(self, laws: Sequence[Law], shape: str, number: int) -> None:
        self._laws = list(laws)
        self._num_shards = len(laws)
        self._steps: list[Step] = []
        self._number = number
        if shape == "fork-and-join":
            self._add(tuple(range(len(laws))))
        elif shape == "sequential":
            last = 0
            for b in range(1, len(laws)):
                last = self._add((last, b))
        else:
            self._add_half(list(range(len(laws))))
        costs = [step.plan.cost(step.number) for step in self._steps]
        self.cost = Cost(sum(cost[0] for cost in costs), sum(cost[1] for cost in costs))

    def run(self, draws: Sequence[Floats], generator: np.random.Generator) -> Fused:
        """Merge draws of the shards."""
        found: list[Floats] = list(draws)
        indices, proposals = [], 0

        def tell_made(made: int) -> None:
            tell("proposals", proposals + made, max(proposals + made, int(self.cost.proposals)))

        for step in self._steps:
            parts = [found[part] for part in step.parts]
            merged = merge(step.plan, parts, step.number, generator, tell_made)
            for part in step.parts:
                if part >= self._num_shards:  # used once only: its memory is free again
                    found[part] = np.empty((0, 0))
            found.append(merged.draws)
            indices.append(merged.indices)
            proposals += merged.proposals
        sizes = [len(x) for x in draws] + [step.number for step in self._steps]
        return Fused(found[-1], proposals, tuple(self._steps), tuple(indices), tuple(sizes))

    def _add_half(self, positions: list[int]) -> int:
        if len(positions) == 1:
            return positions[0]
        half = len(positions) // 2
        return self._add((self._add_half(positions[:half]), self._add_half(positions[half:])))

    def _add(self, parts: tuple[int, ...]) -> int:
        plan = Plan.of([self._laws[part] for part in parts])
        merges_all = _leaves(self._steps, parts, self._num_shards) == self._num_shards
        self._steps.append(Step(plan, parts, self._number * (1 if merges_all else INSIDE)))
        self._laws.append(plan.whole)
        return len(self._laws) - 1


def _leaves(steps: Sequence[Step], parts: Sequence[int], num_shards: int) -> int:
    """Shards below some laws."""
    count, pending = 0, list(parts)
    while pending:
        part = pending.pop()
        if part < num_shards:
            count += 1
        else:
            pending += steps[part - num_shards].parts
    return count
