"""Pool: the mixture of the shards' inflated draws.

Formula. sum w_b p_b, with p_b the inflated sub-posterior of shard b: draws are laid together as they are,
with log weights log(w_b / J_b) where the numbers of draws are not proportional to the weights.

Assumptions. Every inflated sub-posterior already is close to the posterior: shards differ by less than the
posterior's width.

Fails by being too wide: its covariance is the average of the V_b plus the covariance of the means between
shards. Not exact for Gaussians, but the safe choice where shards have several modes, and it covers the
posterior where rules that assume one shape do not. (That the error of a shard's centre is about sqrt(B)
times the posterior's width is why.)

Reference. Entezari, Craiu and Rosenthal (2018), Likelihood inflating sampling algorithm, Canadian Journal
of Statistics 46(1), who lay the draws of equal shards together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from consilience.draws import Subposteriors

from .base import (
    Combined,
    Equivariance,
    Kind,
    Need,
    effective_sizes,
    mixture_log_weights,
    shared_out,
    stacked_chain_lengths,
)
from .moments import shard_moments


@dataclass(frozen=True)
class Pool:
    """Lay the shards' inflated draws together.

    Examples
    --------
    >>> shards = np.random.default_rng(0).normal([[[0.0]], [[1.0]]], 1.0, size=(2, 500, 1))
    >>> combined = Pool().combine(Subposteriors.of(shards, kind="inflated", weights=[0.25, 0.75]))
    >>> np.exp(combined.log_weights[[0, -1]])
    array([0.0005, 0.0015])
    """

    name: ClassVar[str] = "pool"
    reference: ClassVar[str] = "Entezari, Craiu and Rosenthal (2018), Canadian Journal of Statistics 46(1)"
    kind: ClassVar[Kind] = "inflated"
    needs: ClassVar[tuple[Need, ...]] = ("draws",)
    exact_for_gaussian: ClassVar[bool] = False
    joint: ClassVar[bool] = True
    equivariance: ClassVar[Equivariance] = "affine"

    def combine(self, subposteriors: Subposteriors, *, seed: int = 0) -> Combined:
        """Lay the draws together; nothing here is random, so `seed` is not used."""
        moments = shard_moments(subposteriors)
        weights = np.asarray(subposteriors.weights)
        apart = moments.means - weights @ moments.means
        covariance = np.tensordot(weights, moments.covariances, 1) + (apart * weights[:, None]).T @ apart
        return Combined(
            array=np.concatenate(subposteriors.draws),
            log_weights=mixture_log_weights(subposteriors),
            effective_sizes=effective_sizes(covariance, np.tensordot(weights**2, moments.mean_errors, 1)),
            chain_lengths=stacked_chain_lengths(subposteriors),
            warnings=moments.slow_chains(),
        )

    def draws_per_shard(self, total: int, num_shards: int) -> int:
        """Every draw is kept."""
        return shared_out(total, num_shards)
