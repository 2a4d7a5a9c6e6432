"""Realisations of the log posterior's Gaussian process, and the weights and errors that follow from them.

Formula. For draws theta_i from a density q and M realisations l_m of the process,

    w_im = exp(l_m(theta_i)) / q(theta_i),   I_m = sum_i w_im h(theta_i) / sum_i w_im,

the mean of the I_m estimates the posterior expectation of h, and their variance is what the surfaces do not
know about it. The mean is that of the weighted draws with weights mean_m (w_im / sum_j w_jm).

A realisation is made by conditioning paths: with f_m a path of the prior process and e_m noise, and with P the
map from values at the points to the surface through them,

    l_m - mu = f_m - P (f_m(points) + e_m)

has the covariance of the process given the values, the quadratic's uncertainty included (its flat prior makes
P reproduce every quadratic). f_m is a sum of `FREQUENCIES` random cosines, whose covariance is that of the process
on average over frequencies; one set of them, which all realisations share, leaves an error of some 20 % in the
variance of what the points do not tell. No matrix of the draws' own size is needed.

Reference. Nemeth and Sherlock (2018), section 3.3 and Algorithm 2 (Gaussian-process importance sampler); Rahimi
and Recht (2007), Random features for large-scale kernel machines; Wilson et al. (2021), Pathwise conditioning
of Gaussian processes, Journal of Machine Learning Research 22(105), equation (13).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from consilience.progress import tell

from .base import Floats
from .gp_density import Placed, Product, row_blocks
from .gp_surface import NEGLIGIBLE

FREQUENCIES = 512
# Numbers that realisations may hold at a time, however few parameters there are.
LEAST_HELD = 1 << 18
# Surfaces that scatter less than this are known.
KNOWN = 1e-6


@dataclass(frozen=True, eq=False)
class Spread:
    """What M realisations say about N draws.

    Attributes
    ----------
    weights : (N,) mean over realisations of their normalised weights
    means : (M, d) means of the draws under each realisation
    worth : median over realisations of the share of draws that their weights are worth
    """

    weights: Floats
    means: Floats
    worth: float


def realisations(
    product: Product, draws: Floats, number: int, generator: np.random.Generator, expected: bool
) -> Spread | None:
    """Weigh draws from the expected density (or from the mean surface's) by realisations of the process.

    None when every surface is known, so that all realisations are the same.
    """
    negligible = NEGLIGIBLE / np.sqrt(len(product.shards))
    uncertain = [shard for shard in product.shards if _is_uncertain(shard, draws, negligible)]
    if not uncertain:
        return None
    # log q is the mean surface and a correction: what a realisation adds to the mean is all that is needed.
    offset = np.concatenate(
        [
            product.correction(product.from_parameters(draws[rows]), expected)
            for rows in row_blocks(len(draws))
        ]
    )
    weights, means, worths = np.zeros(len(draws)), [], []
    # As many at a time as the draws themselves hold numbers.
    work = number * len(uncertain)
    batch = max(1, min(number, max(draws.shape[1], LEAST_HELD // len(draws))))
    for start in range(0, number, batch):
        log_ratio = np.repeat(-offset[:, None], min(batch, number - start), axis=1)
        for position, shard in enumerate(uncertain):
            tell("realisations", start * len(uncertain) + position * log_ratio.shape[1], work)
            deviation = Deviation(shard, log_ratio.shape[1], generator)
            for rows in row_blocks(len(draws)):
                log_ratio[rows] += deviation(draws[rows])
        log_ratio -= log_ratio.max(axis=0)
        ratio = np.exp(log_ratio, out=log_ratio)
        ratio /= ratio.sum(axis=0)
        weights += ratio.sum(axis=1) / number
        means.append(ratio.T @ draws)
        worths.append(1.0 / np.einsum("nm,nm->m", ratio, ratio) / len(draws))
    tell("realisations", work, work)
    return Spread(weights, np.concatenate(means), float(np.median(np.concatenate(worths))))


class Deviation:
    """M realisations of one shard's surface, less its mean, as a function of theta."""

    def __init__(self, shard: Placed, number: int, generator: np.random.Generator) -> None:
        self.shard = shard
        surface = shard.surface
        n, d = surface.points.shape
        values = generator.standard_normal((n, number)) * surface.noise_deviation
        if surface.has_process:
            self.frequencies = generator.standard_normal((d, FREQUENCIES)) / surface.length
            self.phases = generator.uniform(0.0, 2.0 * np.pi, FREQUENCIES)
            deviation = np.sqrt(surface.scale * (1.0 - surface.noise) * 2.0 / FREQUENCIES)
            self.amplitudes = generator.standard_normal((FREQUENCIES, number)) * deviation
            values += self._path(surface.points)
        self.coefficients, self.duals = surface.interpolate(values)

    def _path(self, z: Floats) -> Floats:
        return np.cos(z @ self.frequencies + self.phases) @ self.amplitudes

    def __call__(self, theta: Floats) -> Floats:
        """(N, M) deviations at the rows of theta."""
        z, surface = self.shard.place(theta), self.shard.surface
        known = surface.features(z) @ self.coefficients
        if not surface.has_process:
            return -known
        return self._path(z) - known - surface.kernel(z) @ self.duals


def _is_uncertain(shard: Placed, draws: Floats, negligible: float) -> bool:
    """Whether realisations of a shard's surface differ where the draws are."""
    surface = shard.surface
    if np.sqrt(surface.scale) <= KNOWN or not len(surface.points):
        return False
    if not surface.has_process:
        return True
    return any(
        surface.variance(shard.place(draws[rows])).max() > negligible**2 for rows in row_blocks(len(draws))
    )
