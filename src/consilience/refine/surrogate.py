"""Surrogate: a polynomial log density fitted to full-data scores, sampled without a further look at the data.

Formula. Scores at S points give S d equations for the gradient of a polynomial f (see `polynomial`), in
coordinates whitened by the draws. exp(f) is sampled by HMC (see `surrogate_sampling`); its draws are the next S
points, and whiten the next fit to all points so far: the fit becomes good where the mass is. Fresh draws of the
last fit decide whether it is kept (see `surrogate_check`).

Guards: far points count little; shards' own draws are among the points, so that the fit knows more than the draws
do; beyond the points the polynomial is held, and the density falls like a normal one; chains must agree (R-hat);
and the result is kept only if scores at fresh draws are explained (R^2) and it is nearer to the posterior than
what came in, else the input is returned, with the reason.

Assumptions. A smooth posterior, near a polynomial over its mass: skewed, bent, flat-topped or light-tailed. Any
dimension; cubic and quartic terms are found with S d equations, so 256 points serve up to about 30.

Fails, and says so by R^2, where the shape is no polynomial: separate modes far apart, cusps. Fails *without*
noticing where all points lie in one part of the posterior: a needle with a long tail has R^2 = 1.000 in its needle,
and the tail is never seen. Only the search for mass outside the draws (`diagnose.escape`) can tell.

Reference. Rasmussen (2003), Gaussian processes to speed up hybrid Monte Carlo for expensive Bayesian integrals,
Bayesian Statistics 7; the polynomial, its norm and its guard are this project's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from consilience.draws import Subposteriors
from consilience.errors import must_be
from consilience.pareto import effective_draws
from consilience.refine.base import Floats, FreshDraws, Need, Refined, checked_draws
from consilience.refine.pass_back import Evaluation, PassBack
from consilience.refine.polynomial import MOST_DEGREE, Polynomial, depth_weights, fit_polynomial
from consilience.refine.stein import Cloud
from consilience.refine.surrogate_check import (
    Judgement,
    binned_divergence,
    divergence_from,
    explained,
    statistics,
)
from consilience.refine.surrogate_points import fitting_points

if TYPE_CHECKING:
    from consilience.refine.surrogate_sampling import Sampled

# Points that count less than this are left out: no polynomial of few terms reaches so far.
LEAST_WEIGHT = 1e-3
FIRST_DEGREE = 4
# How long chains on a surrogate may take to agree (see `surrogate_sampling`), on the last one and before.
MOST_RUNS, INTERIM_RUNS = 4, 3
# How much further than the points a fit is trusted.
REACH = 1.2
# Share of points without a finite score beyond which nothing is concluded from the others.
MOST_NON_FINITE = 0.1
# Share of a surrogate's draws beyond its points from which it is not trusted.
MOST_OUTSIDE = 0.01


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fit, the frame it stands in, and the radius within which it is trusted."""

    cloud: Cloud
    polynomial: Polynomial
    radius: float


@dataclass(frozen=True)
class Surrogate:
    """Polynomial surrogate.

    Attributes
    ----------
    points : int
        Scores in each round.
    max_rounds : int
        Fits at most.
    max_degree : int
        Of the polynomial, 2 to 6.
    least_r_squared : float
        Share of the scores at fresh draws that must be explained, else the result is not kept.

    Examples
    --------
    >>> Surrogate().max_rounds
    4
    """

    name: ClassVar[str] = "surrogate"
    reference: ClassVar[str] = "Rasmussen (2003); polynomial in the Bombieri norm"
    needs: ClassVar[tuple[Need, ...]] = ("draws", "pass-back", "subposteriors")
    exact_for_gaussian: ClassVar[bool] = True

    points: int = 256
    max_rounds: int = 4
    max_degree: int = MOST_DEGREE
    least_r_squared: float = 0.9

    def __post_init__(self) -> None:
        for option, least, most in (
            ("points", 32, None),
            ("max_rounds", 1, None),
            ("max_degree", 2, MOST_DEGREE),
        ):
            value = getattr(self, option)
            whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
            if not whole or value < least or (most is not None and value > most):
                constraint = f"a whole number of at least {least}" + (f" and at most {most}" if most else "")
                default = type(self).__dataclass_fields__[option].default
                raise must_be(self.name, option, constraint, value, f"Leave it out for {default}.")
        share = self.least_r_squared
        if not isinstance(share, int | float) or not 0.0 < share < 1.0:
            raise must_be(self.name, "least_r_squared", "between 0 and 1", share, "Leave it out for 0.9.")

    def refine(
        self,
        draws: Floats,
        log_weights: Floats | None,
        pass_back: PassBack,
        subposteriors: Subposteriors | None = None,
        *,
        seed: int = 0,
    ) -> Refined:
        """Draws of a surrogate, as many as came in; or the same draws and why."""
        array, weights = checked_draws(self.name, draws, log_weights, pass_back.dimension)
        if self.points < 2 * array.shape[1]:
            constraint = f"at least 2 d = {2 * array.shape[1]}"
            raise must_be(self.name, "points", constraint, self.points, f"Use {8 * array.shape[1]}.")
        rng = np.random.default_rng((seed, 0x5A77))
        work = _Work(self, array, weights, pass_back, subposteriors, rng)
        return work.result()


