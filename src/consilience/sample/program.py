"""The compiled programs that turn one shard's rows into draws, and their vectorised twins.

Two programs matter: one gives the derivatives that Newton needs, one runs the chains, tuning the step for as
long as it is told to and drawing from then on. Each takes the rows as arguments, so that shards of one padded
length share one compilation. The third compares starting points, and is compiled only where a search has
failed.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from blackjax.adaptation.step_size import dual_averaging_adaptation

from consilience.sample.compiling import Program, ProgramCache, program_identity
from consilience.sample.kernel import Kernel, Sampler
from consilience.sample.target import Array, ShardData, derivatives, log_density, reference_at, values_at


class Frame(NamedTuple):
    """Whitened coordinates z: u = centre + root z."""

    centre: Array
    root: Array


class Chains(NamedTuple):
    """Where the chains are, in whitened coordinates, and the step they take."""

    positions: Array
    step_size: Array


class Plan(NamedTuple):
    """What happens in each iteration, alike for all shards: how far to go, and whether the step is tuned."""

    lengths: Array
    tuning: Array


class Block(NamedTuple):
    """What iterations brought: (iterations, chains, ...)."""

    positions: Array
    log_density: Array
    acceptance: Array
    divergent: Array
    gradients: Array


@dataclass(frozen=True)
class Programs:
    """The compiled functions for one model, sampler and precision.

    ``derivatives(data, here, there) -> (rise, score, precision)``;
    ``run(data, frame, chains, noise, plan) -> (Chains, Block)``;
    ``values(data, points) -> log densities``.
    Vectorised ones take a leading axis of shards in every argument but the plan.
    """

    derivatives: Program
    run: Program
    values: Program


def _kernel(model: Any, sampler: Sampler, data: ShardData, frame: Frame) -> Kernel:
    reference = reference_at(model, frame.centre, data)

    def whitened(z: Array) -> Array:
        return log_density(model, frame.centre + z @ frame.root.T, data, reference)

    return sampler.kernel(whitened, frame.centre.shape[0])


def _run(
    model: Any, sampler: Sampler, data: ShardData, frame: Frame, chains: Chains, noise: Any, plan: Plan
) -> tuple[Chains, Block]:
    """Advance the chains; while tuning, fit the step by dual averaging on their mean acceptance."""
    kernel = _kernel(model, sampler, data, frame)
    init, update, final = dual_averaging_adaptation(sampler.target_acceptance)
    # BlackJAX shrinks towards ten times the first step, for starts that know nothing; this one is good.
    averages = jax.tree.map(jnp.asarray, init(chains.step_size)._replace(mu=jnp.log(chains.step_size)))

    def body(carry: Any, item: Any) -> tuple[Any, Block]:
        states, averages, tuned = carry
        randomness, (length, tuning) = item
        step_size = jnp.where(tuning, jnp.exp(averages.log_step_size), tuned).astype(tuned.dtype)
        states, info = jax.vmap(kernel.step, in_axes=(0, 0, None, None))(
            randomness, states, step_size, length
        )
        told = update(averages, jnp.mean(info.acceptance))
        averages = jax.tree.map(
            lambda new, old: jnp.where(tuning, new, old).astype(old.dtype), told, averages
        )
        tuned = jnp.where(tuning, final(averages), tuned).astype(tuned.dtype)
        block = Block(states.position, states.logdensity, info.acceptance, info.divergent, info.gradients)
        return (states, averages, tuned), block

    states = jax.vmap(kernel.init)(chains.positions)
    (states, _, tuned), block = jax.lax.scan(body, (states, averages, chains.step_size), (noise, plan))
    return Chains(states.position, tuned), block


_programs = ProgramCache()


def programs(
    model: Any,
    fingerprint: str,
    sampler: Sampler,
    precision: str = "float32",
    *,
    rows: dict[str, Any],
    vectorised: bool = False,
) -> Programs:
    """Programs for a model whose rows look like `rows`."""
    key = (fingerprint, program_identity(model, rows), sampler, precision, vectorised)

    def make() -> Programs:
        def program(function: Any, axes: tuple[Any, ...]) -> Program:
            return Program(function, precision, axes if vectorised else None)

        return Programs(
            derivatives=program(functools.partial(derivatives, model), (0, 0, 0)),
            run=program(functools.partial(_run, model, sampler), (0, 0, 0, 0, None)),
            values=program(functools.partial(values_at, model), (0, 0)),
        )

    kept: Programs = _programs.get(key, make)
    return kept
