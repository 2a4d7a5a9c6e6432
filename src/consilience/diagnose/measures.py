"""Distances between two sets of draws, a (the approximation) and r (the reference).

With means m, covariances V, standard deviations s, densities p of each, d parameters:

    Mahalanobis           sqrt((m_a - m_r)' V_r^-1 (m_a - m_r))                       SwISS section 4
    skew                  1/d sum_j |g_j^a - g_j^r|, g_j = E[((x_j - m_j) / s_j)^3]   SwISS section 4
    IAD                   1/(2d) sum_j integral |p_j^a - p_j^r|, in [0, 1]            SwISS section 4
    standardised mean     1/d sum_j |m_j^a - m_j^r| / s_j^r                         Vyner, thesis section 3.3
    L2                    integral (p^a - p^r)^2                                      Wu and Robert, section 4
    covariance            ||V_r^-1/2 V_a V_r^-1/2 - I||_F / sqrt(d)
    sliced Wasserstein-2  sqrt(mean_u W_2(u'z^a, u'z^r)^2), z = V_r^-1/2 x, u uniform on a sphere

The displayed skew of the SwISS paper puts the cube outside the expectation, where it would be zero; the cube
belongs inside. Thesis chapter 3 leaves out IAD's factor 1/2, without which it reaches 2.

Densities are Gaussian kernel estimates by binning and a fast Fourier transform, with one bandwidth per
parameter for both sets (Silverman 1986, equation (3.31), n the smaller effective size), so that smoothing
does not pass for a difference. They blur modes that are much narrower than the whole. L2 is that of the joint
density for d <= 2, in the parameters' units as Wu and Robert have it; for d > 2 the mean of the marginals',
each in units of s_j^r.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

PROJECTIONS = 32
_LEVELS = 512  # quantiles that are matched for each projection
_REACH = (
    12.0  # the grid ends this many robust standard deviations from a median; draws beyond count at its end
)
_LARGEST_GRID = 4096
_JOINT_GRID = 256
_NO_SPREAD = 1e-10  # relative eigenvalue of the correlation under which a direction has no spread


@dataclass(frozen=True, eq=False)
class Frame:
    """What both sets are measured in: the reference's units, a grid, and directions."""

    centre: np.ndarray  # (d,)
    scale: np.ndarray  # (d,)
    whitening: np.ndarray  # (d, k): standardised draws times this have the identity as covariance
    directions: np.ndarray  # (k, projections), unit columns
    low: np.ndarray  # (d,) left end of each parameter's grid, standardised
    step: np.ndarray  # (d,)
    bandwidth: np.ndarray  # (d,)
    bins: int
    joint_low: np.ndarray | None = None  # (2,) the same for the joint density of two whitened parameters
    joint_step: np.ndarray | None = None
    joint_bandwidth: float = 0.0
    unit_volume: float = 1.0  # what one whitened unit of volume is in the parameters' units


@dataclass(frozen=True, eq=False)
class Sample:
    """One set of draws in its frame, prepared so that many reweightings of it are measured fast."""

    standardised: np.ndarray  # (N, d)
    cells: Any  # (N, d * bins) sparse: which cells of the d histograms a draw falls into
    order: np.ndarray  # (projections, N) what sorts each projection
    projections: np.ndarray  # (projections, N) sorted
    joint_cells: Any = None  # (N, joint cells) sparse


@dataclass(frozen=True, eq=False)
class Summary:
    """All that the measures need of R weightings of one set of draws."""

    mean: np.ndarray  # (R, d)
    sd: np.ndarray
    skew: np.ndarray
    histogram: np.ndarray  # (R, d, bins)
    quantiles: np.ndarray  # (R, projections, levels)
    joint: np.ndarray | None = None  # (R, joint grid, joint grid)


@dataclass(frozen=True, eq=False)
class Measured:
    """Measures of R pairs, and those that are told parameter by parameter."""

    totals: dict[str, np.ndarray]  # (R,) each
    standardised_mean: np.ndarray  # (R, d)
    skew: np.ndarray
    iad: np.ndarray
    sd_ratio: np.ndarray

    @staticmethod
    def joined(parts: Sequence[Measured]) -> Measured:
        """Several batches of pairs as one."""
        return Measured(
            {name: np.concatenate([p.totals[name] for p in parts]) for name in parts[0].totals},
            *(
                np.concatenate([getattr(p, name) for p in parts])
                for name in ("standardised_mean", "skew", "iad", "sd_ratio")
            ),
        )


# ------------------------------------------------------------------------------------------
# The frame
# ------------------------------------------------------------------------------------------


