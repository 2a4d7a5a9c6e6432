"""How far each marginal is from the truth, predicted from full-data scores by Stein's identity.

Formula. With h = (V g)_j / sd_j and v = (theta_j - m_j) / sd_j,

    a_k = E[h He_{k-1}(v)] + (k - 1) E[He_{k-2}(v)],   k = 1 ... 4,
    IAD_j = 1/2 integral phi(x) |sum_k a_k He_k(x) / k!| dx,

He_k the Hermite polynomials x, x^2 - 1, x^3 - 3 x, x^4 - 6 x^2 + 3: shift, width, skewness, tails. In the
expectations He_{k-1} is held constant beyond 4 sd, and its derivative is 0 there: Stein's identity stands, and
heavy tails do not decide alone.

The regression's part of each expectation is taken over all draws, the residuals' part over those with
scores: its Monte Carlo error is that of the residuals. All four vanish for the exact posterior (Stein's
identity for He_{k-1}).

Assumptions: the errors are small enough for an expansion about the normal density, and four terms of it show
them. Fails for marginals with separate modes.

Reference. Stein (1981), The Annals of Statistics 9(6), Lemma 2; the expansion of a density in Hermite
polynomials: McCullagh (1987), Tensor methods in statistics, chapter 5.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.typing import NDArray

from consilience.refine.stein import SteinFit

Floats = NDArray[np.float64]

# The test functions of the marginals are constant beyond so many sd: heavy tails have no fourth moment.
CUT = 4.0
_GRID = np.linspace(-8.0, 8.0, 801)
_NOISE_SAMPLES = 200


def noise_floor(number: float, dimension: int) -> dict[str, float]:
    """Expected differences of two independent sets of so many exact draws.

    The mean's is sqrt(2 d / N). The IAD's is that of two Gaussian kernel estimates of a normal density with
    Silverman's bandwidth 1.06 N^(-1/5), whose difference has variance 2 phi(x) / (2 sqrt(pi) N h) at x.

    Examples
    --------
    >>> {name: round(value, 3) for name, value in noise_floor(10_000, 5).items()}
    {'mahalanobis': 0.032, 'iad': 0.016}
    """
    bandwidth = 1.06 * number**-0.2
    height = np.sqrt(2.0 / np.pi) * np.sqrt(2.0 / (2.0 * np.sqrt(np.pi) * number * bandwidth))
    spread = (2.0 * np.pi) ** -0.25 * np.sqrt(4.0 * np.pi)
    return {"mahalanobis": float(np.sqrt(2.0 * dimension / number)), "iad": float(0.5 * height * spread)}


def marginal_iad(
    fit: SteinFit, z: Floats, everywhere: Floats, units: Floats, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """IAD_j predicted from marginal Stein residuals, and what noise alone would give, per parameter."""
    v, all_v = z @ units.T, everywhere @ units.T
    left, lifted = fit.residuals @ units.T, units @ fit.precision
    shift = units @ fit.intercept
    coefficients, terms = np.empty((4, len(units))), np.empty((4, *v.shape))
    inside = np.abs(all_v) < CUT
    v, all_v = np.clip(v, -CUT, CUT), np.clip(all_v, -CUT, CUT)
    for k in range(4):
        test = hermite(k, all_v)
        # Over all draws: E[(a - Q z) He_k(v)] + k E[He_{k-1}(v)]; beyond the cut the test function is constant.
        moment = np.einsum("jp,np,nj->j", lifted, everywhere, test, optimize=True) / len(everywhere)
        coefficients[k] = shift * test.mean(axis=0) - moment
        coefficients[k] += k * (inside * hermite(k - 1, all_v)).mean(axis=0) if k else 0.0
        terms[k] = left * hermite(k, v)
    # A constant was fitted: its residuals have mean zero but for what leaving points out adds.
    coefficients[1:] += terms[1:].mean(axis=1)
    sizes = np.empty(len(units))
    noise = np.empty(len(units))
    for j in range(len(units)):
        covariance = np.cov(terms[:, :, j]) / len(z)
        sizes[j] = hermite_iad(coefficients[:, j][:, None])[0]
        wobble = rng.multivariate_normal(np.zeros(4), covariance, size=_NOISE_SAMPLES, method="eigh")
        noise[j] = float(np.mean(hermite_iad(wobble.T)))
    return sizes, noise


def hermite(k: int, x: Floats) -> Floats:
    """He_k, by its recurrence.

    Examples
    --------
    >>> [float(hermite(k, np.array(2.0))) for k in range(5)]
    [1.0, 2.0, 3.0, 2.0, -5.0]
    """
    before, now = np.zeros_like(x), np.ones_like(x)
    for j in range(k):
        before, now = now, x * now - j * before
    return now


def hermite_iad(coefficients: Floats) -> Floats:
    """1/2 integral phi |sum_k a_k He_k / k!| for columns (a1, a2, a3, a4).

    Examples
    --------
    >>> hermite_iad(np.array([[0.1], [0.0], [0.0], [0.0]])).round(3)    # a shift of 0.1 sd: 0.1 phi(0)
    array([0.04])
    """
    basis, measure = _basis()
    return np.asarray(np.minimum(1.0, np.abs(coefficients.T @ basis) @ measure))


@functools.cache
def _basis() -> tuple[Floats, Floats]:
    """He_k / k! on the grid, for k = 1 to 4, and phi / 2 times the grid's step."""
    basis = np.stack([hermite(k, _GRID) / math.factorial(k) for k in range(1, 5)])
    return basis, 0.5 * (_GRID[1] - _GRID[0]) * np.exp(-0.5 * _GRID**2) / np.sqrt(2.0 * np.pi)
