"""A polynomial log density fitted to scores, in any number of dimensions.

Formula. In whitened coordinates z the log density is f(z) = -|z|^2 / 2 + g(z), g a polynomial without
constant of the degree m. Given scores h_i at S points z_i, with weights w_i, g minimises

    sum_i w_i |h_i + z_i - grad g(z_i)|^2 + rho |g|^2,      |g|^2 = sum_j |g_j|^2 / lambda_j,

g_j the part of degree j, |g_j| its Bombieri norm (the norm that no rotation changes), lambda_j = (d + 2)^{1-j}.
In the space with kernel k(z, z') = sum_j lambda_j (z'z')^j the minimum is

    g(z) = sum_i k1(z'z_i) (a_i'z),     k1(t) = sum_j j lambda_j t^{j-1},     (K + rho W^-1) a = h + z,

where block (i, l) of K is k1(z_i'z_l) I + k1'(z_i'z_l) z_l z_i'. K is never formed: conjugate gradients need
products with it alone, O(S^2 d) each, however many monomials there are. In d = 20 the 1,770 terms of degree up
to 3 take a tenth of a second, and all directions count alike: no few of them hold a regression's skewness.

The degree, then rho, are those that predict best the scores of a quarter of the points from the rest. A degree
is tried while its monomials are at most twice the S d equations. Far points count little: w falls with the depth
under the highest point, in units of d + 2 nats.

Assumptions. The log density is smooth and near a polynomial over the points. A polynomial says nothing beyond
them and may rise there; `surrogate_sampling` has the guard.

Fails where the shape changes within the cloud (a needle with a tail, a cusp, separate modes): R^2 of points that
were left out is low; or, where no point shows the change, high and wrong.

Reference. Rasmussen (2003), Gaussian processes to speed up hybrid Monte Carlo, Bayesian Statistics 7 (log
densities from gradients); Schölkopf, Herbrich and Smola (2001), A generalized representer theorem, theorem 1;
Golub and Van Loan (2013), Matrix Computations, section 11.3 (conjugate gradients).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from consilience.refine.base import Floats

MOST_DEGREE = 6
RIDGES = (1e-4, 1e-2, 1.0)
FIRST_RIDGE = 1e-2
FOLDS = 4
# Monomials per equation up to which a degree is tried.
MOST_TERMS = 2.0
# Residual at which conjugate gradients stop: in the search for a degree, and for what is returned.
ROUGH, FINE = 1e-3, 1e-7
ROUGH_ITERATIONS, FINE_ITERATIONS = 200, 1000
# Numbers per term when a polynomial is put on fewer points, most of them, and how well it must stay the same.
SPARE, MOST_DIRECT, SAME = 2.0, 800, 1e-6


@dataclass(frozen=True, eq=False)
class Polynomial:
    """g as a sum over points.

    Attributes
    ----------
    centres : (S, d) z_i
    coefficients : (S, d) a_i
    scales : (6,) j lambda_j for j = 1 to 6, zero above the degree
    ridge : float
    r_squared : float
        Share of the scores' weighted variance that was predicted at points left out.

    Examples
    --------
    >>> z = np.random.default_rng(0).normal(size=(40, 1))
    >>> found = fit_polynomial(z, -z - z**3, np.ones(40), np.random.default_rng(0))    # -z^2/2 - z^4/4
    >>> found.degree, found.scores(np.array([[2.0]])).round(3)
    (4, array([[-10.]]))
    """

    centres: Floats
    coefficients: Floats
    scales: Floats
    ridge: float
    r_squared: float = math.nan

    @property
    def degree(self) -> int:
        return int(np.count_nonzero(self.scales))

    def scores(self, z: Floats) -> Floats:
        """Gradient of f at (n, d) points."""
        inner = z @ self.centres.T
        first, second = _kernels(inner, self.scales)
        along = z @ self.coefficients.T
        return np.asarray(first @ self.coefficients + (second * along) @ self.centres - z)

    def log_density(self, z: Floats) -> Floats:
        """f at (n, d) points, up to a constant."""
        first, _ = _kernels(z @ self.centres.T, self.scales)
        return np.asarray(np.sum(first * (z @ self.coefficients.T), axis=1) - 0.5 * np.sum(z**2, axis=1))

    def condensed(self) -> Polynomial:
        """The same polynomial from fewer points, where it has fewer terms than points have numbers.

        Scores at so few points that they determine all terms give their coefficients without a ridge.
        """
        number, dimension = self.centres.shape
        count = math.ceil(SPARE * math.comb(dimension + self.degree, self.degree) / dimension)
        if 2 * count > number or count * dimension > MOST_DIRECT:
            return self
        chosen = np.linspace(0, number - 1, count).round().astype(int)
        z = self.centres[chosen]
        first, second = _kernels(z @ z.T, self.scales)
        blocks = first[:, None, :, None] * np.eye(dimension)[None, :, None, :]
        blocks = blocks + second[:, None, :, None] * np.einsum("la,ib->ialb", z, z)
        matrix = blocks.reshape(count * dimension, count * dimension)
        found = np.linalg.lstsq(matrix, (self.scores(z) + z).ravel(), rcond=1e-13)[0]
        short = replace(self, centres=z, coefficients=found.reshape(count, dimension))
        wanted = self.scores(self.centres)
        off = np.max(np.abs(short.scores(self.centres) - wanted)) / np.max(np.abs(wanted))
        return short if off < SAME else self


def depth_weights(log_density: Floats, dimension: int) -> Floats:
    """How much each point counts: less, the deeper it lies under the highest.

    Examples
    --------
    >>> depth_weights(np.array([0.0, -3.0, -27.0]), 1).round(2)
    array([1.  , 0.25, 0.01])
    """
    return np.asarray((1.0 + (log_density.max() - log_density) / (dimension + 2.0)) ** -2.0)


def degrees_to_try(dimension: int, points: int, most: int = MOST_DEGREE) -> list[int]:
    """Degrees whose monomials the equations can be asked for; 2 in any case.

    Examples
    --------
    >>> degrees_to_try(2, 256), degrees_to_try(20, 256)
    ([2, 3, 4, 5, 6], [2, 3])
    """
    room = MOST_TERMS * points * dimension
    return [2] + [j for j in range(3, most + 1) if math.comb(dimension + j, j) <= room]


def fit_polynomial(
    z: Floats, h: Floats, weights: Floats, rng: np.random.Generator, most_degree: int = MOST_DEGREE
) -> Polynomial:
    """Fit scores h (S, d) at points z (S, d); the degree and the ridge by cross-validation."""
    number, dimension = z.shape
    order = rng.permutation(number)
    folds = [order[start::FOLDS] for start in range(FOLDS)]
    losses: dict[tuple[int, float], float] = {}

    def loss(degree: int, ridge: float) -> float:
        if (degree, ridge) not in losses:
            losses[degree, ridge] = _left_out(z, h, weights, folds, scales_of(degree, dimension), ridge)
        return losses[degree, ridge]

    tried = degrees_to_try(dimension, number - len(folds[0]), most_degree)
    degree = min(tried, key=lambda j: loss(j, FIRST_RIDGE))
    ridge = min(RIDGES, key=lambda rho: loss(degree, rho))
    scales = scales_of(degree, dimension)
    coefficients = _solve(z, h + z, weights, scales, ridge, FINE, FINE_ITERATIONS)
    total = float(weights @ np.sum((h - weights @ h / weights.sum()) ** 2, axis=1))
    r_squared = 1.0 - loss(degree, ridge) / total if total > 0 else 0.0
    return Polynomial(z, coefficients, scales, ridge, r_squared)


def scales_of(degree: int, dimension: int) -> Floats:
    """j lambda_j."""
    j = np.arange(1, MOST_DEGREE + 1)
    return np.where(j <= degree, j * (dimension + 2.0) ** (1.0 - j), 0.0)


def _left_out(
    z: Floats, h: Floats, weights: Floats, folds: list[np.ndarray], scales: Floats, ridge: float
) -> float:
    """Weighted sum of squares of the scores of each fold, predicted from the others."""
    loss = 0.0
    for fold in folds:
        rest = np.setdiff1d(np.arange(len(z)), fold)
        coefficients = _solve(z[rest], (h + z)[rest], weights[rest], scales, ridge, ROUGH, ROUGH_ITERATIONS)
        predicted = Polynomial(z[rest], coefficients, scales, ridge).scores(z[fold])
        loss += float(weights[fold] @ np.sum((h[fold] - predicted) ** 2, axis=1))
    return loss


def _solve(
    z: Floats, target: Floats, weights: Floats, scales: Floats, ridge: float, tolerance: float, most: int
) -> Floats:
    """(K + rho W^-1)^-1 target; where the iterations end early, what they have is a smoother fit."""
    from scipy.sparse.linalg import LinearOperator, cg

    number, dimension = z.shape
    first, second = _kernels(z @ z.T, scales)
    diagonal = ridge / weights[:, None]

    def product(flat: Floats) -> Floats:
        a = flat.reshape(number, dimension)
        return np.asarray(first @ a + (second * (z @ a.T)) @ z + diagonal * a).ravel()

    system = LinearOperator((number * dimension,) * 2, matvec=product, dtype=np.float64)
    found, _ = cg(system, target.ravel(), rtol=tolerance, maxiter=most)
    return np.asarray(found).reshape(number, dimension)


def _kernels(inner: Floats, scales: Floats) -> tuple[Floats, Floats]:
    """k1 and its derivative, by Horner's rule."""
    first, second = np.zeros_like(inner), np.zeros_like(inner)
    for scale in scales[::-1]:
        second = second * inner + first
        first = first * inner + scale
    return first, second
