"""How far draws are from a reference: a sample, or a law whose marginals are known exactly.

The measures are those of `consilience.diagnose`. Against an exact law, means, covariance and skewness are
the law's own, and its histograms come from distribution functions; they are smoothed with the kernel that
smooths the draws, so that smoothing does not pass for a difference. L2 is the mean over parameters of the
marginal densities' L2 distance in units of the reference's standard deviations (of the joint density with
`joint=True` and two parameters).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from consilience.diagnose.measures import Frame, Summary, build_frame, build_sample, measure, summarise
from consilience.draws import Posterior


@dataclass(frozen=True, eq=False)
class ExactLaw:
    """Moments and marginal distribution functions of a posterior.

    Attributes
    ----------
    mean, covariance, skew : (d,), (d, d), (d,)
    cdf : from (d, m) points to their (d, m) marginal probabilities
    """

    mean: np.ndarray
    covariance: np.ndarray
    skew: np.ndarray
    cdf: Callable[[np.ndarray], np.ndarray]


def gaussian_law(mean: np.ndarray, covariance: np.ndarray) -> ExactLaw:
    """The law N(mean, covariance)."""
    from scipy.special import ndtr

    sd = np.sqrt(np.diagonal(covariance))
    return ExactLaw(mean, covariance, np.zeros(len(mean)), lambda x: ndtr((x - mean[:, None]) / sd[:, None]))


@dataclass(frozen=True, eq=False)
class Reference:
    """What draws are measured against.

    Attributes
    ----------
    draws : (n, d) draws of it
    law : what is known about it exactly, or None when the draws are all there is
    """

    draws: np.ndarray
    law: ExactLaw | None = None


def measured(draws: Any, reference: Reference, *, joint: bool = False) -> dict[str, float]:
    """All measures by name, of a posterior or an (N, d) array."""
    posterior = draws if isinstance(draws, Posterior) else Posterior(np.asarray(draws))
    law, sample = reference.law, reference.draws
    mean = sample.mean(axis=0) if law is None else law.mean
    covariance = np.atleast_2d(np.cov(sample, rowvar=False)) if law is None else law.covariance
    # Bandwidths follow the smaller sample; an exact law is no sample.
    size = len(posterior.array) if law is not None else min(len(posterior.array), len(sample))
    frame = build_frame(posterior.array, sample, mean, covariance, size, np.random.default_rng(0))
    if not joint:
        frame = replace(frame, joint_low=None, joint_step=None)
    other = summarise(frame, build_sample(sample, frame), np.full((1, len(sample)), 1 / len(sample)))
    if law is not None:
        other = _exact_summary(frame, law, other)
    own = summarise(frame, build_sample(posterior.array, frame), posterior.weights()[None])
    totals = measure(frame, own, other).totals
    shift = posterior.mean() - mean
    relative = np.linalg.solve(covariance, posterior.cov())
    return {
        **{name: float(totals[name][0]) for name in ("skew", "iad", "standardised_mean")},
        # In units of the reference's spread: densities of parameters in other units would be other numbers.
        "l2": float(totals["l2"][0]) * frame.unit_volume,
        "mahalanobis": float(np.sqrt(shift @ np.linalg.solve(covariance, shift))),
        # The geometric mean over directions of the ratio of standard deviations: 1 is right.
        "spread": float(np.exp(0.5 * np.linalg.slogdet(relative)[1] / len(mean))),
    }


def _exact_summary(frame: Frame, law: ExactLaw, sampled: Summary) -> Summary:
    edges = frame.low[:, None] + frame.step[:, None] * np.arange(frame.bins + 1)
    below = law.cdf(law.mean[:, None] + frame.scale[:, None] * edges)
    # Draws beyond the grid are counted at its ends, and so is the law.
    below[:, 0], below[:, -1] = 0.0, 1.0
    standard = np.zeros((1, len(law.mean)))
    return replace(
        sampled, mean=standard, sd=standard + 1, skew=law.skew[None], histogram=np.diff(below, axis=1)[None]
    )
