"""Bandwidths of Gaussian kernels: Silverman's rule and Sheather and Jones' plug-in.

Formulas. Silverman, in k dimensions of unit covariance,

    rho = (4 / (k + 2))^{1/(k+4)} n^{-1/(k+4)},   and 0.9 min(sd, IQR / 1.349) n^{-1/5} for k = 1.

Sheather and Jones: rho solves rho = [1 / (2 sqrt(pi) n phi_4(gamma(rho)))]^{1/5}, where phi_r is the kernel estimate
of the integral of f^(r) f and gamma(rho) = 1.357 [phi_4(a) / -phi_6(b)]^{1/7} rho^{5/7}, a = 1.24 s n^{-1/7},
b = 1.23 s n^{-1/9}, s = min(sd, IQR / 1.349): the "solve the equation" rule, with the constants of R's bw.SJ.

Pairs of draws are counted on a grid, whose cells are a fortieth of the largest bandwidth in question or the range
over `MOST_CELLS`: O(n + cells log cells) for any n.

Draws that repeat each other say less: n is the number of effective draws, and a bandwidth falls as n^{-1/(k+4)}.

Fails. Silverman's rule smooths several modes into one; Sheather and Jones' is the default for that reason. Where
its equation has no solution (heavy ties), Silverman's is taken.

Reference. Silverman (1986), Density estimation, (3.31) and table 4.1; Sheather and Jones (1991), A reliable
data-based bandwidth selection method, JRSS B 53(3), (12).
"""

from __future__ import annotations

import numpy as np

from .base import Floats

MOST_CELLS = 2**14
CELLS_PER_BANDWIDTH = 40


def silverman(draws: Floats, effective: float | None = None) -> float:
    """Silverman's bandwidth: 0.9 min(sd, IQR / 1.349) n^(-1/5) for one column; for more, of unit covariance.

    Examples
    --------
    >>> round(silverman(np.random.default_rng(0).normal(size=100_000)), 2)
    0.09
    """
    number = float(len(draws) if effective is None else effective)
    if draws.ndim == 1 or draws.shape[1] == 1:
        return 0.9 * spread(draws.ravel()) * number**-0.2
    k = draws.shape[1]
    return float((4.0 / (k + 2)) ** (1.0 / (k + 4)) * number ** (-1.0 / (k + 4)))


def sheather_jones(draws: Floats, effective: float | None = None) -> float:
    """Sheather and Jones' bandwidth of one column of draws.

    Examples
    --------
    Two modes ask for a quarter of what their overall spread suggests:

    >>> rng = np.random.default_rng(0)
    >>> modes = rng.normal(10 * rng.integers(2, size=5_000), 1.0)
    >>> round(sheather_jones(modes), 1), round(silverman(modes), 1)
    (0.2, 0.8)
    """
    draws = draws.ravel()
    number, scale = len(draws), spread(draws)
    largest = 1.144 * scale * number**-0.2
    distances, pairs = _pairs(draws, largest / CELLS_PER_BANDWIDTH)
    sixth = -_functional(distances, pairs, number, 1.23 * scale * number ** (-1.0 / 9.0), order=6)
    fourth = _functional(distances, pairs, number, 1.24 * scale * number ** (-1.0 / 7.0), order=4)
    if not (sixth > 0.0 and fourth > 0.0):
        return silverman(draws, effective)
    pilot = 1.357 * (fourth / sixth) ** (1.0 / 7.0)

    def gap(bandwidth: float) -> float:
        found = _functional(distances, pairs, number, pilot * bandwidth ** (5.0 / 7.0), order=4)
        target = 2.0 * np.sqrt(np.pi) * number * found
        return float((1.0 / target) ** 0.2 - bandwidth) if target > 0.0 else np.inf

    solved = _root(gap, 0.1 * largest, largest)
    if solved is None:
        return silverman(draws, effective)
    return solved if effective is None else solved * float((number / effective) ** 0.2)


def spread(draws: Floats) -> float:
    """min(sd, IQR / 1.349), or the standard deviation where half of the draws are the same.

    Examples
    --------
    >>> round(spread(np.random.default_rng(0).standard_t(1, size=10_000)), 1)
    1.5
    """
    deviation = float(draws.std(ddof=1))
    low, high = np.quantile(draws, [0.25, 0.75])
    within = float(high - low) / 1.349
    return min(deviation, within) if within > 0.0 else deviation


def _called(at: float, gap) -> float:  # type: ignore[no-untyped-def]
    return float(gap(at))


def _root(gap, low: float, high: float) -> float | None:  # type: ignore[no-untyped-def]
    """Solve gap = 0; the bracket is widened as R's bw.SJ widens it, to a limit."""
    from scipy.optimize import brentq

    for _ in range(8):
        at_low, at_high = gap(low), gap(high)
        if np.isfinite(at_low) and np.isfinite(at_high) and at_low * at_high <= 0.0:
            # As an argument: brentq leaves a cycle behind that would keep what the function holds.
            return float(brentq(_called, low, high, args=(gap,), xtol=1e-4 * low))
        low, high = low / 1.5, high * 1.2
    return None


def _pairs(draws: Floats, width: float) -> tuple[Floats, Floats]:
    """Distances on a grid, and how many pairs of draws are that far apart."""
    from scipy.signal import fftconvolve

    low, high = float(draws.min()), float(draws.max())
    cells = int(min(max((high - low) / width, 1.0), MOST_CELLS)) + 1
    width = (high - low) / (cells - 1) * (1.0 + 1e-9)
    counts = np.bincount(((draws - low) / width + 0.5).astype(np.intp), minlength=cells).astype(np.float64)
    together = fftconvolve(counts, counts[::-1])[cells - 1 :].round()
    together[0] = (together[0] - len(draws)) / 2.0
    return np.asarray(np.arange(len(together)) * width), np.asarray(together)


def _functional(distances: Floats, pairs: Floats, number: int, width: float, order: int) -> float:
    """phi_4 or phi_6: the mean over all pairs of the 4th or 6th derivative of a Gaussian kernel."""
    delta = (distances / width) ** 2
    near = delta < 1_000.0
    delta, pairs = delta[near], pairs[near]
    if order == 4:
        polynomial, at_zero = delta**2 - 6.0 * delta + 3.0, 3.0
    else:
        polynomial, at_zero = delta**3 - 15.0 * delta**2 + 45.0 * delta - 15.0, -15.0
    total = 2.0 * float(np.sum(np.exp(-0.5 * delta) * polynomial * pairs)) + at_zero * number
    return total / (number * (number - 1.0) * width ** (order + 1) * np.sqrt(2.0 * np.pi))
