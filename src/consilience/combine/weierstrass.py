"""Weierstrass rejection sampler: draws of the shards that agree are put together, two shards at a time.

Formula. Sub-posteriors are smoothed by a Gaussian kernel (the Weierstrass transform), so that their product becomes a
law of tuples with one draw of each: draws that lie near each other, in units of the kernel, are accepted as a tuple,
and a combined draw is made from each (`smoothed_product` has the equations).

order="pairwise" combines shards two by two, then the results two by two, and so on (the paper's way of keeping
acceptance up: the width of the kernel then follows from two laws only, whatever their number); "together" puts all
shards into one tuple. choice="rejection" accepts tuples with the probability that is their weight, "importance"
resamples them by their weights.

Scale. The kernel of shard b has covariance h² V_b / (1 + h²), and draws first move towards their mean so that mean and
covariance stay what they were. The paper's kernels are the same for all shards and directions and inflate every
covariance, once more at every level of the tree. So the result here follows every change of coordinates, it is exact
for Gaussian sub-posteriors whatever h is, and where tuples that agree are too rare (many parameters, or shards far
apart) h grows and the result tends to `gaussian-product` instead of breaking down.

Bandwidth. At each merge, the larger of two: the one with which the share `acceptance` of random tuples is accepted
(given so, and not as a number, kernels become narrower where shards have narrow modes), and the one that balances
what kernels hide of the shards' skewness and kurtosis against the noise of few draws. Shards that cannot be told from
Gaussian get wide kernels, and with them the accuracy of `gaussian-product`.

Assumptions. Shards overlap. Weights w_b do not enter: the posterior is the plain product of sub-posteriors.

Fails where modes are much narrower than the shard is wide: kernels have the directions of the shard's whole
covariance, so each merge fills the gaps in part and pulls modes inwards a little. Draws in the overlap decide, and
they are few with many parameters or with shards apart: a shape that only their tails know is lost.

Cost. (B - 1) merges of up to 2 J / acceptance pairs, d numbers each, and d² for every draw. Memory: the draws of one
law per level of the tree, and two standardised ones; for "together" one standardised copy of all draws. No more than
3 copies of the draws.

The paper's other sampler, "refinement", walks between a guess and the shards and evaluates their densities; on bare
draws its walk is that of a product of kernel density estimates.

Reference. Wang and Dunson (2013), Parallelizing MCMC via Weierstrass sampler, arXiv:1312.4605, the rejection sampler
and its pairwise combination.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from consilience.draws import Subposteriors
from consilience.errors import InputError, must_be
from consilience.numerics import estimate_precision, least_motion_map
from consilience.progress import tell

from .base import Combined, Equivariance, Floats, Kind, Need, effective_sizes, require_choice
from .moments import GaussianProduct, ShardMoments, gaussian_product, shard_moments
from .permute import canonical_order
from .smoothed_product import Law, Product, multiply

# Merged laws have twice the draws of the longest shard, which quietens the tree for little time; and as many, or as
# many per parameter, even when shards have fewer.
MERGED_DRAWS = 2
LEAST_DRAWS, LEAST_DRAWS_PER_DIMENSION = 1_000, 20
# A kernel with more of the variance than this hides the shape of the shards.
WIDE = 0.9


@dataclass(frozen=True)
class Weierstrass:
    """Accept tuples of the shards' draws that agree, and draw from their products.

    Parameters
    ----------
    order : "pairwise" or "together"
        Combine shards two by two up a tree, or all at once.
    choice : "rejection" or "importance"
        Accept tuples by their weights, or resample them.
    acceptance : float
        Least share of tuples that is accepted, from 0.001, which sets the bandwidth for shards that are not Gaussian.

    Examples
    --------
    >>> shards = np.random.default_rng(0).normal(size=(4, 1000, 1))
    >>> combined = Weierstrass().combine(Subposteriors.of(shards, kind="subposterior"))
    >>> combined.array.shape, round(float(combined.array.std()), 1)
    ((1000, 1), 0.5)
    """

    order: Literal["pairwise", "together"] = "pairwise"
    choice: Literal["rejection", "importance"] = "rejection"
    acceptance: float = 0.05

    name: ClassVar[str] = "weierstrass"
    reference: ClassVar[str] = "Wang and Dunson (2013), arXiv:1312.4605, rejection sampler"
    kind: ClassVar[Kind] = "subposterior"
    needs: ClassVar[tuple[Need, ...]] = ("draws",)
    exact_for_gaussian: ClassVar[bool] = True
    joint: ClassVar[bool] = True
    equivariance: ClassVar[Equivariance] = "affine"

    def __post_init__(self) -> None:
        require_choice(self.name, "order", self.order, ("pairwise", "together"))
        require_choice(self.name, "choice", self.choice, ("rejection", "importance"))
        right = isinstance(self.acceptance, float) and 0.001 <= self.acceptance < 1.0
        if not right:
            raise must_be(
                self.name,
                "acceptance",
                "a number from 0.001 to under 1",
                self.acceptance,
                "0.05 is a good one; smaller is closer to the product and takes longer.",
                error=InputError,
            )

    def combine(self, subposteriors: Subposteriors, *, seed: int = 0) -> Combined:
        """Combine up the tree, in an order of shards that depends on their draws alone."""
        moments = shard_moments(subposteriors)
        product = gaussian_product(moments, np.ones(subposteriors.num_shards))
        if subposteriors.num_shards == 1:
            return Combined(
                array=np.array(subposteriors.draws[0]),
                effective_sizes=effective_sizes(product.covariance, product.mean_error),
                chain_lengths=subposteriors.chain_lengths[0],
                warnings=product.warnings,
            )
        order, key = canonical_order(subposteriors)
        tree = _Tree(self, subposteriors, moments, np.random.default_rng([seed, key]))
        root = tree.merged(order)
        array = _corrected(root.draws, moments, product)
        covariance = np.cov(array, rowvar=False).reshape(product.covariance.shape)
        # The tree takes the shards' covariances for known; what their noise adds is what it adds to the product.
        known = np.sum(product.shares @ moments.mean_errors @ np.swapaxes(product.shares, 1, 2), axis=0)
        unknown = np.maximum(np.diagonal(product.mean_error - known), 0.0)
        mean_error = root.law_error + root.draw_error + np.diag(unknown)
        return Combined(
            array=array,
            effective_sizes=effective_sizes(covariance, mean_error),
            notes=(tree.note(),),
            warnings=product.warnings + tree.warnings(),
        )

    def draws_per_shard(self, total: int, num_shards: int) -> int:
        """As many draws come out as the longest shard brought."""
        return total


class _Tree:
    """Laws of more and more shards."""

    def __init__(
        self,
        rule: Weierstrass,
        subposteriors: Subposteriors,
        moments: ShardMoments,
        generator: np.random.Generator,
    ) -> None:
        self._rule, self._subposteriors, self._moments = rule, subposteriors, moments
        self._generator = generator
        least = max(LEAST_DRAWS, LEAST_DRAWS_PER_DIMENSION * moments.dimension)
        self._total = max(least, *subposteriors.num_draws)
        self._bandwidths: list[float] = []
        self._needed = 0.0

    def merged(self, shards: list[int], *, inside: bool = False) -> Product:
        """The product of some shards; of all of them, or inside the tree."""
        if self._rule.order == "together":
            return self._product([self._leaf(b) for b in shards], 1, inside)
        half = len(shards) // 2
        laws = [self._law(part, len(part) / len(shards)) for part in (shards[:half], shards[half:])]
        return self._product(laws, half, inside)

    def _law(self, shards: list[int], share: float) -> Law:
        """The law of some shards, which has this share of the precision that it is used for."""
        if len(shards) == 1:
            return self._leaf(shards[0])
        product = self.merged(shards, inside=True)
        mean = product.draws.mean(axis=0)
        covariance = np.cov(product.draws, rowvar=False).reshape(len(mean), len(mean))
        estimate = estimate_precision(covariance, len(product.draws))
        # An unbiased precision makes the inverse of a sum too large, by the law's share of the correction; with half
        # of the precision, as usual, half of the correction makes the covariance right on average.
        factor = float(estimate.factor)
        precision = estimate.precision * factor**-share
        return Law(product.draws, mean, precision, factor ** (1.0 - share), 1.0, product.law_error)

    def _leaf(self, b: int) -> Law:
        moments = self._moments
        return Law(
            draws=self._subposteriors.draws[b],
            mean=moments.means[b],
            precision=moments.precisions.precision[b],
            factor=float(moments.precisions.factor[b]),
            autocorrelation=float(moments.sizes[b] / moments.effective_draws[b]),
            mean_error=np.zeros((moments.dimension, moments.dimension)),
        )

    def _product(self, laws: list[Law], fewest: int, inside: bool) -> Product:
        """The product of laws of which each has at least `fewest` shards."""
        found = multiply(
            laws,
            self._total * (MERGED_DRAWS if inside else 1),
            acceptance=self._rule.acceptance,
            resample=self._rule.choice == "importance",
            window=float(np.sqrt(fewest / self._moments.sizes.size)),
            generator=self._generator,
        )
        self._bandwidths.append(found.bandwidth)
        self._needed = max(self._needed, found.needed)
        merges = self._moments.sizes.size - 1 if self._rule.order == "pairwise" else 1
        tell("merges of shards", len(self._bandwidths), merges)
        return found

    def note(self) -> str:
        """How wide the kernels were."""
        low, high = min(self._bandwidths), max(self._bandwidths)
        return f"Kernels were {low:.2g} to {high:.2g} standard deviations of the shards' draws wide."

    def warnings(self) -> tuple[str, ...]:
        """Say so when kernels hide what the shards look like."""
        share = self._needed**2 / (1.0 + self._needed**2)
        if share <= WIDE:
            return ()
        return (
            f"Kernels had to carry up to {share:.1%} of the shards' variance for enough draws to agree: the result "
            "is close to that of gaussian-product. Shards lie far apart, or draws are few for the parameters.",
        )


def _corrected(draws: Floats, moments: ShardMoments, product: GaussianProduct) -> Floats:
    """Take out what the noise of the shards' precisions adds to the inverse of their sum."""
    precision = moments.precisions.precision.sum(axis=0)
    scale = 1.0 / np.sqrt(np.diagonal(precision))
    unit = np.outer(scale, scale)
    naive = np.linalg.inv(precision * unit) * unit
    shrink, _ = least_motion_map(naive, product.covariance)
    mean = draws.mean(axis=0)
    return np.asarray((draws - mean) @ shrink.T + mean)
