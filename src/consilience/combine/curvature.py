"""Covariances of shards whose curvature at the mode is known: estimates from draws, pulled towards it.

A shard's target with mode m_b and curvature H_b has covariance H_b⁻¹ (I + small) when it is nearly Gaussian, and
H_b is known to all digits where the covariance S_b of n draws is off by sqrt(d / n) in its worst direction. In
coordinates that make H_b the identity, S_b is an identity with two things added: what the shape of the target adds
(signal), and the noise of n draws, whose expected square is (d² + d) / n. The estimate

    (1 - r_b) S_b + r_b H_b⁻¹,      r_b = noise_b / (noise_b + signal_b),

has the least mean square error that a linear one can have, and n / (1 - r_b) draws would be as good. A shard's own
signal, |S_b - I|² less its noise, rests on d (d + 1) / 2 numbers: many where d is large. Where it is small the
middle of all shards counts as another few numbers, so that one odd shard spoils nobody else's.

Nothing is gained, and r_b is near 0, where targets are far from Gaussian: separated data, bounds, several modes.
A shard without a usable mode says so by NaN, and keeps its estimate.

Reference. Efron and Morris (1976), Multivariate empirical Bayes and estimation of covariance matrices, Annals of
Statistics 4(1), for the idea; Ledoit and Wolf (2004), Journal of Multivariate Analysis 88(2), for the linear form.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .base import Floats

# The middle of all shards counts as so many of the numbers that a shard's own signal is found from.
OF_ALL = 4.0
# Draws that a covariance is worth at most, in units of those that there are: r_b is an estimate too.
MOST = 100.0


class Known(NamedTuple):
    """What curvature and draws say together."""

    covariances: Floats  # (B, d, d)
    draws: Floats  # (B,) draws that each is worth
    pulls: Floats  # (B,) r_b


def pull_to_curvature(covariances: Floats, draws: Floats, curvatures: Floats) -> Known:
    """Bring the covariances of draws and the inverse curvatures at the modes together.

    Parameters
    ----------
    covariances : array, shape (B, d, d)
    draws : array, shape (B,)
        How many draws each covariance is worth.
    curvatures : array, shape (B, d, d)
        Inverse negative Hessians at the modes, in the units of the covariances; NaN where there is none.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> covariances = np.stack([np.cov(rng.normal(size=(200, 20)).T) for _ in range(10)])
    >>> known = pull_to_curvature(covariances, np.full(10, 200.0), np.stack([np.eye(20)] * 10))
    >>> bool(known.pulls.min() > 0.8), bool(known.draws.min() > 1_000)
    (True, True)
    """
    d = covariances.shape[1]
    usable: NDArray[np.bool_] = np.asarray(np.isfinite(curvatures).all(axis=(1, 2)))
    pulls: Floats = np.zeros(len(covariances))
    if not usable.any():
        return Known(covariances, draws, pulls)
    # Traces of powers of H S are those of its symmetric form.
    relative = np.linalg.solve(curvatures[usable], covariances[usable])
    seen: Floats = (
        np.einsum("bij,bji->b", relative, relative) - 2.0 * np.trace(relative, axis1=1, axis2=2) + d
    )
    noise = (d * d + d) / draws[usable]
    signal = seen / noise - 1.0  # in units of the noise
    numbers = d * (d + 1) / 2
    signal = (numbers * signal + OF_ALL * np.median(signal)) / (numbers + OF_ALL)
    pulls[usable] = 1.0 / (1.0 + np.maximum(signal, 0.0))
    parts = pulls[:, None, None]
    blended = (1.0 - parts) * covariances + parts * np.where(usable[:, None, None], curvatures, 0.0)
    return Known(blended, draws / np.maximum(1.0 - pulls, 1.0 / MOST), pulls)
