"""The No-U-Turn sampler in coordinates whitened by the target's curvature.

A trajectory doubles until it turns back on itself, so its length fits the place it starts from: dearer per
draw than HMC near a Gaussian, safer far from one. Under vectorisation every chain waits for the longest.

Reference: Hoffman and Gelman (2014); the kernel is BlackJAX's iterative multinomial version.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from consilience.sample.kernel import Kernel, Step, check_settings


@dataclass(frozen=True)
class NUTS:
    """Settings of the No-U-Turn sampler; see `HMC` for those they share.

    Attributes
    ----------
    max_doublings : int
        A trajectory has at most 2 to this power steps.

    Examples
    --------
    >>> NUTS(chains=2).noise(np.random.default_rng(0), iterations=5, dimension=3).shape
    (5, 2, 2)
    """

    name: ClassVar[str] = "nuts"
    reference: ClassVar[str] = "Hoffman and Gelman (2014); Cabezas et al. (2024), BlackJAX"

    chains: int = 4
    warmup: int = 25
    target_acceptance: float = 0.8
    max_doublings: int = 8

    def __post_init__(self) -> None:
        check_settings(self, chains=1, warmup=1, max_doublings=1)

    def lengths(self, start: int, count: int) -> np.ndarray:
        """Not used: trajectories find their own length."""
        return np.ones(count, np.float32)

    def noise(self, generator: np.random.Generator, iterations: int, dimension: int) -> Any:
        """A key for every transition; how many random numbers one needs is not known beforehand."""
        return generator.integers(0, 1 << 32, (iterations, self.chains, 2), np.uint32)

    def kernel(self, log_density: Callable[[Any], Any], dimension: int) -> Kernel:
        """One transition of one chain."""
        import blackjax.mcmc.nuts as nuts

        transition = nuts.build_kernel()
        metric = jnp.ones(dimension)

        def step(noise: Any, state: Any, step_size: Any, length: Any) -> tuple[Any, Step]:
            key = jax.random.wrap_key_data(noise, impl="threefry2x32")
            new, info = transition(
                key, state, log_density, step_size, metric.astype(state.position.dtype), self.max_doublings
            )
            return new, Step(info.acceptance_rate, info.is_divergent, info.num_integration_steps)

        return Kernel(lambda position: nuts.init(position, log_density), step)