@dataclass(frozen=True, eq=False)
class Found:
    """Draws of a fit, in the draws' own coordinates, and scores at some of them that it never saw."""

    draws: Floats
    sampled: Sampled
    evaluation: Evaluation
    judgement: Judgement

    @property
    def effective(self) -> float:
        return float(self.sampled.effective.min())


class _GivenUp(Exception):
    """Why the draws are returned as they came."""


class _Work:
    """One run of it."""

    def __init__(
        self,
        settings: Surrogate,
        draws: Floats,
        log_weights: Floats | None,
        pass_back: PassBack,
        subposteriors: Subposteriors | None,
        rng: np.random.Generator,
    ) -> None:
        self.settings, self.pass_back, self.rng = settings, pass_back, rng
        self.draws, self.log_weights, self.subposteriors = draws, log_weights, subposteriors
        self.begun = pass_back.ledger
        self.history: list[dict[str, Any]] = []

    def result(self) -> Refined:
        try:
            found = self.rounds()
        except _GivenUp as reason:
            return self.report(None, f"nothing changed, {self.looks()}: {reason}", warning=str(reason))
        judged, fit = found.judgement, self.history[-1]
        told = f"{self.looks()}: degree {fit['degree']}, R^2 {judged.r_squared:.3f}"
        if judged.r_squared < self.settings.least_r_squared:
            why = f"R^2 of scores at fresh draws is under {self.settings.least_r_squared:g}"
            return self.report(None, f"nothing changed, {told}: {why}", warning=why)
        if judged.alike:
            return self.report(None, f"nothing changed, {told}: the draws agree with it")
        distance = (
            f"{judged.surrogate.value:.2g} nats from the posterior, the draws before {judged.draws.value:.2g}"
        )
        if not judged.better:
            return self.report(None, f"nothing changed, {told}: it is {distance}")
        count = len(self.history)
        note = f"{count} fit{'s' if count > 1 else ''}, {told}; {distance}; {found.effective:.0f} effective draws"
        return self.report(found, note)

    # -- fits --

    def rounds(self) -> Found:
        """Fit, sample, look at fresh draws, until nothing is left that so many draws could show."""
        cloud = Cloud.of(self.draws, self.log_weights)
        starts = self.draws[
            FreshDraws(self.log_weights, len(self.draws), self.rng).take(self.settings.points)
        ]
        gathered = self.scores(
            fitting_points(self.draws, self.log_weights, self.subposteriors, self.settings.points, self.rng)
        )
        reach = gathered.points
        for left in reversed(range(self.settings.max_rounds)):
            fitted = self.fit(cloud, gathered, reach)
            found = self.sampled(fitted, starts, MOST_RUNS if not left else INTERIM_RUNS)
            if not left or self.settled(found):
                break
            gathered, cloud = gathered.joined(found.evaluation), Cloud.of(found.draws)
            reach = starts = found.evaluation.points
        if not found.sampled.mixed:
            raise _GivenUp(f"chains on the surrogate do not agree, R-hat {found.sampled.rhat:.2f}")
        if found.sampled.outside > MOST_OUTSIDE:
            share = f"{100 * found.sampled.outside:.0f} %"
            raise _GivenUp(f"{share} of the surrogate's draws lie beyond the points it was fitted to")
        return found

    def sampled(self, fitted: Fitted, starts: Floats, most_runs: int) -> Found:
        """Draws of a fit, and what scores at some of them say of it."""
        from consilience.refine.surrogate_sampling import sample_polynomial

        cloud, number = fitted.cloud, len(self.draws)
        sampled = sample_polynomial(
            fitted.polynomial, fitted.radius, cloud.whiten(starts), number, self.rng, most_runs
        )
        drawn = cloud.colour(sampled.draws)
        fresh = self.scores(drawn[self.rng.choice(number, min(self.settings.points, number), replace=False)])
        judgement = self.judged(fitted, sampled, fresh)
        self.history[-1] |= {"rhat": sampled.rhat, "outside": sampled.outside, "check": judgement.to_dict()}
        return Found(drawn, sampled, fresh, judgement)

    def settled(self, found: Found) -> bool:
        """Whether what is left is less than the noise of so many draws: in nats, d / N for their mean alone."""
        left = found.judgement.surrogate.value * len(found.draws)
        good = found.sampled.mixed and found.sampled.outside < MOST_OUTSIDE
        return bool(good and left < 2.0 * found.draws.shape[1])

    def scores(self, points: Floats) -> Evaluation:
        """Scores that are finite, or a reason to stop."""
        found = self.pass_back.scores(points)
        lost = int(np.count_nonzero(~found.finite))
        if lost > MOST_NON_FINITE * len(points):
            raise _GivenUp(f"{lost} of {len(points)} scores are NaN or infinite")
        return found.kept()

    def fit(self, cloud: Cloud, gathered: Evaluation, reach: Floats) -> Fitted:
        """A polynomial through all points so far, trusted as far as `reach`."""
        weights = depth_weights(gathered.log_density, len(cloud.centre))
        near = weights > LEAST_WEIGHT
        if np.count_nonzero(near) < 2 * len(cloud.centre):
            raise _GivenUp(f"{np.count_nonzero(near)} points are near the mass, too few for a fit")
        assert gathered.scores is not None
        z, h = cloud.whiten(gathered.points[near]), cloud.whiten_scores(gathered.scores[near])
        # Points that may lie beside the mass say little of high degrees where the mass is.
        most = self.settings.max_degree if self.history else min(FIRST_DEGREE, self.settings.max_degree)
        polynomial = fit_polynomial(z, h, weights[near], self.rng, most)
        self.history.append(
            {
                "points": len(z),
                "left_out": int(np.count_nonzero(~near)),
                "degree": polynomial.degree,
                "ridge": polynomial.ridge,
                "r_squared": polynomial.r_squared,
            }
        )
        furthest = np.sqrt(np.max(np.sum(cloud.whiten(reach) ** 2, axis=1)))
        return Fitted(cloud, polynomial, REACH * float(furthest))

    # -- the end --

    def judged(self, fitted: Fitted, sampled: Sampled, fresh: Evaluation) -> Judgement:
        """By fresh points, and by comparing all draws."""
        cloud, polynomial = fitted.cloud, fitted.polynomial
        at, h = cloud.whiten(fresh.points), cloud.whiten_scores(fresh.scores)  # type: ignore[arg-type]
        number = len(self.draws)
        came = cloud.whiten(self.draws[FreshDraws(self.log_weights, number, self.rng).take(number)])
        own = Cloud.of(came)
        both = [statistics(x, own, polynomial.log_density(x)) for x in (came, sampled.draws)]
        worth = number if self.log_weights is None else effective_draws(self.log_weights)
        return Judgement(
            r_squared=explained(h, polynomial.scores(at)),
            surrogate=divergence_from(fresh.log_density - polynomial.log_density(at)),
            draws=binned_divergence(both[0], both[1], (worth, float(sampled.effective.min()))),
        )

    def looks(self) -> str:
        return f"{self.pass_back.ledger.since(self.begun).full_data_gradients:.0f} full-data gradients"

    def report(self, kept: Found | None, note: str, warning: str | None = None) -> Refined:
        """What is returned: the surrogate's draws, or those that came in."""
        record = {
            "name": Surrogate.name,
            "kept": kept is not None,
            "rounds": len(self.history),
            "history": self.history,
            "effective_draws": None if kept is None else kept.effective,
            "cost": self.pass_back.ledger.since(self.begun).to_dict(),
        }
        if kept is not None:
            return Refined(
                kept.draws, None, (f"surrogate: {note}",), (), record, kept.evaluation, kept.effective
            )
        told = "so the draws are as they came. Refine with `polish`, or look at the shards."
        warnings = () if warning is None else (f"surrogate: {warning}, {told}",)
        return Refined(self.draws, self.log_weights, (f"surrogate: {note}",), warnings, record)
