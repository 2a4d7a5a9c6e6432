"""How far a Markov chain has come: split R-hat, effective sample sizes, Monte Carlo standard errors.

With M half-chains of n draws each (every chain is split in two), W the mean of their variances, B/n the
variance of their means and rho_t the autocorrelation pooled over them:

    R-hat = sqrt(((n - 1) / n W + B / n) / W)                                                  (1 to 4)
    ESS   = M n / (1 + 2 sum_t rho_t)                                                    section 3.2

The sum runs over Geyer's initial monotone sequence: pairs rho_2k + rho_2k+1 up to the first that is not
positive, none larger than the one before. The bulk versions replace draws by their normal scores, z =
Phi^-1((rank - 3/8) / (S + 1/4)) (14); R-hat is the larger of that of the scores and of the scores of |x -
median|; the tail's ESS is the smaller of those of the indicators of the 5 % and the 95 % quantile.

They assume chains that explore the same stationary law. They fail, like all diagnostics that see draws only,
where every chain misses the same region. With an
ESS of less than about 50 per half-chain, R-hat and ESS are themselves unreliable.

Equation numbers: Vehtari, Gelman, Simpson, Carpenter, Bürkner (2021), "Rank-normalization, folding, and
localization", Bayesian Analysis 16(2). Constants and stopping rules are those of R's posterior and of ArviZ,
so that numbers agree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import ndtri

from consilience.errors import DrawsError, must_be

_BLOCK = 1 << 21  # numbers treated at a time, so that working arrays stay near 100 MB whatever the dimension
_SHORTEST = 4  # draws in a chain below which nothing can be said


def rhat(x: np.ndarray) -> np.ndarray:
    """Rank-normalised split R-hat of every column.

    Parameters
    ----------
    x
        (chains, draws, d) or (draws, d).

    Returns
    -------
    (d,) array; near 1 when chains agree, above 1.01 when they do not. NaN where a column is constant, holds
    NaN or has fewer than 4 draws per chain.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(4, 500, 2))
    >>> x[0, :, 1] += 1.0
    >>> rhat(x).round(1).tolist()
    [1.0, 1.1]
    """
    return _by_columns(x, _rhat_block, np.nan)


def effective_sample_size(x: np.ndarray, kind: Literal["bulk", "tail", "mean"] = "bulk") -> np.ndarray:
    """Effective number of draws of every column.

    Parameters
    ----------
    x
        (chains, draws, d) or (draws, d).
    kind
        "bulk" (normal scores), "tail" (the worse of the 5 % and 95 % quantiles) or "mean" (the draws
        themselves).

    Returns
    -------
    (d,) array, more than the number of draws where the chain is antithetic. The number of draws where a
    column is constant or has fewer than 4 draws per chain; NaN where it holds NaN.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(4, 500, 1))
    >>> bool(1600 < effective_sample_size(x)[0] < 2400)
    True
    """
    compute = {"bulk": _bulk_block, "tail": _tail_block, "mean": _mean_block}.get(kind)
    if compute is None:
        raise must_be(
            "effective_sample_size", "kind", "'bulk', 'tail' or 'mean'", kind, "Pick one of them.", DrawsError
        )
    size = float(np.shape(x)[0] * np.shape(x)[1]) if np.ndim(x) == 3 else float(np.shape(x)[0])
    return _by_columns(x, compute, size)


def mcse_mean(x: np.ndarray) -> np.ndarray:
    """Monte Carlo standard error of every column's mean: sd / sqrt(ESS of the mean).

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(4, 2500, 1))
    >>> mcse_mean(x).round(3)
    array([0.01])
    """
    array = _checked(x)
    flat = array.reshape(-1, array.shape[-1])
    sd = flat.std(axis=0, ddof=1) if len(flat) > 1 else np.zeros(flat.shape[1])
    return np.asarray(sd / np.sqrt(effective_sample_size(array, "mean")))


def _checked(x: np.ndarray) -> np.ndarray:
    array = np.asarray(x, dtype=np.float64)
    if array.ndim == 2:
        array = array[None]
    if array.ndim != 3 or array.size == 0:
        raise must_be(
            "chains",
            "x",
            "(chains, draws, parameters) or (draws, parameters)",
            f"an array of shape {array.shape}",
            "For one parameter pass x[..., None].",
            DrawsError,
        )
    return array


def _by_columns(x: np.ndarray, compute: Callable[[np.ndarray], np.ndarray], degenerate: float) -> np.ndarray:
    """Apply `compute` to blocks of usable columns, laid out (columns, chains, draws)."""
    array = _checked(x)
    num_chains, num_draws, _ = array.shape
    finite = np.isfinite(array).all(axis=(0, 1))
    out = np.where(finite, degenerate, np.nan)
    if num_draws < _SHORTEST:
        return out
    low, high = array.min(axis=(0, 1)), array.max(axis=(0, 1))
    with np.errstate(invalid="ignore"):
        moving = np.flatnonzero(finite & (high - low > np.finfo(np.float64).tiny))
    step = max(1, _BLOCK // (num_chains * num_draws))
    for start in range(0, len(moving), step):
        columns = moving[start : start + step]
        out[columns] = compute(np.ascontiguousarray(np.moveaxis(array[:, :, columns], 2, 0)))
    return out


def _split(block: np.ndarray) -> np.ndarray:
    """Halves of chains as chains; the middle draw of an odd number is left out."""
    half = block.shape[2] // 2
    return np.concatenate([block[:, :, :half], block[:, :, -half:]], axis=1)


def _normal_scores(block: np.ndarray) -> np.ndarray:
    """(14). Ranks of S draws take S values only, so the inverse normal is looked up."""
    flat = block.reshape(len(block), -1)
    size = flat.shape[1]
    order = np.argsort(flat, axis=1)
    ordered = np.take_along_axis(flat, order, axis=1)
    scores = np.empty_like(flat)
    table = np.asarray(ndtri((np.arange(1, size + 1) - 0.375) / (size + 0.25)))
    np.put_along_axis(scores, order, np.broadcast_to(table, flat.shape), axis=1)
    tied = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
    if len(tied):
        # Rejected proposals repeat a draw: equal draws share their average rank. (Slow to import.)
        from scipy.stats import rankdata

        ranks = rankdata(flat[tied], method="average", axis=1)
        scores[tied] = ndtri((ranks - 0.375) / (size + 0.25))
    return scores.reshape(block.shape)


def _rhat_block(block: np.ndarray) -> np.ndarray:
    halves = _split(block)
    folded = np.abs(halves - np.median(halves, axis=(1, 2), keepdims=True))
    return np.asarray(np.fmax(_rhat_of(_normal_scores(halves)), _rhat_of(_normal_scores(folded))))


def _rhat_of(halves: np.ndarray) -> np.ndarray:
    n = halves.shape[2]
    within = halves.var(axis=2, ddof=1).mean(axis=1)
    between_over_n = halves.mean(axis=2).var(axis=1, ddof=1)
    # Every half constant at a different value: infinitely far from mixed, not undefined.
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sqrt(between_over_n / within + (n - 1) / n)


def _bulk_block(block: np.ndarray) -> np.ndarray:
    return _ess_of(_normal_scores(_split(block)))


def _mean_block(block: np.ndarray) -> np.ndarray:
    return _ess_of(_split(block))


def _tail_block(block: np.ndarray) -> np.ndarray:
    low, high = np.quantile(block, [0.05, 0.95], axis=(1, 2), keepdims=True)
    halves = _split(block)
    return np.minimum(
        _ess_of((halves <= low).astype(np.float64)), _ess_of((halves <= high).astype(np.float64))
    )


def _ess_of(halves: np.ndarray) -> np.ndarray:
    """Size over autocorrelation time, with Geyer's initial monotone sequence, for all columns at once."""
    _, num_chains, n = halves.shape
    size = num_chains * n
    means = halves.mean(axis=2, keepdims=True)
    covariance = _mean_autocovariance(halves - means)
    mean_variance = covariance[:, :1] * (n / (n - 1))
    total = covariance[:, :1] + means[:, :, 0].var(axis=1, ddof=1)[:, None]
    constant = ~(total[:, 0] > 0)  # an indicator of a quantile that all draws share
    rho = 1.0 - (mean_variance - covariance) / np.where(constant[:, None], 1.0, total)
    rho[:, 0] = 1.0

    # Geyer: pairs 0 … last - 1 count in full; of the pair at which the sum stops, only a positive first half
    # does.
    available = max(n // 2 - 1, 1)  # the last draws' autocovariances rest on too few products
    pairs = rho[:, 0 : 2 * available : 2] + rho[:, 1 : 2 * available : 2]
    stopped = pairs <= 0
    last = np.where(stopped.any(axis=1), stopped.argmax(axis=1), available - 1)
    monotone = np.minimum.accumulate(pairs, axis=1)
    counted = np.arange(available)[None, :] < last[:, None]
    remainder = np.take_along_axis(rho, 2 * last[:, None], axis=1)[:, 0]
    tau = -1.0 + 2.0 * np.where(counted, monotone, 0.0).sum(axis=1) + np.maximum(remainder, 0.0)
    return np.where(constant, float(size), size / np.maximum(tau, 1.0 / np.log10(max(size, 2))))


def _mean_autocovariance(centred: np.ndarray) -> np.ndarray:
    """(columns, lags) autocovariance (divisor n), averaged over chains before the one inverse transform."""
    n = centred.shape[2]
    length = next_fast_len(2 * n, real=True)
    spectrum = rfft(centred, n=length, axis=2)
    power = (spectrum.real**2 + spectrum.imag**2).mean(axis=1)
    return np.asarray(irfft(power, n=length, axis=1)[:, :n] / n)
