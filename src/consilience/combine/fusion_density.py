"""Densities of fusion's targets: Gaussian, times logistic and Poisson rows, with bounds on what paths meet.

A target is, up to a constant,

    log f(theta) = linear' theta - theta' precision theta / 2 + sum_i [y_i eta_i - A(eta_i)],   eta_i = x_i' theta,

with A(eta) = log(1 + e^eta) for logistic and e^eta for Poisson rows. Products of such targets are such targets. In
units z of a matrix L, theta = mode + L z, fusion needs

    phi(z) = (|grad log f|^2 + trace of the Hessian of log f) / 2,

a bound from below for all z, and bounds over boxes.

Over a box with centre c and half-widths h: eta_i lies within x_i'|h| of its value at c, A'' over that interval is known
in closed form, and with its suprema in the Hessian, whose norm then is M, | |grad(z)| - |grad(c)| | <= M |h|.

`fusion_floors` has the bounds for all z.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit

from .base import Floats
from .fusion_floors import LARGEST, logistic_floor, poisson_floor


@dataclass(frozen=True, eq=False)
class Density:
    """A Gaussian factor and rows of logistic (`counts` false) and Poisson (`counts` true) regressions.

    Examples
    --------
    >>> normal = Density.gaussian(np.array([1.0]), np.array([[4.0]]))
    >>> normal.times(normal).mode()
    array([1.])
    >>> float(normal.phi(np.array([[1.0]]))[0])  # minus half the precision at the mode
    -2.0
    """

    precision: Floats  # (d, d)
    linear: Floats  # (d,)
    rows: Floats  # (n, d)
    offsets: Floats  # (n,)
    outcomes: Floats  # (n,)
    counts: np.ndarray  # (n,) bool

    @staticmethod
    def gaussian(mean: Floats, precision: Floats) -> Density:
        """A Gaussian without rows."""
        none = np.empty(0)
        return Density(
            precision, precision @ mean, np.empty((0, len(mean))), none, none, np.empty(0, dtype=bool)
        )

    def times(self, other: Density) -> Density:
        """The product of two densities."""
        return Density(
            self.precision + other.precision,
            self.linear + other.linear,
            np.concatenate([self.rows, other.rows]),
            np.concatenate([self.offsets, other.offsets]),
            np.concatenate([self.outcomes, other.outcomes]),
            np.concatenate([self.counts, other.counts]),
        )

    def in_units(self, centre: Floats, root: Floats) -> Density:
        """The density of z where theta = centre + root z."""
        return Density(
            root.T @ self.precision @ root,
            root.T @ (self.linear - self.precision @ centre),
            self.rows @ root,
            self.offsets + self.rows @ centre,
            self.outcomes,
            self.counts,
        )

    def log_density(self, points: Floats) -> Floats:
        """Log density at (m, d) points, up to the constant of the Gaussian."""
        eta = self._eta(points)
        gaussian = points @ self.linear - 0.5 * np.sum(points @ self.precision * points, axis=1)
        partition = np.where(self.counts, _exp(eta, self.counts), np.logaddexp(0.0, eta))
        return np.asarray(gaussian + np.sum(self.outcomes * eta - partition, axis=1))

    def gradient(self, points: Floats) -> Floats:
        """Gradient of the log density at (m, d) points."""
        residuals = self.outcomes - _mean(self._eta(points), self.counts)
        return np.asarray(self.linear - points @ self.precision + residuals @ self.rows)

    def curvature(self, point: Floats) -> Floats:
        """Minus the Hessian of the log density at one point."""
        variances = _variance(self._eta(point[None])[0], self.counts)
        return self.precision + (self.rows.T * variances) @ self.rows

    def phi(self, points: Floats) -> Floats:
        """What is integrated along paths, at (m, d) points."""
        squares = np.sum(self.gradient(points) ** 2, axis=1)
        traces = np.trace(self.precision) + _variance(self._eta(points), self.counts) @ self._row_squares()
        return np.asarray(0.5 * (squares - traces))

    def mode(self) -> Floats:
        """The one maximum, by Newton's method with step halving: the log density is strictly concave."""
        factor = cho_factor(self.precision)
        point = cho_solve(factor, self.linear)
        value = self.log_density(point[None])[0]
        for _ in range(100):
            gradient = self.gradient(point[None])[0]
            step = np.linalg.solve(self.curvature(point), gradient)
            gain = float(gradient @ step)
            if gain < 1e-18:
                break
            length = 1.0
            while length > 1e-12:
                candidate = point + length * step
                reached = self.log_density(candidate[None])[0]
                if reached >= value + 1e-4 * length * gain or (length == 1.0 and gain < 1e-10):
                    break
                length *= 0.5
            point, value = candidate, reached
        return np.asarray(point)

    def floor(self) -> float:
        """A bound from below on phi for all points, in coordinates whose origin is the mode."""
        floor = logistic_floor(self.precision, self.rows[~self.counts])
        if self.counts.any():
            at_mode = np.exp(np.minimum(self.offsets[self.counts], LARGEST))
            alone = bool(self.counts.all())
            floor += poisson_floor(self.precision, self.rows[self.counts], at_mode, alone=alone)
        return floor

    def bounds(self, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        """Bounds of phi over (m, d) boxes."""
        centre, half = 0.5 * (low + high), 0.5 * (high - low)
        eta, reach = self._eta(centre), half @ np.abs(self.rows).T
        least, most = _variance_range(eta - reach, eta + reach, self.counts)
        squares, trace = self._row_squares(), np.trace(self.precision)
        largest = self.precision + np.einsum("mi,ij,ik->mjk", most, self.rows, self.rows, optimize=True)
        change = np.linalg.eigvalsh(largest)[:, -1] * np.linalg.norm(half, axis=1)
        steepness = np.linalg.norm(self.gradient(centre), axis=1)
        lower = 0.5 * (np.maximum(steepness - change, 0.0) ** 2 - trace - most @ squares)
        upper = 0.5 * ((steepness + change) ** 2 - trace - least @ squares)
        return lower, upper

    def centred(self) -> tuple[Floats, Floats]:
        """The mode and the covariance that the curvature there stands for."""
        mode = self.mode()
        curvature = self.curvature(mode)
        inverse = np.linalg.inv(curvature)
        return mode, 0.5 * (inverse + inverse.T)

    def _eta(self, points: Floats) -> Floats:
        return np.asarray(self.offsets + points @ self.rows.T)

    def _row_squares(self) -> Floats:
        return np.sum(self.rows**2, axis=1)


def _exp(eta: Floats, counts: np.ndarray) -> Floats:
    return np.exp(np.minimum(np.where(counts, eta, 0.0), LARGEST))


def _mean(eta: Floats, counts: np.ndarray) -> Floats:
    return np.where(counts, _exp(eta, counts), expit(eta))


def _variance(eta: Floats, counts: np.ndarray) -> Floats:
    return np.where(counts, _exp(eta, counts), expit(eta) * expit(-eta))


def _variance_range(low: Floats, high: Floats, counts: np.ndarray) -> tuple[Floats, Floats]:
    """Least and largest A'' for eta between low and high: it rises for counts, and falls with |eta| for others."""
    nearest, farthest = np.clip(0.0, low, high), np.where(-low > high, low, high)
    return (
        _variance(np.where(counts, low, farthest), counts),
        _variance(np.where(counts, high, nearest), counts),
    )
