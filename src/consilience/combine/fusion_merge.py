"""One merge of Monte Carlo fusion: tuples of draws of C laws in, draws of the laws' product out.

With preconditioning matrices Lambda_c and a time T, a tuple (x_1, ..., x_C) gets a proposal

    y ~ N(m, T Lambda),   Lambda = (sum Lambda_c^-1)^-1,   m = Lambda sum Lambda_c^-1 x_c,

which is accepted with probability exp(-s / (2 T)) times, for each c, E exp(-integral of phi_c - Phi_c over [0, T])
over Brownian bridges from x_c to y with covariance Lambda_c; s = sum (x_c - m)' Lambda_c^-1 (x_c - m), and Phi_c is a
bound of phi_c from below. What is accepted has the product's law. The expectation is

- in closed form for a Gaussian law, whose diffusion is an Ornstein-Uhlenbeck process:
  phi_c's path integral is what turns the density of a Brownian into that of the process;
- an event, for others: with the bridge's layer and bounds L <= phi <= U in its box, accept with probability
  exp(-(L - Phi) T), draw Poisson((U - L) T) uniform times, and accept if a uniform number under U - L falls under
  U - phi at each of them.

Cost, before anything is drawn. The probability of acceptance is, exactly,

    A = (2 pi T)^{(C-1) d / 2} prod |Lambda_c|^{1/2} |Lambda|^{-1/2} exp(T sum Phi_c) Z / prod Z_c

with Z the integrals of the unnormalised product and laws: exact for Gaussian laws, by Laplace's method for others.
Its maximum is at T = (C - 1) d / (-2 sum Phi_c), and that T is taken. For Lambda_c the inverse curvature of log f_c at
its mode is taken, which is the covariance of a Gaussian law.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from consilience.errors import ConsilienceError, DrawsError, must_be

from .base import Floats
from .bridges import WIDTHS, draw_layers, draw_points, layer_box
from .fusion_density import Density

# Numbers that one batch of proposals may hold.
BATCH_NUMBERS = 50_000
# What a point of a path costs per coordinate, counted in rows.
POINT_IN_ROWS = 30.0
# Points on one path: more mean that a target is far from what its bounds can hold.
MOST_POINTS = 20_000.0
# Draws that come from their targets are accepted as often as predicted, up to Laplace's method.
PATIENCE = 20.0


class Law:
    """A density, and the matrix Lambda of its diffusion: the inverse curvature at the mode if none is given."""

    def __init__(self, density: Density, covariance: Floats | None = None) -> None:
        self.density = density
        self.mode, self.spread = density.centred()
        self.covariance = self.spread if covariance is None else covariance
        self.root: Floats = np.asarray(np.linalg.cholesky(self.covariance), dtype=np.float64)
        self.unit = density.in_units(self.mode, self.root)
        self.floor = self.unit.floor()

    @cached_property
    def precision(self) -> Floats:
        """The inverse of the matrix."""
        return np.asarray(self._inverse_root.T @ self._inverse_root)

    @cached_property
    def _inverse_root(self) -> Floats:
        return np.asarray(np.linalg.inv(self.root), dtype=np.float64)

    @cached_property
    def half_log_determinant(self) -> float:
        """Half the log determinant of the matrix."""
        return float(np.log(np.diagonal(self.root)).sum())

    @cached_property
    def log_mass(self) -> float:
        """Log of the density's integral by Laplace's method, without the powers of 2 pi."""
        at_mode = float(self.density.log_density(self.mode[None])[0])
        return at_mode + 0.5 * float(np.linalg.slogdet(self.spread)[1])

    def units(self, points: Floats) -> Floats:
        """Points in the law's own units."""
        return np.asarray((points - self.mode) @ self._inverse_root.T)


