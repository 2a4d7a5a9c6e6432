"""The product of the shards' surfaces: the density that is sampled.

Formula. With the shards independent, the log posterior is a Gaussian process too,

    l(theta) ~ GP(sum mu_b(theta), sum sigma_b²(theta)),

and two densities follow from it: that of the mean surface, exp(sum mu_b), and the expected one,

    E[exp l(theta)] = exp(sum mu_b(theta) + sum sigma_b²(theta) / 2).

Where nothing is known, neither is a density: sigma² may be thousands there, and the expected density grows with
it where it should vanish. Beyond a variance of c = `KNOWN_VARIANCE` both densities are therefore made to fall
with what is not known, by the factor exp(-(sigma² - c) / 2), in which the expected one has c in the place of
sigma². Inside, where shards have draws and the posterior has its mass, nothing is changed.

Coordinates. theta = m + R u, with mean m and covariance R R' of the Gaussian product of the shards' moments; or,
when all surfaces are quadratics, of the product itself, which is a standard Gaussian in u then.

Reference. Nemeth and Sherlock (2018), section 3, "merging the sub-posteriors" and section 3.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .base import Floats
from .gp_surface import Surface

# Kernel entries that are held at a time.
BLOCK = 1 << 18
# Variance of the log posterior beyond which a density means nothing: it is off by a factor e² in either direction.
KNOWN_VARIANCE = 4.0
# Rows of draws that are treated at a time.
ROWS = 512


@dataclass(frozen=True, eq=False)
class Placed:
    """A shard's surface and its coordinates z = whitening (theta - centre)."""

    surface: Surface
    whitening: Floats  # (d, d)
    centre: Floats  # (d,)

    def place(self, theta: Floats) -> Floats:
        """Z at the rows of theta."""
        return (theta - self.centre) @ self.whitening.T


@dataclass(frozen=True, eq=False)
class _Group:
    """Shards whose processes are evaluated together; those with fewer points are filled up with weight 0."""

    turn: Floats  # (b, d, d) z = turn u + shift
    shift: Floats  # (b, 1, d)
    points: Floats  # (b, n, d)
    squares: Floats  # (b, 1, n)
    duals: Floats  # (b, n), times (1 - nu)
    inverse_squares: Floats  # (b, 1, 1) 1 / length²


