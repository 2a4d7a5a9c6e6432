"""Shards in the coordinates in which the product of their Gaussians is N(0, I), and mixtures of their kernels.

A product of B sums of kernels is a mixture of Gaussians, one component for every choice t of one draw per shard. The
coordinates z are those in which the product of the shards' Gaussians N(m_b, P_b⁻¹) is N(0, I), so that sum P_b = I.
With kernels of covariance h_b² P_b⁻¹ around centres c_b(t_b), a Gaussian factor exp(g' z - z' G z / 2) and
factors e_b of single draws, a component's weight is

    log W_t = sum_b A_b(t_b) + |S_t|² / 2,   S_t = R' (g + sum_b P_b c_b(t_b) / h_b²),   R R' = (G + sum P_b / h_b²)⁻¹,
    A_b(t) = log e_b(t) - c_b(t)' P_b c_b(t) / (2 h_b²),

so that a change of one shard's draw costs O(d), however many shards there are. The component itself is Gaussian with
precision G' + sum P_b / h_b², where G' is another Gaussian factor, or the same.

Proposals. Draws are proposed by their marginal weight were the other shards Gaussian, which the walk corrects for.
Where draw t of shard b meets a Gaussian of precision Q and natural mean q, it is exp(-c' T c / 2 + c' K (Q + K)⁻¹ q)
with K = P_b / h_b², T = K (Q + K)⁻¹ Q, times e_b(t).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from consilience.draws import Subposteriors

from .base import Floats
from .common_precision import CommonPrecision
from .moments import ShardMoments

# Every draw is proposed once, so that each can be reached, and this many times as many are proposed by their weight.
WEIGHTED_PROPOSALS = 1
# Rows that are worked on at once: what is in between takes little memory.
ROWS_AT_ONCE = 4_096


@dataclass(frozen=True, eq=False)
class Frame:
    """The shards, and their Gaussians in the coordinates of the module's docstring."""

    draws: tuple[Floats, ...]
    origin: Floats  # (d,) mean of the product
    root: Floats  # (d, d): x = origin + root @ z
    centres: Floats  # (B, d) draws' means, in the coordinates x
    means: Floats  # (B, d)
    precisions: Floats  # (B, d, d)
    factors: Floats  # (B, d, d): y = (x - centre) @ factor has precision 1, |y|² = (z - m)' P (z - m)
    to_means: Floats  # (B, d, d): z - m = y @ to_mean

    @property
    def num_shards(self) -> int:
        return len(self.draws)

    @property
    def dimension(self) -> int:
        return len(self.origin)

    def squared_distances(self) -> Floats:
        """Squared distances of the shards' means from points of the product, each in the shard's own units."""
        lengths = np.einsum("bi,bij,bj->b", self.means, self.precisions, self.means)
        return lengths + np.trace(self.precisions, axis1=1, axis2=2)


@dataclass(frozen=True, eq=False)
class Factors:
    """What is multiplied: kernels of which shards, how wide, and which Gaussians.

    Attributes
    ----------
    active : shards whose kernels take part
    bandwidths : (B,) h_b
    shrinkage : (B,) a_b: centres are m_b + a_b (z - m_b)
    tilted : whether kernels are divided by their shard's Gaussian at their centre
    weights_precision, weights_mean : Gaussian factor of the weights, natural parameters
    component_precision : precision of the Gaussian factor of the components, whose mean is 0
    """

    active: tuple[int, ...]
    bandwidths: Floats
    shrinkage: Floats
    tilted: bool
    weights_precision: Floats
    weights_mean: Floats
    component_precision: Floats


@dataclass(frozen=True, eq=False)
class Mixture:
    """A mixture to walk in, with the tables of every active shard."""

    positions: tuple[Floats, ...]  # (n_b, d): sums of them, with the offset, are S
    scores: tuple[Floats, ...]  # (n_b,): A_b less the log of how often the draw is proposed
    pools: tuple[np.ndarray, ...]  # indices to propose, besides every index once
    offset: Floats  # (d,)
    to_component_mean: Floats  # (d, d): means = (S @ this + shift), coordinates z
    shift: Floats  # (d,)
    component_root: Floats  # (d, d)


