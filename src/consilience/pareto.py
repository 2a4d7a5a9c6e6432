"""Pareto-smoothed importance sampling: how far importance weights can be trusted, and their smoothed form.

Formula. The largest M = min(S / 5, 3 sqrt(S)) of S weights, less a threshold, are fitted by a generalised Pareto
distribution with shape k: moments of order below 1/k exist. Estimates are dependable while

    k < min(1 - 1 / log10(S), 0.7).

Smoothing replaces those weights by the fitted distribution's quantiles at (j - 1/2) / M, none above the largest.

The fit is Zhang and Stephens' (2009) with the prior on k of Vehtari et al., worth ten weights at k = 1/2.

Fails where the proposal misses a region altogether: weights that were never drawn cannot show in any tail.

Reference. Vehtari, Simpson, Gelman, Yao and Gabry (2024), Pareto smoothed importance sampling, JMLR 25(72),
sections 2 and 3, appendix C.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from consilience.errors import InputError, must_be
from consilience.numerics import Floats, log_sum_exp, normalised_weights

FEWEST_IN_TAIL = 5


@dataclass(frozen=True, eq=False)
class SmoothedWeights:
    """Smoothed log weights, normalised to sum 1 on the natural scale, and the shape of their tail.

    ``shape`` is Pareto k-hat: minus infinity where the largest weights are all the same, and infinity where there
    are too few of them to tell.
    """

    log_weights: Floats
    shape: float


def pareto_smoothed(log_weights: ArrayLike) -> SmoothedWeights:
    """Smooth the tail of importance weights.

    Examples
    --------
    >>> smoothed = pareto_smoothed(np.random.default_rng(0).normal(size=1_000))
    >>> 0.0 < smoothed.shape < 0.7, round(float(np.exp(smoothed.log_weights).sum()), 12)
    (True, 1.0)
    """
    weights = _checked(log_weights)
    weights = weights - weights.max()
    number = len(weights)
    length = int(np.ceil(min(number / 5.0, 3.0 * np.sqrt(number))))
    order = np.argsort(weights, kind="stable")
    if number <= length:
        return SmoothedWeights(weights - log_sum_exp(weights), np.inf)
    cut = max(float(weights[order[-length - 1]]), float(np.log(np.finfo(np.float64).tiny)))
    tail = order[weights[order] > cut]
    if len(tail) < FEWEST_IN_TAIL:
        shape = -np.inf if cut > -1e-9 else np.inf
        return SmoothedWeights(weights - log_sum_exp(weights), shape)
    excess = np.exp(weights[tail]) - np.exp(cut)
    shape, scale = fit_generalised_pareto(excess)
    if np.isfinite(shape):
        levels = (np.arange(len(tail)) + 0.5) / len(tail)
        weights[tail] = np.log(_quantile(levels, shape, scale) + np.exp(cut))
        weights = np.minimum(weights, 0.0)
    return SmoothedWeights(weights - log_sum_exp(weights), shape)


def pareto_shape(log_weights: ArrayLike) -> float:
    """Pareto k-hat of importance weights.

    Examples
    --------
    >>> pareto_shape(np.zeros(100))
    -inf
    """
    return pareto_smoothed(log_weights).shape


def shape_limit(number: int) -> float:
    """Largest k-hat at which estimates from this many weights are dependable.

    Examples
    --------
    >>> round(shape_limit(200), 2), shape_limit(100_000)
    (0.57, 0.7)
    """
    return min(1.0 - 1.0 / float(np.log10(max(number, 11))), 0.7)


def effective_draws(log_weights: ArrayLike) -> float:
    """Kish's effective number of weighted draws, (sum w)² / sum w².

    Examples
    --------
    >>> round(effective_draws(np.log([0.5, 0.5, 1e-9])), 6)
    2.0
    """
    return float(1.0 / np.sum(normalised_weights(_checked(log_weights)) ** 2))


def fit_generalised_pareto(excess: Floats) -> tuple[float, float]:
    """Shape and scale of a generalised Pareto distribution, from sorted positive numbers.

    Examples
    --------
    >>> draws = np.sort(np.random.default_rng(0).pareto(2.0, size=5_000))
    >>> shape, scale = fit_generalised_pareto(draws)
    >>> round(shape, 1), round(scale, 1)
    (0.5, 0.5)
    """
    number = len(excess)
    grid = 30 + int(np.sqrt(number))
    candidates = 1.0 - np.sqrt(grid / (np.arange(grid) + 0.5))
    candidates /= 3.0 * excess[int(number / 4 + 0.5) - 1]
    candidates += 1.0 / excess[-1]
    shapes = np.log1p(-candidates[:, None] * excess).mean(axis=1)
    profile = number * (np.log(-candidates / shapes) - shapes - 1.0)
    weights = normalised_weights(profile)
    rate = float(weights @ candidates)
    shape = float(np.log1p(-rate * excess).mean())
    scale = -shape / rate
    return (number * shape + 10.0 * 0.5) / (number + 10.0), scale


def _quantile(levels: Floats, shape: float, scale: float) -> Floats:
    if abs(shape) < np.finfo(np.float64).eps:
        return -scale * np.log1p(-levels)
    return scale * np.expm1(-shape * np.log1p(-levels)) / shape


def _checked(log_weights: ArrayLike) -> Floats:
    weights = np.array(log_weights, dtype=np.float64)
    if weights.ndim != 1 or not len(weights) or np.any(np.isnan(weights)) or not np.isfinite(weights.max()):
        raise must_be(
            "pareto",
            "log_weights",
            "one row of numbers, finite or minus infinity but not all of them",
            log_weights,
            "Check the densities.",
            InputError,
        )
    return weights
