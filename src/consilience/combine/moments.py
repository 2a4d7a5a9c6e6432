"""Mean, covariance, effective draws and precision of every shard, and the product of their Gaussians.

Effective draws by batch means (Glynn and Whitt, 1991): with the draws of each chain cut into batches of
length m, the covariance of the batch means times m estimates the long-run covariance C of the chain, C / J
is the Monte Carlo covariance of the shard's mean, and tau = tr(V⁻¹ C) / d is the average integrated
autocorrelation time, which no change of coordinates alters. Batches cost one pass over the draws where a
spectral estimate costs twenty. Draws whose tau is within noise of 1 count as independent.

The product of Gaussians with powers a_b (w_b for inflated draws, 1 for sub-posterior draws):

    P = sum a_b P_b,   mu = P⁻¹ sum a_b P_b mu_b,   V = P⁻¹.

P_b is the inverse of the estimated V_b divided by its bias (see `numerics.estimate_precision`), so P is
unbiased, but then its inverse is not: to second order E[P⁻¹] = V^{1/2} (I + Q) V^{1/2}, where Q collects
the noise of the shards, Q = sum (K_b² + tr(K_b) K_b) / (n_b - d - 2) with K_b = V^{1/2} a_b P_b V^{1/2}. V
is divided by I + Q. With one shard the two corrections cancel exactly, as they must; with many only the
first is left.

The Monte Carlo error of mu has two parts: the shards' means, each with covariance C_b / J_b, and the
weights, since a noisy P_b pulls mu to and fro between means that differ,

    sum [(V a_b P_b x_b)(V a_b P_b x_b)' + (x_b' P_b x_b) a_b² V P_b V] / (n_b - d - 2),   x_b = mu_b - mu.

Inflated shards lie about sqrt(B) posterior widths apart, and the second part is then B (d + 1) times the
first: it is what limits how well few draws per shard can place the posterior.

A covariance is worth another number of draws than a mean (`covariance_draws`), and where the curvature at the modes
is known the two are brought together (`curvature`); n_b is then what that is worth.

Fails: never silently. Columns that depend on each other linearly, and shards with no more than d + 4
effective draws, are refused by name; fewer than 5 d give a warning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from consilience.draws import Subposteriors
from consilience.errors import DrawsError, must_be
from consilience.numerics import FEW_DRAWS_PER_DIMENSION, PrecisionEstimate, estimate_precision

from .base import Floats
from .covariance_draws import covariance_draws
from .curvature import Known, pull_to_curvature

# A column whose unexplained share of variance is under this is a linear combination of the others: float64
# rounding leaves 1e-16, draws stored in float32 leave 1e-14.
DEPENDENT = 1e-12
# Autocorrelation is believed when tau exceeds 1 by this many standard errors.
BELIEVED = 3.0


@dataclass(frozen=True, eq=False)
class ShardMoments:
    """Moments of every shard; `precisions` is worked out on first use, because not every rule needs it."""

    labels: tuple[str, ...]
    names: tuple[str, ...]
    sizes: Floats  # (B,) draws
    means: Floats  # (B, d)
    covariances: Floats  # (B, d, d)
    effective_draws: Floats  # (B,) that each mean is worth
    mean_errors: Floats  # (B, d, d) Monte Carlo covariance of each mean
    dependent: tuple[int, ...]  # shards whose covariance is singular
    slow: tuple[int, ...]  # shards whose autocorrelation is too long for their chains to show
    covariance_draws: Floats  # (B,) that each covariance is worth
    curvatures: Floats | None = None  # (B, d, d) inverse curvatures at the modes; NaN where there is none

    @property
    def dimension(self) -> int:
        return self.means.shape[1]

    @cached_property
    def known(self) -> Known:
        """Covariances of all shards from draws and, where it is known, from the curvature at the mode."""
        self.require_independent_columns()
        if self.curvatures is None:
            return Known(self.covariances, self.covariance_draws, np.zeros(len(self.sizes)))
        return pull_to_curvature(self.covariances, self.covariance_draws, self.curvatures)

    @cached_property
    def precisions(self) -> PrecisionEstimate:
        """Corrected precisions of all shards."""
        worth = np.minimum(self.known.draws, self.effective_draws)
        worst = int(np.argmin(worth))
        if worth[worst] <= self.dimension + 4:
            raise _too_few(self, worst, float(worth[worst]))
        return estimate_precision(self.known.covariances, self.known.draws)

    def in_order(self, order: Sequence[int]) -> ShardMoments:
        """The same shards in another order."""
        chosen = list(order)
        return replace(
            self,
            labels=tuple(self.labels[b] for b in chosen),
            sizes=self.sizes[chosen],
            means=self.means[chosen],
            covariances=self.covariances[chosen],
            effective_draws=self.effective_draws[chosen],
            mean_errors=self.mean_errors[chosen],
            dependent=tuple(i for i, b in enumerate(chosen) if b in self.dependent),
            slow=tuple(i for i, b in enumerate(chosen) if b in self.slow),
            covariance_draws=self.covariance_draws[chosen],
            curvatures=None if self.curvatures is None else self.curvatures[chosen],
        )

    def require_independent_columns(self) -> None:
        """Refuse singular covariances, naming the column."""
        if self.dependent:
            raise _dependent_columns(self, self.dependent[0])

    def slow_chains(self) -> tuple[str, ...]:
        """Name the shards whose effective draws are an upper bound at best."""
        if not self.slow:
            return ()
        worst = min(self.slow, key=lambda b: float(self.effective_draws[b]))
        return (
            f"Chains of {len(self.slow)} of {len(self.sizes)} shards are too short to show how they mix "
            f"(shard {self.labels[worst]}: {self.sizes[worst]:.0f} draws, worth "
            f"{self.effective_draws[worst]:.0f} at most). Run longer chains.",
        )

    def shortfall(self) -> tuple[str, ...]:
        """Name the shards whose precision rests on few draws."""
        wanted = int(FEW_DRAWS_PER_DIMENSION * self.dimension)
        draws = self.known.draws
        few = np.flatnonzero(draws < wanted)
        if not few.size:
            return ()
        worst = int(few[np.argmin(draws[few])])
        return (
            f"{few.size} of {len(self.sizes)} shards have fewer than {wanted} effective draws for "
            f"{self.dimension} parameters (shard {self.labels[worst]}: {draws[worst]:.0f}). "
            "Their precision is corrected for bias but noisy. Make at least "
            f"{wanted} independent draws per shard.",
        )


@dataclass(frozen=True, eq=False)
class GaussianProduct:
    """The product of the shards' Gaussians."""

    mean: Floats  # (d,)
    covariance: Floats  # (d, d), corrected for the noise of the shards' covariances
    shares: Floats  # (B, d, d): mean = sum shares_b mu_b, and the shares sum to the identity
    mean_error: Floats  # (d, d) Monte Carlo covariance of the mean
    weights_error: Floats  # (d, d) the part of it that comes from estimated precisions
    warnings: tuple[str, ...] = ()