def make_frame(subposteriors: Subposteriors, moments: ShardMoments, product: CommonPrecision) -> Frame:
    """Find the coordinates in which the product of the shards' Gaussians is N(0, I)."""
    # In units of typical standard deviations: parameters of very different scales lose no digits.
    scale = np.sqrt(np.mean(np.diagonal(moments.covariances, axis1=1, axis2=2), axis=0))
    scaled = product.precisions * np.outer(scale, scale)
    root = np.linalg.cholesky(np.linalg.inv(scaled.sum(axis=0)))
    inner = root.T @ scaled @ root
    inner = 0.5 * (inner + np.swapaxes(inner, 1, 2))
    lower = np.linalg.cholesky(inner)
    back = np.linalg.inv(root) / scale
    return Frame(
        draws=subposteriors.draws,
        origin=product.mean,
        root=root * scale[:, None],
        centres=moments.means,
        means=(moments.means - product.mean) @ back.T,
        precisions=inner,
        factors=back.T @ lower,
        to_means=np.linalg.inv(lower),
    )


def build_mixture(frame: Frame, factors: Factors) -> Mixture:
    """Work out the tables of a mixture."""
    kernels = frame.precisions / factors.bandwidths[:, None, None] ** 2
    kernel_sum = kernels[list(factors.active)].sum(axis=0)
    root = np.linalg.cholesky(np.linalg.inv(factors.weights_precision + kernel_sum))
    component = np.linalg.inv(factors.component_precision + kernel_sum)
    tables = [_shard_tables(frame, factors, kernels[b], root, b) for b in factors.active]
    positions, scores, pools = zip(*tables, strict=True)
    back = np.linalg.inv(root)
    return Mixture(
        positions=positions,
        scores=scores,
        pools=pools,
        offset=factors.weights_mean @ root,
        to_component_mean=np.asarray(back @ component),
        shift=-factors.weights_mean @ component,
        component_root=np.asarray(np.linalg.cholesky(component)),
    )


def _shard_tables(
    frame: Frame, factors: Factors, kernel: Floats, root: Floats, b: int
) -> tuple[Floats, Floats, np.ndarray]:
    """Positions, scores and the pool of one shard."""
    x, mean, precision = frame.draws[b], frame.means[b], frame.precisions[b]
    a, h = factors.shrinkage[b], factors.bandwidths[b]
    # The Gaussian that the other shards make of this one's draws; the tilt has its own, of all shards.
    if factors.tilted:
        rest, natural = factors.weights_precision, factors.weights_mean
    else:
        width = a**2 + h**2
        rest = (np.eye(frame.dimension) - precision) / width
        natural = -(precision @ mean) / width
    gain = kernel @ np.linalg.inv(rest + kernel)
    curvature = gain @ rest
    slope = gain @ natural
    inverse = frame.to_means[b]
    positions = np.empty_like(x)
    scores = np.empty(len(x))
    weights = np.empty(len(x))
    for start in range(0, len(x), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        y = (x[rows] - frame.centres[b]) @ frame.factors[b]
        centre = y @ (a * inverse) + mean
        moved = centre @ kernel
        tilt = 0.5 * np.einsum("ni,ni->n", y, y) if factors.tilted else 0.0
        scores[rows] = tilt - 0.5 * np.einsum("ni,ni->n", centre, moved)
        weights[rows] = tilt - 0.5 * np.einsum("ni,ni->n", centre, centre @ curvature) + centre @ slope
        positions[rows] = moved @ root
    pool, counts = _pool(weights)
    scores -= np.log1p(counts)
    return positions, scores, pool


def _pool(log_weights: Floats) -> tuple[np.ndarray, np.ndarray]:
    """Indices in numbers proportional to their weights, and these numbers."""
    shares = np.exp(log_weights - log_weights.max())
    total = WEIGHTED_PROPOSALS * len(shares)
    ends = np.cumsum(shares, out=shares)
    ends *= total / ends[-1]
    ends[-1] = total
    counts = np.diff(np.minimum(ends + 0.5, total).astype(np.int32), prepend=np.int32(0))
    return np.repeat(np.arange(len(counts), dtype=np.int32), counts), counts
