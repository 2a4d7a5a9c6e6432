"""Marginal views (MarV): the posterior of one or a few functions of the parameters, one at a time.

Formula. For theta = m(parameters), of one or a few dimensions, and psi what completes it to all parameters, the
posterior of theta has up to a constant the density

    prod_b h_b(theta) g_b(psi*(theta) | theta),     psi*(theta) = mu_psi + V_psi,theta V_theta⁻¹ (theta - mu_theta),

h_b a kernel estimate of theta's density in shard b, g_b a Gaussian for psi given theta whose mean and covariance are
estimated locally, by the same kernel, and psi* the conditional mean under g~, the product of the shards' Gaussians.
It is divided by the density at psi* of the product of the g_b, which integrates psi out (`views_product`; the thesis
divides by g~(psi* | theta), a constant). Points theta are drawn by randomised quasi-Monte Carlo from a t_5 with g~'s
first two moments and weighed by the estimate; all on the log scale.

Assumptions. Given theta, psi is near Gaussian in every shard; theta itself may have any shape. Sub-posterior draws:
the product of the shards' densities is the posterior's, whatever the shards' weights are.

With no functions every parameter is a view. Several views have no common weights: each is then brought to equally
weighted draws, and these are put together in the order of ranks that draws of g~ have. Margins are the views';
dependence is the Gaussian product's.

How it fails. A kernel estimate's error is multiplied by the number of shards; where the posterior is far narrower
than the shards (many shards), a slope of log h_b rests on the few draws within it, and effective sizes are small.
Where shards disagree, the posterior lies in their tails and the Gaussians that stand in for h_b and g_b decide: a
warning says so. With many other parameters (3.23) is out of reach, and the shards' own correlations serve everywhere.

Effective sizes are by the jackknife over 16 runs of draws of every shard, at points spread over the posterior, with
the error of the quasi-Monte Carlo points added (taken as variance / ESS² in one dimension, where these converge at
least so fast, and variance / ESS in several).

Cost. O((M + N log N) p²) per shard and view for M points, N draws and p other parameters with the EUWoK kernel;
O(M N p²) with the Gaussian one. Memory: one copy of the draws besides the result (two while a function is
evaluated), and some ten megabytes to work in.

Reference. Vyner's thesis, chapter 3, Algorithm 2. What is taken otherwise, and why, is said where it is: the Jacobian
of functions that bend (`views_completion`), the integral (`views_product`), residuals, shrinkage and bias corrections
(`views_density`), the joined tails (`views_tail`), the pull (`views_shard`), the kernel's constants (`euwok`) and the
proposal (`views_proposal`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from consilience.draws import Subposteriors
from consilience.errors import InputError, must_be

from .base import Combined, Equivariance, Floats, Kind, Need, effective_sizes, require_choice
from .functions import Functions, check_functions, column_names, evaluate_functions
from .gaussian_product import sample_gaussian
from .moments import GaussianProduct, ShardMoments, gaussian_product, shard_moments
from .permute import canonical_order
from .views_completion import RULE, complete
from .views_look import Seen, View, equal_draws, look, view_of_column
from .views_report import doubts, worth
from .views_shard import Density

KernelName = Literal["euwok", "gaussian"]
BandwidthName = Literal["sheather-jones", "silverman"]
MOST_COLUMNS = 4


@dataclass(frozen=True)
class MarginalViews:
    """Combine functions of the parameters, each through the shards' densities along it.

    Parameters
    ----------
    functions : dict, optional
        Name to a linear combination ``{parameter: coefficient}``, or to a callable of the draws by parameter that
        returns one number per draw, or up to four. Each parameter for itself if not given.
    kernel : "euwok" or "gaussian"
        The exponential-uniform window kernel, linear in draws and points, or the Gaussian one. A function of
        several columns takes the Gaussian one.
    bandwidth : "sheather-jones" or "silverman"
        How the kernel's width is chosen. A function of several columns takes Silverman's.
    shrinkage : float
        How far kernel estimates are drawn towards the shard's Gaussian: 1 as far as their noise asks for, 0 not at
        all, as in the thesis.
    num_draws : int, optional
        Points for each view; as many as the longest shard brought, if not given.
    outside : float
        alpha: a kernel's central region leaves out this share of it.
    fewest_draws, fewest_for_covariance, fewest_for_mean : float
        eta, eta_1 and eta_2: draws in the central region below which tail rules take over, for the density, for a
        conditional covariance (per squared number of other parameters) and a conditional mean (per other parameter).

    Examples
    --------
    >>> shards = np.random.default_rng(0).normal(size=(4, 1000, 2))
    >>> rule = MarginalViews(functions={"sum": {"a": 1, "b": 1}})
    >>> combined = rule.combine(Subposteriors.of(shards, kind="subposterior", names=["a", "b"]))
    >>> combined.array.shape, combined.names
    ((1000, 1), ('sum',))
    >>> weights = np.exp(combined.log_weights)
    >>> round(float(weights @ combined.array[:, 0] ** 2 / weights.sum()), 1)
    0.5
    """

    functions: Functions | None = None
    kernel: KernelName = "euwok"
    bandwidth: BandwidthName = "sheather-jones"
    shrinkage: float = 1.0
    num_draws: int | None = None
    outside: float = 0.05
    fewest_draws: float = 10.0
    fewest_for_covariance: float = 2.0
    fewest_for_mean: float = 5.0

    name: ClassVar[str] = RULE
    reference: ClassVar[str] = "Vyner, PhD thesis (Lancaster), chapter 3, Algorithm 2"
    kind: ClassVar[Kind] = "subposterior"
    needs: ClassVar[tuple[Need, ...]] = ("draws",)
    exact_for_gaussian: ClassVar[bool] = True
    joint: ClassVar[bool] = False
    equivariance: ClassVar[Equivariance] = "diagonal"

    def __post_init__(self) -> None:
        check_functions(RULE, self.functions)
        require_choice(RULE, "kernel", self.kernel, ("euwok", "gaussian"))
        require_choice(RULE, "bandwidth", self.bandwidth, ("sheather-jones", "silverman"))
        if not 0.0 <= self.shrinkage < np.inf:
            raise must_be(RULE, "shrinkage", "0 or more", self.shrinkage, "Take 1.", InputError)
        if self.num_draws is not None and not (isinstance(self.num_draws, int) and self.num_draws >= 100):
            raise must_be(
                RULE, "num_draws", "a whole number, 100 or more", self.num_draws, "Leave it out.", InputError
            )
        if not 0.0 < self.outside <= 0.5:
            raise must_be(RULE, "outside", "between 0 and 1/2", self.outside, "Take 0.05.", InputError)
        for option in ("fewest_draws", "fewest_for_covariance", "fewest_for_mean"):
            if not 1.0 <= getattr(self, option) < np.inf:
                raise must_be(RULE, option, "1 or more", getattr(self, option), "Leave it out.", InputError)

    def combine(self, subposteriors: Subposteriors, *, seed: int = 0) -> Combined:
        """Combine sub-posterior draws, view by view."""
        if subposteriors.num_shards == 1:
            return self._alone(subposteriors)
        order, key = canonical_order(subposteriors)
        shards = _in_order(subposteriors, order)
        moments = shard_moments(subposteriors)
        moments.require_independent_columns()
        moments = moments.in_order(order)
        product = gaussian_product(moments, np.ones(shards.num_shards))
        number = self.num_draws or max(shards.num_draws)
        seen, notes = [], []
        count = len(self.functions or shards.names)
        for index, view in enumerate(self._views(shards, moments, product, seed)):
            generator = np.random.default_rng([seed, key, index])
            density, place = self._density(view.width), (index, count)
            seen.append(look(view, number, density, generator, shrinkage=self.shrinkage, place=place))
            notes += self._remarks(seen[-1])
        warnings = (*moments.slow_chains(), *(x for view in seen for x in (*view.warnings, *doubts(view))))
        if len(seen) == 1:
            # In no order: whoever takes the first few draws must not take the smallest.
            mixed = np.random.default_rng([seed, key]).permutation(len(seen[0].points))
            array, log_weights = seen[0].points[mixed], seen[0].log_weights[mixed]
        else:
            array, log_weights = self._together(seen, shards, product, seed, notes), None
        return Combined(
            array=array,
            log_weights=log_weights,
            effective_sizes=np.concatenate([view.sizes for view in seen]),
            names=self._names(seen),
            notes=(*worth(seen), *notes),
            warnings=tuple(dict.fromkeys(warnings)),
        )

    def draws_per_shard(self, total: int, num_shards: int) -> int:
        """As many points come out as the longest shard brought draws."""
        return total

    def _density(self, width: int) -> Density:
        return Density(
            kernel=self.kernel if width == 1 else "gaussian",
            bandwidth=self.bandwidth if width == 1 else "silverman",
            outside=self.outside,
            fewest=self.fewest_draws,
            fewest_covariance=self.fewest_for_covariance,
            fewest_mean=self.fewest_for_mean,
        )

    def _views(
        self, shards: Subposteriors, moments: ShardMoments, product: GaussianProduct, seed: int
    ) -> Iterator[View]:
        """Coordinates (theta, psi) of every view, one after the other: a copy of the draws lives for one only."""
        if self.functions is None:
            for column in range(shards.dimension):
                yield view_of_column(column, shards, moments, product)
            return
        for name, function in self.functions.items():
            found = complete(name, function, shards, seed)
            _check_width(name, found.width)
            its_moments = shard_moments(found.shards)
            yield View(
                name=name,
                width=found.width,
                draws=found.shards.draws.__getitem__,
                spacing=found.theta.__getitem__,
                moments=its_moments,
                effective=np.minimum(its_moments.effective_draws, found.distinct * moments.effective_draws),
                product=gaussian_product(its_moments, np.ones(shards.num_shards)),
            )

    def _names(self, seen: Sequence[Seen]) -> tuple[str, ...] | None:
        if self.functions is None:
            return None
        return tuple(name for view in seen for name in column_names(view.name, view.points.shape[1]))

    def _remarks(self, view: Seen) -> list[str]:
        found = []
        if view.points.shape[1] > 1 and (self.kernel, self.bandwidth) != ("gaussian", "silverman"):
            found.append(f"{view.name} has several columns: Gaussian kernel and Silverman's bandwidth.")
        if not view.integrated:
            found.append(f"{view.name}: the product of conditionals is taken at its centre, to save memory.")
        return found

    def _alone(self, subposteriors: Subposteriors) -> Combined:
        """One shard is the posterior: its draws, or their functions, as they are."""
        array, names = subposteriors.draws[0], None
        if self.functions is not None:
            found = evaluate_functions(RULE, self.functions, subposteriors)
            array = np.concatenate([values[0] for values in found.values()], axis=1)
            names = tuple(x for name, v in found.items() for x in column_names(name, v[0].shape[1]))
        moments = shard_moments(subposteriors)
        if self.functions is None:
            moments.require_independent_columns()
        sizes = np.minimum(moments.effective_draws[0], np.full(array.shape[1], float(len(array))))
        if self.functions is None:
            sizes = effective_sizes(moments.covariances[0], moments.mean_errors[0])
        return Combined(
            array=array,
            effective_sizes=sizes,
            chain_lengths=subposteriors.chain_lengths[0],
            names=names,
            warnings=moments.slow_chains(),
        )

    def _together(
        self,
        seen: Sequence[Seen],
        shards: Subposteriors,
        product: GaussianProduct,
        seed: int,
        notes: list[str],
    ) -> Floats:
        """Equally weighted draws of all views, in the order of ranks that draws of g~ have."""
        number = len(seen[0].points)
        template = sample_gaussian(product.mean, product.covariance, number, seed)
        at_template = self._at_template(template, shards, seed, notes)
        parts = []
        for view, column in zip(seen, at_template, strict=True):
            ranks = np.empty(number, dtype=np.intp)
            ranks[np.argsort(column, kind="stable")] = np.arange(number)
            parts.append(equal_draws(view, number)[ranks])
        notes.append("Margins are the views'; dependence between columns is that of the Gaussian product.")
        return np.concatenate(parts, axis=1)

    def _at_template(
        self, template: Floats, shards: Subposteriors, seed: int, notes: list[str]
    ) -> list[Floats]:
        """The first column of every function at Gaussian draws; at random where it is not defined there."""
        if self.functions is None:
            return list(template.T)
        one = Subposteriors.of([template], kind=shards.kind, names=shards.names, space=shards.space)
        found = []
        for index, (name, function) in enumerate(self.functions.items()):
            try:
                found.append(evaluate_functions(RULE, {name: function}, one)[name][0][:, 0])
            except InputError:
                notes.append(
                    f"{name} is not defined at draws of the Gaussian product: independent of the others."
                )
                found.append(np.random.default_rng([seed, index]).uniform(size=len(template)))
        return found


def _in_order(subposteriors: Subposteriors, order: list[int]) -> Subposteriors:
    """The shards in an order that depends on their draws alone: sums are then the same to the last bit."""
    return replace(
        subposteriors,
        draws=tuple(subposteriors.draws[b] for b in order),
        weights=np.asarray(subposteriors.weights)[order],
        chain_lengths=tuple(subposteriors.chain_lengths[b] for b in order),
        labels=tuple(subposteriors.labels[b] for b in order),
        log_densities=None,
    )


def _check_width(name: str, width: int) -> None:
    if width > MOST_COLUMNS:
        raise must_be(
            RULE,
            name,
            f"of at most {MOST_COLUMNS} columns: kernel estimates need too many draws beyond",
            width,
            "Split it into several functions.",
            error=InputError,
        )
