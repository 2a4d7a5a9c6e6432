"""Independent Metropolis within Gibbs over the components of a product of kernel mixtures, many walkers at once.

A walker holds one draw of every shard. A step proposes another draw of one shard and accepts it with probability
min(1, W_new / W_old) (corrected for how often draws are proposed); a sweep does so for every shard. Walkers are
independent of each other, so a step is done for all of them in one go, and what they have in common shows
how far they have mixed: a walker has forgotten where it was when positions now and then are uncorrelated over walkers.

The sum S of a walker is updated with the draw that changes, which makes the cost of a step independent of the number
of shards, and worked out anew for every mixture and every few dozen sweeps, before rounding errors add up.

Reference. Neiswanger, Wang and Xing (2014), Asymptotically exact, embarrassingly parallel MCMC, Algorithm 1: there one
walker, proposals that are all equally likely, and one sweep between draws.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .base import Floats
from .kernel_frame import Mixture

# Sweeps after which the running sums are worked out anew.
SWEEPS_UNTIL_RENEWED = 50
# Walkers have forgotten when the correlation with where they were is below this, on average over directions.
FORGOTTEN = 0.1
# Walkers that were stopped before are stuck above this one; below, effective sizes count what their draws share.
STUCK = 0.3


class Walkers:
    """Walkers in a mixture, which may change under them.

    Examples
    --------
    >>> from consilience.combine.kernel_frame import Mixture
    >>> x, pool = np.array([[-1.0], [1.0]]), np.arange(2, dtype=np.int32)
    >>> one = np.eye(1)
    >>> mixture = Mixture((x, x), (np.zeros(2), np.zeros(2)), (pool, pool), np.zeros(1), one, np.zeros(1), one)
    >>> walkers = Walkers(mixture, 1000, np.random.default_rng(0))
    >>> for _ in range(9):
    ...     walkers.sweep()

    Both shards at one end, weight e^2, are likelier than one at either, weight 1:

    >>> together = walkers.indices[0] == walkers.indices[1]
    >>> abs(together.mean() - np.exp(2) / (np.exp(2) + 1)) < 0.05
    np.True_
    """

    def __init__(self, mixture: Mixture, number: int, rng: np.random.Generator) -> None:
        self.rng = rng
        self.mixture = mixture
        self.number = number
        self.indices = np.stack([pool[rng.integers(len(pool), size=number)] for pool in mixture.pools])
        self._age = 0
        self.enter(mixture)

    def enter(self, mixture: Mixture) -> None:
        """Go on in another mixture of the same shards."""
        self.mixture = mixture
        self.sums = self._sums()
        self._then = self.sums.copy()

    def leave(self) -> None:
        """Let go of the mixture's tables; `enter` comes next."""
        self.mixture = replace(self.mixture, positions=(), scores=(), pools=())

    def sweep(self) -> None:
        """Propose another draw of every shard, for every walker."""
        for s in range(len(self.indices)):
            self._step(s)
        self._age += 1
        if self._age % SWEEPS_UNTIL_RENEWED == 0:
            self.sums = self._sums()

    def mark(self) -> None:
        """Remember where the walkers are."""
        self._then = self.sums.copy()

    def correlation(self) -> float:
        """Correlation of what is drawn now with what was drawn at the mark: average over directions, less chance."""
        now = self.sums - self.sums.mean(axis=0)
        then = self._then - self._then.mean(axis=0)
        # A draw is S plus unit noise, in these coordinates.
        spread = np.sqrt((np.mean(now**2, axis=0) + 1.0) * (np.mean(then**2, axis=0) + 1.0))
        values = np.mean(now * then, axis=0) / spread
        return float(max(values.mean(), values.max() - 3.0 / np.sqrt(self.number)))

    def walk(self, most_sweeps: int) -> tuple[int, bool]:
        """Sweep until the walkers have forgotten where they were; how many sweeps, and whether they are stuck."""
        self.mark()
        correlation = 1.0
        for done in range(1, most_sweeps + 1):
            self.sweep()
            correlation = self.correlation()
            if correlation < FORGOTTEN:
                return done, False
        return most_sweeps, correlation > STUCK

    def component_means(self) -> Floats:
        """(C, d) means of the components that the walkers are in."""
        return self.sums @ self.mixture.to_component_mean + self.mixture.shift

    def draws(self) -> Floats:
        """(C, d) draws, one from each walker's component."""
        noise = self.rng.standard_normal(self.sums.shape)
        return self.component_means() + noise @ self.mixture.component_root.T

    def _proposals(self, s: int) -> np.ndarray:
        """One index for every walker: each draw once, and each as often again as it is in the pool."""
        pool, number = self.mixture.pools[s], len(self.mixture.positions[s])
        chosen = self.rng.integers(number + len(pool), size=self.number)
        return np.where(chosen < number, chosen, pool[chosen - number])

    def _step(self, s: int) -> None:
        positions, scores = self.mixture.positions[s], self.mixture.scores[s]
        old, new = self.indices[s], self._proposals(s)
        moved = positions[new]
        moved -= positions[old]
        # |S + m|² / 2 - |S|² / 2 = (S + m / 2)' m
        gain = np.einsum("ci,ci->c", self.sums + 0.5 * moved, moved)
        gain += scores[new]
        gain -= scores[old]
        accepted = np.flatnonzero(gain > -self.rng.standard_exponential(self.number))
        self.indices[s, accepted] = new[accepted]
        self.sums[accepted] += moved[accepted]

    def _sums(self) -> Floats:
        total = np.tile(self.mixture.offset, (self.number, 1))
        for positions, held in zip(self.mixture.positions, self.indices, strict=True):
            total += positions[held]
        return total
