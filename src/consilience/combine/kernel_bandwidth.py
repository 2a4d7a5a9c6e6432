"""Bandwidths of kernels whose product is taken: annealed as draws come, and no smaller than draws allow.

Kernels of shard b have covariance h² V_b, so that h has no unit. Annealed as in the paper, draw i of N has

    h_b = (1 + (n_b - 1) i / N)^(-1 / (4 + d)),

which is the paper's i^(-1 / (4 + d)) when shards bring N draws; n_b counts effective draws. It goes from 1 to
Silverman's bandwidth but for a factor between 0.9 and 1.06.

Too small a bandwidth leaves few kernels that reach the product, and their noise takes the place of the density.
For a Gaussian shard whose mean lies D_b of its own standard deviations from the product, it is known: with centres
m_b + a (x - m_b), the estimated density at the product is worth

    E_b = n_b (h² (2 a² + h²) / (a² + h²)²)^(d/2) exp(-D_b² (1 / (a² + h²) - 1 / (2 a² + h²)))

draws, (E K)² / (Var K / n_b), and the noise of its logarithm and of that one's gradient, which moves the mean of the
product by so many of the product's standard deviations on average, is

    sqrt((1 + a² / (h² (2 a² + h²)) + (D_b² / d) (1 / (a² + h²) - 1 / (2 a² + h²))²) / E_b).

For the Hjort-Glad correction, kernels divided by the Gaussian at their centre, E_b is
n_b (h² (2 - h²))^(d/2) exp(-D_b² / (2 - h²)) and the noise
sqrt((1 + 1 / (h² (2 - h²)) + (D_b² / d) / (2 - h²)²) / E_b). Annealing stops where this noise passes a limit. As n_b
grows the noise at the annealed bandwidth falls as n_b^(-1 / (4 + d)), so that the limit is not met for ever.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .base import Floats

NoiseOfBandwidth = Callable[[Floats, Floats, Floats, int], Floats]
# Bandwidths that are tried between the annealed one and 1.
GRID = 400


def annealed(counts: Floats, fraction: float, dimension: int) -> Floats:
    """Bandwidths of shards with so many draws when this fraction of the product's draws is made.

    Examples
    --------
    >>> annealed(np.array([32.0]), 0.0, 1), annealed(np.array([32.0]), 1.0, 1)
    (array([1.]), array([0.5]))
    """
    return (1.0 + (counts - 1.0) * fraction) ** (-1.0 / (4 + dimension))


def noise_of_shrunk_kernels(h: Floats, counts: Floats, distances: Floats, dimension: int) -> Floats:
    """Noise of a product of kernel estimates with centres drawn towards the mean, a² = 1 - h².

    Parameters
    ----------
    h : bandwidths
    counts : effective draws
    distances : squared distances D_b²
    dimension : d

    Examples
    --------
    At h = 1 the estimate is the shard's Gaussian, which has no noise but that of its moments:

    >>> noise_of_shrunk_kernels(np.array([0.2, 1.0]), np.array(1000.0), np.array(1.0), 1).round(2)
    array([0.28, 0.03])
    """
    return _noise_of_kernels(h, counts, distances, dimension, 1.0 - h**2)


def noise_of_plain_kernels(h: Floats, counts: Floats, distances: Floats, dimension: int) -> Floats:
    """Noise of a product of kernel estimates with kernels at the draws, a = 1."""
    return _noise_of_kernels(h, counts, distances, dimension, np.ones_like(h))


def noise_of_spread_kernels(h: Floats, counts: Floats, distances: Floats, dimension: int) -> Floats:
    """Noise of the semiparametric product with the weights of kernels at centres pushed outwards, a² = 1 + h².

    The Gaussian takes the share h² / (1 + h²) of every component's mean, the kernels the rest.
    """
    return _noise_of_kernels(h, counts, distances, dimension, 1.0 + h**2) / (1.0 + h**2)


def noise_of_correction(h: Floats, counts: Floats, distances: Floats, dimension: int) -> Floats:
    """Noise of the Hjort-Glad correction.

    Examples
    --------
    Draws that lie far from the product cannot say what the correction is there:

    >>> noise_of_correction(np.full(2, 0.5), np.array(1000.0), np.array([1.0, 16.0]), 1).round(2)
    array([ 0.1 , 10.97])
    """
    wide = 2.0 - h**2
    draws = 0.5 * dimension * np.log(h**2 * wide) - distances / wide
    gradient = 1.0 / (h**2 * wide) + distances / dimension / wide**2
    return _root_ratio(1.0 + gradient, np.log(counts) + draws)


def smallest_bandwidths(
    noise: NoiseOfBandwidth,
    lowest: Floats,
    counts: Floats,
    distances: Floats,
    dimension: int,
    limit: float | None,
) -> Floats:
    """Smallest bandwidth of each shard, from `lowest` to 1, whose noise is within the limit; infinity if none is.

    Examples
    --------
    >>> counts, distances = np.full(2, 1e3), np.array([1.0, 50.0])
    >>> smallest_bandwidths(noise_of_correction, np.full(2, 0.2), counts, distances, 1, 0.2).round(2)
    array([0.26,  inf])
    """
    lowest = np.minimum(lowest, 1.0)
    if limit is None:
        return lowest
    grid = lowest[:, None] ** np.linspace(1.0, 0.0, GRID)
    within = noise(grid, counts[:, None], distances[:, None], dimension) <= limit
    first = np.take_along_axis(grid, within.argmax(axis=1)[:, None], axis=1)[:, 0]
    return np.where(within.any(axis=1), first, np.inf)


def _noise_of_kernels(h: Floats, counts: Floats, distances: Floats, dimension: int, spread: Floats) -> Floats:
    """The module's formula with spread = a²."""
    once, twice = 1.0 / (spread + h**2), 1.0 / (2.0 * spread + h**2)
    draws = 0.5 * dimension * np.log(h**2 * once**2 / twice) - distances * (once - twice)
    gradient = spread * twice / h**2 + distances / dimension * (once - twice) ** 2
    return _root_ratio(1.0 + gradient, np.log(counts) + draws)


def _root_ratio(gradient: Floats, log_draws: Floats) -> Floats:
    """sqrt(gradient / exp(log_draws)), of which a shard out of reach gets infinity and no warning."""
    with np.errstate(divide="ignore", over="ignore"):
        return np.exp(0.5 * (np.log(gradient) - log_draws))
