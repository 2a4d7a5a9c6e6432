"""Monte Carlo error of the mean of a product of kernel mixtures, from what its walkers hold.

By the infinitesimal jackknife, draw t of shard b moves the product's mean by p_b(t) (E[theta | t_b = t] - E theta),
where p_b(t) is how often it is held, so that the draws of shard b bring the covariance

    tau_b sum_t p_b(t)² (E[theta | t_b = t] - E theta)(E[theta | t_b = t] - E theta)',

with tau_b their autocorrelation time. Pairs of independent walkers that hold the same draw estimate the sum without
bias. Where a rule leans on the shards' Gaussians, the draws also act through the moments: with shares k_b of the
mean and l_b of the covariance, a draw moves the product's mean by

    g_t = V P_b (k_b (x_t - m_b) - l_b ((x_t - m_b)(x_t - m_b)' P_b - I)(m_b - mu)) / n_b

besides. Cross terms with the former come from the walkers, squares from `common_precision`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .base import Floats
from .common_precision import CommonPrecision
from .kernel_frame import Frame
from .moments import ShardMoments


@dataclass(frozen=True, eq=False)
class Held:
    """What walkers are in when they are read out, and what the mixture was made of.

    Attributes
    ----------
    means : (C, d) means of their components, in the coordinates of the frame
    indices : (S, C) draws that they hold, of the active shards
    active : those shards
    mean_shares, covariance_shares : (B,) k_b and l_b
    """

    means: Floats
    indices: np.ndarray
    active: tuple[int, ...]
    mean_shares: Floats
    covariance_shares: Floats


def variance_of_mean(frame: Frame, moments: ShardMoments, product: CommonPrecision, held: Held) -> Floats:
    """Variance of the product's mean between fresh draws of the shards, per coordinate."""
    apart = (held.means - held.means.mean(axis=0)) @ frame.root.T
    total = np.zeros(frame.dimension)
    for b, indices in zip(held.active, held.indices, strict=True):
        pulled = _through_moments(frame, product, held, b, indices)
        cross = np.mean(apart * pulled, axis=0) / moments.sizes[b]
        tau = moments.sizes[b] / moments.effective_draws[b]
        total += tau * (_over_pairs(apart, indices) + 2.0 * cross)
    total += held.mean_shares**2 @ product.mean_variances
    total += held.covariance_shares**2 @ product.weight_variances
    # An unbiased estimate may be negative where walkers hardly ever hold the same draw.
    return np.maximum(total, 0.0)


def draws_held(held: Held) -> Floats:
    """How many different draws of each active shard the walkers share out among them, effectively.

    Examples
    --------
    >>> indices = np.random.default_rng(0).integers(20, size=(1, 2000))
    >>> held = Held(np.zeros((2000, 1)), indices, (0,), np.zeros(1), np.zeros(1))
    >>> draws_held(held).round()
    array([20.])
    """
    ones = np.ones((held.indices.shape[1], 1))
    matches = np.array([_over_pairs(ones, indices)[0] for indices in held.indices])
    return 1.0 / np.maximum(matches, 1e-12)


def _through_moments(
    frame: Frame, product: CommonPrecision, held: Held, b: int, indices: np.ndarray
) -> Floats:
    """n_b g_t of the module's docstring for the draws that are held."""
    x = frame.draws[b][indices] - frame.centres[b]
    away = frame.centres[b] - product.mean
    lengths = x @ (product.precisions[b] @ away)
    inner = held.mean_shares[b] * x - held.covariance_shares[b] * (x * lengths[:, None] - away)
    return inner @ product.shares[b].T


def _over_pairs(values: Floats, indices: Sequence[int] | np.ndarray) -> Floats:
    """Average over pairs of different walkers of the product of their values, 0 if they hold different draws."""
    order = np.argsort(indices, kind="stable")
    held, ordered = np.asarray(indices)[order], values[order]
    starts = np.flatnonzero(np.diff(held, prepend=-1))
    squares = np.add.reduceat(ordered, starts, axis=0) ** 2
    number = len(held)
    return (squares.sum(axis=0) - np.sum(values**2, axis=0)) / (number * (number - 1))
