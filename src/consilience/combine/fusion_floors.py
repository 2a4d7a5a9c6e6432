"""Bounds from below, for all points, on what fusion integrates along paths: phi = (|g|^2 - trace) / 2.

Here g is the gradient of -log f and the trace is that of its Hessian, trace = tr P + sum |x_i|^2 A''(eta_i). Logistic
rows have A'' <= 1/4. Poisson rows have A'' = u_i = exp(eta_i), without bound, but |g|^2 grows faster. Let the mode be
at 0, hats mean values there, delta_i = x_i' z, and lambda the least eigenvalue of P. With K below as stated, each of
the following is a bound of |g|^2 - sum |x_i|^2 u_i from below, and the best one is taken.

1. One parameter, Poisson rows only. For z > 0, g = P z + sum x_i (u_i - u^_i) has no negative term, rows with x_i < 0
   have u_i <= u^_i, and with X = max |x_i|, sum x_i^2 u_i <= X g + K, K = sum_+ X x_i u^_i + sum_- x_i^2 u^_i. So
   g^2 - X g - K >= -X^2 / 4 - K; likewise for z < 0.
2. Poisson rows only, all on one side: w' x_i >= |x_i|^2 for some w (there is one when the model has an intercept; the
   shortest is found by least squares with nonnegative unknowns). Then
   sum |x_i|^2 u_i <= w' g + K - w' P z <= (|w| + |P w| / lambda) |g| + K with K = sum (w' x_i) u^_i, because
   |g| >= lambda |z|; so -(|w| + |P w| / lambda)^2 / 4 - K.
3. Always. As g is monotone, |g|^2 >= (lambda r + S / r)^2 >= 4 lambda S with r = |z| and
   S = sum u^_i (e^delta_i - 1) delta_i. And e^delta <= (e^delta - 1) delta / k + c_k with c_k the maximum of the
   difference, at delta = k - 1 + W(e^{1-k}) (W is Lambert's function). With k = max |x_i|^2 / (4 lambda) the S cancel:
   -c_k sum |x_i|^2 u^_i. A prior much weaker than one row makes k, and with it the cost of fusion, large.
"""

from __future__ import annotations

import numpy as np
from scipy.special import lambertw

from .base import Floats

# exp() of more is not wanted, and its square would overflow.
LARGEST = 300.0


def logistic_floor(precision: Floats, rows: Floats) -> float:
    """Bound of phi for a Gaussian and logistic rows.

    Examples
    --------
    >>> logistic_floor(np.eye(1), np.array([[2.0]]))
    -1.0
    """
    return -0.5 * float(np.trace(precision) + 0.25 * np.sum(rows**2))


def poisson_floor(precision: Floats, rows: Floats, at_mode: Floats, *, alone: bool) -> float:
    """What Poisson rows with means `at_mode` add to the bound; `alone` if there are no logistic rows.

    Examples
    --------
    >>> round(poisson_floor(np.eye(1), np.array([[1.0]]), np.array([3.0]), alone=True), 2)
    -1.6
    """
    bounds = [by_strong_prior(precision, rows, at_mode)]
    if alone and rows.shape[1] == 1:
        bounds.append(by_sign(rows[:, 0], at_mode))
    if alone:
        bounds.append(by_one_side(precision, rows, at_mode))
    return 0.5 * max(bounds)


def by_sign(x: Floats, at_mode: Floats) -> float:
    """The first bound.

    Examples
    --------
    >>> by_sign(np.array([1.0, -2.0]), np.array([3.0, 1.0]))
    -11.0
    """
    largest = float(np.abs(x).max())
    squares = x**2 * at_mode
    sides = [
        largest * float(np.abs(x[growing]) @ at_mode[growing]) + float(squares[~growing].sum())
        for growing in (x > 0, x < 0)
    ]
    return -0.25 * largest**2 - max(sides)


def by_one_side(precision: Floats, rows: Floats, at_mode: Floats) -> float:
    """The second bound, -inf where rows are not on one side.

    Examples
    --------
    >>> by_one_side(np.eye(1), np.array([[1.0], [0.5]]), np.array([3.0, 1.0]))
    -4.5
    >>> by_one_side(np.eye(1), np.array([[1.0], [-0.5]]), np.array([3.0, 1.0]))
    -inf
    """
    from scipy.optimize import nnls  # a tenth of a second, which no other rule has to wait for

    squares = np.sum(rows**2, axis=1)
    real = squares > 0
    if not real.any():
        return 0.0
    # Lawson and Hanson's least distance programming: the shortest w with directions' w >= lengths.
    lengths = np.sqrt(squares[real])
    directions, scale = rows[real] / lengths[:, None], float(lengths.max())
    system = np.vstack([directions.T, lengths / scale])
    target = np.append(np.zeros(rows.shape[1]), 1.0)
    residual = system @ nnls(system, target)[0] - target
    if abs(residual[-1]) < 1e-9:
        return -np.inf
    w = -residual[:-1] / residual[-1] * scale
    reached = directions @ w
    if np.any(reached <= 0.0):
        return -np.inf
    # Rounding may leave an inequality short by a little: lengthen w until none is.
    w *= max(1.0, float((lengths / reached).max()))
    least = float(np.linalg.eigvalsh(precision)[0])
    slope = np.linalg.norm(w) + np.linalg.norm(precision @ w) / least if least > 0.0 else np.inf
    return float(-0.25 * slope**2 - (rows @ w) @ at_mode)


def by_strong_prior(precision: Floats, rows: Floats, at_mode: Floats) -> float:
    """The third bound.

    Examples
    --------
    >>> round(by_strong_prior(np.eye(1), np.array([[2.0]]), np.array([1.0])), 2)  # k = 1
    -5.32
    """
    squares = np.sum(rows**2, axis=1)
    least = float(np.linalg.eigvalsh(precision)[0])
    k = float(squares.max()) / (4.0 * least) if least > 0.0 else np.inf
    return -_largest_excess(k) * float(squares @ at_mode)


def _largest_excess(k: float) -> float:
    """Maximum over delta of e^delta - delta (e^delta - 1) / k."""
    if k > LARGEST:
        return float(np.exp(LARGEST))
    if k < 1e-12:
        return 1.0
    delta = k - 1.0 + float(lambertw(np.exp(1.0 - k)).real)
    return float(np.exp(delta) * (1.0 - delta / k) + delta / k)
