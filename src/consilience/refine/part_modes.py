"""Modes of a shard's inflated target, and of those of its halves and quarters: what one shard answers to `jackknife`.

The rows of a shard are split at random into two parts of equal size, and each of these into two. Every part is a shard
of its own, with weight w = w_b n_part / n_b and target p0 f_part^{1/w}; damped Newton steps lead from the combined
draws' mean to its mode, and one whole step more takes away what the search's tolerance has left.

Rows that are counted (equal rows, merged) are split as if they were laid out one by one.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.refine.base import Floats
from consilience.sample.compiling import Program, ProgramCache
from consilience.sample.newton import Mode, find_modes
from consilience.sample.rows import ROW_WEIGHT, lengthened, pad_rows
from consilience.sample.search import found, in_double
from consilience.sample.shard import ShardTask, blamed_on
from consilience.sample.target import ShardData, derivatives

# Into how many parts each shard is split.
PARTS = (1, 2, 4)
# Counts are split exactly up to this sum (the limit of NumPy's hypergeometric law).
MOST_COUNTED = 1e9


@dataclass(frozen=True, eq=False)
class PartModes:
    """A shard's modes.

    Attributes
    ----------
    weights : per number of parts k, (k,) shares of all rows
    points : per k, (k, d) modes
    precisions : per k, (k, d, d) negative Hessians there
    found : whether every search ended at a mode with curvature in all directions
    gradients : spent, in gradients over this shard's rows
    rows, evaluated_rows : of the shard, before and after equal rows were merged
    """

    weights: tuple[Floats, ...]
    points: tuple[Floats, ...]
    precisions: tuple[Floats, ...]
    found: bool
    gradients: float
    rows: int
    evaluated_rows: int


@dataclass(frozen=True, eq=False)
class PartModesTask:
    """The task an engine maps over shards: pure, and picklable with its model."""

    model: Any
    fingerprint: str
    start: Floats
    seed: int
    precision: str = "float32"

    def __call__(self, task: ShardTask) -> PartModes:
        """Read one shard's rows and find the modes of its parts."""
        with blamed_on(task):
            rows = self.model.rows(task.reference.read())
            number = len(next(iter(rows.values())))
            rows = dict(self.model.compress(rows))
            counts = np.asarray(rows.pop(ROW_WEIGHT, np.ones(len(next(iter(rows.values()))))), np.float64)
            rng = np.random.default_rng((self.seed, 0x3ACC, task.index))
            halves = halved(counts, rng)
            quarters = [quarter for half in halves for quarter in halved(half, rng)]
            return self.modes(rows, ([counts], list(halves), quarters), task.weight, number)

    def modes(
        self, rows: dict[str, np.ndarray], splits: tuple[list[Floats], ...], weight: float, number: int
    ) -> PartModes:
        """Modes of all parts; those of one split are searched in step."""
        whole = float(splits[0][0].sum())
        weights, points, precisions, good, spent = [], [], [], True, 0.0
        for parts in splits:
            shares = weight * np.array([part.sum() for part in parts]) / whole
            if shares.min() <= 0:
                # One row cannot be halved: its empty parts have no target to speak of.
                parts, shares, good = [splits[0][0]] * len(parts), np.full(len(parts), weight), False
            mode, point, precision = self.search(self.data(rows, parts, shares))
            good = good and all(found(one) and not one.flat for one in mode)
            weights.append(shares)
            points.append(point)
            precisions.append(precision)
            # Parts have their share of the rows: all of one split together cost as much as the shard.
            spent += float(np.mean([one.evaluations for one in mode])) + len(self.start) + 1
        return PartModes(
            tuple(weights),
            tuple(points),
            tuple(precisions),
            good,
            spent,
            number,
            int(np.count_nonzero(splits[0][0])),
        )

    def data(self, rows: dict[str, np.ndarray], parts: list[Floats], shares: Floats) -> ShardData:
        """Rows of each part, padded to one length and stacked."""
        padded = [pad_rows({**rows, ROW_WEIGHT: part}, self.precision) for part in parts]
        longest = max(len(weight) for _, weight in padded)
        stacked = {
            name: np.stack([lengthened(arrays[name], longest - len(weight)) for arrays, weight in padded])
            for name in padded[0][0]
        }
        row_weight = np.stack([np.pad(weight, (0, longest - len(weight))) for _, weight in padded])
        real = row_weight.dtype
        return ShardData(stacked, row_weight, np.ones(len(parts), real), (1.0 / shares).astype(real))

    def search(self, data: ShardData) -> tuple[list[Mode], Floats, Floats]:
        """Modes of a stack of targets, and their curvatures."""
        program: Program = _programs.get(
            (self.fingerprint, self.precision),
            lambda: Program(functools.partial(derivatives, self.model), self.precision, (0, 0, 0)),
        )

        def at(here: np.ndarray, there: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            rise, score, precision = in_double(program(data, here, there))
            return rise, score, precision

        stack = np.tile(self.start.astype(data.row_weight.dtype), (len(data.row_weight), 1))
        modes = find_modes(at, stack)
        _, score, precision = at(modes.point, modes.point)
        step = np.zeros_like(score)
        one_by_one = [Mode(*(leaf[i] for leaf in modes)) for i in range(len(stack))]
        for i, mode in enumerate(one_by_one):
            if found(mode) and not mode.flat:
                step[i] = np.linalg.solve(precision[i], score[i])
        return one_by_one, modes.point + step, precision


_programs = ProgramCache()


def halved(counts: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Split counted rows into two random halves; where counts are no whole numbers, rows are not divided.

    Examples
    --------
    >>> first, second = halved(np.array([4.0, 0.0, 6.0]), np.random.default_rng(0))
    >>> first.sum(), second.sum(), first + second
    (np.float64(5.0), np.float64(5.0), array([4., 0., 6.]))
    """
    if np.all(counts == np.round(counts)) and counts.sum() < MOST_COUNTED:
        whole = counts.astype(np.int64)
        drawn = rng.multivariate_hypergeometric(whole, int(whole.sum()) // 2, method="marginals")
        first = drawn.astype(np.float64)
    else:
        used = np.flatnonzero(counts > 0)
        chosen = rng.permutation(used)[: len(used) // 2]
        first = np.zeros_like(counts)
        first[chosen] = counts[chosen]
    return first, counts - first
