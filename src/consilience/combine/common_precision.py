"""Precisions of shards pulled towards what they have in common, as far as they differ by noise alone.

Shards of one data set know the parameters about alike: P_b ~ w_b P, with P the sum of all. Estimates differ by more,
because they are noisy, and noisy weights pull the product's mean to and fro between means that differ. The estimates

    (1 - r) P_b + r w_b P,      r = (1 - 1/B) (expected square of the noise) / (square of what is seen),

squares being Frobenius norms of V^{1/2} P_b V^{1/2} / w_b less its noise-free part, with V = P⁻¹, summed over
shards, have the least mean square error that one r can give (empirical Bayes). Their sum is P still: the product's
covariance stays as it was, and its mean becomes (1 - r) mu + r sum w_b m_b.

Shards whose precisions agree get r near 1 and lose the noise of their weights; for shards that differ, as those of
independent covariances with 5 d degrees of freedom do, r is small and the error of the mean was measured to fall by
1.5 % in 20 dimensions and 4 % in 80 (5,000 draws each).

Reference. Efron and Morris (1976), Multivariate empirical Bayes and estimation of covariance matrices, Annals of
Statistics 4(1), for the idea.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .base import Floats
from .moments import GaussianProduct, ShardMoments


@dataclass(frozen=True, eq=False)
class CommonPrecision:
    """The shards' Gaussians after the pull, and their product.

    Attributes
    ----------
    pull : r, from 0 (precisions as estimated) to 1 (precisions w_b P)
    precisions : (B, d, d)
    shares : (B, d, d) that sum to the identity: mean = sum shares_b m_b
    mean, covariance : of the product
    mean_variances, weight_variances : (B, d) what the noise of each shard's mean, and of its precision, adds to the
        Monte Carlo variance of the product's mean
    warnings : those of the product that was pulled
    """

    pull: float
    precisions: Floats
    shares: Floats
    mean: Floats
    covariance: Floats
    mean_variances: Floats
    weight_variances: Floats
    warnings: tuple[str, ...]


def pull_together(
    moments: ShardMoments, product: GaussianProduct, weights: Floats, *, pull: float | None = None
) -> CommonPrecision:
    """Pull the shards' precisions together, by as much as their noise asks for or as is given.

    Examples
    --------
    >>> from consilience.combine.moments import gaussian_product, shard_moments
    >>> from consilience.draws import Subposteriors
    >>> shards = Subposteriors.of(np.random.default_rng(0).normal(size=(20, 200, 3)), kind="subposterior")
    >>> moments = shard_moments(shards)
    >>> common = pull_together(moments, gaussian_product(moments, np.ones(20)), shards.weights)
    >>> common.pull > 0.7
    True
    """
    estimate, d = moments.precisions.precision, moments.dimension
    total = estimate.sum(axis=0)
    if pull is None:
        pull = _noise_share(moments, product, weights)
    parts = weights[:, None, None]
    shares = (1.0 - pull) * product.shares + pull * parts * np.eye(d)
    # The shares sum to the identity, so that any centre does: one near the means loses no digits.
    centre = moments.means.mean(axis=0)
    mean = centre + np.einsum("bij,bj->i", shares, moments.means - centre)
    precisions = (1.0 - pull) * estimate + pull * parts * total
    own, weighing = _variances(moments, product.covariance, precisions, shares, mean, pull)
    return CommonPrecision(
        float(pull), precisions, shares, mean, product.covariance, own, weighing, product.warnings
    )


def _noise_share(moments: ShardMoments, product: GaussianProduct, weights: Floats) -> float:
    """r of the module's docstring."""
    num_shards, d = len(weights), moments.dimension
    if num_shards == 1:
        return 0.0
    # Traces of powers of V P_b are those of its symmetric form.
    relative = product.shares / weights[:, None, None]
    squares = np.einsum("bij,bji->b", relative, relative)
    traces = np.trace(relative, axis1=1, axis2=2)
    noise = (squares + traces**2) / (moments.known.draws - d - 2)
    seen = squares - 2.0 * traces + d
    return float(min(1.0, (1.0 - 1.0 / num_shards) * noise.sum() / max(seen.sum(), 1e-300)))


def _variances(
    moments: ShardMoments, covariance: Floats, precisions: Floats, shares: Floats, mean: Floats, pull: float
) -> tuple[Floats, Floats]:
    """Noise of each shard's mean, and of its weight; pulling leaves 1 - r of the latter, its own error counted in."""
    own = np.einsum("bij,bjk,bik->bi", shares, moments.mean_errors, shares)
    apart = moments.means - mean
    lengths = np.einsum("bi,bij,bj->b", apart, precisions, apart)
    moved = np.einsum("bij,bj->bi", shares, apart) ** 2
    spread = np.einsum("bij,ji->bi", shares, covariance)
    noise = (1.0 - pull) / (moments.known.draws - moments.dimension - 2)
    return own, noise[:, None] * (moved + lengths[:, None] * spread)
