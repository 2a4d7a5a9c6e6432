"""Draws from the product of several laws that are known by draws, by the Weierstrass transform and rejection.

Every law f_b is replaced by its smoothed version, the mixture of N(s_bj, H_b) over its draws x_bj, with

    s_bj = m_b + sqrt(1 - c²) (x_bj - m_b),   H_b = c² V_b,   c² = h² / (1 + h²).

Multiplied out, the product is a mixture over tuples with one draw of each law. The tuple (s_1, ..., s_m) weighs

    exp(-q / 2),   q = sum (s_b - s)' H_b⁻¹ (s_b - s),   s = H sum H_b⁻¹ s_b,   H = (sum H_b⁻¹)⁻¹,

and contributes N(s, H). So tuples of draws picked at random are accepted with that probability, relative to the
largest that is met, and each accepted one gives a draw from N(s, H).

With P_b = V_b⁻¹, P = sum P_b, R R' = P⁻¹, m* = P⁻¹ sum P_b m_b, and e_b = x_b - m_b, v_b = R' P_b e_b for short,

    log weight = -(E / 2 + sqrt(1 + h²) L) / h²,
    E = sum e_b' P_b e_b - |sum v_b|²,   L = sum (m_b - m*)' P_b e_b,
    draw = m* + R (sqrt(1 - c²) sum v_b + c z),   z ~ N(0, I),

so that tuples are weighed, for any h, without forming them.

Moving the draws towards their mean before smoothing (West, 1993) keeps the mean and covariance of every f_b, where
plain smoothing, as published, inflates the covariance by 1 + h², again at every level of a tree. It is the
Ornstein-Uhlenbeck semigroup: what a law has of skewness and excess kurtosis shrinks by (1 - c²)^{3/2} and (1 - c²)²,
a Gaussian stays what it is. So the product is exact for Gaussian f_b and every h, and as h grows it tends to the
product of the Gaussians with the laws' moments.

Bandwidth. Two demands, of which the larger h is taken.

1. A share `acceptance` of tuples is accepted.
2. Bias and noise of the final product are in balance. With u its width over that of a law, k the product of all
   laws over this one, and kappa = sqrt(1 - c²), its mean is off by about k^{1/2} (1 - kappa³) S / 2 deviations, with
   S = |sum mean(v_b e_b' P_b e_b)| the skewness; its variance by (1 - kappa⁴) K / 2, with K the mean excess kurtosis;
   and the noise of n draws adds 2^{-1 - d/2} / (n max(h, u)^{d + 2}) to the squared error, that of the gradient of an
   estimated log density, which the product's own width smooths where kernels do not. The h up to 3 is taken for which
   the sum of squares is least: 3 where laws cannot be told from Gaussian, and little where they can.

The z are made to have mean 0, covariance 1 and no correlation with sum v in the sample too, so that they add nothing
to the noise of the product's mean and covariance.

References. Wang and Dunson (2013), arXiv:1312.4605, the rejection sampler; West (1993), Approximating posterior
distributions by mixtures, JRSS B 55; Caffo, Booth and Davis (2002), Empirical supremum rejection sampling,
Biometrika 89, for the largest weight that is met.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .base import Floats

# Tuples on which the bandwidth rests, and members of tuples that are weighed at a time.
PILOT = 2_048
CHUNK = 32_768
BISECTIONS = 30
# The bandwidths of which the one with the least error is taken; with the largest, kernels hold 0.9 of the variance.
BANDWIDTHS = np.geomspace(0.02, 3.0, 50)
# Rows of a law that are standardised at a time.
ROWS = 8_192


@dataclass(frozen=True, eq=False)
class Law:
    """A law known by draws."""

    draws: Floats  # (n, d)
    mean: Floats  # (d,)
    precision: Floats  # (d, d), corrected for the noise of an estimated covariance
    factor: float  # the correction: precision = factor / covariance
    autocorrelation: float  # draws per independent draw
    mean_error: Floats  # (d, d) error of the law's mean beyond that of its draws


@dataclass(frozen=True, eq=False)
class Product:
    """Draws from a product of laws."""

    draws: Floats
    law_error: Floats  # (d, d) Monte Carlo covariance of the mean of what was drawn from
    draw_error: Floats  # (d, d) what drawing from it adds to that of the draws' mean
    bandwidth: float  # h
    needed: float  # the h for which enough tuples are accepted


def multiply(
    laws: Sequence[Law],
    total: int,
    *,
    acceptance: float,
    resample: bool,
    window: float,
    generator: np.random.Generator,
) -> Product:
    """Make `total` draws from the product of laws.

    Parameters
    ----------
    acceptance : float
        Share of tuples that is accepted, at least.
    window : float
        Width of the final product over that of a law, to which these laws contribute.
    resample : bool
        Resample tuples by their weights, a chunk at a time, instead of accepting and rejecting.

    Examples
    --------
    >>> x, y = np.random.default_rng(0).normal([[[0.0]], [[1.0]]], size=(2, 4000, 1))
    >>> laws = [Law(z, z.mean(axis=0), np.eye(1) / z.var(), 1.0, 1.0, np.zeros((1, 1))) for z in (x, y)]
    >>> product = multiply(laws, 4000, acceptance=0.1, resample=False, window=0.7,
    ...                    generator=np.random.default_rng(0))
    >>> round(float(product.draws.mean()), 1), round(float(product.draws.var()), 1)
    (0.5, 0.5)
    """
    tuples = _Tuples(laws)
    pilot = tuples.pick(PILOT, generator)
    needed = _bandwidth(*tuples.forms(pilot), acceptance, resample)
    h = max(needed, tuples.balanced_bandwidth(window))
    # Acceptance grows with h but for noise in the largest weight: make sure that drawing comes to an end.
    while (accepted := _share(_log_weights(*tuples.forms(pilot), h), resample)) < 0.5 * acceptance:
        h *= 1.25
    largest = float(_log_weights(*tuples.forms(pilot), h).max())
    chosen = np.empty((len(laws), total), dtype=np.int32)
    done = 0
    while done < total:
        wanted = min(max(CHUNK // len(laws), PILOT // 2), int(1.2 * (total - done) / accepted) + 100)
        picked = tuples.pick(wanted, generator)
        log_weights = _log_weights(*tuples.forms(picked), h)
        if resample:
            kept = _resampled(log_weights, max(1, int(wanted * accepted)), generator)
        else:
            uniform = generator.random(wanted)
            kept = np.flatnonzero(np.log(uniform, out=uniform) < log_weights - largest)
        kept = kept[: total - done]
        chosen[:, done : done + len(kept)] = picked[:, kept]
        done += len(kept)
    draws, law_error, draw_error = tuples.product(chosen, h, window, generator)
    return Product(draws, law_error, draw_error, h, needed)


def _log_weights(own: Floats, pull: Floats, h: float) -> Floats:
    return (own * -0.5 - pull * np.sqrt(1.0 + h * h)) / (h * h)


def _bandwidth(own: Floats, pull: Floats, acceptance: float, resample: bool) -> float:
    """Find the h with which the wanted share of tuples is accepted, or counts, by bisection of log h."""
    low, high = np.log(1e-3), np.log(1e5)
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        share = _share(_log_weights(own, pull, float(np.exp(middle))), resample)
        low, high = (low, middle) if share > acceptance else (middle, high)
    return float(np.exp(high))


def _share(log_weights: Floats, resample: bool) -> float:
    """Share of tuples that is accepted, or Kish's effective share of them."""
    weights = np.exp(log_weights - log_weights.max())
    share = float(weights.mean())
    return share**2 / float(np.mean(weights**2)) if resample else share


