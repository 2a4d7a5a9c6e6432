"""Hamiltonian Monte Carlo on a product of surfaces, many chains at once.

Each iteration of every chain makes two proposals. The first follows the Hamiltonian of the *mean* surface and
is accepted by the density that is wanted: leapfrog steps along any gradient are reversible and keep volumes,
so the law is exact, and the variance, whose gradient would cost n² per step and shard, is needed once per
trajectory (Rasmussen, 2003, uses a Gaussian process in this way). The second is drawn from a t distribution
with 5 degrees of freedom that is matched to the density: it carries chains between modes, which trajectories
do not cross.

Chains start from that t distribution, resampled by their weights; where the weights are poor they are
flattened first. Fails where modes lie apart in so many dimensions that no t proposal finds them: R-hat of the
chains tells when they have found different ones, and nothing tells when all have missed one.

Reference. Neal (2011), MCMC using Hamiltonian dynamics, sections 3 and 5.3; Rasmussen (2003), Gaussian
processes to speed up hybrid Monte Carlo.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from consilience.numerics import log_sum_exp, weighted_covariance, weighted_mean
from consilience.progress import tell

from .base import Floats
from .gp_density import Product, row_blocks

# Chains cost their warm-up, and calls that are alike for all of them: they get so many draws each.
ITERATIONS = 50
FEWEST_CHAINS, MOST_CHAINS = 16, 256
WARMUP = 40
TARGET_ACCEPTANCE = 0.8
# A trajectory of this length carries a Gaussian to an independent point.
TRAJECTORY = np.pi / 2
MOST_STEPS = 32
DEGREES = 5.0
STARTS = 2048
# Starting weights are flattened until they are worth this share of the starts.
STARTS_WORTH = 0.2


@dataclass(frozen=True, eq=False)
class Sample:
    """Chains of u, and the share of trajectories and of t proposals that were accepted."""

    chains: Floats  # (chains, iterations, d)
    acceptance: float
    jumps: float


@dataclass(eq=False)
class _State:
    position: Floats
    value: Floats  # log density that is wanted
    gradient: Floats  # of the mean surface


def sample_product(product: Product, total: int, generator: np.random.Generator, expected: bool) -> Sample:
    """Draw at least `total` points u from the expected density, or from that of the mean surface."""
    return sample_density(
        product.mean_and_gradient,
        lambda u: product.correction(u, expected),
        product.dimension,
        total,
        generator,
    )


def sample_density(
    surface: Callable[[Floats], tuple[Floats, Floats]],
    correction: Callable[[Floats], Floats],
    dimension: int,
    total: int,
    generator: np.random.Generator,
) -> Sample:
    """Draw from exp(surface + correction), which is roughly a standard Gaussian.

    Examples
    --------
    >>> def surface(u):
    ...     return -np.sum(u**2, axis=1), -2.0 * u
    >>> sample = sample_density(surface, lambda u: 0.0 * u[:, 0], 1, 4000, np.random.default_rng(0))
    >>> sample.chains.shape[0] * sample.chains.shape[1] >= 4000, round(float(sample.chains.var()), 1)
    (True, 0.5)
    """

    def state(u: Floats) -> _State:
        height, gradient = surface(u)
        return _State(u, height + correction(u), gradient)

    number = min(total, int(np.clip(total // ITERATIONS, FEWEST_CHAINS, MOST_CHAINS)))
    iterations = -(-total // number)
    proposal, start = _first_proposal(state, dimension, number, generator)
    current = state(start)
    step = 1.2 * dimension**-0.25
    kept = np.empty((number, iterations, dimension))
    recent, accepted, jumped = [], 0.0, 0.0
    for iteration in range(-WARMUP, iterations):
        # Steps too long for the density may leave for infinity; such proposals are refused.
        with np.errstate(over="ignore", invalid="ignore"):
            current, acceptance = _trajectory(current, state, surface, proposal, step, generator)
        current, jumps = _jump(current, state, proposal, generator)
        if iteration < 0:
            # A gain that falls lets the step settle; chains are many, so that one iteration tells a lot.
            step *= np.exp(2.0 * (acceptance - TARGET_ACCEPTANCE) / np.sqrt(iteration + WARMUP + 4))
            recent.append(current.position)
            if iteration == -(WARMUP // 2):
                proposal = _matched(np.concatenate(recent[WARMUP // 4 :]), None, proposal)
        else:
            kept[:, iteration] = current.position
            accepted, jumped = accepted + acceptance / iterations, jumped + jumps / iterations
            tell("draws from the product", (iteration + 1) * number, iterations * number)
    return Sample(kept, accepted, jumped)


@dataclass(frozen=True, eq=False)
class _Proposal:
    """A multivariate t distribution, whose root whitens the Hamiltonian dynamics too."""

    centre: Floats
    root: Floats

    def draw(self, number: int, generator: np.random.Generator) -> Floats:
        d = len(self.centre)
        normal = generator.standard_normal((number, d))
        scale = np.sqrt(generator.chisquare(DEGREES, number) / DEGREES)
        return self.centre + (normal / scale[:, None]) @ self.root.T

    def log_density(self, u: Floats) -> Floats:
        """Up to a constant of this proposal."""
        d = len(self.centre)
        z = np.linalg.solve(self.root, (u - self.centre).T)
        return -0.5 * (DEGREES + d) * np.log1p(np.sum(z * z, axis=0) / DEGREES)


def _first_proposal(
    state: Callable[[Floats], _State], dimension: int, number: int, generator: np.random.Generator
) -> tuple[_Proposal, Floats]:
    """A proposal with the density's moments, and starts for the chains."""
    broad = _Proposal(np.zeros(dimension), 1.2 * np.eye(dimension))
    points = broad.draw(STARTS, generator)
    heights = np.concatenate([state(points[rows]).value for rows in row_blocks(STARTS)])
    ratio = heights - broad.log_density(points)
    ratio -= ratio.max()
    power = 1.0
    while _worth(power * ratio) < STARTS_WORTH * STARTS and power > 1e-3:
        power *= 0.7
    log_weights = power * ratio - log_sum_exp(power * ratio)
    # Systematic resampling: as many copies of each start as its weight says, up to one.
    places = (np.arange(number) + generator.uniform()) / number
    chosen = np.searchsorted(np.cumsum(np.exp(log_weights)), places * (1.0 - 1e-12))
    chosen = generator.permutation(np.minimum(chosen, STARTS - 1))
    return _matched(points, log_weights, broad), points[chosen]


