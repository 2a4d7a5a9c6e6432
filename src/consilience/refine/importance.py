"""Rounds of importance sampling whose points are weighted as one sample, each by the mixture of all rounds.

Formula. n_r points of round r come from q_r, n = sum n_r. Whatever round a point is of, its weight is

    w_i = p(theta_i) / sum_r (n_r / n) q_r(theta_i).

A round whose proposal missed a region then does no harm: where it is thin, other rounds' densities are in the
denominator. Weights that are normalised within each round would give such a round an equal say.

Assumptions: some round proposes wherever there is mass. Proposals that follow earlier points make the weights
dependent, a bias of the order of one over the number of points, which vanishes against their noise.

Reference. Veach and Guibas (1995), Optimally combining sampling techniques for Monte Carlo rendering, SIGGRAPH (balance
heuristic); Owen and Zhou (2000), JASA 95(449) (deterministic mixtures); Cornuet, Marin, Mira and Robert (2012),
Adaptive multiple importance sampling, Scandinavian Journal of Statistics 39(4) (all rounds again after each).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from consilience.numerics import FEW_DRAWS_PER_DIMENSION, log_sum_exp
from consilience.pareto import effective_draws, pareto_smoothed
from consilience.refine.base import Floats
from consilience.refine.mixtures import split_by_bic
from consilience.refine.pass_back import PassBack
from consilience.refine.proposals import HeavyParts, Kernels, Proposal, Shared

# Of every round's points, from each of the kernels that every round has.
SHARE = 0.2


@dataclass
class ImportanceRounds:
    """All points of all rounds, and what is known of them.

    Attributes
    ----------
    pass_back : PassBack
    kernels : proposals that every round has, each with the share `SHARE`
    points, log_densities : per round
    rounds : per round, what its points were drawn from
    history : per round, JSON-able, of all points up to it
    """

    pass_back: PassBack
    kernels: tuple[Kernels, ...]
    points: list[Floats] = field(default_factory=list)
    log_densities: list[Floats] = field(default_factory=list)
    rounds: list[Shared] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)

    def one_round(self, parts: HeavyParts, count: int, rng: np.random.Generator) -> None:
        """Propose, and ask the shards."""
        fixed: list[tuple[Proposal, float]] = [(kernel, SHARE) for kernel in self.kernels]
        shared = Shared.of([*fixed, (parts, 1.0 - SHARE * len(fixed))], count)
        found = self.pass_back.densities(shared.sample(rng))
        self.rounds.append(shared)
        self.points.append(found.points)
        self.log_densities.append(np.where(found.finite, found.log_density, -np.inf))
        ratios = self.log_ratios()
        if not np.any(np.isfinite(ratios)):
            self.history.append({"points": len(ratios), "effective_draws": 0.0})
            return
        smoothed = pareto_smoothed(ratios)
        self.history.append(
            {
                "points": len(ratios),
                "parts": parts.mixture.number,
                "effective_draws": effective_draws(smoothed.log_weights),
                "shape": float(smoothed.shape) if np.isfinite(smoothed.shape) else None,
            }
        )

    def log_proposal(self) -> Floats:
        """Log density of all rounds' mixture, at all points: every point may have come from every proposal."""
        every = np.concatenate(self.points)
        known: dict[int, Floats] = {}
        terms = []
        total = sum(sum(shared.counts) for shared in self.rounds)
        for shared in self.rounds:
            for proposal, count in zip(shared.proposals, shared.counts, strict=True):
                if count and id(proposal) not in known:
                    known[id(proposal)] = proposal.log_density(every)
                if count:
                    terms.append(np.log(count / total) + known[id(proposal)])
        return log_sum_exp(np.stack(terms), axis=0)

    def log_ratios(self) -> Floats:
        """Log importance weights of all points."""
        return np.concatenate(self.log_densities) - self.log_proposal()

    def fitted_parts(self, before: HeavyParts, rng: np.random.Generator) -> HeavyParts:
        """Parts of all weighted points so far; those before where the points say too little."""
        ratios = self.log_ratios()
        every = np.concatenate(self.points)
        good = np.isfinite(ratios)
        if not good.any() or effective_draws(ratios[good]) < FEW_DRAWS_PER_DIMENSION * every.shape[1]:
            return before
        weights = pareto_smoothed(ratios[good]).log_weights
        return HeavyParts(split_by_bic(every[good], weights, rng))
