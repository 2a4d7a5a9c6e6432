"""Jackknife: estimate from parts of shards how far small shards bias mean and covariance, and take it away.

Derivation. Let t_b and P_b be the mode of shard b's inflated target p0 f_b^{1/w_b} and the curvature there. Their
errors have an expansion in the shard's rows, E t_b = t + beta_1 / n_b + beta_2 / n_b^2 + ..., and so has the combined
estimate

    V = (sum w_b P_b)^-1,      m = V sum w_b P_b t_b,

with the covariance of P_b and t_b in its own beta_1. With w_b = n_b / n the sum over B shards is

    E m = t + sum_b w_b beta_1 / n_b + ... = t + B beta_1 / n + O(B^2 / n^2):

it does not fall with n while B grows with it. Split every shard into k parts, each a shard of its own, and m becomes
m(k) with bias k B beta_1 / n. All data in one piece are k = 1 / B, with the bias beta_1 / n that the full posterior's
own mode has. So m(1 / B) is what is wanted, and m(1), m(2), m(4) are what can be had: to first order

    m(1 / B) = m(1) + (1 - 1 / B) (m(1) - m(2)),

to second order the parabola through all three. (Thesis, figure 5.1.1: the curve in red, read at the blue line. The
factor is not n - 1, as when one row is left out, because half of the rows are.) The same is done to the logarithm of
M^-1 V(k) M^-1, M = V(1)^{1/2}, so that the corrected covariance is one.

Modes are enough because inflated targets are as wide as the posterior: mean and mode of each differ by O(1 / n), which
the draws already have, while beta_1 / n_b is B times larger. So the draws are moved by the estimated difference and by
nothing else: mean <- mean + m(1 / B) - m(1), and a least-motion map for the covariance.

Each correction is multiplied by max(0, 1 - noise^2 / size^2), its noise found by leaving out one shard at a time, so
that estimates which are unbiased are left alone (James and Stein). Where the first and the second order disagree by
more than half of the correction the expansion is not the right picture: nothing is changed, and it is said.

Assumptions: rows of a shard are exchangeable; quarters of shards still have a mode that the data determine; the draws
come from inflated sub-posteriors combined by precision (SwISS). Fails, and says so, where quarters have no such mode;
and for sub-posterior draws, as consensus takes them, whose means are off their modes by O(1 / n_b). Mends only in part,
without saying so, where a shard holds a handful of rows with a rare feature. It does not find any error but that of
small shards: displaced draws stay displaced.

Reference. Vyner's thesis, section 5.1, for equal covariances, here for any; Shao and Tu (2012), The jackknife and
bootstrap, chapter 1; Schucany, Gray and Owen (1971), On bias reduction in estimation, JASA 66(335) (two orders); James
and Stein (1961), Proc. 4th Berkeley Symposium 1, equation (6).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from consilience.draws import Subposteriors
from consilience.errors import must_be
from consilience.numerics import least_motion_map
from consilience.refine.base import Floats, Need, Refined, checked_draws
from consilience.refine.part_modes import PARTS, PartModes, PartModesTask
from consilience.refine.pass_back import PassBack
from consilience.refine.stein import Cloud

# Leaving shards out one by one says nothing of noise for fewer.
FEWEST_SHARDS = 3
# Difference of the two orders, as a share of the correction, beyond which neither is believed.
MOST_DISAGREEMENT = 0.5
# Corrections below this, in standard deviations, are rounding.
NEGLIGIBLE = 1e-3


@dataclass(frozen=True)
class Jackknife:
    """Take away the bias of small shards.

    Attributes
    ----------
    order : 1 or 2
        Terms of the expansion in 1 / n_b that are taken away; the second adds more noise than it removes bias
        unless shards are tiny.

    Examples
    --------
    >>> Jackknife().order
    1
    """

    name: ClassVar[str] = "jackknife"
    reference: ClassVar[str] = "Vyner's thesis, section 5.1; Schucany, Gray and Owen (1971), JASA 66(335)"
    needs: ClassVar[tuple[Need, ...]] = ("draws", "pass-back", "subposteriors")
    exact_for_gaussian: ClassVar[bool] = False

    order: int = 1

    def refine(
        self,
        draws: Floats,
        log_weights: Floats | None,
        pass_back: PassBack,
        subposteriors: Subposteriors | None = None,
        *,
        seed: int = 0,
    ) -> Refined:
        """Draws less the bias of small shards, or the given ones and why."""
        array, weights = checked_draws(self.name, draws, log_weights, pass_back.dimension)
        if self.order not in (1, 2):
            raise must_be(self.name, "order", "1 or 2", self.order, "Leave it out for 1.")
        begun = pass_back.ledger
        cloud = Cloud.of(array, weights)
        task = PartModesTask(pass_back.model, pass_back.fingerprint, cloud.centre, seed, pass_back.precision)
        dimension = len(cloud.centre)
        back = sum(PARTS) * (dimension + 1) * dimension
        shards = pass_back.each(task, PartModes, dimension + back)
        cost = pass_back.ledger.since(begun).to_dict()
        spent = f"{cost['full_data_gradients']:.0f} full-data gradients"
        record: dict[str, Any] = {"name": self.name, "order": self.order, "kept": False, "cost": cost}
        why = refusal(shards, pass_back, subposteriors)
        if not why:
            shift, bend = (Correction.of(shards, what, self.order) for what in ("mean", "covariance"))
            record |= {"mean": shift.to_dict(), "covariance": bend.to_dict()}
            why = disbelief(shift, bend)
        if why:
            note = f"jackknife: nothing changed, {spent}: {why[0]}"
            said = tuple(
                f"jackknife: {why[0]}, so the draws were left as they were. {advice}" for advice in why[1:]
            )
            return Refined(array, weights, (note,), said, record)
        note = (
            f"jackknife: {spent}: mean moved by {shift.size:.2g} sd (noise {shift.noise:.1g}), logarithm of the "
            f"covariance by {bend.size:.2g} (noise {bend.noise:.1g})"
        )
        moved = corrected(array, cloud, shards, shift, bend)
        return Refined(moved, weights, (note,), (), {**record, "kept": True})


def refusal(
    shards: Sequence[PartModes], pass_back: PassBack, subposteriors: Subposteriors | None
) -> tuple[str, ...]:
    """Why nothing can be said of the bias, and what to do about it if that needs saying."""
    if len(shards) < FEWEST_SHARDS:
        return (f"{len(shards)} shards are too few to tell bias from noise",)
    if subposteriors is not None and subposteriors.kind != "inflated":
        return (
            "the draws were combined from sub-posteriors, whose means are off their modes by as much as the bias",
            "Use a rule for inflated draws, such as method='swiss', or refine='calibrate'.",
        )
    lost = [task.label for task, shard in zip(pass_back.tasks, shards, strict=True) if not shard.found]
    if lost:
        named = ", ".join(lost[:5]) + (", ..." if len(lost) > 5 else "")
        return (
            f"quarters of {len(lost)} of {len(shards)} shards have no mode that their rows determine ({named})",
            "Make fewer shards, or use refine='calibrate'.",
        )
    return ()


def disbelief(shift: Correction, bend: Correction) -> tuple[str, ...]:
    """Why corrections are not made, and what to do about it if that needs saying."""
    for what, found in (("mean", shift), ("covariance", bend)):
        if found.disagreement > MOST_DISAGREEMENT:
            return (
                f"parts of shards show no bias of the {what} that falls as one over their rows",
                "Make fewer shards, stratify them, or use refine='calibrate'.",
            )
    if max(shift.size, bend.size) < NEGLIGIBLE:
        return ("no bias that can be told from noise",)
    return ()


@dataclass(frozen=True, eq=False)
class Totals:
    """Sums over shards, per number of parts: of w P, and of w P t."""

    precisions: Floats
    pulls: Floats

    @classmethod
    def of(cls, shard: PartModes) -> Totals:
        precisions = [np.tensordot(w, p, 1) for w, p in zip(shard.weights, shard.precisions, strict=True)]
        pulls = [
            np.einsum("k,kij,kj->i", w, p, t)
            for w, p, t in zip(shard.weights, shard.precisions, shard.points, strict=True)
        ]
        return cls(np.stack(precisions), np.stack(pulls))

    @classmethod
    def over(cls, every: Sequence[Totals]) -> Totals:
        """Of all shards."""
        return cls(np.sum([t.precisions for t in every], axis=0), np.sum([t.pulls for t in every], axis=0))

    def frame(self) -> Cloud:
        """Coordinates in which the combined curvature of whole shards is the identity."""
        return Cloud.at(np.zeros(self.pulls.shape[1]), np.linalg.inv(self.precisions[0]))

    def means(self) -> Floats:
        """(K, d) combined means."""
        return np.asarray(np.linalg.solve(self.precisions, self.pulls[..., None])[..., 0])


@dataclass(frozen=True, eq=False)
class Correction:
    """What is added to a mean or to the logarithm of a covariance, in the combined curvature's coordinates.

    Attributes
    ----------
    value : shrunk by its noise
    estimate, noise : before that, and its standard error, as lengths
    disagreement : of the first and the second order, relative to the larger of the estimate and twice the noise
    """

    value: Floats
    estimate: float
    noise: float
    disagreement: float

    @property
    def size(self) -> float:
        """Length of what is applied."""
        return float(np.linalg.norm(self.value))

    def to_dict(self) -> dict[str, float]:
        return {
            "estimate": self.estimate,
            "noise": self.noise,
            "applied": self.size,
            "disagreement": self.disagreement,
        }

    @classmethod
    def of(cls, shards: Sequence[PartModes], what: str, order: int) -> Correction:
        """Extrapolate, with noise from leaving out one shard at a time."""
        every = [Totals.of(shard) for shard in shards]
        together = Totals.over(every)
        frame = together.frame()
        number = len(shards)

        def change(totals: Totals, terms: int) -> Floats:
            curve = along(totals, frame, what)
            return np.tensordot(extrapolation(number, terms), curve, 1) - curve[0]

        first, second = change(together, 1), change(together, 2)
        estimate = first if order == 1 else second
        without = np.stack(
            [
                change(Totals(together.precisions - t.precisions, together.pulls - t.pulls), order)
                for t in every
            ]
        )
        noise = float(np.sqrt((number - 1) / number * np.sum((without - without.mean(axis=0)) ** 2)))
        size = float(np.linalg.norm(estimate))
        factor = max(0.0, 1.0 - (noise / size) ** 2) if size > NEGLIGIBLE else 0.0
        scale = max(size, 2.0 * noise)
        gap = float(np.linalg.norm(second - first)) / scale if size > NEGLIGIBLE else 0.0
        return cls(factor * estimate, size, noise, gap)


def along(totals: Totals, frame: Cloud, what: str) -> Floats:
    """The combined means, or logarithms of covariances, for each number of parts, whitened.

    Where a shard is left out all covariances are larger by one factor, which differences do not see.
    """
    if what == "mean":
        return totals.means() @ frame.inverse_root.T
    out = []
    for precision in totals.precisions:
        values, vectors = np.linalg.eigh(frame.root.T @ precision @ frame.root)
        out.append(-(vectors * np.log(values)) @ vectors.T)
    return np.stack(out)


def extrapolation(num_shards: int, order: int) -> Floats:
    """Weights of m(1), m(2) and m(4) in m(1 / B): Lagrange's polynomial through the first `order` + 1 of them.

    Examples
    --------
    >>> extrapolation(4, 1), extrapolation(1000, 2).round(2)
    (array([ 1.75, -0.75,  0.  ]), array([ 2.66, -2.  ,  0.33]))
    """
    at, weights = 1.0 / num_shards, np.zeros(len(PARTS))
    for i in range(order + 1):
        others = [PARTS[j] for j in range(order + 1) if j != i]
        weights[i] = np.prod([(at - other) / (PARTS[i] - other) for other in others])
    return weights


def corrected(
    draws: Floats, cloud: Cloud, shards: Sequence[PartModes], shift: Correction, bend: Correction
) -> Floats:
    """The draws after both corrections, which are carried over in units of the combined curvature."""
    frame = Totals.over([Totals.of(shard) for shard in shards]).frame()
    values, vectors = np.linalg.eigh(bend.value)
    # What takes the curvature's covariance to the corrected one takes the draws' there too.
    change = frame.root @ (vectors * np.exp(values / 2.0)) @ vectors.T @ frame.inverse_root
    covariance = change @ cloud.covariance @ change.T
    linear = least_motion_map(cloud.covariance, (covariance + covariance.T) / 2)[0]
    return np.asarray(cloud.centre + frame.root @ shift.value + (draws - cloud.centre) @ linear.T)
