"""A log density known at some points, everywhere: a quadratic and a Gaussian process on top of it.

Model. In coordinates z in which a shard's draws have mean 0 and covariance I, with features
h(z) = (1, z_i, z_i z_j),

    l(z) = h(z)'beta + f(z) + noise,   cov f(z), f(z') = s² (1 - nu) exp(-|z - z'|² / (2 r²)),   var noise = s² nu.

beta has a flat prior; r and nu maximise the marginal likelihood with beta and s² integrated or profiled out,
which is the restricted likelihood of the values that no quadratic explains. With K the covariance of the
values over s², H the features at the n points, L L' = K, and rho = L⁻¹ (l - H beta) for the generalised least
squares beta,

    s² = |rho|² / (n - p),   -2 log likelihood = (n - p) log s² + log|K| + log|H' K⁻¹ H|.

A quadratic log density, a Gaussian's, leaves no residual: it is reproduced to rounding, from any draws.

The kernel is isotropic in z, so that it depends on points through Mahalanobis distances only: the surface of
T x is that of x, for every invertible T.

The quadratic alone is left where no point is near, so it must fall in every direction. Where it does not, that of
plain least squares takes its place, with curvatures below `LEAST_CURVATURE` raised to it (1 is that of a Gaussian
with the shard's covariance), and the process makes up for that where there are points.

Fails where points are few for the dimension: f is then unknown between them, and its variance says so.

Reference. Rasmussen and Williams (2006), Gaussian processes for machine learning, section 2.7, equations
(2.41) to (2.45); the model is that of Nemeth and Sherlock (2018), section 2, whose mean function has the
shard's covariance as its only quadratic form where this one has a free one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .base import Floats

# Curvature that the quadratic keeps where no point is near, in units of the shard's own precision.
LEAST_CURVATURE = 0.05
# Below this share of noise the kernel's matrix cannot be factored in float64.
LEAST_NOISE = 1e-10
# The likelihood of lengths and noise is taken of so many points beyond the features.
POINTS_FOR_LENGTHS = 150
# A process must be likelier than noise by this much on the scale of -2 log likelihood: two more parameters, and many
# of them tried.
LIKELIER = 10.0
# A surface that is off by less than this (standard deviation) over all shards together needs no process.
NEGLIGIBLE = 1e-3


@dataclass(frozen=True, eq=False)
class Surface:
    """The fitted log density of one shard, in its own coordinates z.

    The quadratic is constant + slope'z - z' curvature z / 2. `inverse_factor` is L⁻¹, None without a process:
    the surface is a quadratic then, and the values scatter about it. `quadratic_features` tells whether beta had
    them.
    """

    points: Floats  # (n, d)
    constant: float
    slope: Floats  # (d,)
    curvature: Floats  # (d, d)
    length: float
    noise: float  # nu
    scale: float  # s²
    inverse_factor: Floats | None  # (n, n)
    dual: Floats  # (n,) K⁻¹ (l - H beta)
    num_values: int
    quadratic_features: bool = True

    @property
    def has_process(self) -> bool:
        return self.inverse_factor is not None

    @property
    def noise_deviation(self) -> float:
        """Scatter of the values about every smooth surface."""
        return float(np.sqrt(self.scale * self.noise))

    def quadratic(self, z: Floats) -> Floats:
        """The quadratic at the rows of z."""
        return self.constant + z @ self.slope - 0.5 * np.sum((z @ self.curvature) * z, axis=1)

    def kernel(self, z: Floats) -> Floats:
        """(N, n) correlations of the process at z with its values at the points."""
        return (1.0 - self.noise) * np.exp(-_squared_distances(z, self.points) / (2.0 * self.length**2))

    def mean(self, z: Floats) -> Floats:
        """Expected log density."""
        value = self.quadratic(z)
        return value + self.kernel(z) @ self.dual if self.has_process else value

    def variance(self, z: Floats) -> Floats:
        """Variance of the process given its values at the points, the quadratic taken as known.

        It is bounded by s² (1 - nu), so that the expected density can be integrated; the quadratic's own
        uncertainty would grow with the fourth power of z, and cannot.
        """
        if self.inverse_factor is None:
            return np.zeros(len(z))
        explained = self.kernel(z) @ self.inverse_factor.T
        left = (1.0 - self.noise) - np.sum(explained * explained, axis=1)
        return self.scale * np.maximum(left, 0.0)

    def interpolate(self, values: Floats) -> tuple[Floats, Floats]:
        """Coefficients (p, m) and duals (n, m) of the surfaces through m columns of values at the points."""
        return _least_squares(self.inverse_factor, self.features(self.points), values)[:2]

    def features(self, z: Floats) -> Floats:
        return features(z, self.quadratic_features)


def features(z: Floats, quadratic: bool = True) -> Floats:
    """(N, p) columns 1, z_i and, if wanted, z_i z_j for i <= j.

    Examples
    --------
    >>> features(np.array([[2.0, 3.0]]))
    array([[1., 2., 3., 4., 6., 9.]])
    """
    columns = [np.ones((len(z), 1)), z]
    if quadratic:
        first, second = np.triu_indices(z.shape[1])
        columns.append(z[:, first] * z[:, second])
    return np.concatenate(columns, axis=1)


def num_features(dimension: int) -> int:
    """Coefficients of a quadratic.

    Examples
    --------
    >>> num_features(20)
    231
    """
    return (dimension + 1) * (dimension + 2) // 2


def fit_surface(points: Floats, values: Floats, negligible: float = NEGLIGIBLE) -> Surface:
    """Fit the surface through `values` at `points`.

    Parameters
    ----------
    points : (n, d)
        Different from each other, more than there are features.
    values : (n,)
        Log densities, up to a constant.
    negligible : float
        Residuals of the quadratic with a smaller standard deviation are not worth a process.

    Examples
    --------
    >>> z = np.linspace(-3.0, 3.0, 25)[:, None]
    >>> surface = fit_surface(z, z[:, 0] - np.exp(z[:, 0]))
    >>> bool(abs(surface.mean(np.array([[0.4]]))[0] - (0.4 - np.exp(0.4))) < 1e-3)
    True
    """
    # Values of different shards differ by any constant: no digits are to be lost to it.
    level = float(values.max())
    values = values - level
    surface = _fitted(points, values, True, negligible)
    if np.linalg.eigvalsh(surface.curvature)[0] < LEAST_CURVATURE:
        # Generalised least squares may give the quadratic any shape that the process undoes again; plain ones
        # give the best quadratic. The rest of the surface is fitted to what it leaves.
        lifted = _raised(_fitted(points, values, True, np.inf).curvature)
        offset = 0.5 * np.sum((points @ lifted) * points, axis=1)
        surface = replace(_fitted(points, values + offset, False, negligible), curvature=lifted)
    return replace(surface, constant=surface.constant + level)


def _fitted(points: Floats, values: Floats, quadratic: bool, negligible: float) -> Surface:
    columns = features(points, quadratic)
    coefficients, dual, scale = _least_squares(None, columns, values)
    length, noise, inverse_factor = np.inf, 1.0, None
    if scale > negligible**2:
        length, noise = _likeliest(points, columns, values)
    if np.isfinite(length):
        factor = np.linalg.cholesky(_correlation(_squared_distances(points, points), length, noise))
        inverse_factor = np.linalg.inv(factor)
        coefficients, dual, scale = _least_squares(inverse_factor, columns, values)
    constant, slope, curvature = _unpacked(coefficients, points.shape[1], quadratic)
    return Surface(
        points=points,
        constant=constant,
        slope=slope,
        curvature=curvature,
        length=float(length),
        noise=float(noise),
        scale=scale,
        inverse_factor=inverse_factor,
        dual=dual,
        num_values=len(values),
        quadratic_features=quadratic,
    )


def _likeliest(points: Floats, columns: Floats, values: Floats) -> tuple[float, float]:
    """Length and share of noise of the largest restricted likelihood, or (inf, 1) where noise alone is likelier.

    The points come in an order in which every beginning is spread out, so that the first of them do.
    """
    from scipy.optimize import minimize

    d = points.shape[1]
    used = min(len(points), columns.shape[1] + POINTS_FOR_LENGTHS)
    points, columns, values = points[:used], columns[:used], values[:used]
    distances = _squared_distances(points, points)

    def loss(parameters: Floats) -> float:
        length, noise = _length_and_noise(parameters, d)
        return minus_twice_log_likelihood(distances, columns, values, length, noise)

    grid = [(a, b) for a in np.log([0.5, 1.0, 2.0, 4.0, 8.0]) for b in np.log([1e-9, 1e-6, 1e-3, 0.1])]
    best = min(grid, key=lambda parameters: loss(np.array(parameters)))
    found = minimize(
        loss,
        np.array(best),
        method="Nelder-Mead",
        options={"maxfev": 40, "initial_simplex": np.add(best, [[0.0, 0.0], [0.4, 0.0], [0.0, 1.5]])},
    )
    if not found.fun < minus_twice_log_likelihood(distances, columns, values, 1.0, 1.0) - LIKELIER:
        return np.inf, 1.0
    return _length_and_noise(found.x, d)


def _length_and_noise(parameters: Floats, dimension: int) -> tuple[float, float]:
    """From unbounded parameters; lengths in units of a typical distance from the centre."""
    length = float(np.exp(np.clip(parameters[0], np.log(0.1), np.log(50.0)))) * np.sqrt(dimension)
    return length, float(np.exp(np.clip(parameters[1], np.log(LEAST_NOISE), np.log(0.999))))


def minus_twice_log_likelihood(
    distances: Floats, columns: Floats, values: Floats, length: float, noise: float
) -> float:
    """The restricted likelihood of the module's docstring, up to a constant; infinite where K cannot be factored.

    Examples
    --------
    >>> z = np.linspace(-2.0, 2.0, 9)[:, None]
    >>> smooth, rough = np.sin(z[:, 0]), (-1.0) ** np.arange(9)
    >>> distances, columns = (z - z.T) ** 2, features(z)
    >>> short, long = (minus_twice_log_likelihood(distances, columns, smooth, r, 1e-6) for r in (0.1, 1.5))
    >>> long < short
    True
    """
    try:
        factor = np.linalg.cholesky(_correlation(distances, length, noise))
    except np.linalg.LinAlgError:
        return np.inf
    triangle = np.linalg.qr(np.linalg.inv(factor) @ np.column_stack([columns, values]), mode="r")
    # The last column's last entry is what the features leave of the values.
    diagonal = np.abs(np.diagonal(triangle))
    n, p = columns.shape
    free = n - p
    scale = diagonal[-1] ** 2 / free
    if not np.all(diagonal[:-1] > 0.0) or scale == 0.0:
        return np.inf
    log_determinant = 2.0 * np.sum(np.log(np.diagonal(factor)))
    return float(free * np.log(scale) + log_determinant + 2.0 * np.sum(np.log(diagonal[:-1])))


def _correlation(distances: Floats, length: float, noise: float) -> Floats:
    matrix = (1.0 - noise) * np.exp(-distances / (2.0 * length**2))
    matrix[np.diag_indices(len(matrix))] = 1.0
    return matrix


def _least_squares(
    inverse_factor: Floats | None, columns: Floats, values: Floats
) -> tuple[Floats, Floats, float]:
    """Generalised least squares: coefficients, duals K⁻¹ (l - H beta), and s²; K is I without a factor."""
    if inverse_factor is not None:
        columns, values = inverse_factor @ columns, inverse_factor @ values
    basis, triangle = np.linalg.qr(columns)
    along = basis.T @ values
    left = values - basis @ along
    n, p = basis.shape
    scale = float(np.sum(left * left)) / (n - p)
    dual = left if inverse_factor is None else inverse_factor.T @ left
    return np.linalg.solve(triangle, along), dual, scale


def _unpacked(coefficients: Floats, dimension: int, quadratic: bool) -> tuple[float, Floats, Floats]:
    """Constant, slope and curvature from coefficients in the order of `features`."""
    curvature = np.zeros((dimension, dimension))
    if quadratic:
        upper = np.triu_indices(dimension)
        curvature[upper] = -coefficients[1 + dimension :]
        curvature = curvature + curvature.T
    return float(coefficients[0]), coefficients[1 : 1 + dimension], curvature


def _raised(curvature: Floats) -> Floats:
    """The curvature with its eigenvalues raised to the least one."""
    values, vectors = np.linalg.eigh(curvature)
    return np.asarray((vectors * np.maximum(values, LEAST_CURVATURE)) @ vectors.T)


def _squared_distances(a: Floats, b: Floats) -> Floats:
    """(N, n) squared distances of rows; points near each other lose no digits that matter to a kernel."""
    squares = np.sum(a * a, axis=1)[:, None] + np.sum(b * b, axis=1)
    return np.maximum(squares - 2.0 * (a @ b.T), 0.0)
