"""Partition trees: the product of the shards' densities, block by block of random partition trees.

Formula. A random tree cuts space into blocks that hold enough draws of all shards together (`random_trees`). On
each block every shard's density is a simple one, and so is their product, with powers a_b = w_b for inflated
draws and a_b = 1 for sub-posterior draws (`block_factors` has the default, `block_products` the paper's two).
The posterior is the average of the normalised products on several trees. "one-stage" multiplies all shards on
the same trees; "pairwise" multiplies two at a time, draws from their product, and goes on with these draws
until two or three sets are left. Inflated shards of weights w_1, w_2 are raised to w_1 / (w_1 + w_2) and w_2 /
(w_1 + w_2), so that their product is an inflated shard of weight w_1 + w_2. A set is paired with the one at the
median distance of those left, as the authors do.

What differs from the paper. Blocks are few: in many dimensions most sides stay uncut, "uniform" then returns the
box around the draws, and "block-gaussian" takes what a block cuts off for shape. The default, "shard-gaussian",
multiplies the shards' Gaussians and corrects them by the blocks' counts, as far as the counts show a departure.
The paper's two forms are options. The paper cuts along the parameters; here axes are chosen by the draws, which
makes the rule affine equivariant.

Assumptions. "shard-gaussian" is exact for Gaussians. In few dimensions all forms tend to the posterior as draws
grow and blocks shrink, where the shards' draws overlap.

Fails where the product lies where no shard has draws: "shard-gaussian" is the Gaussian product there, the other
two are blocks of the shards' outskirts. "shard-gaussian" keeps the Gaussian product's shape within blocks: for
many skewed sub-posteriors in two or more dimensions the mean is off by some half a standard deviation, where the
paper's forms are nearer. Departures from the Gaussian in directions that no tree cuts are not seen, and with more
than about ten dimensions most are not cut.

Cost. O(T N log(blocks)) for T trees and N draws of all shards, times log2(B) if pairwise; memory for at most
three copies of the draws.

Reference. Wang, Guo, Heller and Dunson (2015), Parallelizing MCMC with random partition trees, NIPS 28, Algorithms
1 to 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from consilience.draws import Subposteriors
from consilience.errors import InputError, must_be

from .base import (
    Combined,
    Equivariance,
    Floats,
    Kind,
    Need,
    effective_sizes,
    require_choice,
    stacked_chain_lengths,
)
from .block_stages import Options, Part, median_pairs, merge
from .moments import ShardMoments, shard_moments
from .permute import canonical_order
from .random_trees import Cut, common_frame

# Skewness that is worth a warning where it was overlooked.
LEAST_SKEWNESS = 0.25
# A tree of about a hundred blocks cuts each axis once on the way down when there are this many of them.
MOST_DIMENSIONS = 6


@dataclass(frozen=True)
class PartitionTrees:
    """Multiply the shards' densities on the blocks of random trees.

    Parameters
    ----------
    within : "shard-gaussian", "block-gaussian" or "uniform"
        A shard's density within a block: its own Gaussian times a factor for the block, a Gaussian fitted to the
        draws in the block, or a constant. The last two are the paper's.
    aggregation : "pairwise" or "one-stage"
        Two sets of draws at a time, or all at once.
    cut : "median" or "likelihood"
        Where a box is cut.
    num_trees : int
        Trees that are averaged.
    least_share : float, optional
        Least share of the draws in a block; one over the square root of a shard's effective draws if not given,
        between 0.01 and 0.1.
    num_draws : int, optional
        How many draws come out; as many as the longest shard brought, if not given.

    Examples
    --------
    >>> shards = np.random.default_rng(0).gamma(4.0, size=(4, 2000, 1))
    >>> combined = PartitionTrees().combine(Subposteriors.of(shards, kind="subposterior"))
    >>> combined.array.shape, round(float(combined.array.mean()), 1)  # the product is gamma(13) / 4: 3.25
    ((2000, 1), 3.3)
    """

    within: Literal["shard-gaussian", "block-gaussian", "uniform"] = "shard-gaussian"
    aggregation: Literal["pairwise", "one-stage"] = "pairwise"
    cut: Cut = "median"
    num_trees: int = 16
    least_share: float | None = None
    num_draws: int | None = None

    name: ClassVar[str] = "partition-trees"
    reference: ClassVar[str] = "Wang, Guo, Heller and Dunson (2015), NIPS 28, Algorithms 1 to 3"
    kind: ClassVar[Kind] = "any"
    needs: ClassVar[tuple[Need, ...]] = ("draws",)
    exact_for_gaussian: ClassVar[bool] = True
    joint: ClassVar[bool] = True
    equivariance: ClassVar[Equivariance] = "affine"

    def __post_init__(self) -> None:
        choices = ("shard-gaussian", "block-gaussian", "uniform")
        require_choice(self.name, "within", self.within, choices)
        require_choice(self.name, "aggregation", self.aggregation, ("pairwise", "one-stage"))
        require_choice(self.name, "cut", self.cut, ("median", "likelihood"))
        for option in ("num_trees", "num_draws"):
            value = getattr(self, option)
            least = 2 if option == "num_draws" else 1
            whole = isinstance(value, int) and not isinstance(value, bool) and value >= least
            if not whole and not (option == "num_draws" and value is None):
                constraint = f"a whole number, {least} or more"
                raise must_be(self.name, option, constraint, value, "Leave it out.", error=InputError)
        share = self.least_share
        if share is not None and not (isinstance(share, float) and 0.0 < share <= 0.5):
            raise must_be(
                self.name, "least_share", "between 0 and 0.5", share, "Leave it out.", error=InputError
            )

    def combine(self, subposteriors: Subposteriors, *, seed: int = 0) -> Combined:
        """Multiply densities on random trees and draw from the product."""
        moments = shard_moments(subposteriors)
        moments.require_independent_columns()
        if subposteriors.num_shards == 1:
            return self._alone(subposteriors, moments)
        order, key = canonical_order(subposteriors)
        generator = np.random.default_rng([seed, key])
        weights = np.asarray(subposteriors.weights)
        frame = common_frame(moments, weights)
        options = Options(
            self.within,
            self.cut,
            self.num_trees,
            self.least_share,
            subposteriors.kind,
            subposteriors.num_shards,
        )
        parts = [
            Part.of(moments, b, (subposteriors.draws[b] - frame.centre) @ frame.transform, weights[b], frame)
            for b in order
        ]
        small = all(options.share(part.effective) is None for part in parts)
        notes: list[str] = []
        if self.aggregation == "pairwise" and not small:
            parts, notes = median_pairs(parts, options, generator)
        total = self.num_draws or max(subposteriors.num_draws)
        last = merge(parts, total, options, generator)
        covariance = frame.inverse.T @ last.covariance @ frame.inverse
        error = frame.inverse.T @ last.mean_error @ frame.inverse
        return Combined(
            array=last.array @ frame.inverse + frame.centre,
            effective_sizes=effective_sizes(covariance, error),
            notes=(*notes, *last.notes),
            warnings=self._warnings(moments, () if notes or last.notes else subposteriors.draws),
        )

    def draws_per_shard(self, total: int, num_shards: int) -> int:
        """As many draws come out as the longest shard brought."""
        return total

    @staticmethod
    def _alone(subposteriors: Subposteriors, moments: ShardMoments) -> Combined:
        return Combined(
            array=np.array(subposteriors.draws[0]),
            effective_sizes=effective_sizes(moments.covariances[0], moments.mean_errors[0]),
            chain_lengths=stacked_chain_lengths(subposteriors),
            warnings=moments.slow_chains(),
        )

    def _warnings(self, moments: ShardMoments, unchanged: tuple[Floats, ...]) -> tuple[str, ...]:
        """What is doubtful; `unchanged` are the draws where blocks left the Gaussian product as it was."""
        found = moments.slow_chains()
        if self.within == "shard-gaussian" and unchanged:
            found += _unseen_skewness(moments, unchanged)
        if self.within != "uniform":
            found += moments.shortfall()
        if self.within != "shard-gaussian" and moments.dimension > MOST_DIMENSIONS:
            found += (
                f"Blocks cut {moments.dimension} dimensions too coarsely for within={self.within!r}: with more "
                f"than {MOST_DIMENSIONS} parameters choose within='shard-gaussian', or another rule.",
            )
        return found


def _unseen_skewness(moments: ShardMoments, draws: tuple[Floats, ...]) -> tuple[str, ...]:
    """Say which parameter is skewed in the shards when blocks were too coarse to show it."""
    cubes = np.zeros(moments.dimension)
    for x, mean, covariance in zip(draws, moments.means, moments.covariances, strict=True):
        cubes += np.sum(((x - mean) / np.sqrt(np.diagonal(covariance))) ** 3, axis=0)
    skewness = np.abs(cubes) / moments.sizes.sum()
    worst = int(np.argmax(skewness))
    noise = np.sqrt(6.0 / moments.effective_draws.sum())
    if skewness[worst] < max(LEAST_SKEWNESS, 5.0 * noise):
        return ()
    return (
        f"{moments.names[worst]} is skewed in the shards (skewness {skewness[worst]:.1f} on average), but no block "
        "showed it: the result is the product of Gaussians. Draw longer chains, combine fewer parameters, or choose "
        "another rule.",
    )