def shard_moments(subposteriors: Subposteriors) -> ShardMoments:
    """Estimate the moments of every shard in one pass over its draws."""
    num_shards, d = subposteriors.num_shards, subposteriors.dimension
    sizes = np.array(subposteriors.num_draws, dtype=np.float64)
    means = np.empty((num_shards, d))
    covariances = np.empty((num_shards, d, d))
    long_run = np.empty((num_shards, d, d))
    num_batches: Floats = np.empty(num_shards)
    for b, (x, lengths) in enumerate(zip(subposteriors.draws, subposteriors.chain_lengths, strict=True)):
        means[b] = (np.ones(len(x)) @ x) / len(x)  # BLAS: x.mean(axis=0) takes ten times as long for small d
        centred = x - means[b]
        covariances[b] = centred.T @ centred / (len(x) - 1)
        long_run[b], num_batches[b] = _long_run_covariance(centred, lengths, power=0.5)
    inverses, scale, dependent = _inverse_correlations(covariances)
    tau = _autocorrelation_time(inverses, long_run / scale)
    longest = np.array([max(lengths) for lengths in subposteriors.chain_lengths])
    slow = (tau > _noise_limit(num_batches, d)) & (tau > np.sqrt(longest) / 5)
    for b in map(int, np.flatnonzero(slow)):
        # Batches must be long against the autocorrelation: slow chains are cut into fewer and longer ones.
        centred, lengths = subposteriors.draws[b] - means[b], subposteriors.chain_lengths[b]
        long_run[b], num_batches[b] = _long_run_covariance(centred, lengths, power=2 / 3)
        tau[b] = _autocorrelation_time(inverses[b], long_run[b] / scale[b])
        slow[b] = tau[b] > longest[b] ** (2 / 3) / 5
    independent = tau <= _noise_limit(num_batches, d)
    second = np.array(
        [
            covariance_draws(x - mean, lengths, inverse / size)
            for x, mean, lengths, inverse, size in zip(
                subposteriors.draws, means, subposteriors.chain_lengths, inverses, scale, strict=True
            )
        ]
    )
    long_run = np.where(independent[:, None, None], covariances, long_run)
    return ShardMoments(
        labels=subposteriors.labels,
        names=tuple(subposteriors.names),
        sizes=sizes,
        means=means,
        covariances=covariances,
        effective_draws=np.where(independent, sizes, sizes / np.maximum(tau, 1.0)),
        mean_errors=long_run / sizes[:, None, None],
        dependent=dependent,
        slow=tuple(map(int, np.flatnonzero(slow & ~independent))),
        covariance_draws=second,
        curvatures=subposteriors.curvatures,
    )


