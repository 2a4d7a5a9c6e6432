"""From the draws of shards to draws of a product of kernel mixtures: what the two rules by kernels share.

A few hundred walkers (see `kernel_walk`) anneal together from bandwidth 1 and are then read out in blocks, one draw of
each walker in a block, with as many sweeps in between as they need to forget where they were. The middle of a
block sets its bandwidths: draws 1 to N of a single walk would have them one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from consilience.draws import Subposteriors
from consilience.errors import InputError, must_be
from consilience.progress import tell

from .base import Combined, Floats, effective_sizes
from .common_precision import CommonPrecision, pull_together
from .kernel_bandwidth import NoiseOfBandwidth, annealed, smallest_bandwidths
from .kernel_errors import Held, draws_held, variance_of_mean
from .kernel_frame import Factors, Frame, build_mixture, make_frame
from .kernel_walk import Walkers
from .moments import ShardMoments, gaussian_product, shard_moments
from .permute import canonical_order

FEWEST_WALKERS, MOST_WALKERS = 256, 4_096
# Blocks in which walkers are read out, unless there would be too few or too many walkers.
BLOCKS = 8
# Steps of annealing before the first block, and the most sweeps in each.
ANNEALING_STEPS, ANNEALING_SWEEPS = 5, 20
# Walkers that share fewer draws of a shard among them than this say little about it.
FEW_DRAWS_HELD = 5.0


@dataclass(frozen=True, eq=False)
class Ingredients:
    """Kernels and Gaussians at one stage of the annealing.

    Attributes
    ----------
    factors : what is multiplied
    mean_shares, covariance_shares : (B,) how far the product leans on each shard's mean and covariance, from 0 to 1
    """

    factors: Factors
    mean_shares: Floats
    covariance_shares: Floats


@dataclass(frozen=True, eq=False)
class Problem:
    """The shards in an order of their own, and what is known about them before any walk."""

    shards: Subposteriors
    key: int
    copies: Floats  # (B,) shards that hold the very same draws: their noise is one and the same
    moments: ShardMoments
    product: CommonPrecision
    frame: Frame

    def bandwidths(
        self, fraction: float, multiple: float, noise: NoiseOfBandwidth, limit: float | None
    ) -> Floats:
        """Bandwidths when this fraction of the draws is made; infinity for shards whose draws cannot tell."""
        counts, d = self.moments.effective_draws / self.copies, self.moments.dimension
        lowest = multiple * annealed(counts, fraction, d)
        return smallest_bandwidths(noise, lowest, counts, self.frame.squared_distances(), d, limit)


@dataclass(frozen=True)
class Schedule:
    """How many draws, how long walkers may take between them, and whether they anneal before the first."""

    num_draws: int
    max_sweeps: int
    from_widest: bool = True

    @property
    def walkers(self) -> int:
        return int(np.clip(-(-self.num_draws // BLOCKS), FEWEST_WALKERS, MOST_WALKERS))

    @property
    def blocks(self) -> int:
        return -(-self.num_draws // self.walkers)

    def fractions(self) -> list[tuple[float, bool]]:
        """Fractions of the draws at which walkers pause, and whether they are read out there."""
        blocks = np.minimum((np.arange(self.blocks) + 0.5) * self.walkers / self.num_draws, 1.0)
        steps = ANNEALING_STEPS if self.from_widest else 0
        before = np.geomspace(1.0 / self.num_draws, blocks[0], steps, endpoint=False)
        return [(float(f), False) for f in before] + [(float(f), True) for f in blocks]


def check_options(
    rule: str, num_draws: int | None, bandwidth: float, noise_limit: float | None, max_sweeps: int
) -> None:
    """Refuse numbers that the rules by kernels cannot use."""
    whole = {"num_draws": num_draws, "max_sweeps": max_sweeps}
    for option, value in whole.items():
        if value is None and option == "num_draws":
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise must_be(
                rule, option, "a positive whole number", value, "Leave it out for the default.", InputError
            )
    positive = {"bandwidth": bandwidth, "noise_limit": noise_limit}
    for option, number in positive.items():
        if number is None and option == "noise_limit":
            continue
        if isinstance(number, bool) or not isinstance(number, int | float) or not 0.0 < number < np.inf:
            raise must_be(
                rule, option, "a positive number", number, "Leave it out for the default.", InputError
            )


def prepare(subposteriors: Subposteriors, *, pull: float | None) -> Problem:
    """Bring shards into an order of their own and find their moments, product and common coordinates.

    `pull` is that of `common_precision`: 0 leaves the precisions as they were estimated.
    """
    moments = shard_moments(subposteriors)
    # Asked for here, because it refuses what cannot be inverted, and the product of one shard needs no inverse.
    assert len(moments.precisions.precision) == subposteriors.num_shards
    order, key = canonical_order(subposteriors)
    shards = replace(
        subposteriors,
        draws=tuple(subposteriors.draws[b] for b in order),
        weights=subposteriors.weights[order],
        chain_lengths=tuple(subposteriors.chain_lengths[b] for b in order),
        labels=tuple(subposteriors.labels[b] for b in order),
        log_densities=None,
        curvatures=None,  # the moments carry them
    )
    moments = moments.in_order(order)
    product = pull_together(
        moments, gaussian_product(moments, np.ones(shards.num_shards)), shards.weights, pull=pull
    )
    return Problem(shards, key, _copies(shards.draws), moments, product, make_frame(shards, moments, product))


def _copies(draws: tuple[Floats, ...]) -> Floats:
    """How often each shard's draws are there; in canonical order copies follow each other."""
    first = [i == 0 or not np.array_equal(x, draws[i - 1]) for i, x in enumerate(draws)]
    group = np.cumsum(first) - 1
    return np.bincount(group)[group].astype(np.float64)