def _resampled(log_weights: Floats, number: int, generator: np.random.Generator) -> np.ndarray:
    """Systematic resampling."""
    cumulative = np.cumsum(np.exp(log_weights - log_weights.max()))
    points = (np.arange(number) + generator.random()) * (cumulative[-1] / number)
    return np.minimum(np.searchsorted(cumulative, points, side="right"), len(cumulative) - 1)


class _Tuples:
    """Draws of all laws in the units of the product, ready to be put together."""

    def __init__(self, laws: Sequence[Law]) -> None:
        self._laws = laws
        precision = np.sum([law.precision for law in laws], axis=0)
        # In units of the product's deviations: parameters of very different scales lose no digits.
        scale = 1.0 / np.sqrt(np.diagonal(precision))
        covariance = np.linalg.inv(precision * np.outer(scale, scale))
        self._root = scale[:, None] * np.linalg.cholesky(covariance)
        middle = np.mean([law.mean for law in laws], axis=0)
        moved = sum(law.precision @ (law.mean - middle) for law in laws)
        self._centre = middle + self._root @ (self._root.T @ moved)
        self._inner: list[Floats] = []  # v_b (n_b, d)
        self._own: list[Floats] = []  # e' P_b e (n_b,)
        self._pull: list[Floats] = []  # (m_b - m*)' P_b e (n_b,)
        self._skew = np.zeros(len(scale))
        self._skew_noise, self._kurtosis, self._kurtosis_noise = 0.0, 0.0, 0.0
        for law in laws:
            n, d = law.draws.shape
            inner, own, pull = np.empty((n, d)), np.empty(n), np.empty(n)
            to_inner = law.precision @ self._root
            to_pull = law.precision @ (law.mean - self._centre)
            for start in range(0, n, ROWS):
                part = slice(start, start + ROWS)
                centred = (law.draws[part] - law.mean) / np.sqrt(law.factor)
                np.matmul(centred, to_inner, out=inner[part])
                np.matmul(centred, to_pull, out=pull[part])
                own[part] = np.einsum("ni,ni->n", centred @ law.precision, centred)
            self._measure(law, inner, own)
            self._inner.append(inner)
            self._own.append(own)
            self._pull.append(pull)

    def _measure(self, law: Law, inner: Floats, own: Floats) -> None:
        """Add up how far laws are from Gaussian, and what noise alone would show."""
        n, d = inner.shape
        independent = n / law.autocorrelation
        # Less what it is for a Gaussian: in the mean this is nothing, in the noise most.
        excess = own - (d + 2)
        skew = excess @ inner / n
        self._skew += skew
        spread = np.einsum("n,ni,ni->", excess**2, inner, inner) / n - skew @ skew
        self._skew_noise += spread / independent
        scale = 3.0 / (d * (d + 2) * len(self._laws))
        self._kurtosis += scale * (float(own @ own) / n - d * (d + 2))
        self._kurtosis_noise += scale**2 * 8.0 * d * (d + 2) * (d + 3) / independent

    def balanced_bandwidth(self, window: float) -> float:
        """The h with the least error of the final product, by the module's second demand."""
        d = len(self._skew)
        number = min(len(law.draws) / law.autocorrelation for law in self._laws)
        skewness = max(float(self._skew @ self._skew) - self._skew_noise, 0.0) / (window**2 * len(self._laws))
        kurtosis = max(self._kurtosis**2 - self._kurtosis_noise, 0.0)
        h = BANDWIDTHS
        kept = 1.0 / np.sqrt(1.0 + h * h)
        bias = 0.25 * skewness * (1.0 - kept**3) ** 2 + 0.25 * kurtosis * (1.0 - kept**4) ** 2
        noise = 0.5 ** (1.0 + d / 2.0) / (number * np.maximum(h, window) ** (d + 2))
        return float(h[np.argmin(bias + noise)])

    def pick(self, number: int, generator: np.random.Generator) -> np.ndarray:
        """Indices (m, number) of draws, at random."""
        sizes = [len(law.draws) for law in self._laws]
        return np.stack([generator.integers(n, size=number, dtype=np.int32) for n in sizes])

    def forms(self, picked: np.ndarray) -> tuple[Floats, Floats]:
        """E and L of the picked tuples."""
        own, pull = np.zeros(picked.shape[1]), np.zeros(picked.shape[1])
        for squares, pulls, index in zip(self._own, self._pull, picked, strict=True):
            own += squares[index]
            pull += pulls[index]
        together = self._together(picked)
        own -= np.einsum("ni,ni->n", together, together)
        return own, pull

    def _together(self, picked: np.ndarray) -> Floats:
        total = self._inner[0][picked[0]]
        for inner, index in zip(self._inner[1:], picked[1:], strict=True):
            total += inner[index]
        return total

    def product(
        self, chosen: np.ndarray, h: float, window: float, generator: np.random.Generator
    ) -> tuple[Floats, Floats, Floats]:
        """One draw for every chosen tuple, and the error of their mean. Uses up the standardised draws.

        A draw x of law b moves the mean through the tuples that it is in, and through m_b, which carries a share
        1 - sqrt(1 - c²) of every draw of its law. Summed over the tuples of a draw, the noise of tuples is in the
        sum of squares once for every law, and taken out again. What is found so is what this product's width smooths;
        the final product is narrower and smooths less of the laws' noise, where kernels do not smooth it anyway.
        """
        kept = 1.0 / np.sqrt(1.0 + h * h)
        inner = self._together(chosen)
        inner *= kept
        number, d = inner.shape
        middle = inner.mean(axis=0)
        inner -= middle
        draws = _standard_normal(inner, generator)
        draws *= h * kept
        draws += inner
        draws += middle
        draws = draws @ self._root.T
        draws += self._centre
        inner /= number
        noise = inner.T @ inner
        law_error = np.zeros((d, d))
        carried = np.zeros((d, d))
        for law, moves, index in zip(self._laws, self._inner, chosen, strict=True):
            moves *= (1.0 - kept) * np.sqrt(law.factor) / len(moves)
            np.add.at(moves, index, inner)
            law_error += law.autocorrelation * (moves.T @ moves - noise)
            share = self._root @ (self._root.T @ law.precision)
            carried += share @ law.mean_error @ share.T
        values, vectors = np.linalg.eigh(0.5 * (law_error + law_error.T))
        law_error = (vectors * np.maximum(values, 0.0)) @ vectors.T
        law_error *= (_smoothed(len(self._laws) ** -0.5, h) / _smoothed(window, h)) ** (0.5 * d + 1.0)
        root = self._root
        return draws, root @ law_error @ root.T + carried, root @ noise @ root.T


def _smoothed(window: float, h: float) -> float:
    """How much of a law's noise a product `window` times as wide smooths: its mean's error goes with a power of this.

    For Gaussians, n draws of one law, known otherwise exactly, move the mean of the product by a squared error in
    proportion to (window² (2 - window²))^{-1 - d/2}.
    """
    wide = min(max(window, h), 1.0) ** 2
    return wide * (2.0 - wide)


def _standard_normal(other: Floats, generator: np.random.Generator) -> Floats:
    """Standard normal numbers with these very moments, and uncorrelated with the columns of `other` (centred)."""
    z = generator.standard_normal(other.shape)
    z -= z.mean(axis=0)
    z -= other @ (np.linalg.pinv(other.T @ other, hermitian=True) @ (other.T @ z))
    return np.asarray(z @ np.linalg.inv(np.linalg.cholesky(z.T @ z / len(z))).T)
