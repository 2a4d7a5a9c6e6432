"""Polish: many short full-data chains from the draws, stopped when they have forgotten where they started.

Formula. S = K M chains of HMC with the full data's scores (see `full_data_chains`), started at K draws, M chains at
each. They go in rounds of a few iterations with a fixed step; the step is fitted in a short warm-up and changed
between rounds where acceptance leaves (0.7, 0.9). After a round, with its chains' states,

    nested R-hat (see `nested_rhat`) of the last states stays under its limit, and
    the mean over the round and over the round before differ by no more than their Monte Carlo error, in every
    whitened coordinate and the log density (errors from the K superchains, which are independent), and
    every chain has moved (nested R-hat of ranks does not see a few that are stuck far out, where it is steep; at an
    acceptance of 0.8 six refusals in a row happen to one chain in 15,000),

say that they have converged. The states from there on are the draws: all chains, evenly over iterations, until they
are as many as came in.

Why it needs no comparison with what came in: a kernel that leaves the posterior invariant never raises the
Kullback-Leibler divergence from it, so the chains' law is nearer after every iteration; what is lost is Monte Carlo
precision, which is stated.

Assumptions: draws in every part of the posterior, in the right proportions where parts are far apart.

Fails for separate modes: chains do not cross, so each mode keeps the share of the draws that it had. Nested R-hat
then stays high, which is in the warning and the record; it cannot where a mode has no draws at all. A bias that decays
over more iterations than the budget has is not seen if it is smaller than the errors above. In a narrow or curved
posterior the steps are small and the budget may end first: the draws are nearer than they were, and so reported.

Reference. Margossian, Hoffman, Sountsov, Riou-Durand, Vehtari and Gelman (2024), Nested R-hat, Bayesian Analysis; Neal
(2011), MCMC using Hamiltonian dynamics; Cover and Thomas (2006), Elements of information theory, section 4.4 (the
divergence from an invariant law never rises).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from consilience.chains import effective_sample_size
from consilience.draws import Subposteriors
from consilience.errors import must_be
from consilience.refine.base import Floats, FreshDraws, Need, Refined, checked_draws
from consilience.refine.full_data_chains import FullDataChains
from consilience.refine.nested_rhat import nested_rhat, nested_rhat_limit, quantities
from consilience.refine.pass_back import Evaluation, PassBack
from consilience.refine.stein import Cloud

WARMUP = 12
ROUND = 6
TARGET_ACCEPTANCE = 0.8
# Acceptance of a round outside which the step is changed.
ACCEPTABLE = (0.7, 0.9)
# How fast the step follows the acceptance while warming up.
GAIN = 2.0
# Standard errors by which two rounds' means may differ, by chance, in the worst of some tens of directions.
STILL = 3.5
# Share of starts without a finite score beyond which no chain is started.
MOST_NON_FINITE = 0.1


@dataclass
class Path:
    """What the chains have done since the last start of counting."""

    states: list[Floats] = field(default_factory=list)
    log_density: list[Floats] = field(default_factory=list)
    acceptances: list[float] = field(default_factory=list)

    def last(self, count: int, skip: int = 0) -> Floats:
        """(count, S, d + 1) states with their log density, `skip` iterations before the end."""
        stop = len(self.states) - skip
        part = slice(stop - count, stop)
        return np.concatenate(
            [np.stack(self.states[part]), np.stack(self.log_density[part])[:, :, None]], axis=2
        )


@dataclass(frozen=True)
class Polish:
    """Short chains on the full data.

    Attributes
    ----------
    chains : int
        S, chains that move at once.
    superchain : int
        M, how many of them start at the same draw.
    max_leapfrogs : int
        Steps of one trajectory at most; each is one score at S points.
    max_gradients : int
        Full-data gradients after which no further iteration is begun.

    Examples
    --------
    >>> Polish(chains=128).superchains
    32
    """

    name: ClassVar[str] = "polish"
    reference: ClassVar[str] = "Margossian et al. (2024), nested R-hat; Neal (2011)"
    needs: ClassVar[tuple[Need, ...]] = ("draws", "pass-back")
    exact_for_gaussian: ClassVar[bool] = True

    chains: int = 256
    superchain: int = 4
    max_leapfrogs: int = 8
    max_gradients: int = 60_000

    def __post_init__(self) -> None:
        for option, least in (("chains", 16), ("superchain", 2), ("max_leapfrogs", 1), ("max_gradients", 1)):
            value = getattr(self, option)
            if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
                default = type(self).__dataclass_fields__[option].default
                constraint = f"a whole number of at least {least}"
                raise must_be(self.name, option, constraint, value, f"Leave it out for {default}.")
        if self.chains % self.superchain or self.superchains < 8:
            constraint = f"at least 8 times `superchain` = {self.superchain}, and a multiple of it"
            raise must_be(self.name, "chains", constraint, self.chains, "Leave both out for 256 and 4.")

    @property
    def superchains(self) -> int:
        """K."""
        return self.chains // self.superchain

    def refine(
        self,
        draws: Floats,
        log_weights: Floats | None,
        pass_back: PassBack,
        subposteriors: Subposteriors | None = None,
        *,
        seed: int = 0,
    ) -> Refined:
        """States of chains with the full posterior as their invariant law, equally weighted."""
        array, weights = checked_draws(self.name, draws, log_weights, pass_back.dimension)
        rng = np.random.default_rng((seed, 0x9015))
        return _Polishing(self, array, weights, pass_back, rng).result()


class _Polishing:
    """One run of it."""

    def __init__(
        self,
        settings: Polish,
        draws: Floats,
        log_weights: Floats | None,
        pass_back: PassBack,
        rng: np.random.Generator,
    ) -> None:
        self.settings, self.pass_back, self.rng = settings, pass_back, rng
        self.draws, self.log_weights = draws, log_weights
        self.begun = pass_back.ledger
        self.step_size = 1.0 / draws.shape[1] ** 0.25
        self.path = Path()
        self.history: list[dict[str, Any]] = []
        self.limit = nested_rhat_limit(settings.chains, settings.superchains, 2 * draws.shape[1] + 1)

    def result(self) -> Refined:
        starts, lost = self.starts()
        if starts is None:
            return self.unchanged(lost)
        cloud = Cloud.of(self.draws, self.log_weights)
        self.chains = FullDataChains(self.pass_back, cloud, starts, self.settings.max_leapfrogs, self.rng)
        self.warm_up()
        converged = False
        while not converged and self.room():
            self.one_round()
            converged = self.converged()
        kept = ROUND
        if converged:
            # The round before agreed with the last one in its mean, but only the last has been tested.
            while kept * self.settings.chains < len(self.draws) and self.room():
                self.iterate()
                kept += 1
        return self.report(converged, min(kept, len(self.path.states)))

    # -- moving --

    def starts(self) -> tuple[Evaluation | None, int]:
        """Finite scores at K draws, each taken by M chains; or None and how many were not finite."""
        count = self.settings.superchains
        fresh = FreshDraws(self.log_weights, len(self.draws), self.rng)
        found = self.pass_back.scores(self.draws[fresh.take(count)])
        lost = int(np.count_nonzero(~found.finite))
        if lost > MOST_NON_FINITE * len(found.points):
            return None, lost
        found = found.kept()
        assert found.scores is not None
        # Fewer draws than superchains, or some that are not finite: the first are taken again.
        chosen = np.repeat(np.arange(count) % len(found.points), self.settings.superchain)
        return Evaluation(found.points[chosen], found.log_density[chosen], found.scores[chosen]), lost

    def spent(self) -> float:
        return self.pass_back.ledger.since(self.begun).full_data_gradients

    def room(self) -> bool:
        return self.spent() < self.settings.max_gradients

    def iterate(self, *, spread: bool = False) -> float:
        moved = self.chains.iterate(self.step_size, spread=spread)
        self.path.states.append(self.chains.z)
        self.path.log_density.append(self.chains.at.log_density)
        self.path.acceptances.append(moved.acceptance)
        return moved.acceptance

    def warm_up(self) -> None:
        """Fit the step: hundreds of chains say in one iteration what acceptance it has. In between, spread steps."""
        for past in range(WARMUP):
            if self.room() or not past:
                off = self.iterate(spread=past % 2 == 1) - TARGET_ACCEPTANCE
                if past % 2 == 0:
                    self.step_size *= float(np.exp(GAIN * off / np.sqrt(1.0 + past / 2)))

    def one_round(self) -> None:
        """Iterations with one step; afterwards the next round's is chosen."""
        stuck = bool(self.history) and self.history[-1]["unmoved"] > 0
        for past in range(ROUND):
            self.iterate(spread=stuck and past % 2 == 1)
        acceptance = float(np.mean(self.path.acceptances[-ROUND:]))
        self.history.append(
            {
                "iterations": len(self.path.states),
                "acceptance": acceptance,
                "step": self.step_size,
                "nested_rhat": self.nested_rhat(),
                "drift": self.drift(),
                "unmoved": self.unmoved(),
            }
        )
        if not stuck and not ACCEPTABLE[0] < acceptance < ACCEPTABLE[1]:
            self.step_size *= float(np.exp(GAIN * (acceptance - TARGET_ACCEPTANCE)))

    # -- judging --

    def nested_rhat(self) -> float:
        watched = quantities(self.path.states[-1], self.path.log_density[-1])
        return float(nested_rhat(watched, self.settings.superchains).max())

    def unmoved(self) -> int:
        """How many chains are where they were when the round began."""
        last = self.path.last(ROUND)
        return int(np.count_nonzero(np.all(last == last[:1], axis=(0, 2))))

    def drift(self) -> float:
        """Largest difference between the means of the last two rounds, in standard errors."""
        if len(self.path.states) < WARMUP + 2 * ROUND:
            return float("inf")
        change = self.path.last(ROUND).mean(axis=0) - self.path.last(ROUND, ROUND).mean(axis=0)
        means = change.reshape(self.settings.superchains, self.settings.superchain, -1).mean(axis=1)
        error = means.std(axis=0, ddof=1) / np.sqrt(len(means))
        size = np.abs(means.mean(axis=0))
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(np.max(np.nan_to_num(size / error, nan=np.inf)))

    def converged(self) -> bool:
        last = self.history[-1]
        moving = ACCEPTABLE[0] < last["acceptance"] and not last["unmoved"]
        return bool(moving and last["nested_rhat"] < self.limit and last["drift"] < STILL)

    # -- the end --

    def report(self, converged: bool, kept: int) -> Refined:
        """The last `kept` iterations of all chains, thinned evenly to the number that came in."""
        chains = np.swapaxes(np.stack(self.path.states[-kept:]), 0, 1)
        flat = chains.reshape(-1, chains.shape[2])
        number = min(len(flat), len(self.draws))
        chosen = ((np.arange(number) + 0.5) * len(flat) / number).astype(int)
        array = self.chains.cloud.colour(flat[chosen])
        effective = self.effective(chains, number)
        spent = self.pass_back.ledger.since(self.begun)
        # A budget that ends within the warm-up leaves no round.
        first = {"nested_rhat": self.nested_rhat(), "drift": np.inf, "unmoved": 0}
        last = self.history[-1] if self.history else first
        outcome = "converged" if converged else "the budget ended before the chains had converged"
        note = (
            f"polish: {len(self.path.states)} steps of {self.settings.chains} chains, "
            f"{spent.full_data_gradients:.0f} full-data gradients: {outcome}; nested R-hat "
            f"{last['nested_rhat']:.2f} (limit {self.limit:.2f}); {number} draws, worth {effective:.0f}"
        )
        warnings = () if converged else (self.what_is_left(last, spent.full_data_gradients),)
        record = {
            "name": Polish.name,
            "converged": converged,
            "iterations": len(self.path.states),
            "nested_rhat": _finite(last["nested_rhat"]),
            "nested_rhat_limit": self.limit,
            "drift": _finite(last["drift"]),
            "unmoved": last["unmoved"],
            "history": [{key: _finite(value) for key, value in entry.items()} for entry in self.history],
            "effective_draws": effective,
            "cost": spent.to_dict(),
        }
        return Refined(array, None, (note,), warnings, record, self.chains.at, effective)

    def what_is_left(self, last: dict[str, Any], gradients: float) -> str:
        """Why chains that have not converged have not."""
        stuck = last["nested_rhat"] >= self.limit
        why = "chains still remember where they started" if stuck else "their mean still moves"
        if last["unmoved"]:
            why = f"{last['unmoved']} of {self.settings.chains} chains do not move"
        return (
            f"polish: {why} after {gradients:.0f} full-data gradients (nested R-hat {last['nested_rhat']:.2f}, "
            f"limit {self.limit:.2f}): modes that chains do not cross keep the share of draws that they came with. "
            "Look for separate modes, or raise `max_gradients`."
        )

    def effective(self, chains: Floats, number: int) -> float:
        """What the draws are worth for the worst of the means.

        Chains are too short for autocorrelations; but superchains are independent, so the variance between their
        means says what a mean over all of them is worth, and where it is the less, what chains alone say counts.
        """
        groups = chains.reshape(self.settings.superchains, -1, chains.shape[2])
        between = groups.mean(axis=1).var(axis=0, ddof=1)
        spread = chains.reshape(-1, chains.shape[2]).var(axis=0, ddof=1)
        by_groups = float(np.min(len(groups) * spread / np.maximum(between, 1e-300)))
        by_chains = float(effective_sample_size(chains, "mean").min())
        return float(min(by_groups, by_chains, number))

    def unchanged(self, lost: int) -> Refined:
        spent = self.pass_back.ledger.since(self.begun)
        said = f"{lost} of {self.settings.superchains} scores are NaN or infinite"
        note = f"polish: nothing changed, {spent.full_data_gradients:.0f} full-data gradients: {said}"
        warning = f"polish: {said}, so no chain was started. Look for a log or a division in the model."
        record = {"name": Polish.name, "converged": False, "iterations": 0, "cost": spent.to_dict()}
        return Refined(self.draws, self.log_weights, (note,), (warning,), record)


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
