"""Gaussian barycenter: the Wasserstein-2 barycenter of the Gaussians fitted to the shards' inflated draws.

Formula. The barycenter of N(mu_b, V_b) with weights w_b is N(m, S) with m = sum w_b mu_b and S the fixed
point of

    S <- S^{-1/2} (sum w_b (S^{1/2} V_b S^{1/2})^{1/2})² S^{-1/2}.

output="moved" carries shard b's draws there by its optimal transport map, which is the one that moves
points least,

    x -> m + T_b (x - mu_b),   T_b = S^{1/2} (S^{1/2} V_b S^{1/2})^{-1/2} S^{1/2}.

It keeps the shards' shapes. output="gaussian" draws from N(m, S) itself, as the papers' comparisons do
("GB").

Assumptions. Inflated sub-posteriors that scatter around the posterior without leaning to one side; exact
only when all V_b are the same (then S = V_b).

Fails when covariances differ: neither its mean nor its covariance weighs shards by their precision. The
barycenter follows rotations and a common change of scale, but not a change of scale of one parameter.

Reference. Srivastava, Li and Dunson (2018), Scalable Bayes via barycenter in Wasserstein space, JMLR 19,
for the posterior; Álvarez-Esteban, del Barrio, Cuesta-Albertos and Matrán (2016), A fixed-point approach to
barycenters in Wasserstein space, JMAA 441(2), arXiv:1511.05355, for the iteration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from consilience.draws import Subposteriors
from consilience.numerics import symmetric_root

from .base import (
    Combined,
    Equivariance,
    Floats,
    Kind,
    Need,
    effective_sizes,
    require_choice,
    shared_out,
    stacked_chain_lengths,
)
from .gaussian_product import sample_gaussian
from .moments import shard_moments

TOLERANCE = 1e-12
MOST_ITERATIONS = 1_000


@dataclass(frozen=True)
class GaussianBarycenter:
    """Move each shard's inflated draws onto the Wasserstein barycenter of their Gaussians, or draw from it.

    Parameters
    ----------
    output : "moved" or "gaussian"
        The shards' own draws, moved; or new draws from the Gaussian barycenter.

    Examples
    --------
    >>> shards = np.random.default_rng(0).normal(0.0, [[[1.0]], [[3.0]]], size=(2, 5000, 1))
    >>> combined = GaussianBarycenter().combine(Subposteriors.of(shards, kind="inflated"))
    >>> round(float(combined.array.std()), 1)
    2.0
    """

    output: Literal["moved", "gaussian"] = "moved"

    name: ClassVar[str] = "gaussian-barycenter"
    reference: ClassVar[str] = (
        "Srivastava, Li and Dunson (2018), JMLR 19; Álvarez-Esteban et al. (2016), JMAA 441(2)"
    )
    kind: ClassVar[Kind] = "inflated"
    needs: ClassVar[tuple[Need, ...]] = ("draws",)
    exact_for_gaussian: ClassVar[bool] = False
    joint: ClassVar[bool] = True
    equivariance: ClassVar[Equivariance] = "similarity"

    def __post_init__(self) -> None:
        require_choice("gaussian-barycenter", "output", self.output, ("moved", "gaussian"))

    def combine(self, subposteriors: Subposteriors, *, seed: int = 0) -> Combined:
        """Find the barycenter, and move draws there or draw from it."""
        moments = shard_moments(subposteriors)
        moments.require_independent_columns()
        weights = np.asarray(subposteriors.weights)
        mean = weights @ moments.means
        covariance, maps, warnings = barycenter(moments.covariances, weights)
        mean_error = np.tensordot(weights**2, moments.mean_errors, 1)
        if self.output == "gaussian":
            total = sum(subposteriors.num_draws)
            array, chain_lengths = sample_gaussian(mean, covariance, total, seed), None
            mean_error = mean_error + covariance / total
        else:
            parts = zip(subposteriors.draws, moments.means, maps, strict=True)
            array = np.concatenate([(x - centre) @ move.T + mean for x, centre, move in parts])
            chain_lengths = stacked_chain_lengths(subposteriors)
        return Combined(
            array=array,
            effective_sizes=effective_sizes(covariance, mean_error),
            chain_lengths=chain_lengths,
            warnings=warnings + moments.slow_chains(),
        )

    def draws_per_shard(self, total: int, num_shards: int) -> int:
        """Every moved draw is kept."""
        return shared_out(total, num_shards)


def barycenter(covariances: Floats, weights: Floats) -> tuple[Floats, Floats, tuple[str, ...]]:
    """Find the barycenter's covariance, the transport maps (B, d, d) onto it, and warnings.

    Examples
    --------
    >>> covariance, maps, _ = barycenter(np.array([[[1.0]], [[9.0]]]), np.array([0.5, 0.5]))
    >>> covariance.round(6), maps.round(6).ravel()
    (array([[4.]]), array([2.      , 0.666667]))
    """
    # The barycenter depends on the relative scales of parameters, so only a common one is taken out.
    size = np.mean(np.trace(covariances, axis1=1, axis2=2)) / covariances.shape[-1]
    scaled = covariances / size
    current = np.tensordot(weights, scaled, 1)
    warnings: tuple[str, ...] = ()
    for _ in range(MOST_ITERATIONS):
        root, _ = symmetric_root(current)
        inverse, _ = symmetric_root(current, power=-0.5)
        inner = np.tensordot(weights, symmetric_root(root @ scaled @ root)[0], 1)
        following = inverse @ inner @ inner @ inverse
        change = np.abs(following - current).max()
        current = 0.5 * (following + following.T)
        if change <= TOLERANCE * np.abs(current).max():
            break
    else:
        warnings = (
            f"The barycenter had not converged after {MOST_ITERATIONS} iterations (change {change:.1e}).",
        )
    root, _ = symmetric_root(current)
    maps = root @ symmetric_root(root @ scaled @ root, power=-0.5)[0] @ root
    return current * size, maps, warnings
