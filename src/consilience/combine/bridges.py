"""Brownian bridges in layers: boxes that a path never leaves, and its points at given times, without discretising.

A standard bridge from x to y over [0, T] stays, in one coordinate, within [low, high], w = high - low, with probability

    gamma = sum over n of exp(-2 n w (n w + y - x) / T) - exp(-2 (n w + x - low) (n w + y - low) / T),

by reflection. Layer l is the event that it stays within l-th widths a_l around [min(x, y), max(x, y)] and not within
a_{l-1}; it is drawn by inverting gamma. Given its layer, the path's points at given times are drawn by proposing them
from the free bridge and accepting with the probability that the pieces between them stay in the layer. That takes
1 / P(layer) proposals, and layer l is met with probability P(layer): as many proposals as there are layers, on
average.

The series is summed to the precision of float64, not bounded from both sides term by term; beyond the last layer lies
a probability under 1e-16. The last layer but one leaves 1e-5, so no layer takes more than about 1e5 proposals.

Reference. Beskos, Papaspiliopoulos and Roberts (2008), A factorisation of diffusion measure and finite sample path
constructions, Methodology and Computing in Applied Probability 10, 85-104 (layers); Pollock, Johansen and Roberts
(2016), On the exact and epsilon-strong simulation of (jump) diffusions, Bernoulli 22(2), theorem 3 (gamma).
"""

from __future__ import annotations

import numpy as np

from .base import Floats

# Widths of the layers in units of sqrt(T).
WIDTHS = np.array([0.6, 1.2, 1.8, 2.5, 4.4])
# No layer is under 1.2 sqrt(T) wide, and a piece of the path lasts no longer than T: what is left out is under 1e-19.
TERMS = np.arange(-5, 5)
# Proposals for few paths are made in batches of this many.
BATCH = 4_096


def stay_probability(x: Floats, y: Floats, time: Floats | float, low: Floats, high: Floats) -> Floats:
    """Probability that bridges from x to y that last `time` stay between low and high, element by element.

    Examples
    --------
    >>> x = np.zeros(1)
    >>> stay_probability(x, x, 1.0, x - 1.0, x + 50.0).round(4)  # 1 - exp(-2)
    array([0.8647])
    """
    x, y, time, low, high = np.broadcast_arrays(x, y, time, low, high)
    inside = (x > low) & (x < high) & (y > low) & (y < high)
    lasting = inside & (time > 0.0)
    found = inside.astype(np.float64)
    a, b, w, t = ((v[lasting])[..., None] for v in (x - low, y - low, high - low, time))
    n = TERMS * w
    series = np.exp(-np.minimum(2.0 * n * (n + b - a) / t, 700.0))
    series -= np.exp(-np.minimum(2.0 * (n + a) * (n + b) / t, 700.0))
    found[lasting] = np.clip(series.sum(axis=-1), 0.0, 1.0)
    return found


def draw_layers(x: Floats, y: Floats, time: float, generator: np.random.Generator) -> np.ndarray:
    """The layer of every bridge, from 0, in every coordinate.

    Examples
    --------
    >>> draw_layers(np.zeros((3, 1)), np.ones((3, 1)), 1.0, np.random.default_rng(0)).shape
    (3, 1)
    """
    uniform = generator.random(x.shape)
    layers = np.zeros(x.shape, dtype=np.int64)
    for layer in range(len(WIDTHS) - 1):
        low, high = layer_box(x, y, time, np.asarray(layer))
        layers += uniform > stay_probability(x, y, time, low, high)
    return layers


def layer_box(x: Floats, y: Floats, time: float, layers: np.ndarray) -> tuple[Floats, Floats]:
    """The box of a layer; layer -1 is the one that no path stays in.

    Examples
    --------
    >>> low, high = layer_box(np.array([0.0]), np.array([1.0]), 1.0, np.array([0]))
    >>> float(low[0]), float(high[0])
    (-0.6, 1.6)
    """
    width = np.append(WIDTHS, 0.0)[layers] * np.sqrt(time)
    return np.minimum(x, y) - width, np.maximum(x, y) + width


def draw_points(
    x: Floats, y: Floats, time: float, layers: np.ndarray, times: Floats, generator: np.random.Generator
) -> Floats:
    """Points of n bridges in d coordinates at their (n, K) times in increasing order, given the layers: (n, K, d).

    Times of `time` itself fill up the rows of bridges that need fewer points.

    Examples
    --------
    >>> x, layers, times = np.zeros((2, 1)), np.zeros((2, 1), dtype=int), np.full((2, 3), 0.5)
    >>> draw_points(x, x, 1.0, layers, times, np.random.default_rng(0)).shape
    (2, 3, 1)
    """
    (n, d), number = x.shape, times.shape[1]
    start, end, layer = x.ravel(), y.ravel(), layers.ravel()
    when = np.repeat(times, d, axis=0)
    found = np.empty((n * d, number))
    pending = np.arange(n * d)
    while pending.size:
        tries = np.repeat(pending, max(1, BATCH // pending.size))
        points = _free_points(start[tries], end[tries], time, when[tries], generator)
        accepted = _layer_probability(start[tries], end[tries], time, layer[tries], when[tries], points)
        good = np.flatnonzero(generator.random(tries.size) < accepted)
        # Of several good proposals for one path, the first.
        done, first = np.unique(tries[good], return_index=True)
        found[done] = points[good[first]]
        pending = np.setdiff1d(pending, done, assume_unique=True)
    return np.swapaxes(found.reshape(n, d, number), 1, 2)


def _free_points(x: Floats, y: Floats, time: float, times: Floats, generator: np.random.Generator) -> Floats:
    """Points of one-dimensional bridges, one after the other."""
    points = np.empty(times.shape)
    place, before = x, np.zeros(len(x))
    for k in range(times.shape[1]):
        left = time - before
        step = np.divide(times[:, k] - before, left, out=np.ones(len(x)), where=left > 0.0)
        deviation = np.sqrt(np.maximum(step * (time - times[:, k]), 0.0))
        moved = place + (y - place) * step + deviation * generator.standard_normal(len(x))
        place = np.where(times[:, k] < time, moved, y)
        points[:, k], before = place, times[:, k]
    return points


def _layer_probability(
    x: Floats, y: Floats, time: float, layers: np.ndarray, times: Floats, points: Floats
) -> Floats:
    """Probability that the pieces between the points stay in the box of the layer, and not in the one within."""
    stops = np.column_stack([x, points, y])
    lasting = np.diff(times, axis=1, prepend=0.0, append=time)
    outer, inner = np.ones(len(x)), np.ones(len(x))
    for product, box in ((outer, layer_box(x, y, time, layers)), (inner, layer_box(x, y, time, layers - 1))):
        low, high = box
        for k in range(lasting.shape[1]):
            product *= stay_probability(stops[:, k], stops[:, k + 1], lasting[:, k], low, high)
    return outer - inner
