"""HMC on a polynomial log density: many chains in one compiled program, without a look at the data.

Formula. f(z) = -|z|^2 / 2 + g(z c(z)), c(z) = min(1, R / |z|), with R the largest |z| among the points that g
was fitted to: beyond R the polynomial keeps the value that it has on the same ray at R. So exp(f) is at
most a constant times a normal density beyond R, and integrable whatever g is.

Chains start at given points. While warming up, the step is fitted by dual averaging on the mean acceptance of all
chains. R-hat over chains says whether they agree; if not, what was drawn is warm-up, and they go on twice as long.

Fails, with a high R-hat, where the surrogate has modes far apart.

Reference. Neal (2011), MCMC using Hamiltonian dynamics, section 5.4.2; kernel and integrator are those of
`sample.hmc`; R-hat: Vehtari et al. (2021).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.adaptation.step_size import dual_averaging_adaptation

from consilience.chains import effective_sample_size, rhat
from consilience.refine.base import Floats
from consilience.refine.polynomial import Polynomial
from consilience.sample.compiling import Program, ProgramCache
from consilience.sample.hmc import HMC

CHAINS = 128
BLOCK = 40
LARGEST_RHAT = 1.05
# Points of a program: few sizes, so that few programs are compiled.
SIZE = 128


class Arrays(NamedTuple):
    """A polynomial as a program takes it."""

    centres: Any
    coefficients: Any
    scales: Any
    radius: Any


@dataclass(frozen=True, eq=False)
class Sampled:
    """Draws of a surrogate.

    Attributes
    ----------
    draws : (N, d) chain after chain
    effective : (d,) effective number of draws behind each mean
    rhat : the largest over coordinates
    outside : share of the draws beyond the radius, where the polynomial is not trusted
    """

    draws: Floats
    effective: Floats
    rhat: float
    outside: float

    @property
    def mixed(self) -> bool:
        return bool(self.rhat < LARGEST_RHAT)


def guarded_log_density(z: Any, polynomial: Arrays) -> Any:
    """f with its guard, at one point."""
    square = jnp.sum(z**2)
    inside = square <= polynomial.radius**2
    y = z * jnp.where(inside, 1.0, polynomial.radius / jnp.sqrt(jnp.where(inside, 1.0, square)))
    inner = polynomial.centres @ y
    first = jnp.zeros_like(inner)
    for j in range(polynomial.scales.shape[0] - 1, -1, -1):
        first = first * inner + polynomial.scales[j]
    return jnp.sum(first * (polynomial.coefficients @ y)) - 0.5 * square


def sample_polynomial(
    polynomial: Polynomial,
    radius: float,
    starts: Floats,
    number: int,
    rng: np.random.Generator,
    most_runs: int,
) -> Sampled:
    """`number` draws, from chains that start at `starts` (n, d), or at some of them.

    Chains that do not agree after `most_runs` runs, each twice as long as the one before, are given up.

    Examples
    --------
    >>> from consilience.refine.polynomial import scales_of
    >>> rng = np.random.default_rng(0)
    >>> starts = rng.normal(size=(200, 2)) + 3.0
    >>> normal = Polynomial(starts, np.zeros((200, 2)), scales_of(2, 2), 1.0)
    >>> found = sample_polynomial(normal, 6.0, starts, 4000, rng, most_runs=2)
    >>> found.draws.shape, found.draws.mean(axis=0).round(1) + 0.0, found.mixed
    ((4000, 2), array([0., 0.]), True)
    """
    count = min(CHAINS, len(starts))
    positions = starts[rng.choice(len(starts), count, replace=False)]
    blocks = max(1, -(-number // (count * BLOCK)))
    arrays, run = _padded(polynomial.condensed(), radius), _Chains(positions, rng)
    for _ in range(2):
        run.advance(arrays, tune=True)
    for thinning in 2 ** np.arange(most_runs):
        runs = [run.advance(arrays, tune=False) for _ in range(blocks * thinning)]
        chains = np.swapaxes(np.concatenate(runs)[thinning - 1 :: thinning], 0, 1)
        worst = float(np.nan_to_num(rhat(chains), nan=np.inf).max())
        if worst < LARGEST_RHAT:
            break
    flat = chains.reshape(-1, chains.shape[2])
    chosen = (np.arange(number) + 0.5) * len(flat) / number
    draws = flat[chosen.astype(int)]
    effective = np.minimum(effective_sample_size(chains, "mean"), number)
    outside = float(np.mean(np.sum(draws**2, axis=1) > radius**2))
    return Sampled(draws, effective, worst, outside)


class _Chains:
    """Where chains are, and the step they take."""

    def __init__(self, positions: Floats, rng: np.random.Generator) -> None:
        self.positions, self.rng = positions, rng
        self.step_size = np.float64(1.0 / max(1.0, positions.shape[1] ** 0.25))
        self.settings = HMC(chains=len(positions))
        self.iterations = 0
        self.program = _programs.get(self.settings, lambda: Program(_program(self.settings), "float64"))

    def advance(self, arrays: Arrays, *, tune: bool) -> Floats:
        """(BLOCK, chains, d) states of so many iterations."""
        lengths = self.settings.lengths(self.iterations, BLOCK).astype(np.float64)
        noise = self.settings.noise(self.rng, BLOCK, self.positions.shape[1])
        self.iterations += BLOCK
        tuning = np.asarray(tune)
        end, step_size, path = self.program(arrays, self.positions, self.step_size, noise, lengths, tuning)
        self.positions, self.step_size = np.asarray(end), np.float64(step_size)
        return np.asarray(path)


_programs = ProgramCache(limit=4)


def _program(settings: HMC) -> Any:
    """Advance all chains by a block of iterations."""

    def run(arrays: Arrays, positions: Any, step_size: Any, noise: Any, lengths: Any, tune: Any) -> Any:
        kernel = settings.kernel(lambda z: guarded_log_density(z, arrays), positions.shape[1])
        init, update, final = dual_averaging_adaptation(settings.target_acceptance)
        averages = jax.tree.map(jnp.asarray, init(step_size)._replace(mu=jnp.log(step_size)))

        def body(carry: Any, item: Any) -> tuple[Any, Any]:
            states, averages = carry
            randomness, length = item
            step = jnp.where(tune, jnp.exp(averages.log_step_size), step_size)
            states, info = jax.vmap(kernel.step, in_axes=(0, 0, None, None))(randomness, states, step, length)
            told = update(averages, jnp.mean(info.acceptance))
            averages = jax.tree.map(lambda new, old: new.astype(old.dtype), told, averages)
            return (states, averages), states.position

        states = jax.vmap(kernel.init)(positions)
        (states, averages), path = jax.lax.scan(body, (states, averages), (noise, lengths))
        return states.position, jnp.where(tune, final(averages), step_size), path

    return run


def _padded(polynomial: Polynomial, radius: float) -> Arrays:
    """Points without coefficients fill up the program's size."""
    missing = -len(polynomial.centres) % SIZE
    pad = ((0, missing), (0, 0))
    return Arrays(
        np.pad(polynomial.centres, pad),
        np.pad(polynomial.coefficients, pad),
        polynomial.scales,
        np.float64(radius),
    )
