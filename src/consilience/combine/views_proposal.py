"""Where marginal views look: Student-t proposals by randomised quasi-Monte Carlo, refined once where they fit badly.

Formula. q = t_5 with the mean and covariance of the Gaussian product's marginal of theta; a t_5 of scale matrix C has
covariance 5/3 C, so C is 3/5 of that covariance. Points are a scrambled Halton sequence, mapped by the inverse
distribution function (one more dimension, for the chi-square, where theta has several).

Halton and not Sobol: any number of points is as good as the next, where Sobol's balance asks for powers of two.

Refinement, for one-dimensional theta. Where weights of the first points are worth less than half of them (several
modes, or shards that are skewed), the same number of points is drawn again from 0.9 p + 0.1 q, p the density that is
constant between neighbouring first points and has there the estimated posterior's mass. Weights remain exact.

Erratum. The thesis' (3.10) multiplies the shards' marginal Gaussians, although its text asks for the first two moments
of the Gaussian approximation g~; these differ as soon as theta and psi are correlated, and g~'s are taken.

Reference. Vyner's thesis, section 3.2.1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .base import Floats

DEGREES = 5.0
DEFENSIVE = 0.1


@dataclass(frozen=True, eq=False)
class Student:
    """A t_5 distribution with given mean and covariance.

    Examples
    --------
    >>> student = Student(np.zeros(1), np.ones((1, 1)))
    >>> x = student.draw(20_000, np.random.default_rng(0))
    >>> bool(abs(x.mean()) < 0.01), round(float(x.var()), 1)
    (True, 1.0)
    """

    mean: Floats  # (k,)
    covariance: Floats  # (k, k)

    @property
    def _root(self) -> Floats:
        return np.asarray(np.linalg.cholesky(self.covariance * (DEGREES - 2.0) / DEGREES))

    def draw(self, number: int, generator: np.random.Generator) -> Floats:
        """Points (number, k)."""
        from scipy.special import chdtri, ndtri

        k = len(self.mean)
        uniform = uniforms(number, k if k == 1 else k + 1, generator)
        if k == 1:
            return self.quantile(uniform)
        stretch = np.sqrt(DEGREES / chdtri(DEGREES, 1.0 - uniform[:, k]))
        return self.mean + (ndtri(uniform[:, :k]) * stretch[:, None]) @ self._root.T

    def quantile(self, levels: Floats) -> Floats:
        """Quantiles of the one-dimensional distribution."""
        from scipy.special import stdtrit

        return self.mean + stdtrit(DEGREES, levels) * self._root[0, 0]

    def log_density(self, x: Floats) -> Floats:
        """Normalised log density at (M, k)."""
        from scipy.special import gammaln

        k, root = len(self.mean), self._root
        scaled = np.linalg.solve(root, (x - self.mean).T)
        constant = gammaln((DEGREES + k) / 2) - gammaln(DEGREES / 2) - 0.5 * k * np.log(DEGREES * np.pi)
        constant -= np.log(np.diagonal(root)).sum()
        return constant - 0.5 * (DEGREES + k) * np.log1p(np.sum(scaled**2, axis=0) / DEGREES)


def uniforms(number: int, dimension: int, generator: np.random.Generator) -> Floats:
    """A scrambled Halton sequence, strictly within the unit cube."""
    from scipy.stats import qmc

    points = qmc.Halton(dimension, seed=generator).random(number)
    return np.clip(points, 1e-12, 1.0 - 1e-12)


def refined(
    x: Floats, log_target: Floats, student: Student, number: int, generator: np.random.Generator
) -> tuple[Floats, Floats]:
    """Points (number, 1) that follow the target as sorted points x (M,) show it, and their log densities.

    Examples
    --------
    >>> x = np.linspace(-8.0, 8.0, 400)
    >>> modes = np.logaddexp(-0.5 * (x - 4) ** 2, -0.5 * (x + 4) ** 2)
    >>> found, _ = refined(x, modes, Student(np.zeros(1), np.eye(1)), 1_000, np.random.default_rng(0))
    >>> round(float(np.mean(np.abs(np.abs(found) - 4) < 2)), 1)
    0.9
    """
    height = np.exp(log_target - log_target.max())
    widths = np.diff(x)
    masses = 0.5 * (height[1:] + height[:-1]) * widths
    edges = np.concatenate([[0.0], np.cumsum(masses)])
    edges /= edges[-1]
    uniform = uniforms(number, 1, generator)[:, 0]
    follows = uniform < 1.0 - DEFENSIVE
    points = np.empty(number)
    # Cells without mass are no cells: np.interp wants rising edges.
    rising = np.concatenate([[True], np.diff(edges) > 0])
    points[follows] = _inverse(uniform[follows] / (1.0 - DEFENSIVE), edges, x, rising)
    rest = (uniform[~follows] - (1.0 - DEFENSIVE)) / DEFENSIVE
    points[~follows] = student.quantile(np.clip(rest, 1e-12, 1.0 - 1e-12))
    cell = np.clip(np.searchsorted(x, points, side="right") - 1, 0, len(widths) - 1)
    share = np.diff(edges)[cell] / np.maximum(widths[cell], np.finfo(np.float64).tiny)
    share[(points < x[0]) | (points > x[-1])] = 0.0
    density = (1.0 - DEFENSIVE) * share + DEFENSIVE * np.exp(student.log_density(points[:, None]))
    return points[:, None], np.log(density)


def _inverse(levels: Floats, edges: Floats, x: Floats, rising: np.ndarray) -> Floats:
    """Where the distribution function that is linear between edges reaches the levels."""
    right = np.flatnonzero(rising)[1:]
    cell = right[np.minimum(np.searchsorted(edges[right], levels), len(right) - 1)]
    within = (levels - edges[cell - 1]) / (edges[cell] - edges[cell - 1])
    return x[cell - 1] + np.clip(within, 0.0, 1.0) * (x[cell] - x[cell - 1])
