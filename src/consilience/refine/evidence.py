"""Does an affine map bring draws nearer to the posterior? The evidence bound on the same points.

For draws theta of law q and a map T, the evidence bound of T's image rises by

    gain = E[log p(T theta | y) - log p(theta | y)] + log |det T|,

which is the fall of KL(q_T || p); at its maximum over affine maps Stein's identities hold. It is estimated at
S points whose log densities are known before and after. What a quadratic log density, fitted to the scores,
says of the difference is subtracted point by point, and its mean over all draws added: near a Gaussian the
estimate has no Monte Carlo noise, elsewhere its standard error says what it is worth.

Fails where S points do not show the tail that decides (a mode without draws, a Cauchy).

Reference. Jordan et al. (1999), Machine Learning 37, section 6 (the bound); Owen (2013), Monte Carlo theory,
chapter 8.9 (control variates).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from consilience.refine.base import Floats
from consilience.refine.stein import SteinFit

# A quadratic that predicts less than this share of the scores adds noise instead of taking it away, and in
# tails without scores its mean over all draws is wrong.
LEAST_R_SQUARED = 0.8
CUT_FROM = 0.8


@dataclass(frozen=True)
class Gain:
    """Rise of the evidence bound in nats, with its standard error."""

    value: float
    error: float

    def rises(self, errors: float = 1.0) -> bool:
        """Whether it is positive by so many standard errors."""
        return bool(np.isfinite(self.value) and self.value > errors * self.error)


NEVER = Gain(-np.inf, 0.0)


def evidence_gain(
    differences: Floats,
    log_det: float,
    fit: SteinFit,
    before: Floats,
    after: Floats,
    all_before: Floats,
    all_after: Floats,
) -> Gain:
    """Estimate the gain.

    Parameters
    ----------
    differences : (S,) log density after less before
    log_det : log |det T|
    fit : the regression that the quadratic comes from
    before, after : (S, d) the points, whitened as in `fit`
    all_before, all_after : (N, d) all draws, the same

    Examples
    --------
    >>> from consilience.refine.stein import fit_scores
    >>> z = np.array([[-1.2], [-0.4], [0.4], [1.2]])
    >>> fit = fit_scores(z, 1.0 - z)                       # the posterior is N(1, 1)
    >>> gain = evidence_gain(0.5 - z[:, 0], 0.0, fit, z, z + 1.0, z, z + 1.0)
    >>> round(gain.value, 3), gain.rises()
    (0.5, True)
    """
    if not np.all(np.isfinite(differences)):
        return NEVER
    left, everywhere = differences, 0.0
    if fit.r_squared > LEAST_R_SQUARED:
        left = differences - (quadratic(fit, after) - quadratic(fit, before))
        everywhere = float(np.mean(quadratic(fit, all_after) - quadratic(fit, all_before)))
    gain = _mean(left, everywhere + log_det)
    if fit.r_squared <= LEAST_R_SQUARED:
        # A few hopeless draws gain so much that nothing is sure. With the largest gains cut down the mean is
        # lower, and surer: what rises nevertheless does rise.
        cut = _mean(np.minimum(left, np.quantile(left, CUT_FROM)), everywhere + log_det)
        return cut if cut.rises(gain.value / gain.error if gain.error > 0 else 0.0) else gain
    return gain


def _mean(left: Floats, known: float) -> Gain:
    error = float(np.std(left, ddof=1) / np.sqrt(len(left))) if len(left) > 1 else np.inf
    return Gain(known + float(np.mean(left)), error)


def quadratic(fit: SteinFit, z: Floats) -> Floats:
    """a'z - z'Qz / 2: the log density whose score is the fitted one."""
    return np.asarray(z @ fit.intercept - 0.5 * np.sum((z @ fit.precision) * z, axis=1))
