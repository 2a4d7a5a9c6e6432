"""HMC on the full data: S chains that move at once, each leapfrog step one batched look at all shards.

Formula. In coordinates whitened by the draws, theta = m + M z, momentum p ~ N(0, I), and L leapfrog steps

    p <- p + e h / 2,   z <- z + e p,   p <- p + e h / 2,       h = M' grad log p(theta | y),

the end is accepted with probability min(1, exp(log p(end) - log p(start) - |p_end|^2 / 2 + |p_start|^2 / 2)),
in full-data log densities. The full posterior is invariant whatever the draws, the whitening and the step.

The length e L of a trajectory is spread over (pi/4, 3 pi/4) in each iteration as in `sample.hmc`, up to the largest
number of steps; the step is changed between rounds only (see `polish`). Steps may be spread: each chain's is then a
random share of the one given, whatever its state. Chains that start far out, where the density is steep and
every whole step is refused, come in by the small ones. The leapfrog is written out here because
its gradients come from shards that a compiled program cannot call.

Fails where one whitening cannot serve the whole posterior, slowly; and a point whose log density or score is not
finite is never accepted.

Reference. Neal (2011), MCMC using Hamiltonian dynamics, sections 3.2 and 5.3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from consilience.refine.base import Floats
from consilience.refine.pass_back import Evaluation, PassBack
from consilience.refine.stein import Cloud
from consilience.sample.hmc import HMC

# Beyond so many standard deviations a trajectory is lost, and its numbers may overflow.
LOST = 1e6
# Smallest share of a step when steps are spread.
SMALLEST = 0.02


@dataclass(frozen=True, eq=False)
class Iteration:
    """What one iteration did: mean acceptance probability, and what it cost in looks."""

    acceptance: float
    leapfrogs: int


class FullDataChains:
    """S chains, where they are, and how they move.

    Parameters
    ----------
    pass_back : PassBack
    cloud : Cloud
        Whitens.
    starts : Evaluation
        Finite scores at the S starting points.
    max_leapfrogs : int
        Longest trajectory in steps.
    """

    def __init__(
        self,
        pass_back: PassBack,
        cloud: Cloud,
        starts: Evaluation,
        max_leapfrogs: int,
        rng: np.random.Generator,
    ) -> None:
        assert starts.scores is not None
        self.pass_back, self.cloud, self.at, self.rng = pass_back, cloud, starts, rng
        self.max_leapfrogs = max_leapfrogs
        self.iterations = 0

    @property
    def z(self) -> Floats:
        """(S, d) whitened states."""
        return self.cloud.whiten(self.at.points)

    def iterate(self, step_size: float, *, spread: bool = False) -> Iteration:
        """Move all chains once; with steps `spread` below the given one, each chain's at random."""
        length = float(HMC().lengths(self.iterations, 1)[0])
        self.iterations += 1
        leapfrogs = int(np.clip(np.ceil(length / step_size), 1, self.max_leapfrogs))
        step = np.full((len(self.at.points), 1), min(step_size, length / leapfrogs))
        if spread:
            step *= SMALLEST ** self.rng.uniform(size=step.shape)
        momentum = self.rng.normal(size=self.at.points.shape)
        proposed, turned = self.trajectory(momentum, step, leapfrogs)
        kinetic = 0.5 * (np.sum(momentum**2, axis=1) - np.sum(turned**2, axis=1))
        with np.errstate(invalid="ignore"):
            gain = proposed.log_density - self.at.log_density + kinetic
        gain = np.where(proposed.finite & np.isfinite(gain), gain, -np.inf)
        self.choose(proposed, self.accepted(gain))
        return Iteration(float(np.mean(np.exp(np.minimum(gain, 0.0)))), leapfrogs)

    def accepted(self, gain: Floats) -> np.ndarray:
        """(S,) who moves: the Metropolis rule."""
        return np.asarray(np.log(self.rng.uniform(size=len(gain))) < gain)

    def trajectory(self, momentum: Floats, step: Floats, leapfrogs: int) -> tuple[Evaluation, Floats]:
        """Where the leapfrog ends, and with which momentum."""
        assert self.at.scores is not None
        z, h = self.z, self.cloud.whiten_scores(self.at.scores)
        for _ in range(leapfrogs):
            momentum = momentum + 0.5 * step * h
            z = z + step * momentum
            lost = ~(np.max(np.abs(z), axis=1) < LOST)
            z = np.where(lost[:, None], 0.0, z)
            there = self.pass_back.scores(self.cloud.colour(z))
            assert there.scores is not None
            good = there.finite & ~lost
            h = np.where(good[:, None], self.cloud.whiten_scores(np.nan_to_num(there.scores)), 0.0)
            momentum = np.where(lost[:, None], np.inf, momentum + 0.5 * step * h)
        return there, momentum

    def choose(self, proposed: Evaluation, accepted: np.ndarray) -> None:
        """The next states: the proposals where they were accepted."""
        where = accepted[:, None]
        assert proposed.scores is not None
        assert self.at.scores is not None
        self.at = Evaluation(
            np.where(where, proposed.points, self.at.points),
            np.where(accepted, proposed.log_density, self.at.log_density),
            np.where(where, proposed.scores, self.at.scores),
        )
