"""Weighted draws or the given ones: which have the smaller error, judged from both.

Formula. F is a marginal distribution function of the given draws, G that of the weighted ones, of which n_eff are
effective; D^2 is the mean of (F - G)^2 over coordinates and principal axes, at the quantiles u of F. The weighted draws
have the squared error v = mean u (1 - u) / n_eff. They err independently of the given ones, so that D^2 - v is on
average the squared error of those, and the weighted ones are better by expectation where

    D^2 - v > v.

Distribution functions are bounded, so that no tail decides, and they see shape as well as mean and spread.

Assumptions: the weights are right up to their noise. Fails where the weighted draws miss what the given ones have; and
it sees nothing of a joint shape whose marginals and principal axes agree.

An evidence bound cannot decide here: it needs the density of the given draws, which most rules do not have.

Reference. Anderson (1962), On the distribution of the two-sample Cramér-von Mises criterion, Annals of Mathematical
Statistics 33(3) (the distance).
"""

from __future__ import annotations

import numpy as np

from consilience.numerics import normalised_weights, weighted_covariance
from consilience.refine.base import Floats
from consilience.refine.stein import Cloud

# Levels at which distribution functions are compared.
LEVELS = np.arange(1, 20) / 20.0


def better(
    draws: Floats, log_weights: Floats | None, points: Floats, weights: Floats, effective: float
) -> bool:
    """Whether weighted points are nearer to the posterior than the given draws, by expectation.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> exact, flat = rng.normal(size=(1000, 1)), np.zeros(1000)
    >>> [better(rng.normal(size=(9000, 1)) + off, None, exact, flat, 1000.0) for off in (0.0, 0.5)]
    [False, True]
    """
    noise = float(np.mean(LEVELS * (1.0 - LEVELS))) / effective
    return squared_distance(draws, log_weights, points, weights) > 2.0 * noise


def squared_distance(draws: Floats, log_weights: Floats | None, points: Floats, weights: Floats) -> float:
    """Mean squared difference of marginal distribution functions, along coordinates and principal axes.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(4000, 1))
    >>> flat = np.full(4000, -np.log(4000.0))
    >>> squared_distance(x, None, x, flat) < 1e-6, round(squared_distance(x, None, x + 1.0, flat), 2)
    (True, 0.08)
    """
    cloud = Cloud.of(draws, log_weights)
    axes = np.linalg.eigh(np.atleast_2d(weighted_covariance(cloud.whiten(points), weights)))[1]
    given = np.concatenate([draws, cloud.whiten(draws) @ axes], axis=1)
    found = np.concatenate([points, cloud.whiten(points) @ axes], axis=1)
    share = normalised_weights(weights)
    own = np.full(len(draws), 1.0 / len(draws)) if log_weights is None else normalised_weights(log_weights)
    gaps = []
    for x, y in zip(given.T, found.T, strict=True):
        order = np.argsort(x)
        places = np.searchsorted(np.cumsum(own[order]), LEVELS).clip(max=len(x) - 1)
        gaps.append([share[y <= level].sum() for level in x[order][places]] - LEVELS)
    return float(np.mean(np.square(gaps)))