def gaussian_product(moments: ShardMoments, powers: Floats) -> GaussianProduct:
    """Multiply the shards' Gaussians, each to its power, with both corrections of the module's docstring."""
    if len(powers) == 1 and powers[0] == 1.0:
        # One shard is its own product: an inverse and back would only lose digits.
        mean, covariance, error = moments.means[0], moments.covariances[0], moments.mean_errors[0]
        unmoved = np.zeros_like(covariance)
        return GaussianProduct(
            mean, covariance, np.eye(len(mean))[None], error, unmoved, moments.slow_chains()
        )
    estimate = moments.precisions
    d = moments.dimension
    # In units of typical standard deviations: parameters of very different scales lose no digits.
    scale = np.sqrt(np.mean(np.diagonal(moments.covariances, axis1=1, axis2=2), axis=0))
    unit = np.outer(scale, scale)
    parts = estimate.precision * unit * powers[:, None, None]
    naive = np.linalg.inv(parts.sum(axis=0))
    shares = naive @ parts  # V a_b P_b, whose transpose times P is symmetric
    excess = (1.0 / estimate.factor - 1.0) / (d + 1)
    traces = np.trace(shares, axis1=1, axis2=2)
    noise = np.tensordot(excess, shares @ shares, 1) + np.tensordot(excess * traces, shares, 1)
    covariance = np.linalg.solve(np.eye(d) + noise, naive)
    shares = shares * (scale[:, None] / scale[None, :])
    # mu = m + sum shares_b (mu_b - m) for any m: near the means, so that no digits are lost to their size.
    centre = moments.means.mean(axis=0)
    mean = centre + np.einsum("bij,bj->i", shares, moments.means - centre)
    covariance = 0.5 * (covariance + covariance.T) * unit
    of_weights = _weights_error(moments, estimate, powers, shares, mean, naive * unit)
    mean_error = _means_error(moments, estimate, shares) + of_weights
    mean_error, of_weights = (
        np.linalg.solve(np.eye(d) + noise, error / unit) * unit for error in (mean_error, of_weights)
    )
    return GaussianProduct(
        mean, covariance, shares, mean_error, of_weights, moments.shortfall() + moments.slow_chains()
    )


def _means_error(moments: ShardMoments, estimate: PrecisionEstimate, shares: Floats) -> Floats:
    """What the noise of the shards' means adds to the Monte Carlo covariance of the product's mean."""
    d = moments.dimension
    # Weights were fitted to the draws that they weigh: what they do to fresh ones is E[P V P] of the inverse
    # Wishart.
    n = moments.known.draws - 1
    fresh = (n - 1) * (n - d - 1) / ((n - d) * (n - d - 3)) / estimate.factor
    errors = moments.mean_errors * fresh[:, None, None]
    return np.asarray(np.sum(shares @ errors @ np.swapaxes(shares, 1, 2), axis=0))


def _weights_error(
    moments: ShardMoments,
    estimate: PrecisionEstimate,
    powers: Floats,
    shares: Floats,
    mean: Floats,
    covariance: Floats,
) -> Floats:
    """What the noise of the weights adds: they pull the mean to and fro between means that differ."""
    apart = moments.means - mean
    moved = np.einsum("bij,bj->bi", shares, apart)
    lengths = np.einsum("bi,bij,bj->b", apart, estimate.precision, apart)
    noise = 1.0 / (moments.known.draws - moments.dimension - 2)
    total = (moved * noise[:, None]).T @ moved
    return np.asarray(total + np.tensordot(noise * lengths * powers, shares, 1) @ covariance)


