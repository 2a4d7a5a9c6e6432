"""Bridges in layers, against the law of a bridge's largest modulus (Kolmogorov's) and of its points."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import kolmogorov

from consilience.combine import bridges
from consilience.combine.bridges import WIDTHS, draw_layers, draw_points, layer_box, stay_probability

Z_LIMIT = 4.5


@pytest.mark.parametrize("time", [1.0, 0.04])
def test_probability_to_stay_is_kolmogorovs(time):
    width = np.linspace(0.6, 4.4, 50) * np.sqrt(time)
    zero = np.zeros(50)
    exact = 1.0 - kolmogorov(width / np.sqrt(time))
    np.testing.assert_allclose(
        stay_probability(zero, zero, time, -width, width), exact, rtol=1e-12, atol=1e-14
    )


def test_probability_to_stay_follows_from_that_of_two_pieces():
    # Chapman and Kolmogorov: the average over the middle point of the product of both halves.
    x, y, low, high = 0.3, -0.5, -1.1, 1.0
    middle = np.linspace(low, high, 20_001)[1:-1]
    density = np.exp(-0.5 * (middle - 0.5 * (x + y)) ** 2 / 0.25) / np.sqrt(2 * np.pi * 0.25)
    halves = [stay_probability(np.full_like(middle, end), middle, 0.5, low, high) for end in (x, y)]
    expected = np.sum(density * halves[0] * halves[1]) * (middle[1] - middle[0])
    one = np.ones(1)
    np.testing.assert_allclose(stay_probability(x * one, y * one, 1.0, low, high), expected, rtol=1e-6)


def test_outside_and_pieces_of_no_length():
    one = np.ones(1)
    assert stay_probability(2 * one, 0 * one, 1.0, -one, one)[0] == 0.0
    assert stay_probability(0 * one, 0 * one, 0.0, -one, one)[0] == 1.0
    assert stay_probability(one, 0 * one, 1.0, -one, one)[0] == 0.0


def test_layers_come_as_often_as_they_should():
    number = 200_000
    layers = draw_layers(np.zeros((number, 1)), np.zeros((number, 1)), 1.0, np.random.default_rng(0))
    within = 1.0 - kolmogorov(WIDTHS)
    for layer in range(3):
        share = np.mean(layers <= layer)
        assert abs(share - within[layer]) < Z_LIMIT * np.sqrt(within[layer] * (1 - within[layer]) / number)


def middle_z(number: int = 60_000) -> float:
    """|z| of mean, variance and fourth moment of points at two times, layers drawn first."""
    rng = np.random.default_rng(1)
    x, y, time = np.full((number, 2), [0.5, -1.0]), np.full((number, 2), [-0.2, 0.3]), 2.0
    layers = draw_layers(x, y, time, rng)
    times = np.tile([0.4, 1.0, time], (number, 1))
    points = draw_points(x, y, time, layers, times, rng)
    low, high = layer_box(x, y, time, layers)
    assert np.all((points >= low[:, None]) & (points <= high[:, None]))
    np.testing.assert_array_equal(points[:, 2], y)
    worst = 0.0
    for k, when in enumerate((0.4, 1.0)):
        deviation = np.sqrt(when * (time - when) / time)
        z = (points[:, k] - x - (y - x) * when / time) / deviation
        worst = max(worst, *(np.abs(z.mean(axis=0)) * np.sqrt(number)))
        worst = max(worst, *(np.abs((z**2).mean(axis=0) - 1.0) * np.sqrt(number / 2)))
        worst = max(worst, *(np.abs((z**4).mean(axis=0) - 3.0) * np.sqrt(number / 96)))
    return float(worst)


def test_points_given_layers_are_those_of_a_bridge():
    assert middle_z() < Z_LIMIT


def test_points_that_ignore_the_inner_box_are_rejected(monkeypatch):
    right = bridges.layer_box
    calls = []

    def without_inner(x, y, time, layers):
        calls.append(1)
        low, high = right(x, y, time, layers)
        # Every second call is for the inner box: one that nothing stays in.
        return (low, high) if len(calls) % 2 else (high, low)

    def wrong(x, y, time, layers, times, points):
        monkeypatch.setattr(bridges, "layer_box", without_inner)
        found = probability(x, y, time, layers, times, points)
        monkeypatch.setattr(bridges, "layer_box", right)
        return found

    probability = bridges._layer_probability
    monkeypatch.setattr(bridges, "_layer_probability", wrong)
    assert middle_z() > 2 * Z_LIMIT
