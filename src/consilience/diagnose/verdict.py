"""From estimates to one of three verdicts, in words.

    indistinguishable from full MCMC   surely, the mean's error is under three noise floors, the IAD under two
    do not use                         surely, some mean is off by half a posterior sd, or a marginal is wrong
    usable                             all between, and whatever the scores are too crooked to say

"Surely" is by two Monte Carlo standard errors. The thresholds of the first are those by which this verdict
is to be judged: it may be wrong in one case of a hundred.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.diagnose.escape import Escape

Floats = NDArray[np.float64]

BEST, MIDDLE, WORST = "indistinguishable from full MCMC", "usable", "do not use"

MOST_MAHALANOBIS = 3.0  # noise floors
MOST_IAD = 2.0  # noise floors
MOST_COVARIANCE = 0.1  # relative Frobenius error that is seen beyond its noise
LEAST_R_SQUARED = 0.5
# Under this R^2 nine of ten true errors were up to so many times the estimated ones.
TRUSTED_R_SQUARED = 0.9
UNDERSTATED = 1.75
UNUSABLE_MEAN = 0.5  # posterior sd
UNUSABLE_SD = 0.5  # relative
UNUSABLE_IAD = 0.2
UNUSABLE_ESCAPE = 0.1  # share of the posterior's mass
UNSEEN = (
    "It cannot see a mode or tail that no draw, nor any shard's, came near, wrong weights of separate modes, "
    "or a wrong joint shape whose marginals agree."
)
UNSEEN_WITHOUT_SEARCH = (
    "It cannot see a mode or tail without draws (none was looked for among the shards' draws), wrong weights of "
    "separate modes, or a wrong joint shape whose marginals agree."
)


@dataclass(frozen=True, eq=False)
class Findings:
    """What was estimated; see `Certificate`."""

    names: tuple[str, ...]
    mean_error: Floats
    mean_error_noise: Floats
    sd_error: Floats
    sd_error_noise: Floats
    mahalanobis: float
    mahalanobis_noise: float
    covariance_error: float
    covariance_noise: float
    iad: float
    iad_noise: float
    iad_per_parameter: Floats
    r_squared: float
    noise_floor: dict[str, float]
    points: int
    non_finite: int
    escape: Escape | None
    least_precision: float


def judged(found: Findings) -> tuple[str, str]:
    """The verdict, and the text that begins with it."""
    worst = reasons_against_use(found)
    if worst:
        verdict, why = WORST, "; ".join(worst)
    else:
        doubts = reasons_for_caution(found)
        verdict = MIDDLE if doubts else BEST
        why = (
            "; ".join(doubts)
            if doubts
            else "no error beyond what two full MCMC runs of as many draws would show"
        )
    return (
        verdict,
        f"{verdict}: {why}.\n{rests_on(found)}\n{unseen(found)}",
    )


def unseen(found: Findings) -> str:
    """What the evidence cannot show; only a search that met the shards' own draws counts as one."""
    return UNSEEN if found.escape is not None and found.escape.shards_searched else UNSEEN_WITHOUT_SEARCH


def reasons_against_use(found: Findings) -> list[str]:
    """Errors that are there beyond doubt and make the draws useless."""
    reasons = []
    mean = np.abs(found.mean_error) - 2.0 * found.mean_error_noise
    worst = int(np.argmax(mean))
    if mean[worst] > UNUSABLE_MEAN:
        reasons.append(f"the mean of {found.names[worst]} is off by about {found.mean_error[worst]:+.2g} sd")
    sd = np.abs(found.sd_error) - 2.0 * found.sd_error_noise
    worst = int(np.argmax(sd))
    if sd[worst] > UNUSABLE_SD:
        reasons.append(f"the sd of {found.names[worst]} is off by about {100 * found.sd_error[worst]:+.0f} %")
    measurable = found.r_squared > LEAST_R_SQUARED
    if not reasons and measurable and found.iad - 2.0 * found.iad_noise > UNUSABLE_IAD:
        reasons.append(f"the marginals' integrated absolute distance is about {found.iad:.2g}")
    if found.least_precision <= 0.0 and measurable:
        reasons.append("along some direction the log density rises towards the edge of the draws")
    if found.escape is not None and found.escape.surely > UNUSABLE_ESCAPE:
        reasons.append(
            f"about {100 * found.escape.mass:.0f} % of the posterior lies where there are no draws"
        )
    if found.non_finite > 0.1 * (found.points + found.non_finite):
        reasons.append(f"{found.non_finite} of {found.points + found.non_finite} scores are not finite")
    return reasons


def reasons_for_caution(found: Findings) -> list[str]:
    """What keeps the draws from being called indistinguishable."""
    doubts = []
    floor = found.noise_floor
    factor = 1.0 if found.r_squared >= TRUSTED_R_SQUARED else UNDERSTATED
    mahalanobis = factor * np.hypot(found.mahalanobis, 1.4 * found.mahalanobis_noise)
    worst = int(np.argmax(np.abs(found.mean_error)))
    if mahalanobis > MOST_MAHALANOBIS * floor["mahalanobis"]:
        if found.mahalanobis > 2.0 * found.mahalanobis_noise:
            doubts.append(
                f"off by about {np.abs(found.mean_error[worst]):.2g} sd in the mean of {found.names[worst]}"
            )
        else:
            doubts.append(
                f"errors of the mean under {mahalanobis:.2g} sd cannot be told from noise with {found.points} scores"
            )
    if found.iad + found.iad_noise > MOST_IAD * floor["iad"]:
        doubts.append(
            f"marginals may differ by an integrated absolute distance of {found.iad + found.iad_noise:.2g}"
        )
    if found.covariance_error > max(MOST_COVARIANCE, 2.0 * found.covariance_noise):
        doubts.append(f"the covariance is off by about {100 * found.covariance_error:.0f} %")
    if found.r_squared < LEAST_R_SQUARED:
        doubts.append(
            f"the scores are far from linear (R^2 {found.r_squared:.2f}), so no error can be measured"
        )
    if found.non_finite:
        doubts.append(f"{found.non_finite} of {found.points + found.non_finite} scores are not finite")
    if found.escape is not None and found.escape.suspicious:
        doubts.append(
            f"about {100 * found.escape.mass:.1f} % of the posterior may lie where there are no draws"
        )
    return doubts


def rests_on(found: Findings) -> str:
    """One sentence on the evidence."""
    floor = found.noise_floor
    search = ""
    if found.escape is not None:
        search = f", and {found.escape.points} log densities in search of mass outside the draws"
    return (
        f"It rests on full-data scores at {found.points} draws{search}: mean off by {found.mahalanobis:.2g} "
        f"(noise {found.mahalanobis_noise:.2g}, floor {floor['mahalanobis']:.2g}) in Mahalanobis distance, "
        f"marginals by {found.iad:.2g} (noise {found.iad_noise:.2g}, floor {floor['iad']:.2g}) in integrated "
        f"absolute distance, R^2 of the scores {found.r_squared:.2f}."
    )
