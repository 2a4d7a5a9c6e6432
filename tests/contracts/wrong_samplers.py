"""Samplers and targets with one mistake each, which the oracle must notice.

A sampler's randomness comes from outside its program, so mistakes can be made there, in programs that are
compiled already.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from sampler_oracles import model

from consilience.model.model import Model
from consilience.model.space import ParameterSpace

Noise = tuple[np.ndarray, np.ndarray]


def without_accept_step(momentum: np.ndarray, log_uniform: np.ndarray) -> Noise:
    """Leapfrog alone: it samples the law of the discretised dynamics, which is wider."""
    return momentum, np.full_like(log_uniform, -np.inf)


def with_old_momentum(momentum: np.ndarray, log_uniform: np.ndarray) -> Noise:
    """Every iteration starts with the momentum of the first one."""
    return np.broadcast_to(momentum[:1], momentum.shape).copy(), log_uniform


def with_narrow_momentum(momentum: np.ndarray, log_uniform: np.ndarray) -> Noise:
    """Momenta with a standard deviation of 0.9: the chain samples a colder law."""
    return np.float32(0.9) * momentum, log_uniform


WRONG_NOISE: tuple[Callable[[np.ndarray, np.ndarray], Noise], ...] = (
    without_accept_step,
    with_old_momentum,
    with_narrow_momentum,
)


class NoJacobian(ParameterSpace):
    """The prior of the parameters taken for that of the coordinates."""

    def log_prior(self, u: Any) -> Any:
        params = self.to_params(u)
        return sum(jnp.sum(prior.log_prob(params[name])) for name, prior in self.prior.items())


def model_without_jacobian() -> Model:
    wrong = model()
    wrong._space = NoJacobian(wrong.space.prior)
    return wrong
