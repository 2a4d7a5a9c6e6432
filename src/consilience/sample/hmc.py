"""Hamiltonian Monte Carlo with jittered trajectories, in coordinates whitened by the target's curvature.

There the metric is the identity, a trajectory of length pi/2 carries a Gaussian to an independent point,
and a step of order d^(-1/4) is accepted four times in five. The length is spread over (pi/4, 3 pi/4) by a
van der Corput sequence: no coordinate can resonate with it, and all chains of all shards share the number of
steps, so that they run in lockstep. It fails where one whitening cannot serve the whole target: funnels,
and modes that a trajectory of fixed length does not cross; NUTS is the alternative.

Reference: Neal (2011), MCMC using Hamiltonian dynamics, sections 3.2 and 5.4.2; integrator and proposal are
BlackJAX's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from consilience.sample.kernel import Kernel, Step, check_settings

TRAJECTORY = math.pi / 2
# A proposal that loses this much log density is called divergent (Stan's and BlackJAX's number).
DIVERGENCE = 1000.0


@dataclass(frozen=True)
class HMC:
    """Settings of Hamiltonian Monte Carlo.

    Attributes
    ----------
    chains : int
        Chains per shard; they advance together, as columns of one matrix product.
    warmup : int
        Iterations that tune the step; few, because the chains start from the shard's curvature.
    target_acceptance : float
        Acceptance that the step is tuned to.
    max_steps : int
        Longest trajectory in steps.

    Examples
    --------
    >>> HMC(chains=2).noise(np.random.default_rng(0), iterations=5, dimension=3)[0].shape
    (5, 2, 3)
    """

    name: ClassVar[str] = "hmc"
    reference: ClassVar[str] = "Neal (2011); Cabezas et al. (2024), BlackJAX"

    chains: int = 4
    warmup: int = 25
    target_acceptance: float = 0.8
    max_steps: int = 64

    def __post_init__(self) -> None:
        check_settings(self, chains=1, warmup=1, max_steps=1)

    def lengths(self, start: int, count: int) -> np.ndarray:
        """Trajectory lengths of iterations `start` to `start + count`."""
        index = np.arange(start + 1, start + count + 1)
        fraction = np.zeros(count)
        for bit in range(24):
            fraction += ((index >> bit) & 1) * 0.5 ** (bit + 1)
        return (TRAJECTORY * (0.5 + fraction)).astype(np.float32)

    def noise(self, generator: np.random.Generator, iterations: int, dimension: int) -> Any:
        """Momenta, and what the accept step compares with."""
        momentum = generator.standard_normal((iterations, self.chains, dimension), np.float32)
        return momentum, -generator.standard_exponential((iterations, self.chains), np.float32)

    def kernel(self, log_density: Callable[[Any], Any], dimension: int) -> Kernel:
        """One transition of one chain."""
        from blackjax.mcmc import hmc, integrators, metrics

        metric = metrics.default_metric(jnp.ones(dimension))
        leapfrog = integrators.velocity_verlet(log_density, metric.kinetic_energy)

        def accept(log_uniform: Any, gain: Any, old: Any, new: Any) -> Any:
            accepted = log_uniform < gain
            chosen = integrators.IntegratorState(
                *(jnp.where(accepted, there, here) for there, here in zip(new, old, strict=True))
            )
            return chosen, (accepted, jnp.exp(jnp.minimum(gain, 0.0)), None)

        def step(noise: Any, state: Any, step_size: Any, length: Any) -> tuple[Any, Step]:
            momentum, log_uniform = noise
            count = jnp.clip(jnp.ceil(length / step_size), 1, self.max_steps).astype(jnp.int32)
            # Equal steps that end exactly at the wanted length: rounding the length up to whole steps would
            # carry most trajectories towards the antipode, where squares are as correlated as at the start.
            even = jnp.minimum(step_size, length / count)
            propose = hmc.hmc_proposal(
                leapfrog, metric.kinetic_energy, even, count, DIVERGENCE, sample_proposal=accept
            )
            position, value, gradient = state
            begin = integrators.IntegratorState(position, momentum.astype(position.dtype), value, gradient)
            end, info, _ = propose(log_uniform, begin)
            new = hmc.HMCState(end.position, end.logdensity, end.logdensity_grad)
            return new, Step(info.acceptance_rate, info.is_divergent, count)

        return Kernel(lambda position: hmc.init(position, log_density), step)
