"""From a starting point to the modes that a shard's chains start from.

One Newton search is all that a healthy shard needs. If it cannot start or gets stuck, points around the start
are compared and the best are tried. If it met a place where the target curves the wrong way, there may be
several modes: a few more searches start from those points, and chains are spread over what they find, so that
chains which never meet show it. Modes that no search comes near stay unseen, as with every sampler.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.errors import ShardError
from consilience.sample.factor import product, solve_upper
from consilience.sample.newton import DECREMENT_TOLERANCE, Mode, find_modes
from consilience.sample.program import Frame, Programs

NUM_CANDIDATES = 16
FURTHER_SEARCHES = 4
# Modes closer than this (root mean square, in standard deviations) are one.
SAME_MODE = 2.0
# A mode this many units of log density below the best, for each dimension and once, holds next to no mass.
NEGLIGIBLE = 5.0


@dataclass(frozen=True)
class Modes:
    """The main mode, others of weight, and what the search cost in gradients."""

    main: Mode
    others: tuple[Mode, ...]
    gradients: float

    @property
    def frame(self) -> Frame:
        return Frame(self.main.point, self.main.root)

    def positions(self, noise: np.ndarray) -> np.ndarray:
        """First positions of the chains, in the main mode's whitened coordinates."""
        if not self.others:
            return noise
        every = (self.main, *self.others)
        rows = []
        for chain, z in enumerate(noise):
            mode = every[chain % len(every)]
            rows.append(whitened(self.main, mode.point - self.main.point + product(z, mode.root)))
        return np.stack(rows).astype(noise.dtype)


def whitened(mode: Mode, gap: np.ndarray) -> np.ndarray:
    """A difference of points in units of the mode's curvature (its root is an upper triangle)."""
    return solve_upper(np.asarray(mode.root, np.float64).T, np.asarray(gap, np.float64))


def found(mode: Mode) -> bool:
    """Whether the search ended at a mode, or within one standard deviation of it."""
    return bool(mode.decrement < 1.0)


def usable(mode: Mode) -> bool:
    """Whether chains can start there."""
    return bool(np.isfinite(mode.decrement)) and bool(np.all(np.isfinite(mode.root)))


def simple(mode: Mode) -> bool:
    """Whether one search was enough."""
    return found(mode) and usable(mode) and bool(mode.concave)


def curvature_at(modes: Modes) -> np.ndarray:
    """The inverse curvature at the only mode, or NaN where that says little about the target."""
    mode = modes.main
    root = np.asarray(mode.root, np.float64)
    if modes.others or mode.flat or not (simple(mode) and mode.decrement < DECREMENT_TOLERANCE):
        return np.full_like(root, np.nan)
    return np.asarray(root @ root.T)


def search(compiled: Programs, data: Any, start: np.ndarray, generator: np.random.Generator) -> Modes:
    """Search for the modes of one shard."""
    first = one_search(compiled, data, start)
    if simple(first):
        return Modes(first, (), float(first.evaluations))
    return _search_on(compiled, data, start, first, generator)


def one_search(compiled: Programs, data: Any, start: np.ndarray) -> Mode:
    """Newton's method for one shard."""

    def derivatives(here: np.ndarray, there: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rise, score, precision = in_double(compiled.derivatives(data, here[0], there[0]))
        return rise[None], score[None], precision[None]

    return Mode(*(leaf[0] for leaf in find_modes(derivatives, start[None])))


def stacked_search(compiled: Programs, data: Any, start: np.ndarray) -> list[Mode]:
    """Newton's method for a stack of shards in step."""

    def derivatives(here: np.ndarray, there: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return in_double(compiled.derivatives(data, here, there))

    found_modes = find_modes(derivatives, start)
    return [Mode(*(leaf[i] for leaf in found_modes)) for i in range(len(start))]


def in_double(arrays: Any) -> Any:
    """To NumPy float64."""
    return tuple(np.asarray(array, np.float64) for array in arrays)


def _search_on(
    compiled: Programs, data: Any, start: np.ndarray, first: Mode, generator: np.random.Generator
) -> Modes:
    """Go on from a first search that was not enough."""
    points = _candidates(start, generator)
    values = np.asarray(compiled.values(data, points), np.float64)
    gradients = float(first.evaluations) + len(points)
    modes = [first] if usable(first) else []
    order = np.argsort(-values, kind="stable")
    order = order[np.isfinite(values[order])]
    for tried, candidate in enumerate(order[: 2 * FURTHER_SEARCHES]):
        if tried >= FURTHER_SEARCHES and any(found(mode) for mode in modes):
            break
        if not found(first) and modes and simple(modes[-1]):
            break
        mode = one_search(compiled, data, points[candidate])
        gradients += float(mode.evaluations)
        if usable(mode):
            modes.append(mode)
    if not modes:
        raise ShardError(
            "the log density or its derivatives are NaN or infinite at the prior's centre and at "
            f"{len(points)} points around it. Look for a log, a root or a division in log_likelihood, or "
            "centre the prior where the rows are possible."
        )
    heights = heights_at(compiled, data, np.stack([mode.point for mode in modes]), len(points))
    main, others = _distinct(modes, heights)
    return Modes(main, others, gradients + len(modes))


def heights_at(compiled: Programs, data: Any, points: np.ndarray, length: int) -> np.ndarray:
    """Log densities at some points, through the program for `length` of them."""
    filled = np.concatenate([points, np.repeat(points[:1], length - len(points), axis=0)])
    return np.asarray(compiled.values(data, filled), np.float64)[: len(points)]


def _candidates(start: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """The origin, and points around the start at distances from near to far."""
    noise = generator.standard_normal((NUM_CANDIDATES - 1, len(start)), np.float32)
    scales = np.geomspace(0.1, 30.0, NUM_CANDIDATES - 1)[:, None]
    return np.concatenate([np.zeros((1, len(start))), start + scales * noise]).astype(start.dtype)


def _distinct(modes: list[Mode], heights: np.ndarray) -> tuple[Mode, tuple[Mode, ...]]:
    """The highest mode, and those of the others that are other places and not far below."""
    reached = np.array([found(mode) for mode in modes])
    # Where a search is stuck it says nothing of a mode; it is kept only if no search did better.
    eligible = np.flatnonzero(reached & np.isfinite(heights)) if reached.any() else np.arange(len(modes))
    order = eligible[np.argsort(-np.nan_to_num(heights[eligible], nan=-np.inf), kind="stable")]
    main = modes[order[0]]
    dimension = len(main.point)
    kept = [main]
    for i in order[1:] if reached.any() else ():
        low = heights[order[0]] - heights[i] > NEGLIGIBLE * (1 + dimension)
        if not low and all(_distance(mode, modes[i]) > SAME_MODE for mode in kept):
            kept.append(modes[i])
    return main, tuple(kept[1:])


def _distance(one: Mode, other: Mode) -> float:
    return float(np.sqrt(np.mean(whitened(one, other.point - one.point) ** 2)))
