"""Sub-posterior draws of bounded parameters, made ready to be multiplied in unconstrained coordinates.

A sub-posterior p_b(theta) = p0(theta)^{w_b} f_b is a density of theta, and so is the posterior, their product. In
coordinates u with Jacobian J = |d theta / d u| the draws of shard b have the density p_b J. The product of B such has
the Jacobian to the power B where the posterior has it once. So here every shard's draws are reweighted by
J^{w_b - 1}: then the product is

    prod_b p_b J^{w_b} = J prod_b p_b,

as it must be. Any powers that sum to 1 would do; with w_b a shard keeps as much of the Jacobian as of the prior. For a
positive parameter with a posterior of relative width s, leaving it out moves the mean by (B - 1) s posterior
deviations. Inflated draws need none of this: their densities are multiplied with powers w_b, which sum to 1, and
so are their Jacobians. Nor do draws of `fit`, which takes the prior to the power w_b in u, its Jacobian with it.

The reweighting is a systematic resampling along each chain. It keeps the lengths of chains and the law, exactly for
many draws, and shows what it cost as repeated draws beside each other, which count as autocorrelation.

Fails where a shard knows a bounded parameter so badly that J varies a lot over its draws: the share of draws that
is left is in the notes, and a warning comes below a half.

Reference. Change of variables; thesis of Vyner, (3.6), has the same power of B for functions of parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .base import Floats
from .supports import SupportSpace

# Share of the draws below which a shard is named in a warning.
ENOUGH = 0.5
# Weights that vary by less than this are left alone.
EQUAL = 1e-9


@dataclass(frozen=True, eq=False)
class Tilted:
    """Coordinates and log densities after the reweighting, and what to say of it."""

    arrays: tuple[Floats, ...]
    densities: Sequence[Floats | None]
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def once_a_jacobian(
    space: SupportSpace,
    arrays: Sequence[Floats],
    densities: Sequence[Floats | None],
    chains: Sequence[Sequence[int]],
    weights: Floats,
) -> Tilted:
    """Take the Jacobian that is too much out of every shard.

    Examples
    --------
    Log-normal draws, whose logarithms move down by (1 - w) times their variance:

    >>> space = SupportSpace(["sigma"], {"sigma": "positive"})
    >>> draws = [np.random.default_rng(b).normal(0.0, 0.5, size=(4_000, 1)) for b in range(2)]
    >>> found = once_a_jacobian(space, draws, [None, None], [(4_000,), (4_000,)], np.array([0.5, 0.5]))
    >>> [round(float(x.mean()), 1) for x in found.arrays], found.notes[0][:54]
    ([-0.1, -0.1], 'Sub-posterior draws of bounded parameters were resampl')
    """
    moved, changed, shares = [], [], []
    for array, density, lengths, weight in zip(arrays, densities, chains, weights, strict=True):
        log_weights = (weight - 1.0) * space.log_jacobian(array)
        if np.ptp(log_weights) < EQUAL:
            moved.append(array)
            changed.append(density)
            shares.append(1.0)
            continue
        relative = np.exp(log_weights - log_weights.max())
        shares.append(float(relative.sum() ** 2 / np.sum(relative**2) / len(array)))
        kept = _chain_by_chain(relative, lengths)
        moved.append(array[kept])
        changed.append(None if density is None else (density + log_weights)[kept])
    if min(shares) == 1.0:
        return Tilted(tuple(moved), changed)
    note = (
        "Sub-posterior draws of bounded parameters were resampled, so that their product has the Jacobian of the "
        f"unconstrained coordinates once, not once per shard. Left are {min(shares):.0%} to {max(shares):.0%} of draws."
    )
    poor = [str(b) for b, share in enumerate(shares) if share < ENOUGH]
    if not poor:
        return Tilted(tuple(moved), changed, (note,))
    warning = (
        f"Shards {', '.join(poor[:5])}{', …' if len(poor) > 5 else ''} know a bounded parameter so badly that changing "
        f"to unconstrained coordinates leaves {min(shares):.0%} of their draws. Make more draws, or use inflated ones."
    )
    return Tilted(tuple(moved), changed, (note,), (warning,))


def _chain_by_chain(weights: Floats, lengths: Sequence[int]) -> np.ndarray:
    """Indices of the draws that are kept, as many of each chain as there were."""
    ends = np.cumsum(lengths)
    starts = ends - np.asarray(lengths)
    kept = [start + _systematic(weights[start:end]) for start, end in zip(starts, ends, strict=True)]
    return np.concatenate(kept)


def _systematic(weights: Floats) -> np.ndarray:
    """As many indices as there are weights, each as often as its weight says, in order; nothing here is random."""
    edges = np.cumsum(weights) / np.sum(weights)
    places = (np.arange(len(weights)) + 0.5) / len(weights)
    first = np.searchsorted(edges, places)
    return np.minimum(first, len(weights) - 1)
