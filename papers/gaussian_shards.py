"""Shards whose sub-posteriors are Gaussian, so that the posterior is known in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import consilience as cs
from papers.measuring import Reference, gaussian_law


@dataclass(frozen=True, eq=False)
class GaussianShards:
    """Sub-posteriors N(means[b], covariances[b]); inflated they are N(means[b], covariances[b] / B)."""

    means: np.ndarray
    covariances: np.ndarray

    def posterior(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance of the product of the sub-posteriors."""
        precisions = np.linalg.inv(self.covariances)
        covariance = np.linalg.inv(precisions.sum(axis=0))
        return covariance @ np.einsum("bij,bj->i", precisions, self.means), covariance

    def draws(self, number: int, rng: np.random.Generator) -> dict[str, cs.Subposteriors]:
        """`number` draws of every shard, of either kind."""
        roots = np.linalg.cholesky(self.covariances)
        shape = (len(self.means), number, self.means.shape[1])
        spread = {"subposterior": 1.0, "inflated": len(self.means) ** -0.5}
        return {
            kind: cs.Subposteriors.of(
                self.means[:, None] + scale * (rng.normal(size=shape) @ np.swapaxes(roots, 1, 2)), kind=kind
            )
            for kind, scale in spread.items()
        }

    def sample(self, number: int, rng: np.random.Generator) -> np.ndarray:
        """Exact draws of the posterior."""
        mean, covariance = self.posterior()
        return mean + rng.normal(size=(number, len(mean))) @ np.linalg.cholesky(covariance).T

    def reference(self, number: int, rng: np.random.Generator) -> Reference:
        """The exact posterior, with draws that only set the width of kernels."""
        return Reference(self.sample(number, rng), gaussian_law(*self.posterior()))
