"""The barycenter of all shards cut to problems that can be solved: frame, blocks, start, and what cutting loses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

import numpy as np

from consilience.numerics import symmetric_root, weighted_covariance
from consilience.progress import tell

from .base import Floats
from .gaussian_barycenter import barycenter
from .moments import ShardMoments
from .transport import exact_barycenter, free_support_barycenter

Metric = Literal["pooled", "euclidean"]

# Variables of the largest linear programme that is solved at once: that of two shards is a transport problem, for
# which there is a fast method.
LARGEST_FOR_TWO, LARGEST = 1_000_000, 50_000
# So many points of Gaussian shards, in no more than so many problems, show how much spread is lost.
MEASURED_POINTS, MOST_MEASUREMENTS = 300, 4


@dataclass(frozen=True, eq=False)
class TransportProblem:
    """The shards in a frame where squared distances are what transport costs.

    Build one with `TransportProblem.of`. Shards are in canonical order throughout.
    """

    weights: Floats  # (B,)
    sizes: tuple[int, ...]  # draws of each shard
    centre: Floats  # (d,)
    root: Floats  # (d, d) symmetric: x = z root + centre
    inverse_root: Floats
    means: Floats  # (B, d) in the frame, as all that follows
    covariances: Floats  # (B, d, d)
    barycenter: Floats  # (d, d) covariance of the Gaussian barycenter
    maps: Floats  # (B, d, d) onto it
    variables: int  # of the one linear programme
    exact: bool
    num_blocks: int
    block_size: int

    @classmethod
    def of(
        cls,
        moments: ShardMoments,
        weights: Floats,
        order: Sequence[int],
        *,
        metric: Metric = "pooled",
        block: int = 256,
        largest_programme: int | None = None,
    ) -> TransportProblem:
        """Choose the frame, and by size how to solve.

        Examples
        --------
        >>> from consilience.combine.moments import shard_moments
        >>> from consilience.draws import Subposteriors
        >>> shards = Subposteriors.of(np.random.default_rng(0).normal(size=(3, 1000, 2)), kind="inflated")
        >>> problem = TransportProblem.of(shard_moments(shards), shards.weights, [0, 1, 2])
        >>> problem.exact, problem.num_blocks, problem.block_size
        (False, 4, 250)
        """
        weights, means, covariances = weights[order], moments.means[order], moments.covariances[order]
        sizes = tuple(int(size) for size in moments.sizes[order])
        pooled = np.tensordot(weights, covariances, 1)
        if metric == "euclidean":
            pooled = np.eye(len(pooled)) * np.trace(pooled) / len(pooled)
        root, inverse_root = _roots(pooled)
        centre = weights @ means
        covariances = inverse_root.T @ covariances @ inverse_root
        middle, maps, _ = barycenter(covariances, weights)
        if largest_programme is None:
            largest_programme = LARGEST_FOR_TWO if len(sizes) == 2 else LARGEST
        exact = prod(sizes) <= largest_programme
        num_blocks = 1 if exact else -(-max(sizes) // block)
        return cls(
            weights=weights,
            sizes=sizes,
            centre=centre,
            root=root,
            inverse_root=inverse_root,
            means=(means - centre) @ inverse_root,
            covariances=covariances,
            barycenter=middle,
            maps=maps,
            variables=prod(sizes),
            exact=exact,
            num_blocks=num_blocks,
            block_size=-(-max(sizes) // num_blocks),
        )

    def inside(self, x: Floats) -> Floats:
        """Draws in the frame."""
        return (x - self.centre) @ self.inverse_root

    def outside(self, z: Floats) -> Floats:
        """Points of the frame in the coordinates of the draws."""
        return z @ self.root + self.centre

    def notes(self) -> tuple[str, ...]:
        """Say how the barycenter is found."""
        if self.exact:
            return (f"The barycenter is exact: one linear programme of {self.variables:,} variables.",)
        # With many shards the number of variables is beyond floating point, and says no more than this.
        size = f"{float(self.variables):.1e}" if self.variables < 1e300 else "over 1e300"
        blocks = "one block" if self.num_blocks == 1 else f"{self.num_blocks} blocks"
        return (
            f"The barycenter is of free support, in {blocks} of {self.block_size} draws per shard, coupled exactly: "
            f"one linear programme would have {size} variables.",
        )

    def solve(self, draws: Callable[[int, np.ndarray], Floats]) -> tuple[Floats, Floats, bool]:
        """Solve all blocks; `draws` gives rows of a shard, in the frame and in random order."""
        points, masses, all_rested = [], [], True
        for k in range(self.num_blocks):
            samples = []
            for b, size in enumerate(self.sizes):
                take = min(size, self.block_size)
                samples.append(draws(b, np.arange(k * take, (k + 1) * take) % size))
            found, mass, rested = self._solve_one(samples, f"block {k + 1} of {self.num_blocks}")
            points.append(found)
            masses.append(mass / self.num_blocks)
            all_rested &= rested
        return np.concatenate(points), np.concatenate(masses), all_rested

    def spread_kept(self, generator: np.random.Generator) -> Floats:
        """The share of variance that Gaussian shards keep, along each principal axis of their barycenter.

        Compared is with the barycenter of the samples' own covariances: their noise is in both.
        """
        _, axes = np.linalg.eigh(self.barycenter)
        roots, _ = symmetric_root(self.covariances)
        takes = [min(size, self.block_size) for size in self.sizes]
        found, known = np.zeros(len(axes)), np.zeros(len(axes))
        measurements = min(-(-MEASURED_POINTS // max(takes)), MOST_MEASUREMENTS)
        for i in range(measurements):
            samples = [
                mean + generator.standard_normal((take, len(axes))) @ root
                for mean, root, take in zip(self.means, roots, takes, strict=True)
            ]
            points, masses, _ = self._solve_one(samples, f"Gaussian shards {i + 1} of {measurements}")
            covariances = np.array([np.cov(x, rowvar=False) for x in samples])
            for total, covariance in (
                (found, weighted_covariance(points, np.log(masses))),
                (known, barycenter(covariances, self.weights)[0]),
            ):
                total += np.einsum("ia,ij,ja->a", axes, covariance, axes)
        return found / known

    def stretched(self, points: Floats, masses: Floats, kept: Floats) -> Floats:
        """Points stretched about their mean along the principal axes, so that what was lost is back."""
        _, axes = np.linalg.eigh(self.barycenter)
        centre = masses @ points
        return centre + (points - centre) @ (axes / np.sqrt(kept)) @ axes.T

    def _solve_one(self, samples: Sequence[Floats], what: str) -> tuple[Floats, Floats, bool]:
        """Points, masses, and whether they came to rest."""
        if self.exact:
            tell(f"{what}: linear programme", 0, 1)
            points, masses = exact_barycenter(samples, self.weights)
            tell(f"{what}: linear programme", 1, 1)
            return points, masses, True
        longest = max(range(len(samples)), key=lambda b: len(samples[b]))
        # The optimal map between Gaussians: near the barycenter already, and of about its law.
        start = (samples[longest] - self.means[longest]) @ self.maps[longest]
        points, rested = free_support_barycenter(
            samples,
            self.weights,
            start,
            lambda step, done: tell(f"{what}, round {step}: shards coupled", done, len(samples)),
        )
        return points, np.full(len(points), 1.0 / len(points)), rested


def _roots(covariance: Floats) -> tuple[Floats, Floats]:
    """R and its inverse with R' R = covariance, found in units of standard deviations so that no digits are lost."""
    scale = np.sqrt(np.diagonal(covariance))
    root, _ = symmetric_root(covariance / np.outer(scale, scale))
    return root * scale, np.linalg.inv(root) / scale[:, None]