def _matched(points: Floats, log_weights: Floats | None, otherwise: _Proposal) -> _Proposal:
    """A proposal with the mean and covariance of the points."""
    covariance = weighted_covariance(points, log_weights)
    try:
        root = np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
        return _Proposal(weighted_mean(points, log_weights), root)
    except np.linalg.LinAlgError:
        return otherwise


def _worth(log_weights: Floats) -> float:
    return float(np.exp(2.0 * log_sum_exp(log_weights) - log_sum_exp(2.0 * log_weights)))


def _trajectory(
    current: _State,
    state: Callable[[Floats], _State],
    surface: Callable[[Floats], tuple[Floats, Floats]],
    proposal: _Proposal,
    step: float,
    generator: np.random.Generator,
) -> tuple[_State, float]:
    """One Hamiltonian proposal for every chain, and the mean of its acceptance probabilities."""
    length = TRAJECTORY * generator.uniform(0.5, 1.5)
    steps = int(np.clip(np.ceil(length / step), 1, MOST_STEPS))
    even = min(step, length / steps)
    momentum = generator.standard_normal(current.position.shape)
    before = current.value - 0.5 * np.sum(momentum * momentum, axis=1)
    u, gradient = current.position, current.gradient
    momentum = momentum + 0.5 * even * (gradient @ proposal.root)
    for index in range(steps):
        u = u + even * (momentum @ proposal.root.T)
        if index < steps - 1:
            gradient = surface(u)[1]
            momentum = momentum + even * (gradient @ proposal.root)
    end = state(u)
    momentum = momentum + 0.5 * even * (end.gradient @ proposal.root)
    gain = end.value - 0.5 * np.sum(momentum * momentum, axis=1) - before
    return _accepted(current, end, gain, generator)


def _jump(
    current: _State,
    state: Callable[[Floats], _State],
    proposal: _Proposal,
    generator: np.random.Generator,
) -> tuple[_State, float]:
    """One independent proposal for every chain."""
    there = state(proposal.draw(len(current.position), generator))
    gain = there.value - current.value
    gain += proposal.log_density(current.position) - proposal.log_density(there.position)
    return _accepted(current, there, gain, generator)


def _accepted(
    here: _State, there: _State, gain: Floats, generator: np.random.Generator
) -> tuple[_State, float]:
    gain = np.where(np.isfinite(gain), gain, -np.inf)
    taken = -generator.standard_exponential(len(gain)) < gain
    column = taken[:, None]
    return _State(
        np.where(column, there.position, here.position),
        np.where(taken, there.value, here.value),
        np.where(column, there.gradient, here.gradient),
    ), float(np.mean(np.exp(np.minimum(gain, 0.0))))