def _long_run_covariance(centred: Floats, lengths: Sequence[int], power: float) -> tuple[Floats, int]:
    """Covariance of batch means times the batch length, and the number of batches."""
    d = centred.shape[1]
    sums, batch_lengths = [], []
    # Chains of one length are cut in one go; a chain's last, incomplete batch is left out.
    runs = [(len(lengths), lengths[0])] if len(set(lengths)) == 1 else [(1, length) for length in lengths]
    start = 0
    for count, length in runs:
        m = max(1, int(length**power))
        a = length // m
        block = centred[start : start + count * length].reshape(count, length, d)[:, : a * m]
        sums.append(np.ones(m) @ block.reshape(count * a, m, d))
        batch_lengths.append(np.full(count * a, float(m)))
        start += count * length
    total = np.concatenate(sums)
    total /= np.sqrt(np.concatenate(batch_lengths))[:, None]
    return total.T @ total / max(len(total) - 1, 1), len(total)


def _noise_limit(num_batches: Floats, d: int) -> Floats:
    """Largest tau that independent draws show, but for one time in a few hundred."""
    return 1.0 + BELIEVED * np.sqrt(2.0 / (np.maximum(num_batches - 1, 1) * d))


def _autocorrelation_time(inverse_correlation: Floats, long_run: Floats) -> Floats:
    """tr(V⁻¹ C) / d."""
    d = long_run.shape[-1]
    return np.sum(inverse_correlation * long_run, axis=(-2, -1)) / d


def _inverse_correlations(covariances: Floats) -> tuple[Floats, Floats, tuple[int, ...]]:
    """Inverse correlations, products of standard deviations, and the shards that are singular."""
    deviations = np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))
    scale = deviations[:, :, None] * deviations[:, None, :]
    correlations = covariances / scale
    try:
        pivots = np.diagonal(np.linalg.cholesky(correlations), axis1=1, axis2=2) ** 2
        if pivots.min() > DEPENDENT:
            return np.linalg.inv(correlations), scale, ()
    except np.linalg.LinAlgError:
        pass
    dependent = tuple(b for b, c in enumerate(correlations) if _first_dependent(c) is not None)
    return np.linalg.pinv(correlations, hermitian=True, rcond=DEPENDENT), scale, dependent


def _first_dependent(correlation: Floats) -> int | None:
    """The first column that is a linear combination of those before it."""
    left = correlation.copy()
    for column in range(len(left)):
        if left[column, column] < DEPENDENT:
            return column
        below = left[column + 1 :, column] / left[column, column]
        left[column + 1 :, column + 1 :] -= np.outer(below, left[column, column + 1 :])
    return None


def _dependent_columns(moments: ShardMoments, shard: int) -> Exception:
    covariance = moments.covariances[shard]
    deviations = np.sqrt(np.diagonal(covariance))
    correlation = covariance / np.outer(deviations, deviations)
    column = _first_dependent(correlation)
    assert column is not None
    slopes = np.linalg.lstsq(correlation[:column, :column], correlation[:column, column], rcond=DEPENDENT)[0]
    others = ", ".join(moments.names[i] for i in np.flatnonzero(np.abs(slopes) > 1e-6))
    name = moments.names[column]
    return must_be(
        "combine",
        "draws",
        "of linearly independent columns",
        f"{name}, a linear combination of {others}, in shard {moments.labels[shard]}",
        f"Leave {name} out and compute it from the combined draws.",
        error=DrawsError,
    )


def _too_few(moments: ShardMoments, shard: int, worth: float) -> Exception:
    d, label = moments.dimension, moments.labels[shard]
    good = int(FEW_DRAWS_PER_DIMENSION * d)
    return must_be(
        "combine",
        "draws",
        f"worth more than {d + 4} independent ones per shard for {d} parameters",
        f"{moments.sizes[shard]:.0f} draws worth {worth:.0f} in shard {label}",
        f"Draw longer chains ({good} independent draws or more are good), or combine by 'pool'.",
        error=DrawsError,
    )
