"""Recentering: the shards' inflated draws, all moved to one centre.

Formula. With mu_b the mean of shard b's inflated draws, every draw x of it becomes x - mu_b + mu, and the
posterior is the mixture of the moved shards with shares w_b. The centre mu is

    sum w_b mu_b                              centre="average", the published method
    V sum w_b V_b⁻¹ mu_b                      centre="precision", SwISS's centre: SwISS with A_b = I

Draws carry log weights log(w_b / J_b) where the numbers of draws are not proportional to the weights.

Assumptions. Shards large enough that every inflated sub-posterior has the posterior's shape; exact only
when all V_b are the same.

Fails when covariances differ: the average of means then is far from the posterior's mean, and the
covariance is the average of covariances, which is larger than the posterior's (the harmonic average).

Reference. Wu and Robert (2017), Average of recentered parallel MCMC for big data, arXiv:1706.04780,
Algorithm 1, with w_b in the place of 1/K. Their Newton-Raphson centre (Remark 1) looks at the data again:
see the refinement `newton`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from consilience.draws import Subposteriors

from .base import (
    Combined,
    Equivariance,
    Floats,
    Kind,
    Need,
    effective_sizes,
    mixture_log_weights,
    require_choice,
    shared_out,
    stacked_chain_lengths,
)
from .moments import ShardMoments, gaussian_product, shard_moments


@dataclass(frozen=True)
class Recentering:
    """Shift each shard's inflated draws to a common centre.

    Parameters
    ----------
    centre : "average" or "precision"
        The weighted average of the shards' means, or their precision-weighted average.

    Examples
    --------
    >>> shards = np.random.default_rng(0).normal([[[0.0]], [[1.0]]], 1.0, size=(2, 500, 1))
    >>> combined = Recentering().combine(Subposteriors.of(shards, kind="inflated"))
    >>> bool(np.isclose(combined.array[:500].mean(), combined.array[500:].mean()))
    True
    """

    centre: Literal["average", "precision"] = "average"

    name: ClassVar[str] = "recentering"
    reference: ClassVar[str] = "Wu and Robert (2017), arXiv:1706.04780, Algorithm 1"
    kind: ClassVar[Kind] = "inflated"
    needs: ClassVar[tuple[Need, ...]] = ("draws",)
    exact_for_gaussian: ClassVar[bool] = False
    joint: ClassVar[bool] = True
    equivariance: ClassVar[Equivariance] = "affine"

    def __post_init__(self) -> None:
        require_choice("recentering", "centre", self.centre, ("average", "precision"))

    def combine(self, subposteriors: Subposteriors, *, seed: int = 0) -> Combined:
        """Shift the draws; nothing here is random, so `seed` is not used."""
        moments = shard_moments(subposteriors)
        weights = np.asarray(subposteriors.weights)
        centre, mean_error, warnings = self._centre(moments, weights)
        shifts = centre - moments.means
        return Combined(
            array=np.concatenate([x + shift for x, shift in zip(subposteriors.draws, shifts, strict=True)]),
            log_weights=mixture_log_weights(subposteriors),
            effective_sizes=effective_sizes(np.tensordot(weights, moments.covariances, 1), mean_error),
            chain_lengths=stacked_chain_lengths(subposteriors),
            warnings=warnings,
        )

    def draws_per_shard(self, total: int, num_shards: int) -> int:
        """Every shifted draw is kept."""
        return shared_out(total, num_shards)

    def _centre(self, moments: ShardMoments, weights: Floats) -> tuple[Floats, Floats, tuple[str, ...]]:
        """The common centre, its Monte Carlo covariance, and warnings."""
        if self.centre == "precision":
            product = gaussian_product(moments, weights)
            return product.mean, product.mean_error, product.warnings
        return (
            weights @ moments.means,
            np.tensordot(weights**2, moments.mean_errors, 1),
            moments.slow_chains(),
        )
