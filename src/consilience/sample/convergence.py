"""Whether a shard's chains agree well enough to be used.

R-hat (rank-normalised, of the draws and of their distance from the median) compares m half-chains of n draws.
Had they converged, the variance of their means would be s^2 tau / n times a chi-squared with m - 1 degrees of
freedom over m - 1, where tau is the chain's autocorrelation time, and so

    R-hat^2 < (n - 1) / n + q s^2 tau / (n W)

but for the chance that the quantile q leaves. Short chains therefore exceed the usual 1.01 by chance; the
limit here is the larger of 1.01 and what a shard exceeds once in a thousand times. tau is found within the
half-chains, so that chains which have not met do not excuse themselves by it; where half a chain is too short
to tell, it is slow, and there are too few effective draws.

Reference: Vehtari et al. (2021), "Rank-normalization, folding, and localization", for R-hat and the effective
sample sizes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from consilience import chains

USUAL_LIMIT = 1.01
FALSE_ALARMS = 1e-3
LOWEST_ACCEPTANCE = 0.4
# Share of divergent transitions beyond which a reader is told. They do not by themselves mean that chains have
# not met: at a wall, such as separated data under a wide prior have, a proposal that flies beyond it is
# rejected, as it must be, and the draws are right.
NOTABLE_DIVERGENCES = 0.01
DIVERGED = (
    "more than 1 % of the transitions diverged: harmless at the wall that separated data have under a wide prior, "
    "a sign of regions left out where the log density is sharply curved; a tighter prior or sampler='nuts' tells"
)
# Below this an estimate of the autocorrelation time is noise.
LOWEST_TIME = 0.5


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
    cautions: tuple[str, ...] = ()

    @property
    def converged(self) -> bool:
        return not self.problems


def rhat_limits(draws: np.ndarray) -> np.ndarray:
    """R-hat that converged chains (chains, draws, coordinates) stay under, for every coordinate.

    Examples
    --------
    >>> draws = np.random.default_rng(0).normal(size=(4, 80, 2))
    >>> rhat_limits(draws).round(2).tolist(), rhat_limits(np.tile(draws, (1, 250, 1))).round(3).tolist()
    ([1.09, 1.04], [1.01, 1.01])
    """
    from scipy.stats import chi2

    dimension = draws.shape[2]
    num_halves = 2 * draws.shape[0]
    # Two statistics for each coordinate, of which the larger counts.
    quantile = chi2.isf(FALSE_ALARMS / (2 * dimension), num_halves - 1) / (num_halves - 1)
    folded = np.abs(draws - np.median(draws, axis=(0, 1)))
    limits = [_limits(_normal_scores(x), quantile) for x in (draws, folded)]
    return np.asarray(np.maximum(np.maximum(*limits), USUAL_LIMIT))


def _normal_scores(draws: np.ndarray) -> np.ndarray:
    from scipy.special import ndtri
    from scipy.stats import rankdata

    flat = draws.reshape(-1, draws.shape[2])
    ranks = rankdata(flat, axis=0)
    return np.asarray(ndtri((ranks - 0.375) / (len(flat) + 0.25))).reshape(draws.shape)


def _limits(scores: np.ndarray, quantile: float) -> np.ndarray:
    half = scores.shape[1] // 2
    halves = np.concatenate([scores[:, :half], scores[:, -half:]])
    covariance = _autocovariance(halves - halves.mean(axis=1, keepdims=True))
    within = covariance[0] * half / max(half - 1, 1)
    within = np.where(within > 0, within, 1.0)
    # Centring each half by its own mean takes the variance of that mean from every autocovariance; it is put
    # back, as found with the time before.
    time = np.ones(scores.shape[2])
    for _ in range(3):
        lost = np.minimum(time / half, 0.5) * within
        time = np.clip(_time((covariance + lost) / (covariance[0] + lost)), LOWEST_TIME, half / 2)
    spread = 1 + np.minimum(time / half, 0.5)
    return np.sqrt((half - 1) / half + quantile * spread * time / half)


def _autocovariance(centred: np.ndarray) -> np.ndarray:
    """(lags, coordinates), averaged over half-chains, with divisor n."""
    from scipy.fft import irfft, next_fast_len, rfft

    length = centred.shape[1]
    size = next_fast_len(2 * length, real=True)
    power = (np.abs(rfft(centred, n=size, axis=1)) ** 2).mean(axis=0)
    return np.asarray(irfft(power, n=size, axis=0)[:length] / length)


def _time(rho: np.ndarray) -> np.ndarray:
    """Autocorrelation time by Geyer's initial monotone sequence."""
    pairs_available = max(len(rho) // 2, 1)
    pairs = rho[: 2 * pairs_available : 2].copy()
    pairs[: len(rho[1::2])] += rho[1 : 2 * pairs_available : 2]
    positive = np.cumprod(pairs > 0, axis=0)
    return np.asarray(-1 + 2 * (np.minimum.accumulate(pairs, axis=0) * positive).sum(axis=0))


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
    limits = rhat_limits(draws)
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
    return Convergence(
        rhat=float(np.nanmax(rhat)) if stuck.size < dimension else float("nan"),
        rhat_limit=float(limits[worst]),
        ess_bulk=float(bulk.min()),
        ess_tail=float(tail.min()),
        acceptance=acceptance,
        divergences=divergences,
        problems=tuple(problems),
        cautions=(DIVERGED,) if divergences > NOTABLE_DIVERGENCES * num_chains * length else (),
    )
