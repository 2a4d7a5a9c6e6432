"""Consensus Monte Carlo: weighted averages of the shards' draws.

Formula. From sub-posterior draws, the j-th combined draw is

    theta_j = (sum W_b)⁻¹ sum W_b theta_bj,

with W_b = V_b⁻¹ ("full"), diag(V_b)⁻¹ ("diagonal") or w_b ("uniform").

Assumptions. Exact for Gaussian sub-posteriors with "full" weighting, in each coordinate for itself with
"diagonal" when parameters are independent, and with "uniform" when V_b is proportional to 1 / w_b.

The draws that are averaged must be independent of each other, so each shard is permuted first: shards
sampled with the same seed are otherwise correlated and the answer up to sqrt(B) too wide. Permutations are
keyed by the draws themselves, so that the order of the shards does not matter.

Unequal numbers of draws. The longest shard sets the number J of combined draws; a shorter one is gone
through again, in a new order each time. Every combined draw then still has the right law, and the effective
sizes count what the shorter shards are worth. Trimming to the shortest would have the same law and throw
the longer shards' information away.

With V_b estimated from few draws, weights V_b⁻¹ are fitted to the noise and the averages come out too
narrow (by the factor (n - d - 2) / (n - 1) in variance): "full" stretches them, by SwISS's least-motion
map, to the covariance that `moments.gaussian_product` corrects for this. The map tends to the identity as
draws grow, and is it with one shard.

Fails. Averages lean to the Gaussian: several modes become one, skewness shrinks.

Reference. Scott, Blocker, Bonassi, Chipman, George and McCulloch (2016), Bayes and big data: the consensus
Monte Carlo algorithm, International Journal of Management Science and Engineering Management 11(2), section
3.1. (Vyner's thesis, (2.11), has an extra 1/B.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from consilience.draws import Subposteriors
from consilience.numerics import least_motion_map

from .base import Combined, Equivariance, Floats, Kind, Need, effective_sizes, floor_warning, require_choice
from .moments import ShardMoments, gaussian_product, shard_moments
from .permute import shard_generators

Weighting = Literal["full", "diagonal", "uniform"]


@dataclass(frozen=True)
class Consensus:
    """Average the draws of the shards, weighted by their precision.

    Parameters
    ----------
    weighting : "full", "diagonal" or "uniform"
        Weights are precision matrices, reciprocal variances, or the shards' weights w_b. Gaussian exactness
        holds for "full".

    Examples
    --------
    >>> shards = np.random.default_rng(0).normal(size=(4, 1000, 1))
    >>> combined = Consensus().combine(Subposteriors.of(shards, kind="subposterior"))
    >>> round(float(combined.array.std()), 1)
    0.5
    """

    weighting: Weighting = "full"

    name: ClassVar[str] = "consensus"
    reference: ClassVar[str] = "Scott et al. (2016), Bayes and big data: the consensus Monte Carlo algorithm"
    kind: ClassVar[Kind] = "subposterior"
    needs: ClassVar[tuple[Need, ...]] = ("draws",)
    exact_for_gaussian: ClassVar[bool] = True
    joint: ClassVar[bool] = True
    equivariance: ClassVar[Equivariance] = "affine"

    def __post_init__(self) -> None:
        require_choice("consensus", "weighting", self.weighting, ("full", "diagonal", "uniform"))

    def combine(self, subposteriors: Subposteriors, *, seed: int = 0) -> Combined:
        """Permute each shard, average, and stretch for the noise of the weights."""
        moments = shard_moments(subposteriors)
        warnings = moments.slow_chains()
        if self.weighting == "full":
            product = gaussian_product(moments, np.ones(subposteriors.num_shards))
            shares, mean, mean_error = product.shares, product.mean, product.mean_error
        else:
            shares = self._diagonal_shares(moments, np.asarray(subposteriors.weights))
            mean = np.einsum("bij,bj->i", shares, moments.means)
            mean_error = _carried(shares, moments.mean_errors)
        array = self._averages(subposteriors, moments.means, shares, seed)
        covariance = _carried(shares, moments.covariances)
        if self.weighting == "full":
            stretch, floored = least_motion_map(covariance, product.covariance)
            array, covariance = array @ stretch.T, product.covariance
            warnings = product.warnings + floor_warning(floored)
        array += mean
        mean_error = mean_error + _carried(shares, _recycling_errors(moments, len(array)))
        return Combined(
            array=array,
            effective_sizes=effective_sizes(covariance, mean_error),
            notes=self._notes(subposteriors.num_draws),
            warnings=warnings,
        )

    def draws_per_shard(self, total: int, num_shards: int) -> int:
        """One draw of every shard makes one combined draw."""
        return total

    def _diagonal_shares(self, moments: ShardMoments, weights: Floats) -> Floats:
        """Shares of the shards in the average, as diagonal matrices that sum to the identity."""
        variances = np.diagonal(moments.covariances, axis1=1, axis2=2)
        raw = (
            1.0 / variances
            if self.weighting == "diagonal"
            else np.broadcast_to(weights[:, None], variances.shape)
        )
        shares = raw / raw.sum(axis=0)
        return shares[:, :, None] * np.eye(moments.dimension)

    def _averages(self, subposteriors: Subposteriors, means: Floats, shares: Floats, seed: int) -> Floats:
        """Weighted averages of permuted draws, each shard's mean taken off first."""
        total = max(subposteriors.num_draws)
        array = np.zeros((total, subposteriors.dimension))
        generators = shard_generators(subposteriors, seed)
        for x, centre, share, generator in zip(subposteriors.draws, means, shares, generators, strict=True):
            rounds = -(-total // len(x))
            order = np.concatenate([generator.permutation(len(x)) for _ in range(rounds)])[:total]
            array += ((x - centre) @ share.T)[order]
        return array

    @staticmethod
    def _notes(sizes: tuple[int, ...]) -> tuple[str, ...]:
        if min(sizes) == max(sizes):
            return ()
        return (
            f"Shards brought {min(sizes)} to {max(sizes)} draws; shorter ones were gone through again to "
            f"make {max(sizes)} combined draws. Effective sizes take this into account.",
        )


def _carried(shares: Floats, covariances: Floats) -> Floats:
    """Covariance of sum shares_b x_b when the x_b are independent with these covariances."""
    return np.sum(shares @ covariances @ np.swapaxes(shares, 1, 2), axis=0)


def _recycling_errors(moments: ShardMoments, total: int) -> Floats:
    """What an incomplete last round over a shard's draws adds to the error of its mean."""
    left_over = total % moments.sizes
    share = left_over * (1.0 - left_over / moments.sizes) / total**2
    return share[:, None, None] * moments.covariances
