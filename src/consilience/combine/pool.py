"""Pool: the mixture of the shards' inflated draws, which is what LISA makes of them.

Formula. sum w_b p_b, with p_b the inflated sub-posterior of shard b: draws are laid together as they are,
with log weights log(w_b / J_b) where the numbers of draws are not proportional to the weights.

LISA, the likelihood inflating sampling algorithm, splits the rows at random into K shards of equal size, runs one
chain per shard on p_b ~ p0 f_b^K, and takes the draws of all shards together, each counting the same. That is
this rule with w_b = 1 / K and equal numbers of draws; w_b p_b is the form for unequal shards, whose likelihoods
are inflated by 1 / w_b. With B = 1 it is plain MCMC.

What belongs to sampling and not to this rule. In a regression with Gaussian errors, inflating gives N(y | f, s²)^K ~
s^{-K} exp(-K (y - f)² / (2 s²)): given s, the regression function is sampled as if errors had variance s² / K, and
s as if there were K times the rows. Both are right for a model with few parameters. For additive regression trees
the paper finds that the trees, grown on the smaller variance, overfit their shard, and changes the trees' updates;
a shard's sampler would have to do that before its draws come here.

Assumptions. Every inflated sub-posterior already is close to the posterior: shards differ by less than the
posterior's width.

Fails by being too wide: its covariance is the average of the V_b plus the covariance of the means between
shards. The mean of an inflated shard scatters around the posterior's with about sqrt(1 / w_b - 1) posterior
standard deviations, however many rows there are, so that B alike shards make the variance about B times too large.
How much of the variance lies between shards is noted in the result. Not exact for Gaussians; where
the shards' disagreement is what one wants to see, or each has several modes, it hides nothing.

Cost. One pass over the draws and one copy of them.

Reference. Entezari, Craiu and Rosenthal (2018), Likelihood inflating sampling algorithm, Canadian Journal
of Statistics 46(1), arXiv:1605.02113.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

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
    shared_out,
    stacked_chain_lengths,
)
from .moments import shard_moments

# Shares of the variance between shards from which a note is made.
WORTH_NOTING = 0.1


@dataclass(frozen=True)
class Pool:
    """Lay the shards' inflated draws together, as LISA does.

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
        between = (apart * weights[:, None]).T @ apart
        within = np.tensordot(weights, moments.covariances, 1)
        covariance = within + between
        return Combined(
            array=np.concatenate(subposteriors.draws),
            log_weights=mixture_log_weights(subposteriors),
            effective_sizes=effective_sizes(covariance, np.tensordot(weights**2, moments.mean_errors, 1)),
            chain_lengths=stacked_chain_lengths(subposteriors),
            notes=self._notes(between, within, moments.names),
            warnings=moments.slow_chains(),
        )

    def draws_per_shard(self, total: int, num_shards: int) -> int:
        """Every draw is kept."""
        return shared_out(total, num_shards)

    @staticmethod
    def _notes(between: Floats, within: Floats, names: tuple[str, ...]) -> tuple[str, ...]:
        """Say how much of the mixture's variance is nothing but the distance of the shards."""
        ratios = np.diagonal(between) / np.diagonal(within)
        shares = ratios / (1.0 + ratios)
        worst = int(np.argmax(shares))
        if shares[worst] < WORTH_NOTING:
            return ()
        return (
            f"{shares[worst]:.0%} of the variance of {names[worst]} lies between shards: pooled draws are "
            f"{np.sqrt(1.0 + ratios[worst]):.1f} times as wide as the shards' own.",
        )
