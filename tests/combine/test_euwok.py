"""The EUWoK kernel: its sweep against brute force, its cost, and its constants."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import integrate, optimize
from scipy.stats import norm

from consilience.combine import euwok
from consilience.combine.euwok import DECAY, HALF_WINDOW, Euwok
from consilience.combine.gaussian_kernel import GaussianKernel

KERNELS = [Euwok(0.05), Euwok(0.8), GaussianKernel(0.1), GaussianKernel(1.5)]


def swept(kernel, points, draws, rows):
    parts = list(kernel.sums(points, draws, lambda start, stop: rows[:, start:stop]))
    assert [start for start, _ in parts] == list(np.cumsum([0] + [x.shape[1] for _, x in parts])[:-1])
    return np.concatenate([x for _, x in parts], axis=1)


def relative_error(found, exact, smallest=1e-200):
    seen = exact > smallest
    return float(np.abs(found[seen] / exact[seen] - 1.0).max(initial=0.0))


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize(("num_draws", "num_points"), [(3_000, 800), (6_000, 7), (15, 6_000), (1, 1)])
@pytest.mark.parametrize("degrees", [1, 30])
@pytest.mark.parametrize("block", [64, euwok.BLOCK])
def test_the_sweep_is_the_sum(kernel, num_draws, num_points, degrees, block, monkeypatch):
    monkeypatch.setattr(euwok, "BLOCK", block)
    rng = np.random.default_rng(num_draws + degrees)
    draws = np.sort(rng.standard_t(degrees, size=num_draws))
    points = np.sort(rng.standard_t(degrees, size=num_points) * 2.0)
    rows = np.stack([np.ones(num_draws), rng.exponential(size=num_draws), draws**2 + 1e-3])
    exact = rows @ kernel.matrix(points, draws).T
    # The Gaussian kernel is cut where it is 1e-17 of its peak.
    smallest = 1e-6 if isinstance(kernel, GaussianKernel) else 1e-200
    assert relative_error(swept(kernel, points, draws, rows), exact, smallest) < 1e-10


def test_rows_of_both_signs_are_exact_to_the_size_of_what_is_summed():
    rng = np.random.default_rng(3)
    draws, points = np.sort(rng.normal(size=9_000)), np.sort(rng.normal(size=1_000))
    rows, kernel = rng.normal(size=(4, 9_000)), Euwok(0.1)
    matrix = kernel.matrix(points, draws)
    error = np.abs(swept(kernel, points, draws, rows) - rows @ matrix.T)
    assert (error / (np.abs(rows) @ matrix.T)).max() < 1e-10


def test_ties_and_draws_on_the_window_s_edge():
    draws = np.repeat([0.0, 1.0, 2.0], 40)
    kernel = Euwok(1.0 / HALF_WINDOW)
    points = np.sort(np.concatenate([draws, draws + 1.0]))
    rows = np.ones((1, len(draws)))
    assert relative_error(swept(kernel, points, draws, rows), rows @ kernel.matrix(points, draws).T) < 1e-12


def test_a_sweep_with_the_thesis_misprint_is_rejected(monkeypatch):
    """Algorithm 3 multiplies the gap by lam where it divides."""

    def misprinted(self, first, second):
        return float(np.exp(-abs(self.points[second] - self.points[first]) * self.decay))

    monkeypatch.setattr(euwok, "BLOCK", 500)
    rng = np.random.default_rng(0)
    draws, points = np.sort(rng.normal(size=3_000)), np.sort(rng.normal(size=1_000))
    rows, kernel = np.ones((1, 3_000)), Euwok(0.1)
    exact = rows @ kernel.matrix(points, draws).T
    assert relative_error(swept(kernel, points, draws, rows), exact) < 1e-10
    monkeypatch.setattr(euwok._Sweep, "_decay_between", misprinted)
    assert relative_error(swept(kernel, points, draws, rows), exact) > 1e-3


@pytest.mark.parametrize("bandwidth", [0.01, 0.3, 20.0])
def test_the_cost_is_linear_in_draws_and_points(bandwidth):
    """Draws that are looked at, however wide the kernel: brute force looks at M N."""
    looked_at = []
    for size in (40_000, 80_000, 160_000):
        rng = np.random.default_rng(0)
        draws, points = np.sort(rng.normal(size=size)), np.sort(rng.normal(size=size))
        count = 0

        def rows(start, stop):
            nonlocal count
            count += stop - start
            return np.ones((1, stop - start))

        for _ in Euwok(bandwidth).sums(points, draws, rows):
            pass
        looked_at.append(count)
        assert count < 8 * (2 * size)
    assert looked_at[2] / looked_at[0] < 4.8


def test_blocks_hold_few_draws_and_points():
    rng = np.random.default_rng(0)
    longest = 0

    def rows(start, stop):
        nonlocal longest
        longest = max(longest, stop - start)
        return np.ones((1, stop - start))

    draws, points = np.sort(rng.normal(size=60_000)), np.sort(rng.normal(size=50))
    for _, found in Euwok(0.1).sums(points, draws, rows):
        assert found.shape[1] <= euwok.BLOCK
    assert longest <= euwok.BLOCK


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_moments_of_the_kernel(kernel):
    def density(x):
        return kernel.matrix(np.array([x]), np.zeros(1))[0, 0]

    edges = [0.0, HALF_WINDOW * kernel.bandwidth, 40.0 * kernel.bandwidth]

    def twice(f):
        return 2.0 * sum(integrate.quad(f, a, b, limit=200)[0] for a, b in itertools.pairwise(edges))

    assert twice(density) == pytest.approx(1.0, rel=1e-8)
    assert twice(lambda x: x**2 * density(x)) == pytest.approx(kernel.variance, rel=1e-6)
    assert twice(lambda x: density(x) ** 2) == pytest.approx(kernel.roughness, rel=1e-8)
    for alpha in (0.05, 0.3, 0.5, 0.9):
        reach = kernel.central(alpha)
        inside = sum(
            integrate.quad(density, a, b)[0]
            for a, b in [(0.0, min(edges[1], reach)), (edges[1], max(edges[1], reach))]
        )
        assert 2.0 * inside == pytest.approx(1.0 - alpha, rel=1e-6)


def divergence(logs):
    """KL(Gaussian || EUWoK) at unit bandwidth."""
    lam, eps = np.exp(logs)
    beyond = 2.0 * (norm.pdf(eps) - eps * norm.sf(eps))
    return np.log(2.0 * (lam + eps)) + beyond / lam - 0.5 * np.log(2.0 * np.pi * np.e)


def test_the_constants_minimise_the_divergence_and_the_thesis_constants_do_not():
    best = optimize.minimize(divergence, np.log([0.6, 0.8]), method="Nelder-Mead", options={"xatol": 1e-9})
    np.testing.assert_allclose(np.exp(best.x), [DECAY, HALF_WINDOW], rtol=1e-5)
    assert divergence(np.log([0.8362, 0.3111])) > 3.5 * best.fun


def test_gaussian_sums_in_two_dimensions():
    rng = np.random.default_rng(0)
    draws, points = rng.normal(size=(5_000, 2)), rng.normal(size=(900, 2))
    draws, points = draws[np.argsort(draws[:, 0])], points[np.argsort(points[:, 0])]
    kernel, rows = GaussianKernel(0.2, dimension=2), rng.exponential(size=(3, 5_000))
    exact = np.exp(-0.5 * ((points[:, None] - draws) ** 2).sum(axis=2) / 0.04) / (2 * np.pi * 0.04) @ rows.T
    np.testing.assert_allclose(swept(kernel, points, draws, rows), exact.T, rtol=1e-10)
