"""How far each shard is from Gaussian: skewness and kurtosis of every parameter, with their Monte Carlo errors.

With z the standardised draws of a parameter, g = mean z^3 and k = mean z^4 - 3. Standard errors are those of the
influence functions

    z^3 - g - 3 z - 3 g (z^2 - 1) / 2     and     z^4 - (k + 3) - 4 g z - 2 (k + 3) (z^2 - 1),

from independent draws their standard deviation over sqrt(J), from chains that of batch means.

The distance is the integrated absolute distance (IAD) of the marginal from the Gaussian of the same mean and
spread, predicted from the two by a Hermite expansion (`marginals.hermite_iad`), root mean square noise taken off.
It is an estimate for small distances: separate modes or heavy tails only show that it is large.

Combination rules that are exact for Gaussian shards are not for these; a rule that keeps shapes (`swiss`) may still
be near. Only marginals are looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.combine.moments import ShardMoments
from consilience.diagnose.marginals import hermite_iad
from consilience.draws import Subposteriors

Floats = NDArray[np.float64]

# A fourth moment of so few draws says nothing: its error is put at infinity.
FEWEST = 20


@dataclass(frozen=True, eq=False)
class Shape:
    """Distance of shards from Gaussian; every array is (B, d).

    Attributes
    ----------
    skewness, skewness_error : 0 for a Gaussian, and its Monte Carlo standard error
    kurtosis, kurtosis_error : excess kurtosis, 0 for a Gaussian, and its Monte Carlo standard error
    distance : IAD to the Gaussian of the same mean and spread, noise taken off
    """

    skewness: Floats
    skewness_error: Floats
    kurtosis: Floats
    kurtosis_error: Floats
    distance: Floats


def shard_shape(subposteriors: Subposteriors, moments: ShardMoments) -> Shape:
    """Skewness, kurtosis and distance from Gaussian of every shard and parameter."""
    found = np.empty((5, subposteriors.num_shards, subposteriors.dimension))
    per_skewness, per_kurtosis = hermite_iad(np.array([[0, 0], [0, 0], [1e-3, 0], [0, 1e-3]])) / 1e-3
    deviations = np.sqrt(np.diagonal(moments.covariances, axis1=1, axis2=2))
    for b, x in enumerate(subposteriors.draws):
        z = (x - moments.means[b]) / deviations[b]
        square = z * z
        g, k = (z * square).mean(axis=0), (square * square).mean(axis=0)
        independent = moments.effective_draws[b] == moments.sizes[b]
        lengths = (1,) * len(x) if independent else subposteriors.chain_lengths[b]
        g_error = _error(z * square - 3.0 * z - 1.5 * g * (square - 1.0), lengths)
        k_error = _error(square * square - 4.0 * g * z - 2.0 * k * (square - 1.0), lengths)
        if moments.effective_draws[b] < FEWEST:
            g_error, k_error = np.full_like(g, np.inf), np.full_like(k, np.inf)
        zero = np.zeros_like(g)
        iad = hermite_iad(np.stack([zero, zero, g, k - 3.0]))
        noise = (per_skewness * g_error) ** 2 + (per_kurtosis * k_error) ** 2
        found[:, b] = g, g_error, k - 3.0, k_error, np.sqrt(np.maximum(iad**2 - noise, 0.0))
    return Shape(*found)


def _error(influence: Floats, lengths: tuple[int, ...]) -> Floats:
    """Standard error of the column means: of single draws, or of batches as long as the root of a chain."""
    number = len(influence)
    if max(lengths) == 1:
        return np.asarray(influence.std(axis=0, ddof=1) / np.sqrt(number))
    sums, sizes, start = [], [], 0
    influence = influence - influence.mean(axis=0)
    for length in lengths:
        batch = max(1, int(np.sqrt(length)))
        whole = length // batch
        block = influence[start : start + whole * batch].reshape(whole, batch, -1)
        sums.append(block.sum(axis=1))
        sizes.append(np.full(whole, float(batch)))
        start += length
    total = np.concatenate(sums) / np.sqrt(np.concatenate(sizes))[:, None]
    return np.asarray(np.sqrt(np.sum(total**2, axis=0) / max(len(total) - 1, 1) / number))
