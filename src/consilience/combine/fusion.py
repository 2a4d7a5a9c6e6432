"""Monte Carlo fusion: exact draws of the product of sub-posteriors whose densities are declared.

Formula. A tuple with one draw of each shard proposes y near its precision-weighted mean, and y is accepted with the
probability that diffusions which leave the shards' densities invariant, started at the tuple's draws, meet at y. What
is accepted comes from the product itself, not from an approximation (`fusion_merge` has the equations). Diffusions are
preconditioned by the shards' covariances (inverse curvatures at their modes). No path is discretised (`bridges`).

tree="balanced" merges shards two by two, the results two by two, and so on; "sequential" adds one shard at a time;
"fork-and-join" merges all at once, whose acceptance falls exponentially with shards times parameters.

Assumptions. The draws of shard b come from targets[b]: a Gaussian, or a logistic or Poisson regression with a Gaussian
prior (`fusion_targets`), for which `fusion_density` has the bounds. Weights w_b enter through the targets only: the
posterior is the plain product. Tuples are drawn with replacement from the draws given, so the result is exact up to
the Monte Carlo error of those draws, which effective sizes count; it tends to the product's law as draws grow, at
every fixed number of shards and parameters. targets="gaussian" takes each shard for N(mean, covariance) of its
draws: then it is no more than a slow `gaussian-product`, and a warning says so.

Fails where proposals are hardly ever accepted: many parameters, shards that disagree, targets far from Gaussian, rare
outcomes (the bound for logistic rows is that for even odds), Poisson rows with a very weak prior. The cost is
worked out before anything is drawn, from the targets' bounds and the distances of their modes, and beyond `limit` the
rule refuses. Draws that do not look like their targets give a warning.

Cost. Expected proposals and evaluations are in the posterior's notes, with the proposals that it took. Pairs of shards
that agree take about 5.4^{d/2} proposals per draw. Memory: the draws of one law per level of the tree, and 4 bytes per
merged draw and part.

Reference. Dai, Pollock and Roberts (2019), Monte Carlo fusion, Journal of Applied Probability 56(1), 174-191,
proposition 2 and algorithm 1; Chan, Pollock, Johansen and Roberts (2023), Divide-and-conquer fusion, Journal of Machine
Learning Research 24 (preconditioning and trees; their sequential Monte Carlo is not here). Dai, Pollock and Roberts
(2023), Bayesian fusion, Journal of the Royal Statistical Society B 85(1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from consilience.draws import Subposteriors
from consilience.errors import DrawsError, InputError, must_be
from consilience.progress import tell

from .base import Combined, Equivariance, Floats, Kind, Need, effective_sizes, require_choice, require_targets
from .fusion_density import Density
from .fusion_merge import Law
from .fusion_targets import Target, check_targets
from .fusion_tree import Cost, Tree
from .moments import ShardMoments, gaussian_product, shard_moments
from .permute import canonical_order

# As many draws come out even when shards have fewer, so that trees stay quiet.
LEAST_DRAWS = 1_000
# Draws of a shard that are held against its target, and the z-score from which they are said not to fit.
CHECKED_DRAWS, DOUBTFUL = 1_000, 6.0


@dataclass(frozen=True)
class Fusion:
    """Draw exactly from the product of declared densities.

    Parameters
    ----------
    targets : sequence of GaussianTarget, LogisticTarget or PoissonTarget, or "gaussian"
        The density that each shard sampled, in the order of the shards and in the coordinates of the draws.
        "gaussian" takes the moments of the draws.
    tree : "balanced", "sequential" or "fork-and-join"
        Merge two by two, one after the other, or all at once.
    limit : float
        Most evaluations that may be expected: one per proposal and shard, and one per row at each point of a path,
        where a coordinate counts as 30 rows. A hundred million take some ten seconds.

    Examples
    --------
    >>> from consilience.combine.fusion_targets import GaussianTarget
    >>> draws = np.random.default_rng(0).normal(size=(2, 2000, 1))
    >>> rule = Fusion(targets=[GaussianTarget([0.0], [[1.0]])] * 2)
    >>> combined = rule.combine(Subposteriors.of(draws, kind="subposterior"))
    >>> combined.array.shape, round(float(combined.array.std()), 1)
    ((2000, 1), 0.7)
    """

    targets: tuple[Target, ...] | Literal["gaussian"] | None = None
    tree: Literal["balanced", "sequential", "fork-and-join"] = "balanced"
    limit: float = 1e8

    name: ClassVar[str] = "fusion"
    reference: ClassVar[str] = "Dai, Pollock and Roberts (2019), J. Appl. Probab. 56(1), proposition 2"
    kind: ClassVar[Kind] = "subposterior"
    needs: ClassVar[tuple[Need, ...]] = ("draws", "targets")
    exact_for_gaussian: ClassVar[bool] = True
    joint: ClassVar[bool] = True
    equivariance: ClassVar[Equivariance] = "affine"

    def __post_init__(self) -> None:
        object.__setattr__(self, "targets", check_targets(self.targets))
        require_choice(self.name, "tree", self.tree, ("balanced", "sequential", "fork-and-join"))
        right = isinstance(self.limit, int | float) and not isinstance(self.limit, bool) and self.limit >= 1
        if not right:
            raise must_be(
                self.name, "limit", "a number, 1 or more", self.limit, "1e8 by default.", error=InputError
            )

    def combine(self, subposteriors: Subposteriors, *, seed: int = 0) -> Combined:
        """Say what it costs, refuse what costs too much, and merge up the tree."""
        moments = shard_moments(subposteriors)
        product = gaussian_product(moments, np.ones(subposteriors.num_shards))
        densities = self._densities(subposteriors, moments)
        if subposteriors.num_shards == 1:
            return Combined(
                array=np.array(subposteriors.draws[0]),
                effective_sizes=effective_sizes(product.covariance, product.mean_error),
                chain_lengths=subposteriors.chain_lengths[0],
                warnings=product.warnings,
            )
        order, key = canonical_order(subposteriors)
        number = max(LEAST_DRAWS, *subposteriors.num_draws)
        tree = Tree([Law(densities[b]) for b in order], self.tree, number)
        self._check_cost(tree.cost)
        tell("proposals", 0, int(tree.cost.proposals))
        found = tree.run([subposteriors.draws[b] for b in order], np.random.default_rng([seed, key]))
        covariance = np.cov(found.draws, rowvar=False).reshape(product.covariance.shape)
        if self.targets == "gaussian":
            # Given the moments, draws are those of the product; the moments' noise is that of gaussian-product.
            error = np.diagonal(product.mean_error) + np.diagonal(covariance) / number
        else:
            error = found.mean_variance(moments.sizes[order] / moments.effective_draws[order])
        return Combined(
            array=found.draws,
            effective_sizes=np.diagonal(covariance) / error,
            notes=(f"{tree.cost.in_words()} It took {found.proposals:,} proposals.",),
            warnings=(
                *(product.warnings if self.targets == "gaussian" else moments.slow_chains()),
                *self._warnings(subposteriors, densities, moments),
            ),
        )

    def cost(self, subposteriors: Subposteriors) -> Cost:
        """What combining these shards is expected to cost; nothing is drawn.

        Examples
        --------
        >>> shards = np.random.default_rng(0).normal(size=(2, 2000, 1))
        >>> cost = Fusion(targets="gaussian").cost(Subposteriors.of(shards, kind="subposterior"))
        >>> 4_000 < cost.proposals < 5_500
        True
        """
        densities = self._densities(subposteriors, shard_moments(subposteriors))
        order, _ = canonical_order(subposteriors)
        number = max(LEAST_DRAWS, *subposteriors.num_draws)
        return Tree([Law(densities[b]) for b in order], self.tree, number).cost

    def draws_per_shard(self, total: int, num_shards: int) -> int:
        """As many draws come out as the longest shard brought."""
        return total

    def _densities(self, subposteriors: Subposteriors, moments: ShardMoments) -> list[Density]:
        require_targets(self)
        if self.targets == "gaussian":
            precisions = moments.precisions.precision
            return [Density.gaussian(m, p) for m, p in zip(moments.means, precisions, strict=True)]
        assert self.targets is not None
        densities = [target.density() for target in self.targets]
        wanted = subposteriors.num_shards, subposteriors.dimension
        given = (
            len(densities),
            next((len(x.linear) for x in densities if len(x.linear) != wanted[1]), wanted[1]),
        )
        if given != wanted:
            raise must_be(
                self.name,
                "targets",
                f"{wanted[0]} targets of {wanted[1]} parameters, one for each shard",
                f"{given[0]} targets of {given[1]} parameters",
                "Give them in the order of the shards.",
                error=InputError,
            )
        moments.require_independent_columns()
        return densities

    def _check_cost(self, cost: Cost) -> None:
        if cost.evaluations <= self.limit:
            return
        raise must_be(
            self.name,
            "limit",
            f"at least the {_told(cost.evaluations)} evaluations ({_told(cost.proposals)} proposals) that these shards "
            f"are expected to take",
            self.limit,
            f"Use {'another tree or ' if self.tree != 'balanced' else ''}another rule, fewer parameters, or raise it.",
            error=DrawsError,
        )

    def _warnings(
        self, subposteriors: Subposteriors, densities: list[Density], moments: ShardMoments
    ) -> tuple[str, ...]:
        if self.targets == "gaussian":
            return (
                "Targets were taken to be Gaussians with the moments of the draws: the result is that of "
                "gaussian-product, at a higher price. Declare targets for an exact one.",
            )
        scores = [
            target_misfit(density, x, tau)
            for density, x, tau in zip(
                densities, subposteriors.draws, moments.sizes / moments.effective_draws, strict=True
            )
        ]
        worst = int(np.argmax(scores))
        if scores[worst] <= DOUBTFUL:
            return ()
        return (
            f"The draws of shard {subposteriors.labels[worst]} do not look like their target ({scores[worst]:.0f} "
            "standard errors off): fusion is exact only for draws of the targets.",
        )


def target_misfit(density: Density, draws: Floats, autocorrelation: float) -> float:
    """Largest z-score of the two identities E[g] = 0 and E[g_k z_k] = -1 for the score g of a target.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(1000, 1))
    >>> target_misfit(Density.gaussian(np.zeros(1), np.eye(1)), x, 1.0) < 4
    True
    >>> target_misfit(Density.gaussian(np.ones(1), np.eye(1)), x, 1.0) > 20
    True
    """
    law = Law(density)
    points = law.units(draws[:: max(1, len(draws) // CHECKED_DRAWS)])
    scores = law.unit.gradient(points)
    identities = np.concatenate([scores, scores * points + 1.0], axis=1)
    # In these units a Gaussian has deviations 1 and sqrt(2); few draws may happen to show less.
    deviations = np.maximum(identities.std(axis=0), np.repeat([1.0, np.sqrt(2.0)], points.shape[1]))
    errors = deviations * np.sqrt(autocorrelation / len(points))
    return float(np.abs(identities.mean(axis=0) / errors).max())


def _told(number: float) -> str:
    """A number that may be too large for floating point."""
    return f"{min(number, 1e308):.2g}"
