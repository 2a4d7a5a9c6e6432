"""What Monte Carlo noise does to the measures that have formulas: their law, and their standard errors.

With y the reference's draws in whitened coordinates, z the draws in the same, u the mean of z, M the
covariance of z minus I, n_a and n_r effective sizes, lambda = 1/n_a + 1/n_r:

- Mahalanobis D = |u|: D^2 is a sum of lambda_k chi^2_1, times (n_r - 1) / (n_r - d - 2) for the inverted
  covariance.
- covariance F^2 = |M|_F^2 is to first order a quadratic form in the error of a mean of matrices y y' - I:

      E F^2 = lambda (E|y|^4 - d),    Var F^2 = 2 lambda^2 E[((y'y*)^2 - |y|^2 - |y*|^2 + d)^2],

  y and y* independent. Its law between Gaussian samples is simulated, inverted covariance and all, and
  its two moments are multiplied by what the draws' own fourth moments make of these two formulas.
- standardised mean: normal errors with the reference's correlation, simulated.

Each limit is that of the gamma law with these two moments. Standard errors of D and F are those of their
influence functions (for D: t of a draw, -t - D t^2 / 2 of a reference draw, t = u'y / D).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LEVEL = 0.99
_SIMULATIONS = 2000


@dataclass(frozen=True)
class Noise:
    """What one measure gives between two exact samples: its mean, and what it exceeds once in a hundred."""

    floor: float
    limit: float


def gamma_limit(mean: float, variance: float) -> float:
    """The 99 % point of the gamma law with this mean and variance.

    Examples
    --------
    >>> round(gamma_limit(3.0, 6.0), 2)  # chi-square with 3 degrees of freedom
    11.34
    """
    from scipy.special import gammaincinv

    if variance <= 0:
        return mean
    return float(gammaincinv(mean**2 / variance, LEVEL) * variance / mean)


def of_root(mean: float, variance: float) -> Noise:
    """Noise of a measure whose square has this mean and variance."""
    from scipy.special import gammaln

    shape = mean**2 / variance
    root = np.exp(gammaln(shape + 0.5) - gammaln(shape)) * np.sqrt(variance / mean)
    return Noise(float(root), float(np.sqrt(gamma_limit(mean, variance))))


def of_values(values: np.ndarray) -> Noise:
    """Noise of a measure that was simulated."""
    mean = float(values.mean())
    return Noise(mean, gamma_limit(mean, float(values.var(ddof=1))))


def mahalanobis_noise(rates: np.ndarray, size_r: float) -> Noise:
    """D between exact samples; `rates` are 1/n_a + 1/n_r of every whitened coordinate.

    Examples
    --------
    >>> bool(np.isclose(mahalanobis_noise(np.full(4, 0.002), 1000).floor, np.sqrt(4 * 0.002), rtol=0.1))
    True
    """
    # At most a hundredfold, where there are too few draws to say.
    inflation = (size_r - 1) / max(size_r - len(rates) - 2, size_r / 100)
    return of_root(float(np.sum(rates)) * inflation, 2 * float(np.sum(np.square(rates))) * inflation**2)


def standardised_mean_noise(correlation: np.ndarray, rates: np.ndarray, rng: np.random.Generator) -> Noise:
    """Mean absolute standardised difference of means between exact samples."""
    values, vectors = np.linalg.eigh(correlation)
    normal = rng.normal(size=(_SIMULATIONS, len(rates))) * np.sqrt(np.maximum(values, 0.0)) @ vectors.T
    return of_values(np.abs(normal * np.sqrt(rates)).mean(axis=1))


def covariance_noise(y: np.ndarray, sizes: tuple[float, float], rng: np.random.Generator) -> Noise:
    """F / sqrt(d) between exact samples; `y` are equally weighted whitened draws of the reference."""
    number, d = y.shape
    squares = np.einsum("ij,ij->i", y, y)
    shift = int(rng.integers(1, number))
    products = np.einsum("ij,ij->i", y, np.roll(y, shift, axis=0))
    pairs = np.square(products**2 - squares - np.roll(squares, shift) + d)
    normal = _between_normal_samples(d, sizes, rng)
    mean = float(normal.mean()) * float(np.mean(squares**2) - d) / (d * (d + 1))
    variance = float(normal.var(ddof=1)) * float(np.mean(pairs)) / (2 * d * (d + 1))
    return of_root(mean / d, variance / d**2)


def _between_normal_samples(d: int, sizes: tuple[float, float], rng: np.random.Generator) -> np.ndarray:
    """Simulated F^2 between Gaussian samples: Wishart matrices by Bartlett's decomposition."""
    count = int(np.clip(2e8 // d**3, 20, 400))
    below = np.tril_indices(d, -1)
    out = np.empty(count)
    for k in range(count):
        roots = []
        for size in sizes:
            freedom = max(size, d + 3) - 1
            root = np.diag(np.sqrt(rng.chisquare(freedom - np.arange(d)) / freedom))
            root[below] = rng.normal(size=len(below[0])) / np.sqrt(freedom)
            roots.append(root)
        ratio = np.linalg.solve(roots[1], roots[0])
        out[k] = np.sum(np.square(ratio @ ratio.T - np.eye(d)))
    return out


def influence_errors(
    z: tuple[np.ndarray, np.ndarray], y: tuple[np.ndarray, np.ndarray], sizes: tuple[float, float]
) -> dict[str, float]:
    """Standard errors of D and F / sqrt(d); z and y are (whitened draws, weights)."""
    u = z[1] @ z[0]
    distance = float(np.linalg.norm(u))
    centred = z[0] - u
    excess = (centred * z[1][:, None]).T @ centred - np.eye(len(u))
    norm = float(np.linalg.norm(excess))
    direction, gap = u / distance, excess / norm
    along = y[0] @ direction
    errors = {
        "mahalanobis": (centred @ direction, along + 0.5 * distance * along**2),
        "covariance": (
            np.einsum("ij,jk,ik->i", centred, gap, centred, optimize=True),
            np.einsum("ij,jk,ik->i", y[0], gap @ (excess + np.eye(len(u))), y[0], optimize=True),
        ),
    }
    scale = {"mahalanobis": 1.0, "covariance": 1 / np.sqrt(len(u))}
    return {
        name: scale[name]
        * float(np.sqrt(_variance(of_a, z[1]) / sizes[0] + _variance(of_r, y[1]) / sizes[1]))
        for name, (of_a, of_r) in errors.items()
    }


def _variance(values: np.ndarray, weights: np.ndarray) -> float:
    mean = weights @ values
    return float(weights @ np.square(values - mean))
