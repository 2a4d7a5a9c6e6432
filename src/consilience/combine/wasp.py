"""WASP: the Wasserstein-2 barycenter of the shards' inflated draws.

Formula. The distribution nu that minimises sum w_b W_2²(nu, nu_b), nu_b the empirical distribution of shard b's
inflated draws. Distances are measured in units of the shards' average covariance sum w_b V_b (metric="pooled"),
or as they are (metric="euclidean", as in the papers).

Which way it is found depends on size, and the notes say which: in one dimension by sorting (it is `pie`);
as one linear programme where that has few variables; else by free support, in blocks: each shard's draws, in random
order, are cut into blocks of at most `block`, and the k-th blocks of all shards have a barycenter of their own,
on as many points as the longest has draws; all points are laid together. A shard with fewer draws is gone
through again. Free supports start from the shards' Gaussian barycenter (see `gaussian_barycenter`).

Spread. A point of the barycenter averages one draw of each shard, and draws that are coupled only lie near each
other: what they differ by averages out, and spread is lost. With m draws coupled in d dimensions the share lost
goes like m^(-2/d): for ten shards and m = 256, 2 % in two dimensions, a third in ten, half in twenty. With
restore_spread, Gaussian shards of the same moments and sizes go through the same computation; by what they fall
short of their barycenter, which is known, the draws are stretched about their mean, along its principal axes.

Assumptions. Inflated sub-posteriors of about the same covariance that scatter around the posterior; shapes are
arbitrary. For Gaussians it is what `gaussian-barycenter` gives in the same metric, for one parameter what `pie`
gives. Exact for Gaussian shards only when their covariances are equal.

Fails when covariances differ: nothing weighs shards by their precision. In many dimensions (from ten or so) the
couplings are mostly noise and the shape is blurred towards the Gaussian, spread restored or not. The
euclidean metric lets the parameters of largest scale decide all couplings.

Cost. For n draws per shard, n / m blocks: B n m log m times the rounds until rest (2 to 8). Memory: the combined
draws, an m x m cost matrix and its coupling; the linear programme holds J_1 ··· J_B variables.

Reference. Srivastava, Cevher, Dinh and Dunson (2015), WASP: scalable Bayes via barycenters of subset
posteriors, AISTATS; Srivastava, Li and Dunson (2018), Scalable Bayes via barycenter in Wasserstein space, JMLR 19,
equation (7), with w_b in the place of 1/K; Vyner's thesis, (2.15). Algorithms: see `transport`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from consilience.draws import Subposteriors
from consilience.errors import InputError, must_be
from consilience.numerics import weighted_covariance, weighted_mean

from .base import Combined, Equivariance, Floats, Kind, Need, effective_sizes, require_choice
from .column_moments import uneven_spreads
from .moments import ShardMoments, shard_moments
from .permute import canonical_order, shard_generators
from .quantile_average import add_quantiles
from .transport import MOST_ROUNDS, require_transport
from .transport_problem import Metric, TransportProblem

# A loss of this share of the variance says that couplings are mostly noise.
MOSTLY_NOISE = 0.3
BY_SORTING = "One parameter: the barycenter is the average of quantile functions, found by sorting."


@dataclass(frozen=True)
class Wasp:
    """Find the Wasserstein-2 barycenter of the shards' inflated draws; needs POT.

    Parameters
    ----------
    metric : "pooled" or "euclidean"
        Distances in units of the shards' average covariance, or of the coordinates.
    block : int
        At most so many draws of a shard are coupled at once.
    largest_programme : int, optional
        Variables of the largest linear programme that is solved in place of blocks; 0 for none. Without it
        1,000,000 for two shards and 50,000 for more.
    restore_spread : bool
        Stretch the draws by what Gaussian shards of the same moments and sizes lose of their spread.

    Examples
    --------
    >>> shards = np.random.default_rng(0).normal(0.0, [[[1.0]], [[3.0]]], size=(2, 500, 2))
    >>> combined = Wasp().combine(Subposteriors.of(shards, kind="inflated"))
    >>> combined.array.std(axis=0).round()
    array([2., 2.])
    >>> combined.notes[0]
    'The barycenter is exact: one linear programme of 250,000 variables.'
    """

    metric: Metric = "pooled"
    block: int = 256
    largest_programme: int | None = None
    restore_spread: bool = True

    name: ClassVar[str] = "wasp"
    reference: ClassVar[str] = "Srivastava, Li and Dunson (2018), JMLR 19; Srivastava et al. (2015), AISTATS"
    kind: ClassVar[Kind] = "inflated"
    needs: ClassVar[tuple[Need, ...]] = ("draws",)
    exact_for_gaussian: ClassVar[bool] = False
    joint: ClassVar[bool] = True
    equivariance: ClassVar[Equivariance] = "affine"

    def __post_init__(self) -> None:
        require_choice("wasp", "metric", self.metric, ("pooled", "euclidean"))
        _require_number("block", self.block, 2)
        if self.largest_programme is not None:
            _require_number("largest_programme", self.largest_programme, 0)
        if not isinstance(self.restore_spread, bool):
            raise must_be(
                "wasp", "restore_spread", "True or False", self.restore_spread, "Choose one.", InputError
            )
        require_transport("wasp")

    def combine(self, subposteriors: Subposteriors, *, seed: int = 0) -> Combined:
        """Combine in canonical order of the shards, so that the order in which they came changes no bit."""
        moments = shard_moments(subposteriors)
        moments.require_independent_columns()
        weights = np.asarray(subposteriors.weights)
        array, log_weights, notes, warnings = self._draws(subposteriors, moments, weights, seed)
        # Every draw of a shard weighs the same in the barycenter, so its mean is the average of the shards' means;
        # draws gone through twice, and blocks of unequal size, disturb that a little.
        array += weights @ moments.means - weighted_mean(array, log_weights)
        covariance = weighted_covariance(array, log_weights)
        deviations = np.sqrt(np.diagonal(moments.covariances, axis1=1, axis2=2))
        return Combined(
            array=array,
            log_weights=log_weights,
            effective_sizes=effective_sizes(covariance, np.tensordot(weights**2, moments.mean_errors, 1)),
            notes=notes,
            warnings=warnings + uneven_spreads(deviations, weights, moments.names) + moments.slow_chains(),
        )

    def draws_per_shard(self, total: int, num_shards: int) -> int:
        """As many draws come out as the longest shard brought."""
        return total

    def _draws(
        self, subposteriors: Subposteriors, moments: ShardMoments, weights: Floats, seed: int
    ) -> tuple[Floats, Floats | None, tuple[str, ...], tuple[str, ...]]:
        """Points of the barycenter, their log weights, notes and warnings."""
        if subposteriors.num_shards == 1:
            return subposteriors.draws[0].copy(), None, (), ()
        if subposteriors.dimension == 1:
            return _sorted(subposteriors, weights), None, (BY_SORTING,), ()
        return self._transported(subposteriors, moments, weights, seed)

    def _transported(
        self, subposteriors: Subposteriors, moments: ShardMoments, weights: Floats, seed: int
    ) -> tuple[Floats, Floats | None, tuple[str, ...], tuple[str, ...]]:
        order, key = canonical_order(subposteriors)
        generators = shard_generators(subposteriors, seed)
        permuted = [generators[b].permutation(len(subposteriors.draws[b])) for b in order]
        problem = TransportProblem.of(
            moments,
            weights,
            order,
            metric=self.metric,
            block=self.block,
            largest_programme=self.largest_programme,
        )

        def draws(b: int, rows: np.ndarray) -> Floats:
            return problem.inside(subposteriors.draws[order[b]][permuted[b][rows]])

        points, masses, rested = problem.solve(draws)
        notes = problem.notes()
        warnings: tuple[str, ...] = () if rested else (_restless(problem.num_blocks),)
        if self.restore_spread:
            kept = problem.spread_kept(np.random.default_rng([seed, key]))
            points = problem.stretched(points, masses, kept)
            notes += (_lost(kept),)
            if 1.0 - kept.mean() > MOSTLY_NOISE:
                warnings += (_mostly_noise(kept, problem.block_size),)
        log_weights = None if np.ptp(masses) <= 1e-9 * masses.max() else np.log(masses)
        return problem.outside(points), log_weights, notes, warnings


def _sorted(subposteriors: Subposteriors, weights: Floats) -> Floats:
    """The barycenter in one dimension."""
    quantiles = np.zeros((1, max(subposteriors.num_draws)))
    for w, x in zip(weights, subposteriors.draws, strict=True):
        add_quantiles(quantiles, x.T.copy(), w)
    return quantiles.T.copy()


def _require_number(option: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise must_be(
            "wasp", option, f"a whole number, {least} or more", value, "Leave it out.", error=InputError
        )


def _lost(kept: Floats) -> str:
    return (
        f"Averages over coupled draws lose {1.0 - kept.mean():.1%} of the variance, measured on Gaussian shards of the "
        "same moments and sizes; it was restored."
    )


def _mostly_noise(kept: Floats, size: int) -> str:
    return (
        f"Couplings of {size} draws in {len(kept)} dimensions are mostly noise: they lose {1.0 - kept.mean():.0%} of "
        "the variance. The spread was restored, but the shape is blurred towards the Gaussian. Raise `block`, or "
        "combine by 'gaussian-barycenter'."
    )


def _restless(num_blocks: int) -> str:
    return (
        f"The points of a barycenter had not come to rest after {MOST_ROUNDS} rounds ({num_blocks} blocks). "
        "Another seed starts from other points."
    )
