"""SwISS: sub-posteriors with inflation, scaling and shifting.

Formula. Inflated draws of shard b with mean mu_b and covariance V_b are moved by

    x -> A_b (x - mu_b) + mu,   A_b = M (M⁻¹ V_b M⁻¹)^{-1/2} M⁻¹,   M = V^{1/2},

with V⁻¹ = sum w_b V_b⁻¹ and mu = V sum w_b V_b⁻¹ mu_b, and all moved draws are laid together.

Assumptions. The posterior has the shape of the inflated sub-posteriors up to an affine map; exact when they
are Gaussian. Any A_b with A_b V_b A_b' = V would be exact then; this one moves points least (Theorem 1),
and so keeps skewness and modes where they were.

Fails when the shards' shapes differ from the posterior's: modes at other places, or tails that only the
whole data cut off. Mean and covariance are those of the Gaussian product, whatever the posterior's are.

Reference. Vyner, Nemeth and Sherlock (2023), SwISS: A scalable Markov chain Monte Carlo divide-and-conquer
strategy, Stat 12(1), equations (5), (6) and Algorithm 1, with weights w_b in the place of 1/B.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from consilience.draws import Subposteriors
from consilience.numerics import least_motion_map

from .base import (
    Combined,
    Equivariance,
    Kind,
    Need,
    effective_sizes,
    floor_warning,
    shared_out,
    stacked_chain_lengths,
)
from .moments import gaussian_product, shard_moments


@dataclass(frozen=True)
class Swiss:
    """Move each shard's inflated draws onto the mean and covariance of their Gaussian product.

    Examples
    --------
    >>> shards = np.random.default_rng(0).normal([[[0.0]], [[1.0]]], 1.0, size=(2, 500, 1))
    >>> combined = Swiss().combine(Subposteriors.of(shards, kind="inflated"))
    >>> combined.array.shape
    (1000, 1)
    """

    name: ClassVar[str] = "swiss"
    reference: ClassVar[str] = "Vyner, Nemeth and Sherlock (2023), Stat 12(1), Algorithm 1"
    kind: ClassVar[Kind] = "inflated"
    needs: ClassVar[tuple[Need, ...]] = ("draws",)
    exact_for_gaussian: ClassVar[bool] = True
    joint: ClassVar[bool] = True
    equivariance: ClassVar[Equivariance] = "affine"

    def combine(self, subposteriors: Subposteriors, *, seed: int = 0) -> Combined:
        """Combine inflated draws; nothing here is random, so `seed` is not used."""
        moments = shard_moments(subposteriors)
        product = gaussian_product(moments, np.asarray(subposteriors.weights))
        maps, floored = least_motion_map(moments.covariances, product.covariance)
        array = np.empty((sum(subposteriors.num_draws), subposteriors.dimension))
        start = 0
        for x, centre, move in zip(subposteriors.draws, moments.means, maps, strict=True):
            moved = array[start : start + len(x)]
            np.matmul(x - centre, move.T, out=moved)
            moved += product.mean
            start += len(x)
        return Combined(
            array=array,
            effective_sizes=effective_sizes(product.covariance, product.mean_error),
            chain_lengths=stacked_chain_lengths(subposteriors),
            warnings=product.warnings + floor_warning(floored),
        )

    def draws_per_shard(self, total: int, num_shards: int) -> int:
        """Every moved draw is kept."""
        return shared_out(total, num_shards)