def build_frame(
    draws: np.ndarray,
    reference: np.ndarray,
    mean: np.ndarray,
    covariance: np.ndarray,
    size: float,
    rng: np.random.Generator,
) -> Frame:
    """Units of the reference (its mean and covariance), and a grid that holds both sets.

    `size` is the smaller of the two effective sizes: it sets the bandwidths.
    """
    scale = np.sqrt(np.diagonal(covariance))
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    kept = values > _NO_SPREAD * values[-1]
    whitening = vectors[:, kept] / np.sqrt(values[kept])
    rank = int(kept.sum())
    za, zr = (draws - mean) / scale, (reference - mean) / scale
    # The reference sets the width of the kernel: a rule for both, and the same one.
    bandwidth = 0.9 * _robust_scale(zr) * size**-0.2
    low, high = _ends(za, zr, 4 * bandwidth)
    needed = float(np.max((high - low) / bandwidth)) * 3
    bins = int(min(_LARGEST_GRID, 2 ** np.ceil(np.log2(max(needed, 64)))))
    joint_low, joint_step, joint_bandwidth, volume = None, None, 0.0, 1.0
    dimension = len(mean)
    if dimension == rank == 2:
        joint_bandwidth = float(size ** (-1 / 6))  # Scott's rule in two dimensions, for unit variances
        joint_low, joint_high = _ends(za @ whitening, zr @ whitening, np.full(2, 4 * joint_bandwidth))
        joint_step = (joint_high - joint_low) / _JOINT_GRID
        volume = float(np.sqrt(np.linalg.det(covariance)))
    elif dimension == 1:
        volume = float(scale[0])
    return Frame(
        centre=mean,
        scale=scale,
        whitening=whitening,
        directions=_directions(rank, rng),
        low=low,
        step=(high - low) / bins,
        bandwidth=bandwidth,
        bins=bins,
        joint_low=joint_low,
        joint_step=joint_step,
        joint_bandwidth=joint_bandwidth,
        unit_volume=volume,
    )


