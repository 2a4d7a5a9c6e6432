"""Nested R-hat: have many short chains forgotten where they started?

Formula. K superchains of M chains each, all chains of a superchain started at the same point. With B the variance
of the superchains' means (divisor K - 1), and within each superchain the variance of its chains' means (divisor
M - 1) plus the mean variance along its chains (divisor N - 1; none for N = 1), W the average of that,

    nested R-hat = sqrt(1 + B / W).

Chains that have forgotten their start have B = W / M on average for N = 1, so nested R-hat tends to
sqrt(1 + 1 / M), not to 1. What is more is the influence of the start: tau = B / W - 1 / M, its share of the variance.

For N = 1 and normal means M B / W has the F distribution with K - 1 and K (M - 1) degrees of freedom: the limit here is
its quantile, at a level shared among all quantities that are looked at. Quantities are the coordinates' normal
scores, those of their distances from the median, and the log density's.

Assumptions: superchains start at independent draws, spread at least as widely as the posterior. Fails where all
starts miss the same mode; and a common bias of all starts does not show in B, so the mean is watched as well (see
`polish`).

Reference. Margossian, Hoffman, Sountsov, Riou-Durand, Vehtari and Gelman (2024), Nested R-hat: assessing the
convergence of Markov chain Monte Carlo when running many short chains, Bayesian Analysis (the definition in its
section 2); normal scores and folding: Vehtari et al. (2021), section 3.
"""

from __future__ import annotations

import numpy as np
from scipy.special import fdtri, ndtri

from consilience.refine.base import Floats

# Chance that chains that have forgotten their start are taken for others.
LEVEL = 0.01


def nested_rhat(x: Floats, superchains: int) -> Floats:
    """Nested R-hat of every column.

    Parameters
    ----------
    x : (chains, draws, d)
        Chains of a superchain follow one another.
    superchains : int
        K, a divisor of the number of chains.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(256, 1, 2))
    >>> x[:, :, 1] += np.repeat(np.arange(64), 4)[:, None] / 16
    >>> nested_rhat(x, 64).round(1)
    array([1.1, 1.6])
    """
    chains, draws, dimension = x.shape
    means = x.mean(axis=1).reshape(superchains, chains // superchains, dimension)
    within = means.var(axis=1, ddof=1)
    if draws > 1:
        along = x.var(axis=1, ddof=1).reshape(superchains, chains // superchains, dimension)
        within = within + along.mean(axis=1)
    between = means.mean(axis=1).var(axis=0, ddof=1)
    # A column that does not move has forgotten nothing.
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.sqrt(1.0 + between / within.mean(axis=0))
    return np.where(np.isnan(found), np.inf, found)


def nested_rhat_limit(chains: int, superchains: int, quantities: int) -> float:
    """What the largest of so many nested R-hat stays under, in 99 of 100 sets of chains that forgot their start.

    Examples
    --------
    >>> round(nested_rhat_limit(256, 64, 5), 2)
    1.2
    """
    size = chains // superchains
    quantile = fdtri(superchains - 1, superchains * (size - 1), 1.0 - LEVEL / quantities)
    return float(np.sqrt(1.0 + quantile / size))


def quantities(states: Floats, log_density: Floats) -> Floats:
    """(S, 1, 2 d + 1) what is watched at one time: normal scores of coordinates, their folds, the log density."""
    folded = np.abs(states - np.median(states, axis=0))
    columns = np.column_stack([states, folded, log_density])
    ranks = np.argsort(np.argsort(columns, axis=0, kind="stable"), axis=0, kind="stable") + 1.0
    return np.asarray(ndtri((ranks - 0.375) / (len(columns) + 0.25)))[:, None, :]