@dataclass(frozen=True, eq=False)
class Plan:
    """A merge and what it costs."""

    parts: tuple[Law, ...]
    whole: Law
    time: float
    covariance: Floats  # Lambda
    centre: Floats  # the mean of proposals from modes
    acceptance: float  # probability, as predicted
    tuples_kept: float  # probability that a tuple survives the first factor, as predicted
    evaluations: float  # in rows, per tuple that survives

    @staticmethod
    def of(parts: Sequence[Law]) -> Plan:
        """Plan the merge of some laws."""
        density = parts[0].density
        for part in parts[1:]:
            density = density.times(part.density)
        whole = Law(density)
        d, others = len(whole.mode), len(parts) - 1
        floors = sum(part.floor for part in parts)
        time = others * d / (-2.0 * floors)
        precisions = [part.precision for part in parts]
        covariance = np.asarray(np.linalg.inv(np.sum(precisions, axis=0)), dtype=np.float64)
        shift = sum(p @ (part.mode - whole.mode) for p, part in zip(precisions, parts, strict=True))
        centre = whole.mode + covariance @ shift
        log_acceptance = (
            0.5 * others * d * np.log(time) + time * floors - 0.5 * np.linalg.slogdet(covariance)[1]
        )
        log_acceptance += sum(part.half_log_determinant - part.log_mass for part in parts) + whole.log_mass
        distance = sum(
            (part.mode - centre) @ p @ (part.mode - centre) for p, part in zip(precisions, parts, strict=True)
        )
        kept = -0.5 * (others * d * np.log1p(1.0 / time) + distance / (time + 1.0))
        return Plan(
            parts=tuple(parts),
            whole=whole,
            time=time,
            covariance=covariance,
            centre=centre,
            acceptance=float(np.exp(np.clip(log_acceptance, -700.0, 0.0))),
            tuples_kept=float(np.exp(max(kept, -700.0))),
            evaluations=sum(_row_evaluations(part, time) for part in parts),
        )

    def cost(self, number: int) -> tuple[float, float]:
        """Expected proposals, and evaluations of laws and rows, for so many accepted draws."""
        proposals = number / self.acceptance
        return proposals, proposals * (len(self.parts) + self.tuples_kept * self.evaluations)


@dataclass(frozen=True, eq=False)
class Merged:
    """Accepted draws, which draws of the parts they were made from, and how many proposals it took."""

    draws: Floats  # (N, d)
    indices: np.ndarray  # (N, C)
    proposals: int


