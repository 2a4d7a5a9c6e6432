"""Stein calibration: move all draws so that their mean and covariance agree with the full data's scores.

Formula. With the regression of `stein` (h = a - Q z + noise, whitened by the draws' mean m and
covariance V = M M'),

    mean <- m + M Q^-1 a,      covariance <- M Q^-1 M',

and all draws follow by SwISS's least-motion map. A few rounds of S points; near a Gaussian each squares the
error.

Guards, each for a failure that was seen without it: the ridge of the regression by leave-one-out;
eigenvalues of Q clipped to [1/16, 16], left alone where they differ from 1 by noise or where the posterior
is flat; a shift of at most 3 sd per round, shrunk by its own noise; a step is taken only if the evidence
bound rises on the same points, else it is halved, else tried again from the curvature of a shrunken cloud,
or of the mode where the draws lie hopelessly far out; more points while what they say is noise; and a last
check on points that nothing was fitted to, else the input is returned and flagged.

Assumptions. One affine map mends the draws. Skewness, modes and tails stay as they are. Fails, and says so
by a low R^2 or by returning its input, for separate modes and for tails without a variance.

Reference. DESIGN section 1 of this project; the map is Vyner, Nemeth and Sherlock (2023), Stat 12(1),
section 3.1; shrinking the shift: James and Stein (1961), Proc. 4th Berkeley Symposium 1, equation (6).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from consilience.draws import Subposteriors
from consilience.errors import must_be
from consilience.refine.base import Floats, FreshDraws, Need, Refined, checked_draws
from consilience.refine.evidence import Gain, evidence_gain
from consilience.refine.fallbacks import step_from_shrunken_cloud, step_to_mode
from consilience.refine.pass_back import Evaluation, PassBack
from consilience.refine.stein import Cloud, SteinFit, fit_scores
from consilience.refine.steps import (
    FAR_FROM_LINEAR,
    MOST_SHIFT,
    NEAR_LINEAR,
    Step,
    affine,
    errors_wanted,
    propose,
    whitened,
)

FRACTIONS = (1.0, 0.5, 0.25)
REFUSED, SPENT = "no step raised the evidence bound", "its budget is spent"
# Evidence of a shift per coordinate up to which a step that was refused is no reason for concern.
PLAIN = 25.0
# Share of points without a finite score beyond which nothing is concluded from the others.
MOST_NON_FINITE = 0.1


@dataclass
class State:
    """Where the draws are, and how they came there."""

    draws: Floats
    cloud: Cloud
    points: int
    log_det: float = 0.0
    rounds: int = 0
    trust: float = 1.0
    history: list[dict[str, Any]] = field(default_factory=list)
    outcome: str = ""


@dataclass(frozen=True, eq=False)
class Looked:
    """Draws whose scores are known, where they stand, and the regression of their scores."""

    indices: NDArray[np.intp]
    evaluation: Evaluation
    fit: SteinFit


@dataclass(frozen=True)
class Calibrate:
    """Stein calibration.

    Attributes
    ----------
    points : int, optional
        Scores per round, S; max(64, 4 d) when not given.
    max_points : int
        To how many they are raised in a round whose correction is lost in noise.
    max_rounds : int
        Steps tried at most.
    max_gradients : int
        Full-data gradients after which no further step is begun; the last check comes on top.

    Examples
    --------
    >>> Calibrate().points_for(28)
    112
    """

    name: ClassVar[str] = "calibrate"
    reference: ClassVar[str] = "Stein (1981), Lemma 2; least-motion map of Vyner, Nemeth and Sherlock (2023)"
    needs: ClassVar[tuple[Need, ...]] = ("draws", "pass-back")
    exact_for_gaussian: ClassVar[bool] = True

    points: int | None = None
    max_points: int = 256
    max_rounds: int = 8
    max_gradients: int = 500

    def points_for(self, dimension: int) -> int:
        """S, or a refusal when it cannot determine a covariance."""
        count = max(64, 4 * dimension) if self.points is None else self.points
        if not isinstance(count, int | np.integer) or count < 2 * dimension:
            constraint = f"at least 2 d = {2 * dimension}"
            raise must_be("calibrate", "points", constraint, count, "Leave it out for max(64, 4 d).")
        return int(count)

    def refine(
        self,
        draws: Floats,
        log_weights: Floats | None,
        pass_back: PassBack,
        subposteriors: Subposteriors | None = None,
        *,
        seed: int = 0,
    ) -> Refined:
        """Calibrate draws; those that agree with the scores are returned as they are."""
        array, weights = checked_draws(self.name, draws, log_weights, pass_back.dimension)
        work = _Calibration(self, array, weights, pass_back, np.random.default_rng((seed, 0x57E1)))
        return work.result()


class _Calibration:
    """One run of it."""

    def __init__(
        self,
        settings: Calibrate,
        draws: Floats,
        log_weights: Floats | None,
        pass_back: PassBack,
        rng: np.random.Generator,
    ) -> None:
        self.settings, self.pass_back, self.log_weights = settings, pass_back, log_weights
        self.count = settings.points_for(draws.shape[1])
        self.fresh = FreshDraws(log_weights, len(draws), rng)
        self.initial = draws
        self.begun = pass_back.ledger
        self.warnings: list[str] = []
        # Two sets of N exact draws differ by this, in standard deviations, in each direction.
        self.floor = float(np.sqrt(2.0 / self.effective_draws(len(draws))))
        # Scores at the draws as they stand, which no accepted step was fitted to; None after a step.
        self.unused: Looked | None = None

    def spent(self) -> float:
        return self.pass_back.ledger.since(self.begun).full_data_gradients

    def effective_draws(self, number: int) -> float:
        if self.log_weights is None:
            return float(number)
        weights = np.exp(self.log_weights - self.log_weights.max())
        return float(weights.sum() ** 2 / np.sum(weights**2))

    # -- the loop --

    def result(self) -> Refined:
        state = State(self.initial, Cloud.of(self.initial, self.log_weights), self.count)
        for _ in range(self.settings.max_rounds):
            if not self.one_round(state):
                break
            if self.spent() > self.settings.max_gradients:
                state.outcome = SPENT
                break
        else:
            state.outcome = SPENT
        kept = True
        if state.rounds:
            kept = self.check(state)
        return self.report(state, kept)

    def one_round(self, state: State) -> bool:
        """Regress, propose, accept; False when there is nothing more to do."""
        found = self.measured(state)
        if found is None:
            return False
        looked, step = found
        self.unused = looked
        fit = looked.fit
        measured = {
            "points": fit.num_points,
            "r_squared": fit.r_squared,
            "ridge": fit.ridge,
            "shift": float(np.linalg.norm(fit.intercept)),
            "evidence": fit.shift_evidence() / len(fit.intercept),
            "shift_noise": float(np.sqrt(np.trace(fit.intercept_noise))),
            "variance_ratios": [float(step.variances.min()), float(step.variances.max())],
            "clipped": step.clipped,
            "flat": step.flat,
        }
        state.history.append(measured)
        if step.idle:
            state.outcome = "what is left is noise" if state.rounds else "already agrees with the scores"
            return False
        ways: list[tuple[str, Callable[[], Step | None]]] = [("scores", lambda: step)]
        if state.points == self.count:
            ways.append(("shrunken cloud", lambda: self.from_shrunken_cloud(state)))
            if fit.r_squared < FAR_FROM_LINEAR:
                ways.insert(0, ("mode", lambda: step_to_mode(self.pass_back, state.cloud, looked.evaluation)))
        for name, way in ways:
            proposed = way()
            if proposed is not None and self.accept(state, looked, proposed, measured):
                measured["from"] = name
                return True
            if name == "scores" and self.unclear(measured):
                break
        if self.unclear(measured) and state.points < self.settings.max_points:
            # What is left is small: it takes more points to say whether a step would mend it.
            state.points = self.settings.max_points
            return True
        state.outcome = REFUSED
        if self.unclear(measured):
            state.outcome = "what is left is too small to be told from noise"
        return False

    def far(self, fit: SteinFit) -> bool:
        """Whether the scores say beyond doubt that the mean is off by what can be seen."""
        size = float(np.linalg.norm(fit.intercept)) / np.sqrt(len(fit.intercept))
        return size > 3.0 * self.floor and fit.shift_evidence() > PLAIN * len(fit.intercept)

    def unclear(self, measured: dict[str, Any]) -> bool:
        """Whether a whole step was refused only because its gain is small and noisy."""
        _, value, error = measured["gains"][0]
        return bool(measured["r_squared"] > FAR_FROM_LINEAR and np.isfinite(value) and value > -error)

    def measured(self, state: State) -> tuple[Looked, Step] | None:
        """Scores at fresh points; more of them while the correction is neither seen nor excluded."""
        looked = self.look(state, state.points)
        while looked is not None:
            fit = looked.fit
            reach = MOST_SHIFT * (state.trust if fit.r_squared > NEAR_LINEAR else 1.0)
            step = propose(fit, self.floor, reach)
            unresolved = np.sqrt(np.trace(fit.intercept_noise) / len(fit.intercept)) > self.floor / 2
            room = min(self.settings.max_points, len(state.draws)) - fit.num_points
            # What is seen is taken first: afterwards the noise is smaller.
            if not step.idle or not unresolved or room <= 0:
                return looked, step
            looked = self.look(state, min(fit.num_points, room), looked)
        return None

    def look(self, state: State, count: int, earlier: Looked | None = None) -> Looked | None:
        """Scores at so many fresh draws, beside earlier ones; None when too few are finite, with the reason."""
        indices = self.fresh.take(count)
        evaluation = self.pass_back.scores(state.draws[indices])
        good = evaluation.finite
        lost = int(np.count_nonzero(~good))
        if lost > MOST_NON_FINITE * len(good) or np.count_nonzero(good) < 2 * evaluation.points.shape[1]:
            state.outcome = f"{lost} of {len(good)} scores are not finite"
            self.warnings.append(
                f"calibrate: {lost} of {len(good)} draws have a log density or score that is NaN or infinite, so "
                "nothing was concluded from the others. Look for a log or a division in the model."
            )
            return None
        indices, evaluation = indices[good], evaluation.kept()
        if earlier is not None:
            indices = np.concatenate([earlier.indices, indices])
            evaluation = earlier.evaluation.joined(evaluation)
        return Looked(indices, evaluation, fit_scores(*whitened(state.cloud, evaluation)))

    # -- one step --

    def accept(self, state: State, looked: Looked, step: Step, measured: dict[str, Any]) -> bool:
        """Take the largest fraction of the step that raises the evidence bound."""
        # With more points than usual what is left is small: a whole step, judged by all of them, or none.
        last = state.points > self.count
        subset = slice(0, None if last else self.count)
        before, density_before = looked.evaluation.points[subset], looked.evaluation.log_density[subset]
        for fraction in FRACTIONS[:1] if last else FRACTIONS:
            moved = step.moved(state.cloud, fraction)
            linear, log_det = affine(state.cloud, moved)
            after = self.pass_back.densities(moved.centre + (before - state.cloud.centre) @ linear.T)
            draws = moved.centre + (state.draws - state.cloud.centre) @ linear.T
            differences = after.log_density - density_before
            pairs = (before, after.points), (state.draws, draws)
            gain = self.gain(state.cloud, looked.fit, differences, log_det, *pairs)
            measured.setdefault("gains", []).append([fraction, gain.value, gain.error])
            if gain.rises(errors_wanted(looked.fit)):
                state.draws, state.cloud = draws, Cloud.of(draws, self.log_weights)
                state.log_det += log_det
                state.rounds += 1
                state.trust = 2.0 * state.trust if fraction == 1.0 else 1.0
                measured["fraction"] = fraction
                self.unused = None
                return True
        return False

    def gain(
        self,
        frame: Cloud,
        fit: SteinFit,
        differences: Floats,
        log_det: float,
        points: tuple[Floats, Floats],
        everywhere: tuple[Floats, Floats],
    ) -> Gain:
        """Gain of the bound from pairs (before, after) of evaluated points and of all draws."""
        if self.log_weights is not None:
            chosen = self.fresh.take(len(everywhere[0]))
            everywhere = everywhere[0][chosen], everywhere[1][chosen]
        white = [frame.whiten(x) for pair in (points, everywhere) for x in pair]
        return evidence_gain(differences, log_det, fit, *white)

    def from_shrunken_cloud(self, state: State) -> Step | None:
        near = state.draws[self.fresh.take(self.count)]
        return step_from_shrunken_cloud(self.pass_back, state.cloud, near, self.floor)

    # -- the end --

    def check(self, state: State) -> bool:
        """On points that no step was fitted to: is the result better than what came in?"""
        looked = self.unused or self.look(state, self.count)
        if looked is None:
            return False
        self.unused = looked
        before = self.pass_back.densities(self.initial[looked.indices])
        good = before.finite
        # A start without density cannot be better than an end with it.
        if np.count_nonzero(~good) > MOST_NON_FINITE * len(good):
            return True
        differences = looked.evaluation.log_density[good] - before.log_density[good]
        pairs = (before.points[good], looked.evaluation.points[good]), (self.initial, state.draws)
        gain = self.gain(state.cloud, looked.fit, differences, state.log_det, *pairs)
        state.history.append({"check": [gain.value, gain.error], "r_squared": looked.fit.r_squared})
        return gain.rises(0.0)

    def report(self, state: State, kept: bool) -> Refined:
        spent = self.pass_back.ledger.since(self.begun)
        fit = self.unused.fit if self.unused else None
        looks = f"{spent.full_data_gradients:.0f} full-data gradients"
        quality = "" if fit is None else f"; R^2 {fit.r_squared:.2f}"
        rounds = f"{state.rounds} round{'s' if state.rounds != 1 else ''}"
        if not state.rounds:
            note = f"calibrate: nothing changed, {looks}: {state.outcome}{quality}"
        elif kept:
            note = f"calibrate: {rounds}, {looks}: {state.outcome}{quality}"
        else:
            note = f"calibrate: undone after {rounds}, {looks}: no better on fresh points{quality}"
        if state.rounds and not kept and state.history[0]["evidence"] > PLAIN:
            self.warnings.append(
                "calibrate: the calibrated draws were no better than the combined ones at points that nothing "
                "was fitted to, so the combined ones were kept. Their mean and covariance disagree with the "
                "full data's scores."
            )
        if state.outcome in (REFUSED, SPENT) and fit is not None and self.far(fit):
            self.warnings.append(f"calibrate: {state.outcome}; an affine map does not mend these draws.")
        record = {
            "name": Calibrate.name,
            "rounds": state.rounds,
            "kept": kept,
            "outcome": state.outcome,
            "history": state.history,
            "cost": spent.to_dict(),
        }
        unchanged = not kept or not state.rounds
        return Refined(
            array=self.initial if unchanged else state.draws,
            log_weights=self.log_weights,
            notes=(note,),
            warnings=tuple(self.warnings),
            record=record,
            evaluation=self.unused.evaluation if self.unused and kept else None,
        )
