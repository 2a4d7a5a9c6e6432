"""One shard seen through a view: its units, its kernel, and its log density at any points.

The kernel estimate of h_b is that of draws pulled towards their mean by sqrt(1 - v / s²), v the kernel's variance:
smoothing then leaves the variance s² of the draws as it is. (Without this every shard is too wide by the factor
1 + v / s², and their product as well, however many shards there are.) Where Sheather and Jones' rule finds modes far
narrower than s, the pull is nothing.

Reference for the pull: Jones (1991), On correcting for variance inflation in kernel density estimation,
Computational Statistics and Data Analysis 11(1).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from consilience.numerics import symmetric_root

from .bandwidths import sheather_jones, silverman
from .base import Floats
from .euwok import BLOCK, Euwok
from .gaussian_kernel import GaussianKernel
from .views_density import Points, Prior, Shape, Terms, log_density, packed_pairs
from .views_product import Product
from .views_tail import Bridge, anchors_of, bridge, neighbours, reduced

Kernel = Euwok | GaussianKernel
LARGEST_PULL = 0.5
# Numbers held for one block of points.
ROOM = 500_000
EVIDENCE_POINTS, MOST_FOR_PAIRS = 48, 20


@dataclass(frozen=True)
class Density:
    """How densities are estimated: the options of the rule that matter to one shard."""

    kernel: str
    bandwidth: str
    outside: float  # alpha
    fewest: float  # eta
    fewest_covariance: float  # eta_1
    fewest_mean: float  # eta_2


@dataclass(frozen=True)
class Evidence:
    """Squares of what local estimates are off the shard's Gaussian over what noise alone would give, less 1."""

    windows: float  # how many kernels lie side by side
    draws: float  # effective, within one
    density: float
    mean: float
    covariance: float
    products: int