class Product:
    """The product of surfaces.

    Attributes
    ----------
    mean, root : theta = mean + root u
    processes : the shards whose surface is more than a quadratic

    Examples
    --------
    >>> from .gp_surface import fit_surface
    >>> z = np.linspace(-2.0, 2.0, 9)[:, None]
    >>> half = fit_surface(z, -0.5 * z[:, 0] ** 2)
    >>> product = Product([Placed(half, np.eye(1), np.array([c])) for c in (0.0, 1.0)])
    >>> product.mean.round(6), (product.root @ product.root.T).round(6)
    (array([0.5]), array([[0.5]]))
    """

    def __init__(self, shards: Sequence[Placed]) -> None:
        self.shards = tuple(shards)
        self.processes = tuple(shard for shard in self.shards if shard.surface.has_process)
        self.mean, self.root = _product_of_gaussians(self.shards, quadratics=not self.processes)
        self._slope, self._curvature = self._sum_of_quadratics()
        self._groups: tuple[_Group, ...] = ()
        self._rows = 0

    @property
    def dimension(self) -> int:
        return len(self.mean)

    @property
    def is_gaussian(self) -> bool:
        return not self.processes

    def to_parameters(self, u: Floats) -> Floats:
        """Theta at the rows of u, in their place: there may be no room for both."""
        for rows in row_blocks(len(u)):
            u[rows] = self.mean + u[rows] @ self.root.T
        return u

    def from_parameters(self, theta: Floats) -> Floats:
        """The rows of u at those of theta."""
        return np.asarray(np.linalg.solve(self.root, (theta - self.mean).T).T)

    def mean_and_gradient(self, u: Floats) -> tuple[Floats, Floats]:
        """Log density of the mean surface, up to a constant, and its gradient."""
        bent = u @ self._curvature
        value, gradient = u @ self._slope - 0.5 * np.sum(bent * u, axis=1), self._slope - bent
        for group in self._grouped(len(u)):
            z = u @ np.swapaxes(group.turn, 1, 2) + group.shift
            exponent = z @ np.swapaxes(group.points, 1, 2)
            exponent -= 0.5 * np.sum(z * z, axis=2)[:, :, None]
            exponent -= 0.5 * group.squares
            exponent *= group.inverse_squares
            # Rounding may lift a distance of 0 above it.
            weighted = np.exp(np.minimum(exponent, 0.0, out=exponent), out=exponent)
            weighted *= group.duals[:, None, :]
            heights = np.sum(weighted, axis=2)
            value += np.sum(heights, axis=0)
            slopes = (weighted @ group.points - heights[:, :, None] * z) * group.inverse_squares
            gradient += np.sum(slopes @ group.turn, axis=0)
        return value, gradient

    def correction(self, u: Floats, expected: bool) -> Floats:
        """What the density's logarithm has beside the mean surface."""
        return self.corrected(self.variance(u), expected)

    @staticmethod
    def corrected(variance: Floats, expected: bool) -> Floats:
        """The correction for a variance of the log posterior.

        Examples
        --------
        >>> Product.corrected(np.array([1.0, 4.0, 10.0]), expected=True)
        array([ 0.5,  2. , -1. ])
        """
        beyond = np.maximum(variance - KNOWN_VARIANCE, 0.0)
        return 0.5 * np.minimum(variance, KNOWN_VARIANCE) * expected - 0.5 * beyond

    def variance(self, u: Floats) -> Floats:
        """Variance of the log posterior given the values at all shards' points, bounded."""
        total = np.zeros(len(u))
        for shard in self.processes:
            turn = shard.whitening @ self.root
            shift = shard.whitening @ (self.mean - shard.centre)
            total += shard.surface.variance(u @ turn.T + shift)
        return total

    def _sum_of_quadratics(self) -> tuple[Floats, Floats]:
        """Slope at u = 0 and curvature of all quadratics together."""
        d = self.dimension
        slope, curvature = np.zeros(d), np.zeros((d, d))
        for shard in self.shards:
            turn, surface = shard.whitening @ self.root, shard.surface
            z = shard.whitening @ (self.mean - shard.centre)
            curvature += turn.T @ surface.curvature @ turn
            slope += turn.T @ (surface.slope - surface.curvature @ z)
        return slope, curvature

    def _grouped(self, rows: int) -> tuple[_Group, ...]:
        """The processes in groups whose kernels with so many rows fit in a block."""
        if rows != self._rows:
            width = max((len(shard.surface.points) for shard in self.processes), default=1)
            size = max(1, BLOCK // (rows * width))
            self._groups = tuple(
                self._group(self.processes[start : start + size])
                for start in range(0, len(self.processes), size)
            )
            self._rows = rows
        return self._groups

    def _group(self, shards: Sequence[Placed]) -> _Group:
        width, d = max(len(shard.surface.points) for shard in shards), self.dimension
        points, duals = np.zeros((len(shards), width, d)), np.zeros((len(shards), width))
        for b, shard in enumerate(shards):
            surface = shard.surface
            points[b, : len(surface.points)] = surface.points
            duals[b, : len(surface.points)] = (1.0 - surface.noise) * surface.dual
        whitening = np.stack([shard.whitening for shard in shards])
        away = np.stack([self.mean - shard.centre for shard in shards])
        return _Group(
            turn=whitening @ self.root,
            shift=np.einsum("bij,bj->bi", whitening, away)[:, None, :],
            points=points,
            squares=np.sum(points * points, axis=2)[:, None, :],
            duals=duals,
            inverse_squares=np.array([shard.surface.length**-2 for shard in shards])[:, None, None],
        )


def _product_of_gaussians(shards: Sequence[Placed], quadratics: bool) -> tuple[Floats, Floats]:
    """Mean, and a root of the covariance, of the product of the quadratics' or of the moments' Gaussians."""
    # In units of a typical standard deviation, so that no digits are lost between parameters of unlike scale.
    lengths = np.stack([np.linalg.norm(shard.whitening, axis=0) for shard in shards])
    unit = 1.0 / np.sqrt(np.mean(lengths**2, axis=0))
    start = np.mean([shard.centre for shard in shards], axis=0)
    d = len(start)
    precision, slope = np.zeros((d, d)), np.zeros(d)
    for shard in shards:
        turn, z = shard.whitening * unit, shard.whitening @ (start - shard.centre)
        curvature = shard.surface.curvature if quadratics else np.eye(d)
        precision += turn.T @ curvature @ turn
        slope += turn.T @ ((shard.surface.slope if quadratics else 0.0) - curvature @ z)
    factor = np.linalg.cholesky(0.5 * (precision + precision.T))
    inverse = np.linalg.inv(factor)
    return start + unit * (inverse.T @ (inverse @ slope)), unit[:, None] * inverse.T


def row_blocks(number: int) -> Iterator[slice]:
    """So many rows, block by block.

    Examples
    --------
    >>> list(row_blocks(600))
    [slice(0, 512, None), slice(512, 600, None)]
    """
    for start in range(0, number, ROWS):
        yield slice(start, min(start + ROWS, number))