def merge(
    plan: Plan,
    draws: Sequence[Floats],
    number: int,
    generator: np.random.Generator,
    tell_made: Callable[[int], None],
) -> Merged:
    """Propose until `number` are accepted, telling how many proposals were made so far."""
    widest = max(len(plan.parts) * len(plan.centre), max(len(part.unit.rows) for part in plan.parts))
    most = max(1, BATCH_NUMBERS // widest)
    limit = PATIENCE * (number / plan.acceptance) + 1_000.0
    found: list[Floats] = []
    indices: list[np.ndarray] = []
    have = proposals = 0
    while have < number:
        if proposals > limit:
            raise _never_accepted(proposals, have, plan.acceptance)
        size = int(min(most, 1.1 * (number - have) / plan.acceptance + 20.0))
        chosen = np.column_stack([generator.integers(len(x), size=size) for x in draws])
        points, kept = _proposed(plan, [x[chosen[:, c]] for c, x in enumerate(draws)], generator)
        found.append(points)
        indices.append(chosen[kept].astype(np.int32))
        have += len(points)
        proposals += size
        tell_made(proposals)
    return Merged(np.concatenate(found)[:number], np.concatenate(indices)[:number], proposals)


def _proposed(plan: Plan, tuples: list[Floats], generator: np.random.Generator) -> tuple[Floats, np.ndarray]:
    """Proposals that are accepted, and the positions of their tuples."""
    starts = [part.units(x) for part, x in zip(plan.parts, tuples, strict=True)]
    shift = np.zeros_like(tuples[0])
    for part, x in zip(plan.parts, tuples, strict=True):
        shift += (x - plan.centre) @ part.precision
    middle = plan.centre + shift @ plan.covariance
    exponent = _distances(plan.parts, starts, middle) / (2.0 * plan.time)
    kept = np.flatnonzero(_accepted(exponent, generator))
    noise = generator.standard_normal((kept.size, len(plan.centre)))
    points = middle[kept] + np.sqrt(plan.time) * noise @ np.linalg.cholesky(plan.covariance).T
    for part, start in zip(plan.parts, starts, strict=True):
        x, y = start[kept], part.units(points)
        survives = _gaussian_paths if not len(part.unit.rows) else _paths
        good = survives(part.unit, part.floor, x, y, plan.time, generator)
        points, kept = points[good], kept[good]
    return points, kept


def _distances(parts: Sequence[Law], starts: Sequence[Floats], middle: Floats) -> Floats:
    """Squared distances of tuples from their middles, each part in its own units."""
    found = np.zeros(len(middle))
    for part, start in zip(parts, starts, strict=True):
        found += np.sum((start - part.units(middle)) ** 2, axis=1)
    return found


def _accepted(exponent: Floats, generator: np.random.Generator) -> np.ndarray:
    """Events of probability exp(-exponent)."""
    return np.asarray(generator.standard_exponential(len(exponent)) > exponent)


def _gaussian_paths(
    unit: Density, floor: float, x: Floats, y: Floats, time: float, generator: np.random.Generator
) -> np.ndarray:
    """Paths of a Gaussian law, centred at 0, by the transition of its Ornstein-Uhlenbeck process."""
    return _accepted(-(log_gaussian_path_factor(unit, x, y, time) + floor * time), generator)


def log_gaussian_path_factor(unit: Density, x: Floats, y: Floats, time: float) -> Floats:
    """Log of E exp(-integral of phi) over bridges, for a Gaussian with mean 0.

    Examples
    --------
    >>> unit = Density.gaussian(np.zeros(1), np.eye(1))
    >>> log_gaussian_path_factor(unit, np.zeros((1, 1)), np.zeros((1, 1)), 1e-6).round(9)
    array([5.e-07])
    """
    rates, axes = np.linalg.eigh(unit.precision)
    x, y = x @ axes, y @ axes
    decay = np.exp(-rates * time)
    variance = -np.expm1(-2.0 * rates * time) / (2.0 * rates)
    return np.asarray(
        np.sum(
            0.5 * np.log(time / variance)
            - 0.5 * (y - decay * x) ** 2 / variance
            + 0.5 * (y - x) ** 2 / time
            + 0.5 * rates * (y**2 - x**2),
            axis=1,
        )
    )


def _paths(
    unit: Density, floor: float, x: Floats, y: Floats, time: float, generator: np.random.Generator
) -> np.ndarray:
    """Paths of a law with rows: bounds in a layer, then phi at uniform times."""
    layers = draw_layers(x, y, time, generator)
    lower, upper = unit.bounds(*layer_box(x, y, time, layers))
    lower = np.maximum(lower, floor)
    good = _accepted((lower - floor) * time, generator)
    rate = (upper - lower) * time
    if np.any(rate[good] > MOST_POINTS):
        raise _too_steep(float(rate[good].max()))
    points = np.where(good, generator.poisson(np.where(good, rate, 0.0)), 0)
    busy = np.flatnonzero(points)
    # Paths with about as many points go together: others would wait for the longest.
    for group in np.array_split(busy[np.argsort(points[busy], kind="stable")], max(1, len(busy) // 500)):
        if not group.size:
            continue
        number = int(points[group].max())
        times = generator.random((len(group), number)) * time
        times[np.arange(number) >= points[group, None]] = time
        times.sort(axis=1)
        places = draw_points(x[group], y[group], time, layers[group], times, generator)
        for k in range(number):
            real = times[:, k] < time
            spare = upper[group] - unit.phi(places[:, k])
            uniform = generator.random(len(group)) * (upper - lower)[group]
            good[group[real & (uniform > spare)]] = False
    return good


def _row_evaluations(part: Law, time: float) -> float:
    """What one path of usual width costs, in rows evaluated."""
    rows = len(part.unit.rows)
    if not rows:
        return 0.0
    half = np.full((1, len(part.mode)), 0.5 * np.sqrt(time) + WIDTHS[1] * np.sqrt(time))
    lower, upper = part.unit.bounds(-half, half)
    return (rows + POINT_IN_ROWS * len(part.mode)) * (
        2.0 + float((upper - np.maximum(lower, part.floor))[0]) * time
    )


def _never_accepted(proposals: int, have: int, predicted: float) -> ConsilienceError:
    return must_be(
        "fusion",
        "draws",
        "draws of their targets",
        f"{have} accepted of {proposals} proposals where a share of {predicted:.2g} was predicted",
        "Check that each shard's target is the density that it sampled.",
        error=DrawsError,
    )


def _too_steep(points: float) -> ConsilienceError:
    return must_be(
        "fusion",
        "targets",
        f"smooth enough for paths of {MOST_POINTS:.0f} points",
        f"one that takes {points:.2g}",
        "Use another rule.",
        error=DrawsError,
    )
