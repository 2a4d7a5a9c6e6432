"""Mean, spread and Monte Carlo error of every column for itself, for rules that combine one column at a time.

The error of a mean is by batch means, as in `moments`, but without the covariances between columns, which cost
more than sorting as soon as there are some dozens of them. A column whose autocorrelation time is within noise of
1 counts as independent draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .base import Floats
from .moments import BELIEVED

# Where averaging spreads gives this many times the standard deviation that precisions give, say so.
TOO_WIDE = 1.2


@dataclass(frozen=True, eq=False)
class ColumnMoments:
    """Moments of the columns of one shard."""

    means: Floats  # (d,)
    deviations: Floats  # (d,)
    mean_errors: Floats  # (d,) Monte Carlo variances of the means
    slow: bool  # whether some column mixes too slowly for its chains to show how slowly


def column_moments(columns: Floats, lengths: Sequence[int]) -> ColumnMoments:
    """Estimate the moments of one shard's columns.

    Parameters
    ----------
    columns : array, shape (d, J)
        One row per parameter: in this layout a pass over the draws of a parameter is a pass over memory.
    lengths : sequence of int
        The lengths of the chains that the draws concatenate.

    Examples
    --------
    >>> columns = np.random.default_rng(0).normal(size=(1, 10_000))
    >>> moments = column_moments(columns, (10_000,))
    >>> moments.deviations.round(1), (moments.mean_errors * 10_000).round(1), moments.slow
    (array([1.]), array([1.]), False)
    """
    number, longest = columns.shape[1], max(lengths)
    means = columns.mean(axis=1)
    centred = columns - means[:, None]
    variances = np.einsum("ij,ij->i", centred, centred) / (number - 1)
    long_run, num_batches = _long_run_variances(centred, lengths, power=0.5)
    limit = _noise_limit(num_batches)
    doubtful = (long_run > limit * variances) & (long_run > np.sqrt(longest) / 5 * variances)
    if doubtful.any():
        # Batches must be long against the autocorrelation: slow chains are cut into fewer and longer ones.
        longer, num_batches = _long_run_variances(centred[doubtful], lengths, power=2 / 3)
        long_run[doubtful], limit = longer, _noise_limit(num_batches)
        doubtful &= long_run > np.maximum(limit, longest ** (2 / 3) / 5) * variances
    independent = long_run <= limit * variances
    errors = np.where(independent, variances, long_run) / number
    return ColumnMoments(means, np.sqrt(variances), errors, bool(doubtful.any()))


def slow_chains(moments: Sequence[ColumnMoments], labels: Sequence[str]) -> tuple[str, ...]:
    """Name the shards whose effective sizes are an upper bound at best."""
    slow = [label for part, label in zip(moments, labels, strict=True) if part.slow]
    if not slow:
        return ()
    return (
        f"Chains of {len(slow)} of {len(moments)} shards are too short to show how they mix (shard {slow[0]} "
        "first). Run longer chains.",
    )


def uneven_spreads(deviations: Floats, weights: Floats, names: Sequence[str]) -> tuple[str, ...]:
    """Warn where shards' spreads (B, d) differ so much that their average is far from what precisions say.

    Examples
    --------
    >>> uneven_spreads(np.array([[1.0], [5.0]]), np.array([0.5, 0.5]), ["slope"])[0][:65]
    "The shards' spreads differ: for slope their average is 2.2 times "
    >>> uneven_spreads(np.array([[1.0], [1.1]]), np.array([0.5, 0.5]), ["slope"])
    ()
    """
    ratios = (weights @ deviations) * np.sqrt(weights @ deviations**-2.0)
    worst = int(np.argmax(ratios))
    if ratios[worst] <= TOO_WIDE:
        return ()
    return (
        f"The shards' spreads differ: for {names[worst]} their average is {ratios[worst]:.1f} times the standard "
        f"deviation of the product of the shards ({int(np.sum(ratios > TOO_WIDE))} of {len(ratios)} columns are "
        "more than 20 % too wide). Use a rule that weighs shards by precision, such as swiss.",
    )


def _long_run_variances(centred: Floats, lengths: Sequence[int], power: float) -> tuple[Floats, int]:
    """Variances of batch means times the batch length, and the number of batches."""
    # Chains of one length are cut in one go; a chain's last, incomplete batch is left out.
    runs = [(len(lengths), lengths[0])] if len(set(lengths)) == 1 else [(1, length) for length in lengths]
    total, num_batches, start = np.zeros(len(centred)), 0, 0
    for count, length in runs:
        m = max(1, int(length**power))
        a = length // m
        block = centred[:, start : start + count * length].reshape(len(centred), count, length)[:, :, : a * m]
        sums = block.reshape(len(centred), count * a, m) @ np.ones(m)
        total += np.einsum("ij,ij->i", sums, sums) / m
        num_batches += count * a
        start += count * length
    return total / max(num_batches - 1, 1), num_batches


def _noise_limit(num_batches: int) -> float:
    """Largest autocorrelation time that independent draws show, but for one time in a few hundred."""
    return float(1.0 + BELIEVED * np.sqrt(2.0 / max(num_batches - 1, 1)))