@dataclass(frozen=True, eq=False)
class ShardView:
    """Draws of a shard in its own units, sorted by the first column of u."""

    u: Floats  # (N, k) whitened theta
    r: Floats  # (p, N) whitened residuals of psi
    order: np.ndarray  # where each sorted draw stood
    centre: Floats
    theta_map: Floats  # u = theta_map (theta - centre)
    slope: Floats
    psi_centre: Floats
    residual_map: Floats  # r = residual_map (psi - psi_centre - slope (theta - centre))
    kernel: Kernel
    pulled: Floats = field(repr=False)  # (N, k) where kernels stand
    effective: float
    density: Density

    @classmethod
    def of(
        cls,
        draws: Floats,
        mean: Floats,
        covariance: Floats,
        k: int,
        effective: float,
        density: Density,
        spacing: Floats | None = None,
    ) -> ShardView:
        """From draws (N, k + p) of (theta, psi) and their moments; ``spacing`` (N, k) sets the bandwidth instead."""
        theta_map = symmetric_root(covariance[:k, :k], power=-0.5)[0]
        slope = np.asarray(np.linalg.solve(covariance[:k, :k], covariance[:k, k:]).T)
        left = covariance[k:, k:] - slope @ covariance[:k, k:]
        residual_map = np.linalg.inv(np.linalg.cholesky(left)) if len(left) else left
        apart = draws - mean
        u = apart[:, :k] @ theta_map.T
        order = np.argsort(u[:, 0], kind="stable")
        u = u[order]
        r = np.ascontiguousarray((residual_map @ (apart[:, k:] - apart[:, :k] @ slope.T).T)[:, order])
        source = u if spacing is None else (spacing - mean[:k]) @ theta_map.T
        width = _bandwidth(source, effective, density)
        kernel: Kernel = Euwok(width) if density.kernel == "euwok" else GaussianKernel(width, k)
        pull = np.sqrt(max(1.0 - kernel.variance, LARGEST_PULL))
        return cls(
            u,
            r,
            order,
            mean[:k],
            theta_map,
            slope,
            mean[k:],
            residual_map,
            kernel,
            u * pull,
            effective,
            density,
        )

    @property
    def dimension(self) -> int:
        return self.u.shape[1]

    @property
    def spread(self) -> float:
        """Effective draws per unit of kernel sum."""
        return self.effective / (len(self.u) * self.kernel.roughness)

    def points(self, theta: Floats, psi: Floats) -> Points:
        """Points (M, k) and psi* (M, p) in the shard's units, and where which rule holds."""
        apart = theta - self.centre
        u = apart @ self.theta_map.T
        r = self.residual_map @ (psi - self.psi_centre - apart @ self.slope.T).T
        p, rules = len(r), self.density
        near = neighbours(u, self.pulled, self.kernel.central(rules.outside)) * (self.effective / len(self.u))
        mean = max(rules.fewest, rules.fewest_mean * p)
        covariance = max(mean, rules.fewest_covariance * p**2)
        return Points(
            u, r, bridge(near >= rules.fewest, u), bridge(near >= mean, u), bridge(near >= covariance, u)
        )

    def add_density(
        self, product: Product, theta: Floats, psi: Floats, prior: Prior, scale: Floats
    ) -> np.ndarray:
        """Add log h + log g at points (M, k), sorted by their first column; say which lie in tails.

        ``scale`` (p, p) are the units of psi that all shards share.
        """
        points = self.points(theta, psi)
        p, number = len(points.r), np.array([float(len(self.u))])
        pairs = _with_pairs(points, prior)
        shape = Shape.standard(self.dimension, p, pairs, self.effective)
        with_moments = _with_moments(points, prior)
        held = 1 + (p + len(packed_pairs(p, pairs)[0]) if with_moments else 0)
        unit = self.residual_map @ scale if product.integrates else None

        def rows(start: int, stop: int) -> Floats:
            return _products(self.r[:, start:stop], pairs) if with_moments else np.ones((1, stop - start))

        anchors = anchors_of([points.density, points.mean, points.covariance])
        leaning = np.empty((held, 0))
        if anchors.size:
            leaning = np.concatenate(
                [block for _, block in self.kernel.sums(points.u[anchors], self.pulled, rows)], axis=1
            )
        step = max(64, min(BLOCK, ROOM // (held + p * p)))
        for start, sums in self.kernel.sums(points.u, self.pulled, rows):
            for first in range(start, start + sums.shape[1], step):
                stop = min(first + step, start + sums.shape[1])
                both = np.concatenate([sums[:, first - start : stop - start], leaning], axis=1)[None]
                part = _part(points, first, stop, anchors)
                terms = log_density(both, part, shape, number, self.spread, prior, unit)
                product.add(_first(terms, stop - first), first)
        return np.ones(len(theta), bool) if points.density is None else ~points.density.dense

    def add_densities_without(
        self, product: Product, theta: Floats, psi: Floats, prior: Prior, scale: Floats, groups: int
    ) -> None:
        """The same at a few points with all draws, then without each of `groups` runs of draws."""
        points = self.points(theta, psi)
        p, k = len(points.r), self.dimension
        pairs, with_moments = _with_pairs(points, prior), _with_moments(points, prior)
        held = 1 + (p + len(packed_pairs(p, pairs)[0]) if with_moments else 0)
        member = (self.order * groups) // len(self.order)
        sums = np.empty((1 + groups, held, len(theta)))
        moments = np.empty((1 + groups, 1 + k + p, 1 + k + p))
        for chosen, group in self._runs(member, groups, held + len(theta)):
            r = self.r[:, chosen]
            values = _products(r, pairs) if with_moments else np.ones((1, len(chosen)))
            weights = self.kernel.matrix(points.u, self.pulled[chosen])
            one = np.concatenate([values[:1], self.u[chosen].T, r])
            edges = np.searchsorted(group, np.arange(groups + 1))
            for index in range(int(group[0]), int(group[-1]) + 1):
                part = slice(edges[index], edges[index + 1])
                sums[1 + index] = values[:, part] @ weights[:, part].T
                moments[1 + index] = one[:, part] @ one[:, part].T
        sums[0], moments[0] = sums[1:].sum(axis=0), moments[1:].sum(axis=0)
        sums[1:], moments[1:] = sums[0] - sums[1:], moments[0] - moments[1:]
        shape = _shape(moments, k, pairs, self.effective)
        unit = self.residual_map @ scale if product.integrates else None
        product.add(log_density(sums, points, shape, moments[:, 0, 0], self.spread, prior, unit))

    def _runs(self, member: np.ndarray, groups: int, held: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Draws in the order of their groups, and their groups: all at once where few, else group by group."""
        order = np.argsort(member, kind="stable")
        if len(order) * held <= ROOM:
            yield order, member[order]
            return
        edges = np.searchsorted(member[order], np.arange(groups + 1))
        for group in range(groups):
            chosen = order[edges[group] : edges[group + 1]]
            yield chosen, np.full(len(chosen), group)

    def evidence(self) -> Evidence:
        """What local moments at points spread over the shard's own draws show beyond their noise."""
        p = len(self.r)
        few = np.linspace(0, len(self.u) - 1, 2 * EVIDENCE_POINTS + 1).astype(np.intp)[1::2]
        at = self.pulled[few]
        pairs = p <= MOST_FOR_PAIRS
        rows, columns = packed_pairs(p, pairs)
        sums = np.zeros((1 + p + len(rows), len(at)))
        step = max(64, min(BLOCK, ROOM // (4 * len(sums))))
        for first in range(0, len(self.u), step):
            stop = min(first + step, len(self.u))
            sums += (
                _products(self.r[:, first:stop], pairs) @ self.kernel.matrix(at, self.pulled[first:stop]).T
            )
        draws = np.maximum(sums[0] * self.spread, 2.0)
        gaussian = np.exp(-0.5 * np.sum(at**2, axis=1)) / (2.0 * np.pi) ** (self.dimension / 2) * len(self.u)
        mean = sums[1 : 1 + p] / sums[0]
        apart = sums[1 + p :] / sums[0] - mean[rows] * mean[columns]
        same = (rows == columns)[:, None]
        apart = apart * draws / (draws - 1.0) - same
        return Evidence(
            windows=self.effective / float(draws.mean()),
            draws=float(draws.mean()),
            density=float(np.mean(self.spread * gaussian * (sums[0] / gaussian - 1.0) ** 2)) - 1.0,
            mean=float(np.mean(draws * mean**2)) - 1.0 if p else 0.0,
            covariance=float(np.mean(draws * apart**2 / (1.0 + same))) - 1.0 if p else 0.0,
            products=len(rows),
        )


def _first(terms: Terms, number: int) -> Terms:
    """Terms of the first points: anchors stand behind them."""
    return Terms(
        terms.log[:, :number],
        None if terms.precision is None else terms.precision[..., :number],
        None if terms.pull is None else terms.pull[..., :number],
    )


def _with_moments(points: Points, prior: Prior) -> bool:
    """Whether kernel sums of r are wanted, or those of 1 only."""
    return len(points.r) > 0 and points.mean is not None and not prior.whole


def _with_pairs(points: Points, prior: Prior) -> bool:
    return points.mean is None or points.covariance is not None or prior.whole


def _bandwidth(u: Floats, effective: float, density: Density) -> float:
    if density.bandwidth == "sheather-jones" and u.shape[1] == 1:
        return sheather_jones(u, effective)
    return silverman(u, effective)


def _products(r: Floats, pairs: bool) -> Floats:
    """1, r and products of r, one row each."""
    p = len(r)
    rows, columns = packed_pairs(p, pairs)
    found = np.empty((1 + p + len(rows), r.shape[1]))
    found[0], found[1 : 1 + p] = 1.0, r
    np.multiply(r[rows], r[columns], out=found[1 + p :])
    return found


def _part(points: Points, first: int, stop: int, anchors: np.ndarray) -> Points:
    chosen = np.concatenate([np.arange(first, stop), anchors])
    bridges: list[Bridge | None] = [
        reduced(x, first, stop, anchors) for x in (points.density, points.mean, points.covariance)
    ]
    return Points(points.u[chosen], points.r[:, chosen], *bridges)


def _shape(moments: Floats, k: int, pairs: bool, effective: float) -> Shape:
    """Gaussian moments of (u, r) from sums of products of (1, u, r)."""
    number = moments[:, 0, 0]
    mean = moments[:, 0, 1:] / number[:, None]
    covariance = moments[:, 1:, 1:] / number[:, None, None] - mean[:, :, None] * mean[:, None, :]
    covariance *= (number / (number - 1.0))[:, None, None]
    of_u, across = covariance[:, :k, :k], covariance[:, :k, k:]
    slope = np.swapaxes(np.linalg.solve(of_u, across), 1, 2)
    left = covariance[:, k:, k:] - slope @ across
    rows, columns = packed_pairs(left.shape[1], pairs)
    whiten = np.linalg.inv(np.linalg.cholesky(of_u))
    return Shape(mean[:, :k], whiten, mean[:, k:], slope, left[:, rows, columns], effective)
