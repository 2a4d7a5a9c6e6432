"""Reweight: adaptive importance sampling of the full posterior, from the draws and from wherever else mass may be.

Formula. In round r points are drawn from the mixture

    q_r = (1 - s_raw - s_pool) parts_r + s_raw raw + s_pool pooled,          s_raw = s_pool = 0.2,

of fitted parts (see `proposals`) and of kernels on SwISS' draws and on the shards' pooled inflated draws (see
`sources`). All points of all rounds have the weights (see `importance`)

    w_i = p(theta_i | y) / sum_r (n_r / n) q_r(theta_i),

p from the full data's log densities. After each round the parts are fitted anew to all weighted points. The first
parts are those of the given draws, as they are and each moved by Stein calibration. At last the weights are
Pareto-smoothed. With `weights="stein"` nothing is proposed: some of the given draws get weights from their scores (see
`stein_weights`).

Why the two shares are never given up: a needle with a long tail, or a mode that a rule has lost, shows neither in
weights nor in scores at draws that are not there; k-hat and effective size look perfect.

The given draws are returned where they are no worse (see `keeping`), and, with a warning, where fewer than 5 d points
are effective: of so few nothing can be said.

Assumptions: the kernels or the parts come near all mass. Fails by a small effective size in many dimensions, where
kernels say no more than Gaussians do; and unseen for mass that neither SwISS' draws nor the pool cover.

Reference. Owen and Zhou (2000), Safe and effective importance sampling, JASA 95(449); Cappé, Douc,
Guillin, Marin and Robert (2008), Adaptive importance sampling in general mixture classes, Statistics and Computing
18; Vehtari et al. (2024), JMLR 25(72), sections 2 and 3. The idea of it: Vyner's thesis, section 5.2, which
leaves open what to do where the combined draws have no density: here they only say where to propose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from consilience.draws import Subposteriors
from consilience.errors import must_be
from consilience.numerics import FEW_DRAWS_PER_DIMENSION
from consilience.pareto import effective_draws, pareto_smoothed
from consilience.refine.base import Floats, FreshDraws, Need, Refined, checked_draws
from consilience.refine.calibrate import Calibrate
from consilience.refine.importance import ImportanceRounds
from consilience.refine.keeping import better
from consilience.refine.mixtures import GaussianMixture, split_by_bic
from consilience.refine.pass_back import PassBack
from consilience.refine.proposals import HeavyParts, Kernels
from consilience.refine.sources import KERNELS, inflated, pooled_draws, raw_draws
from consilience.refine.stein import Cloud
from consilience.refine.stein_weights import reweighted_by_scores

# Full-data gradients that parts share, and after which no further part is calibrated.
MOST_GRADIENTS = 500.0
# Beyond this estimates from importance weights are not dependable (Vehtari et al., section 3).
MOST_SHAPE = 0.7
WAYS = ("density", "stein")


@dataclass(frozen=True)
class Reweight:
    """Adaptive importance sampling, or Stein weights.

    Attributes
    ----------
    weights : "density" or "stein"
        Importance weights from log densities at new points, or weights on some of the given draws under which
        Stein's identities hold.
    rounds : int
        How often points are proposed, each time from better proposals; only for densities.
    points : int, optional
        Log densities per round, 2,500 when not given; for Stein weights scores in all, four for every identity and
        256 at least when not given.

    Examples
    --------
    >>> Reweight().points_for(5), Reweight(weights="stein").points_for(28)
    (2500, 1740)
    """

    name: ClassVar[str] = "reweight"
    reference: ClassVar[str] = "Owen and Zhou (2000), JASA 95(449); Vehtari et al. (2024), JMLR 25(72)"
    needs: ClassVar[tuple[Need, ...]] = ("draws", "pass-back", "subposteriors")
    exact_for_gaussian: ClassVar[bool] = True

    weights: str = "density"
    rounds: int = 4
    points: int | None = None

    def points_for(self, dimension: int) -> int:
        """Points of one round, or a refusal when they cannot be enough."""
        if self.weights not in WAYS:
            raise must_be(self.name, "weights", "'density' or 'stein'", self.weights, "Choose one of them.")
        if not isinstance(self.rounds, int | np.integer) or self.rounds < 1:
            raise must_be(
                self.name, "rounds", "a whole number, 1 or more", self.rounds, "Leave it out for 4."
            )
        identities = 1 + dimension + dimension * (dimension + 1) // 2
        usual = 2500 if self.weights == "density" else max(256, 4 * identities)
        least = 20 * (dimension + 1) if self.weights == "density" else 2 * identities
        count = usual if self.points is None else self.points
        if not isinstance(count, int | np.integer) or count < least:
            constraint = f"a whole number, {least} or more for {dimension} parameters"
            raise must_be(self.name, "points", constraint, count, f"Leave it out for {usual}.")
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
        """Weighted draws of the full posterior, or the given ones where they are no worse."""
        array, weights = checked_draws(self.name, draws, log_weights, pass_back.dimension)
        count = self.points_for(array.shape[1])
        rng = np.random.default_rng((seed, 0x4E16))
        if self.weights == "stein":
            return reweighted_by_scores(array, weights, pass_back, count, rng)
        begun = pass_back.ledger
        rounds = ImportanceRounds(pass_back, fixed_kernels(array, weights, subposteriors, rng))
        parts = first_parts(array, weights, pass_back, seed, rng)
        for _ in range(self.rounds):
            rounds.one_round(parts, count, rng)
            parts = rounds.fitted_parts(parts, rng)
        return judged(array, weights, rounds, pass_back.ledger.since(begun).to_dict())


def fixed_kernels(
    draws: Floats, log_weights: Floats | None, subposteriors: Subposteriors | None, rng: np.random.Generator
) -> tuple[Kernels, ...]:
    """Kernels on raw and pooled draws; on the given draws where there are no raw ones."""
    found: list[Floats] = []
    if subposteriors is not None:
        shards = inflated(subposteriors)
        raw = raw_draws(shards, rng)
        found = [x for x in (raw, pooled_draws(shards, rng)) if x is not None]
    if len(found) < 2:
        found.append(draws[FreshDraws(log_weights, len(draws), rng).take(KERNELS)])
    return tuple(Kernels.on(some, rng) for some in found)


def first_parts(
    draws: Floats, log_weights: Floats | None, pass_back: PassBack, seed: int, rng: np.random.Generator
) -> HeavyParts:
    """Parts of the given draws, half of the mixture as they are and half calibrated one by one."""
    some = draws[FreshDraws(log_weights, len(draws), rng).take(2 * KERNELS)]
    mixture = split_by_bic(some, None, rng)
    nearest = mixture.nearest(some)
    means, covariances = mixture.means.copy(), mixture.covariances.copy()
    # A proposal need not be right, it has to be near: a few scores are enough.
    calibrate, begun = Calibrate(max_gradients=int(MOST_GRADIENTS / mixture.number)), pass_back.ledger
    for k in np.argsort(-mixture.shares, kind="stable"):
        members = some[nearest == k]
        if pass_back.ledger.since(begun).full_data_gradients > MOST_GRADIENTS:
            break
        if len(members) < max(64, 4 * draws.shape[1]):
            continue
        found = calibrate.refine(members, None, pass_back, seed=seed)
        if found.record["rounds"] and found.record["kept"]:
            cloud = Cloud.of(found.array)
            means[k], covariances[k] = cloud.centre, cloud.covariance
    return HeavyParts(
        GaussianMixture(
            np.tile(mixture.shares / 2.0, 2),
            np.concatenate([mixture.means, means]),
            np.concatenate([mixture.covariances, covariances]),
        )
    )


def judged(
    draws: Floats, log_weights: Floats | None, rounds: ImportanceRounds, cost: dict[str, Any]
) -> Refined:
    """The weighted points, or the given draws where the points would be the worse."""
    ratios, every = rounds.log_ratios(), np.concatenate(rounds.points)
    good = np.isfinite(ratios)
    spent = f"{cost['full_data_gradients']:.0f} full-data gradients"
    record: dict[str, Any] = {
        "name": Reweight.name,
        "weights": "density",
        "history": rounds.history,
        "not_finite": int(np.count_nonzero(~good)),
        "cost": cost,
    }
    if not good.any():
        note = f"reweight: nothing changed, {spent}: no proposed point has a finite log density"
        warning = (
            "reweight: the full data's log density is not finite at any proposed point, so the draws were left as they "
            "were. Look for a log or a division in the model."
        )
        return Refined(draws, log_weights, (note,), (warning,), {**record, "kept": False})
    smoothed = pareto_smoothed(ratios[good])
    points, weights, shape = every[good], smoothed.log_weights, float(smoothed.shape)
    effective, dimension = effective_draws(weights), draws.shape[1]
    few = effective < FEW_DRAWS_PER_DIMENSION * dimension
    kept = not few and better(draws, log_weights, points, weights, effective)
    record |= {"kept": kept, "effective_draws": effective, "shape": shape if np.isfinite(shape) else None}
    quality = f"effective size {effective:.0f} of {len(ratios)} points, k-hat {shape:.2f}"
    warnings = said(few, kept, shape, quality, dimension)
    if kept:
        note = f"reweight: {len(rounds.rounds)} rounds, {spent}: weighted draws, {quality}"
        return Refined(points, weights, (note,), warnings, record, effective_draws=effective)
    why = "too few effective draws" if few else "the given draws are no worse than the weighted ones"
    note = f"reweight: nothing changed, {spent}: {why}; {quality}"
    return Refined(draws, log_weights, (note,), warnings, record)


def said(few: bool, kept: bool, shape: float, quality: str, dimension: int) -> tuple[str, ...]:
    """What a reader has to know of the weights."""
    if few:
        return (
            f"reweight: {quality} are too few for {dimension} parameters, so the draws were left as they were and "
            "nothing was found out about them. Calibrate first, or give more points.",
        )
    if shape > MOST_SHAPE:
        left = "" if kept else " The draws were left as they were."
        return (
            f"reweight: {quality}: beyond {MOST_SHAPE} a few points decide, and what is in the tails is not known."
            f"{left} Give more rounds, or calibrate first.",
        )
    return ()
