"""Is a surrogate nearer to the posterior than the draws that came in? In nats, from points that it never saw.

Formulas. With the surrogate's log density f, log p the full data's, and S fresh draws of the surrogate q,

    KL(q | p) = log E[exp(delta)] - E[delta],      delta = log p - f        (expectations over q),
    R^2 = 1 - E|h - grad f|^2 / E|h - E h|^2,      h the full data's scores, whitened.

E|h - grad f|^2 is the Fisher divergence of q from p, which near a Gaussian bounds twice the KL. The distance of
the draws r that came in is taken from the surrogate's own draws, by binning: for any statistic t

    KL(r | q) >= KL(t(r) | t(q)),

taken at the largest over t = every whitened coordinate, f, and f less the normal log density with the moments of
r (which loses nothing where r is normal), with 20 bins of equal probability under q, less what two samples of one
law would give. The surrogate is better where its own divergence, with two standard
errors, is the smaller one. Draws that cannot be told from the surrogate's are left as they are.

Assumptions: chains that have found the surrogate; as p is what q stands for, a q near p.

Fails where fresh draws of the surrogate cannot show its error: a tail or mode that it does not reach. KL and R^2
are then perfect. Single statistics understate the distance of the draws, so that a better surrogate may
be turned down; never the other way.

Reference. Kullback and Leibler (1951), Annals of Mathematical Statistics 22, theorem 4.1 (a statistic loses
information); Pardo (2006), Statistical inference based on divergence measures, section 3.1 (its noise).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.numerics import log_sum_exp
from consilience.refine.base import Floats
from consilience.refine.stein import Cloud

BINS = 20
# Standard errors by which a distance must exceed the noise of two samples.
ERRORS = 4.0


@dataclass(frozen=True)
class Divergence:
    """KL in nats and its standard error."""

    value: float
    error: float

    def to_list(self) -> list[float]:
        return [self.value, self.error]


@dataclass(frozen=True)
class Judgement:
    """What fresh points say.

    Attributes
    ----------
    r_squared : share of the scores' variance that the surrogate explains at fresh draws of its own
    surrogate : its divergence from the posterior
    draws : a lower bound of the divergence of what came in, noise taken off
    """

    r_squared: float
    surrogate: Divergence
    draws: Divergence

    @property
    def alike(self) -> bool:
        """Whether what came in cannot be told from the surrogate's draws."""
        return self.draws.value < ERRORS * self.draws.error

    @property
    def better(self) -> bool:
        """Whether the surrogate is nearer."""
        return not self.alike and self.draws.value > self.surrogate.value + 2.0 * self.surrogate.error

    def to_dict(self) -> dict[str, Any]:
        return {
            "r_squared": self.r_squared,
            "divergence": self.surrogate.to_list(),
            "divergence_before": self.draws.to_list(),
        }


def explained(h: Floats, predicted: Floats) -> float:
    """R^2 of scores.

    Examples
    --------
    >>> explained(np.array([[1.0], [-1.0]]), np.array([[0.5], [-0.5]]))
    0.75
    """
    total = float(np.sum((h - h.mean(axis=0)) ** 2))
    return 1.0 - float(np.sum((h - predicted) ** 2)) / total if total > 0 else 0.0


def divergence_from(delta: Floats) -> Divergence:
    """KL(q | p) from log p - f at draws of q.

    Examples
    --------
    >>> z = np.random.default_rng(0).normal(size=10_000)
    >>> round(divergence_from(0.1 * z).value, 3)              # N(0, 1) from N(0.1, 1): 0.005
    0.005
    """
    off = delta - delta.mean()
    value = float(log_sum_exp(off) - np.log(len(off)))
    ratio = np.exp(off - off.max())
    terms = ratio / ratio.mean() - 1.0 - off
    return Divergence(value, float(np.std(terms, ddof=1) / np.sqrt(len(off))))


def statistics(draws: Floats, cloud: Cloud, log_density: Floats) -> Floats:
    """(n, d + 2): whitened coordinates, f, and f less the log density of `cloud`, the draws that came in."""
    normal = -0.5 * np.sum(cloud.whiten(draws) ** 2, axis=1)
    return np.column_stack([draws, log_density, log_density - normal])


def binned_divergence(came: Floats, drawn: Floats, effective: tuple[float, float]) -> Divergence:
    """Largest over columns of KL(came | drawn) in bins, less its noise.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(2, 10_000, 1))
    >>> [round(binned_divergence(x + shift, y, (1e4, 1e4)).value, 1) + 0.0 for shift in (0.0, 0.5)]
    [0.0, 0.1]
    """
    scarcity = 1.0 / effective[0] + 1.0 / effective[1]
    noise, error = 0.5 * (BINS - 1) * scarcity, np.sqrt(0.5 * (BINS - 1)) * scarcity
    best = 0.0
    for column in range(came.shape[1]):
        edges = np.quantile(drawn[:, column], np.arange(1, BINS) / BINS)
        ours, theirs = (
            np.bincount(np.searchsorted(edges, x[:, column]), minlength=BINS) + 0.5 for x in (came, drawn)
        )
        p, q = ours / ours.sum(), theirs / theirs.sum()
        best = max(best, float(p @ np.log(p / q)))
    return Divergence(max(0.0, best - noise), float(error))
