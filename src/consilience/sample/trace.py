"""What a shard's chains have left behind, and what can be learnt from it for the next run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.sample.factor import cholesky, covariance, product, solve_lower
from consilience.sample.program import Block, Chains, Frame


@dataclass(frozen=True)
class Trace:
    """Runs of the program in one frame, with the iterations that tuned the step marked."""

    frame: Frame
    chains: Chains
    blocks: list[Block]
    tunings: list[np.ndarray]

    @property
    def gradients(self) -> float:
        """Gradients that the runs cost, all chains together, with one per chain and run to begin."""
        return float(sum(np.sum(b.gradients) + np.shape(b.gradients)[1] for b in self.blocks))

    def drawn(self, field: str, dtype: Any = np.float64) -> np.ndarray:
        """One field of the iterations that count, (chains, draws, ...)."""
        kept = [
            np.asarray(getattr(b, field), dtype)[~t] for b, t in zip(self.blocks, self.tunings, strict=True)
        ]
        return np.swapaxes(np.concatenate(kept), 0, 1)

    def coordinates(self) -> np.ndarray:
        """Draws in unconstrained coordinates (chains, draws, d), in float64."""
        root, centre = np.asarray(self.frame.root, np.float64), np.asarray(self.frame.centre, np.float64)
        return product(self.drawn("positions"), root) + centre

    def log_density(self) -> np.ndarray:
        return self.drawn("log_density")

    def some(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Draws from beginning to end, and their log densities."""
        u = self.coordinates()
        chosen = np.linspace(0, u.shape[0] * u.shape[1] - 1, count).astype(int)
        return u.reshape(-1, u.shape[2])[chosen], self.log_density().reshape(-1)[chosen]

    @property
    def acceptance(self) -> float:
        return float(np.mean(self.drawn("acceptance")))

    @property
    def divergences(self) -> int:
        return int(np.sum(self.drawn("divergent", np.int64)))


def rewhiten(trace: Trace, generator: np.random.Generator, real: Any) -> tuple[Frame, np.ndarray]:
    """Coordinates whitened by the draws' covariance, leaning on the old ones while draws are few.

    Chains go on from where they are; one that sits where the log density is not finite starts over, near
    the centre.
    """
    z = trace.drawn("positions")
    usable = np.isfinite(trace.log_density()).all(axis=1) & np.isfinite(z).all(axis=(1, 2))
    dimension = z.shape[-1]
    old_root = np.asarray(trace.frame.root, np.float64)
    if not usable.any():
        near = 0.1 * generator.standard_normal(z[:, 0, :].shape)
        return trace.frame, near.astype(real)
    flat = z[usable].reshape(-1, dimension)
    mean = flat.mean(axis=0)
    share = len(flat) / (len(flat) + 5.0 * dimension)
    blend = share * covariance(flat) + (1 - share) * np.eye(dimension)
    change, failed = cholesky(blend)
    if failed < dimension:  # some coordinate never moved
        change = np.eye(dimension)
    fresh = mean + product(generator.standard_normal(z[:, 0, :].shape), change)
    last = np.where(usable[:, None], z[:, -1, :], fresh)
    positions = solve_lower(change, last - mean)
    frame = Frame(
        (np.asarray(trace.frame.centre, np.float64) + product(mean, old_root)).astype(real),
        product(old_root, change.T).astype(real),
    )
    return frame, positions.astype(real)