def _directions(rank: int, rng: np.random.Generator) -> np.ndarray:
    """Random orthonormal bases side by side: over a whole basis, what means contribute is fixed."""
    if rank == 1:
        return np.ones((1, 1))
    bases = [np.linalg.qr(rng.normal(size=(rank, rank)))[0] for _ in range(-(-PROJECTIONS // rank))]
    return np.concatenate(bases, axis=1)[:, : max(PROJECTIONS, rank * (PROJECTIONS // rank))]


def _robust_scale(z: np.ndarray) -> np.ndarray:
    """Silverman's min(sd, IQR / 1.34); the sd where half the draws are equal."""
    spread = np.subtract(*np.quantile(z, [0.75, 0.25], axis=0)) / 1.34
    sd = z.std(axis=0)
    return np.asarray(np.where(spread > 0, np.minimum(sd, spread), sd))


def _ends(za: np.ndarray, zr: np.ndarray, margin: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    lows, highs = [], []
    for z in (za, zr):
        middle, reach = np.median(z, axis=0), _REACH * _robust_scale(z)
        lows.append(np.maximum(z.min(axis=0), middle - reach))
        highs.append(np.minimum(z.max(axis=0), middle + reach))
    return np.minimum(*lows) - margin, np.maximum(*highs) + margin


def build_sample(array: np.ndarray, frame: Frame) -> Sample:
    """Standardise, bin and project one set of draws, once."""
    z = (array - frame.centre) / frame.scale
    cells = np.clip((z - frame.low) / frame.step, 0, frame.bins - 1).astype(np.int32)
    cells += np.arange(z.shape[1], dtype=np.int32) * frame.bins
    white = z @ frame.whitening
    projections = np.ascontiguousarray((white @ frame.directions).T)
    order = np.argsort(projections, axis=1)
    joint = None
    if frame.joint_low is not None and frame.joint_step is not None:
        pairs = np.clip((white - frame.joint_low) / frame.joint_step, 0, _JOINT_GRID - 1).astype(np.int32)
        joint = _one_hot(pairs[:, :1] * _JOINT_GRID + pairs[:, 1:], _JOINT_GRID**2)
    return Sample(
        standardised=z,
        cells=_one_hot(cells, z.shape[1] * frame.bins),
        order=order,
        projections=np.take_along_axis(projections, order, axis=1),
        joint_cells=joint,
    )


def _one_hot(cells: np.ndarray, size: int) -> Any:
    """Sparse matrix with a 1 where a draw's cell is: weights times it are histograms, many at a time."""
    from scipy.sparse import csr_matrix

    number, columns = cells.shape
    pointers = np.arange(number + 1) * columns
    return csr_matrix((np.ones(cells.size), cells.ravel(), pointers), shape=(number, size))


# ------------------------------------------------------------------------------------------
# The measures
# ------------------------------------------------------------------------------------------


def summarise(frame: Frame, sample: Sample, weights: np.ndarray) -> Summary:
    """Moments, histograms and quantiles under each of R weightings (R, N), rows of sum 1."""
    z = sample.standardised
    # Raw moments do, since draws are in the reference's units and little cancels.
    mean = weights @ z
    square = z * z
    variance = weights @ square - mean**2
    third = weights @ (square * z) - 3 * mean * (variance + mean**2) + 2 * mean**3
    joint = None
    if sample.joint_cells is not None:
        joint = (weights @ sample.joint_cells).reshape(len(weights), _JOINT_GRID, _JOINT_GRID)
    return Summary(
        mean=mean,
        sd=np.sqrt(variance / (1.0 - np.square(weights).sum(axis=1))[:, None]),
        skew=third / variance**1.5,
        histogram=(weights @ sample.cells).reshape(len(weights), -1, frame.bins),
        quantiles=_quantiles(sample, weights),
        joint=joint,
    )


def _quantiles(sample: Sample, weights: np.ndarray) -> np.ndarray:
    """Quantiles of every projection at the middles of equal slices of probability."""
    levels = (np.arange(_LEVELS) + 0.5) / _LEVELS
    out = np.empty((len(weights), len(sample.order), _LEVELS))
    for line, (order, ordered) in enumerate(zip(sample.order, sample.projections, strict=True)):
        sorted_weights = weights[:, order]
        middles = np.cumsum(sorted_weights, axis=1)
        middles -= 0.5 * sorted_weights
        for k, middle in enumerate(middles):
            out[k, line] = np.interp(levels, middle, ordered)
    return out


def measure(frame: Frame, a: Summary, r: Summary) -> Measured:
    """The measures between R pairs that need no covariance."""
    shift, skew = (a.mean - r.mean) / r.sd, a.skew - r.skew
    iad, l2 = _densities(frame, a, r)
    totals = {
        "skew": np.abs(skew).mean(axis=1),
        "iad": iad.mean(axis=1),
        "standardised_mean": np.abs(shift).mean(axis=1),
        "l2": l2,
        "sliced_wasserstein": np.sqrt(np.square(a.quantiles - r.quantiles).mean(axis=(1, 2))),
    }
    return Measured(totals, shift, skew, iad, a.sd / r.sd)


def mahalanobis_and_covariance(z: np.ndarray, weights: np.ndarray) -> dict[str, float]:
    """The two that do: of draws in coordinates in which the reference has mean 0 and covariance I."""
    mean = weights @ z
    centred = z - mean
    covariance = (centred * weights[:, None]).T @ centred / (1.0 - weights @ weights)
    return {
        "mahalanobis": float(np.linalg.norm(mean)),
        "covariance": float(np.linalg.norm(covariance - np.eye(len(mean))) / np.sqrt(len(mean))),
    }


def _densities(frame: Frame, a: Summary, r: Summary) -> tuple[np.ndarray, np.ndarray]:
    """IAD of every parameter, and L2; smoothing is linear, so the difference is smoothed once."""
    from scipy.fft import irfft, irfft2, rfft, rfft2

    kernel = _kernel(np.fft.rfftfreq(frame.bins), (frame.bandwidth / frame.step)[:, None])
    smooth = irfft(rfft(a.histogram - r.histogram, axis=2) * kernel, n=frame.bins, axis=2)
    iad = 0.5 * np.abs(smooth).sum(axis=2)
    if a.joint is None or r.joint is None or frame.joint_step is None:
        return iad, (np.square(smooth).sum(axis=2) / frame.step).mean(axis=1) / frame.unit_volume
    width = frame.joint_bandwidth / frame.joint_step
    rows = _kernel(np.fft.fftfreq(_JOINT_GRID), width[0])[:, None]
    columns = _kernel(np.fft.rfftfreq(_JOINT_GRID), width[1])
    smooth = irfft2(rfft2(a.joint - r.joint) * rows * columns, s=(_JOINT_GRID, _JOINT_GRID))
    return iad, np.square(smooth).sum(axis=(1, 2)) / frame.joint_step.prod() / frame.unit_volume


def _kernel(frequency: np.ndarray, width: np.ndarray) -> np.ndarray:
    """Fourier transform of a Gaussian kernel whose width is counted in cells."""
    return np.exp(-0.5 * np.square(2 * np.pi * frequency * width))