def combined_by_walk(
    problem: Problem, schedule: Schedule, ingredients_at: Callable[[float], Ingredients], seed: int
) -> Combined:
    """Anneal, read the walkers out, map their draws back, and say what they are worth."""
    found = _walk(problem, schedule, ingredients_at, np.random.default_rng([seed, problem.key]))
    made = np.stack(found.blocks)
    array = made.reshape(-1, problem.frame.dimension)[: schedule.num_draws]
    # Walkers are independent of each other, their draws in different blocks may not be.
    walk_variance = made.mean(axis=0).var(axis=0, ddof=1) * made.shape[0] / len(array)
    variance = np.mean(found.variances, axis=0) + walk_variance
    spread = made.reshape(-1, problem.frame.dimension).var(axis=0, ddof=1)
    return Combined(
        array=array,
        effective_sizes=effective_sizes(np.diag(spread), np.diag(variance)),
        notes=(f"{schedule.walkers} walkers made {found.sweeps} sweeps over {len(found.active)} shards.",),
        warnings=(
            *problem.product.warnings,
            *_stuck_warning(found.stuck, schedule),
            *_few_held_warning(problem, found.active, np.mean(found.numbers_held, axis=0)),
        ),
    )


@dataclass(eq=False)
class _Readings:
    """What walkers brought, block by block."""

    active: tuple[int, ...]
    blocks: list[Floats] = field(default_factory=list)  # (C, d) draws
    variances: list[Floats] = field(default_factory=list)  # (d,) of the product's mean
    numbers_held: list[Floats] = field(
        default_factory=list
    )  # (S,) different draws held, of each active shard
    sweeps: int = 0
    stuck: int = 0  # blocks before which walkers still knew where they had been


def _walk(
    problem: Problem,
    schedule: Schedule,
    ingredients_at: Callable[[float], Ingredients],
    rng: np.random.Generator,
) -> _Readings:
    """Let walkers go through the stages of the annealing."""
    frame, pauses = problem.frame, schedule.fractions()
    stage = ingredients_at(pauses[0][0])
    found = _Readings(stage.factors.active)
    walkers = Walkers(build_mixture(frame, stage.factors), schedule.walkers, rng)
    for step, (fraction, read) in enumerate(pauses):
        tell("kernels", step, len(pauses))
        before, stage = stage, ingredients_at(fraction)
        if not np.array_equal(stage.factors.bandwidths, before.factors.bandwidths):
            walkers.leave()  # or two sets of tables would be held at once
            walkers.enter(build_mixture(frame, stage.factors))
        elif step and not read:
            continue  # bandwidths that cannot get smaller need no annealing
        sweeps, stuck = walkers.walk(schedule.max_sweeps if read else ANNEALING_SWEEPS)
        found.sweeps += sweeps
        if not read:
            continue
        held = Held(
            means=walkers.component_means(),
            indices=walkers.indices,
            active=found.active,
            mean_shares=stage.mean_shares,
            covariance_shares=stage.covariance_shares,
        )
        found.stuck += stuck
        found.blocks.append(frame.origin + walkers.draws() @ frame.root.T)
        found.variances.append(variance_of_mean(frame, problem.moments, problem.product, held))
        found.numbers_held.append(draws_held(held))
    tell("kernels", len(pauses), len(pauses))
    return found


def _stuck_warning(stuck: int, schedule: Schedule) -> tuple[str, ...]:
    if not stuck:
        return ()
    return (
        f"Walkers still knew where they had been after {schedule.max_sweeps} sweeps, before {stuck} of "
        f"{schedule.blocks} blocks of draws: draws are correlated, and modes may be visited in wrong "
        "proportions. Raise max_sweeps, or widen the kernels by bandwidth.",
    )


def _few_held_warning(problem: Problem, active: tuple[int, ...], numbers: Floats) -> tuple[str, ...]:
    few = np.flatnonzero(numbers < FEW_DRAWS_HELD)
    if not few.size:
        return ()
    worst = int(few[np.argmin(numbers[few])])
    return (
        f"The product rests on a handful of draws in {few.size} of {problem.shards.num_shards} shards (shard "
        f"{problem.shards.labels[active[worst]]}: {numbers[worst]:.1f} effectively). Shards hardly overlap; make "
        "more draws, or combine by a rule that moves draws (swiss, consensus).",
    )
