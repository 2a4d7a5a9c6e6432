"""Whether a shard's chains agree well enough to be used.

R-hat compares m half-chains worth n independent draws each. Had they converged, (R-hat^2 - 1) n + 1 would
be near a chi-squared with m - 1 degrees of freedom divided by m - 1. Short chains therefore exceed the usual
1.01 by chance; the limit here is the larger of 1.01 and what a shard exceeds once in a thousand times.
Chains that have not met have next to no effective draws, and are caught by that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from consilience import chains

USUAL_LIMIT = 1.01
FALSE_ALARMS = 1e-3
LOWEST_ACCEPTANCE = 0.4


@dataclass(frozen=True)
class Convergence:
    """Diagnostics of one shard, worst coordinate first."""

    rhat: float
    rhat_limit: float
    ess_bulk: float
    ess_tail: float
    acceptance: float
    divergences: int
    problems: tuple[str, ...]

    @property
    def converged(self) -> bool:
        return not self.problems


def rhat_limit(num_chains: int, effective_draws: float, dimension: int) -> float:
    """R-hat that converged chains, worth so many independent draws together, stay under.

    Examples
    --------
    >>> round(rhat_limit(4, 200, 10), 2), rhat_limit(4, 40_000, 1)
    (1.06, 1.01)
    """
    from scipy.stats import chi2

    halves = 2 * num_chains
    length = max(1.0, effective_draws / halves)
    quantile = chi2.isf(FALSE_ALARMS / dimension, halves - 1) / (halves - 1)
    return max(USUAL_LIMIT, math.sqrt(1 + (quantile - 1) / length))


def draws_needed(num_chains: int, dimension: int, asked: int) -> float:
    """Effective draws below which neither R-hat nor a covariance means anything.

    Four for each chain and one for each coordinate, or a twentieth of what was asked for where that is more;
    never more than a fifth, which independent draws reach whatever their number.

    Examples
    --------
    >>> draws_needed(4, 1, 80), draws_needed(4, 28, 400), draws_needed(4, 1, 2000)
    (16.0, 44.0, 100.0)
    """
    return float(min(max(4.0 * num_chains + dimension, asked / 20), asked / 5))


def judge(
    draws: np.ndarray,
    log_density: np.ndarray,
    acceptance: float,
    divergences: int,
    names: tuple[str, ...],
    asked: int | None = None,
) -> Convergence:
    """Diagnose draws of shape (chains, draws, coordinates) and their log densities (chains, draws).

    `asked` is how many draws were wanted, where there are more of them by now.
    """
    num_chains, length, dimension = draws.shape
    lost = np.flatnonzero(~(np.isfinite(log_density).all(axis=1) & np.isfinite(draws).all(axis=(1, 2))))
    if lost.size:
        nothing = float("nan")
        problem = f"chain {lost[0]} is where the log density is not finite"
        return Convergence(nothing, nothing, 0.0, 0.0, acceptance, divergences, (problem,))
    rhat = chains.rhat(draws)
    bulk = chains.effective_sample_size(draws, kind="bulk")
    tail = chains.effective_sample_size(draws, kind="tail")
    # R-hat looks at the spread as well as at the place, and the spread is forgotten more slowly.
    spread = chains.effective_sample_size(np.abs(draws - np.median(draws, axis=(0, 1))), kind="mean")
    worth = np.minimum(np.minimum(bulk, tail), np.minimum(spread, num_chains * length))
    limits = np.array([rhat_limit(num_chains, size, dimension) for size in worth])
    problems = []
    stuck = np.flatnonzero(~np.isfinite(rhat))
    if stuck.size:
        problems.append(f"{names[stuck[0]]} did not move")
    worst = int(np.argmax(np.where(np.isfinite(rhat), rhat - limits, -np.inf)))
    if not stuck.size and rhat[worst] > limits[worst]:
        problems.append(f"R-hat of {names[worst]} is {rhat[worst]:.3f} (limit {limits[worst]:.3f})")
    needed = draws_needed(num_chains, dimension, asked or num_chains * length)
    slowest = int(np.argmin(bulk))
    if bulk[slowest] < needed:
        problems.append(f"{names[slowest]} has {bulk[slowest]:.0f} effective draws (needs {needed:.0f})")
    if acceptance < LOWEST_ACCEPTANCE:
        problems.append(f"acceptance is {acceptance:.2f}")
    if divergences > 0.01 * num_chains * length:
        problems.append(f"{divergences} divergent transitions")
    return Convergence(
        rhat=float(np.nanmax(rhat)) if stuck.size < dimension else float("nan"),
        rhat_limit=float(limits[worst]),
        ess_bulk=float(bulk.min()),
        ess_tail=float(tail.min()),
        acceptance=acceptance,
        divergences=divergences,
        problems=tuple(problems),
    )
