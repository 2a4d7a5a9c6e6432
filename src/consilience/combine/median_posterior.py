"""Median posterior: the geometric median of the shards' inflated posteriors, which a bad shard does not move.

Formula. With Q_b the empirical measure of shard b's draws and |P - Q| the distance of P and Q in the reproducing
kernel Hilbert space of k(x, y) = exp(-|x - y|² / (2 h²)) (the maximum mean discrepancy), the posterior is

    Q = argmin sum w_b |Q - Q_b| = sum s_b Q_b,

a mixture of the shards with shares s_b from Weiszfeld's iteration, s_b proportional to w_b / |Q - Q_b|. Shards with
s_b around w_b / 2 and less are left out and the other shares scaled up. The paper (where w_b = 1/B) cuts at that half;
here a shard counts by (s_b / (w_b / 2) - 0.8) / 0.4, within 0 and 1, because a shard near the cut would come and go
with the noise of the draws and take the posterior with it. Draws carry log weights log(s_b / J_b).

Coordinates and bandwidth. The paper leaves both to the user. Here draws are standardised by the geometric median of
the shards' covariances, so that the result follows every change of coordinates and a wrong shard does not set the
units; and h is twice the median over shards of the median distance from a shard's draws to the others' draws. With
r = exp(-1/8), and in many dimensions, the share of a shard infinitely far from the others is then
w_b sqrt((1 - r) / (1 + r)) = 0.25 w_b, and that of a shard which is infinitely wide w_b sqrt((1 - r) / r) = 0.36 w_b:
both are left out. With h the median distance itself they would be 0.49 w_b and 0.80 w_b, and a wide shard would stay.

Finite draws. The squared length of an empirical measure of n independent draws is too large by (1 - |Q_b|²) / n,
which pushes shards with few draws away from the median. All shards are given what the one with fewest effective draws
has: the distances stay distances of a Hilbert space, and the numbers of draws say nothing about the shares.

Assumptions. More than half of the weight lies with shards that are near each other. Robustness: the median stays put
whatever less than half of the weight does.

Fails by being too wide, as `pool` does: its draws are those of the shards that are kept, and these lie about sqrt(B)
posterior deviations apart. It is a median of the shards and no product: it contracts as one shard does. A shard that
holds half of the weight or more is the median all by itself.

Cost. Kernels between `kernel_draws` draws of all shards together, at least 10 of each: M² d for M of them, a tenth of a
second for 5,000; then B³ for the error of the shares. Memory: the result, one standardised copy of those draws, a block
of kernels, and B x B inner products.

Reference. Minsker, Srivastava, Lin and Dunson (2017), Robust and scalable Bayes via a median of subset posterior
measures, JMLR 18(124), the median posterior with the distance of a reproducing kernel, and its two algorithms:
Weiszfeld's and the leaving out; first in Minsker et al. (2014), Scalable and robust Bayesian inference via the median
posterior, ICML.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from consilience.draws import Subposteriors
from consilience.errors import InputError, must_be
from consilience.numerics import symmetric_root

from .base import Combined, Equivariance, Floats, Kind, Need, effective_sizes, shared_out
from .geometric_median import HilbertMedian, hilbert_median, influence_on_shares, median_covariance
from .kernel_embedding import Embedding, median_distance
from .moments import ShardMoments, shard_moments

LEAST_DRAWS_PER_SHARD = 10
# Bandwidth in units of the median distance between draws of different shards.
BANDWIDTH = 2.0
# A shard is left out below this part of the least share, and kept whole above 2 minus it.
WHOLLY_OUT = 0.8
# Standardised draws farther out than this are as good as infinitely far, and their squares would cost digits.
FARTHEST = 1e6


@dataclass(frozen=True)
class MedianPosterior:
    """Mix the shards' inflated draws by their shares in the geometric median.

    Parameters
    ----------
    bandwidth : float, optional
        h, in units of the standardised draws; from the draws if not given.
    least_share : float
        Shards whose share is under this part of their weight are left out, from 0.8 to 1.2 of it in part; 0 keeps
        all.
    kernel_draws : int
        Draws, of all shards together, between which kernels are evaluated.

    Examples
    --------
    One of ten shards is wrong, and left out:

    >>> shards = np.random.default_rng(0).normal(size=(10, 500, 1))
    >>> shards[3] += 1000.0
    >>> combined = MedianPosterior().combine(Subposteriors.of(shards, kind="inflated"))
    >>> float(combined.array.max()) < 10.0, combined.notes[0]
    (True, 'Left out, being far from the median: 1 of 10 shards (3).')
    """

    bandwidth: float | None = None
    least_share: float = 0.5
    kernel_draws: int = 5_000

    name: ClassVar[str] = "median-posterior"
    reference: ClassVar[str] = "Minsker, Srivastava, Lin and Dunson (2017), JMLR 18(124)"
    kind: ClassVar[Kind] = "inflated"
    needs: ClassVar[tuple[Need, ...]] = ("draws",)
    exact_for_gaussian: ClassVar[bool] = False
    joint: ClassVar[bool] = True
    equivariance: ClassVar[Equivariance] = "affine"

    def __post_init__(self) -> None:
        if self.bandwidth is not None:
            _check_number("bandwidth", self.bandwidth, 0.0, np.inf, "positive", "Leave it out.")
        _check_number(
            "least_share", self.least_share, -1e-300, 1.0, "from 0 to under 1", "0.5 is the paper's."
        )
        if (
            not isinstance(self.kernel_draws, int)
            or isinstance(self.kernel_draws, bool)
            or self.kernel_draws < 1
        ):
            raise must_be(
                self.name,
                "kernel_draws",
                "a positive whole number",
                self.kernel_draws,
                "5000 takes a tenth of a second.",
                error=InputError,
            )

    def combine(self, subposteriors: Subposteriors, *, seed: int = 0) -> Combined:
        """Find the shares and mix the draws; nothing here is random, so `seed` is not used."""
        moments = shard_moments(subposteriors)
        moments.require_independent_columns()
        weights = np.asarray(subposteriors.weights)
        if subposteriors.num_shards == 1:
            return _mixture(subposteriors, moments, np.ones(1), moments.mean_errors[0], ())
        embedding = self._embedding(subposteriors, moments, weights)
        gram = _evened_out(embedding, moments)
        median = hilbert_median(gram, weights)
        kept, growth = self._kept(median.shares, weights)
        shares = kept * median.shares
        # What the mean gains with each share, which also brings its shard nearer to being kept whole.
        gain = (kept + growth * median.shares) / shares.sum()
        shares /= shares.sum()
        slopes = (moments.means - shares @ moments.means) * gain[:, None]
        error = _mean_error(subposteriors, moments, embedding, gram, median, shares, slopes)
        notes = self._notes(subposteriors, embedding, kept > 0.0)
        warnings = _alone(subposteriors, shares) + _not_converged(median)
        return _mixture(subposteriors, moments, shares, error, notes, warnings)

    def draws_per_shard(self, total: int, num_shards: int) -> int:
        """Every draw of the shards that are kept; twice as many are asked for, because half may be left out."""
        return shared_out(2 * total, num_shards) if num_shards > 1 else total

    def _embedding(self, subposteriors: Subposteriors, moments: ShardMoments, weights: Floats) -> Embedding:
        """Some draws of every shard, standardised, with the bandwidth."""
        most = max(LEAST_DRAWS_PER_SHARD, self.kernel_draws // subposteriors.num_shards)
        thin = subposteriors.thinned([min(most, n) for n in subposteriors.num_draws])
        covariance = median_covariance(moments.covariances, weights)
        scale = np.sqrt(np.diagonal(covariance))
        inverse, _ = symmetric_root(covariance / np.outer(scale, scale), power=-0.5)
        points = np.concatenate(thin.draws)
        points -= np.median(moments.means, axis=0)
        points = (points / scale) @ inverse
        np.clip(points, -FARTHEST, FARTHEST, out=points)
        bandwidth = self.bandwidth
        if bandwidth is None:
            # Shards of the very same draws have no distance; within a shard it is about sqrt(2 d).
            apart = median_distance(points, thin.num_draws, weights)
            bandwidth = BANDWIDTH * max(apart, np.sqrt(subposteriors.dimension))
        return Embedding(points, thin.num_draws, float(bandwidth))

    def _kept(self, shares: Floats, weights: Floats) -> tuple[Floats, Floats]:
        """How much of each shard is kept, from 0 to 1, and by how much that grows with its share."""
        if self.least_share == 0.0:
            return np.ones_like(shares), np.zeros_like(shares)
        ramp = 2.0 * (1.0 - WHOLLY_OUT)
        kept = (shares / (weights * self.least_share) - WHOLLY_OUT) / ramp
        inside = (kept > 0.0) & (kept < 1.0)
        return np.clip(kept, 0.0, 1.0), inside / (weights * self.least_share * ramp)

    @staticmethod
    def _notes(subposteriors: Subposteriors, embedding: Embedding, kept: np.ndarray) -> tuple[str, ...]:
        notes = []
        left_out = [subposteriors.labels[b] for b in np.flatnonzero(~kept)]
        if left_out:
            listed = ", ".join(left_out[:10]) + (", …" if len(left_out) > 10 else "")
            notes.append(
                f"Left out, being far from the median: {len(left_out)} of {len(kept)} shards ({listed})."
            )
        if sum(embedding.sizes) < sum(subposteriors.num_draws):
            fewest, most = min(embedding.sizes), max(embedding.sizes)
            number = f"{most}" if fewest == most else f"{fewest} to {most}"
            notes.append(f"Distances between shards rest on {number} of the draws of each.")
        return tuple(notes)


def _check_number(
    option: str, value: object, above: float, below: float, constraint: str, advice: str
) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not above < value < below:
        raise must_be("median-posterior", option, constraint, value, advice, error=InputError)


def _alone(subposteriors: Subposteriors, shares: Floats) -> tuple[str, ...]:
    kept = np.flatnonzero(shares)
    if len(kept) > 1:
        return ()
    return (
        f"The median is shard {subposteriors.labels[kept[0]]} alone: it holds half of the weight or more, or the "
        "others lie around it.",
    )


def _not_converged(median: HilbertMedian) -> tuple[str, ...]:
    if median.converged:
        return ()
    return (f"The shares had not settled after {median.iterations} iterations of Weiszfeld's.",)


def _evened_out(embedding: Embedding, moments: ShardMoments) -> Floats:
    """Inner products, with squared lengths as if all shards had the fewest effective draws of any."""
    gram = embedding.gram()
    draws = np.minimum(moments.effective_draws, embedding.sizes)
    draws = np.maximum(draws, 2.0)
    lengths = np.diagonal(gram)
    true_lengths = np.maximum(lengths - 1.0 / draws, 0.0) / (1.0 - 1.0 / draws)
    return gram + np.diag((1.0 - true_lengths) * (1.0 / draws.min() - 1.0 / draws))


def _mean_error(
    subposteriors: Subposteriors,
    moments: ShardMoments,
    embedding: Embedding,
    gram: Floats,
    median: HilbertMedian,
    shares: Floats,
    slopes: Floats,
) -> Floats:
    """Monte Carlo covariance of the mixture's mean: of the shards' means, and of the shares.

    The mean changes by `slopes` (B, d) with the median's shares.

    A draw x of shard a moves the mean itself, by s_a (x - mu_a) / J_a, and moves the inner products of its shard,
    by (K_c(x) - G_ac) / m_a with K_c the mean of the kernel over shard c. The shares answer to the latter as
    `influence_on_shares` has it. Both have mean zero over the shard's draws and are correlated: a draw far out
    drags its shard's mean outwards and its share down.
    """
    answers = influence_on_shares(gram, median, slopes)
    total_answer, ends = answers.sum(axis=0), np.cumsum(embedding.sizes)
    influence = np.zeros_like(embedding.points)
    for part, kernels in embedding.mean_kernels():
        for a in range(int(np.searchsorted(ends, part.start, side="right")), len(ends)):
            first, last = max(part.start, ends[a] - embedding.sizes[a]), min(part.stop, ends[a])
            if first >= part.stop:
                break
            s = median.shares
            response = 2.0 * (s[a] * (np.outer(s, total_answer) - answers) - np.outer(s, answers[a]))
            response[a] += 2.0 * answers[a]
            influence[first:last] = kernels[first - part.start : last - part.start] @ response
    thin = subposteriors.thinned(list(embedding.sizes))
    error = np.tensordot(shares**2, moments.mean_errors, 1)
    effective = moments.effective_draws
    for a, x in enumerate(thin.draws):
        moved = influence[ends[a] - len(x) : ends[a]]
        moved = moved - moved.mean(axis=0)
        both = shares[a] * (x - x.mean(axis=0)).T @ moved / len(x)
        error += (both + both.T) / effective[a] + moved.T @ moved / len(x) / min(effective[a], len(x))
    return error


def _mixture(
    subposteriors: Subposteriors,
    moments: ShardMoments,
    shares: Floats,
    mean_error: Floats,
    notes: tuple[str, ...],
    warnings: tuple[str, ...] = (),
) -> Combined:
    """Lay the draws of the shards with a share together."""
    kept = np.flatnonzero(shares)
    sizes = np.array(subposteriors.num_draws)[kept]
    each = np.log(shares[kept] / sizes)
    apart = moments.means - shares @ moments.means
    covariance = np.tensordot(shares, moments.covariances, 1) + (apart * shares[:, None]).T @ apart
    return Combined(
        array=np.concatenate([subposteriors.draws[b] for b in kept]),
        log_weights=None if np.ptp(each) < 1e-12 else np.repeat(each, sizes),
        effective_sizes=effective_sizes(covariance, mean_error),
        chain_lengths=tuple(n for b in kept for n in subposteriors.chain_lengths[b]),
        notes=notes,
        warnings=moments.slow_chains() + warnings,
    )
