"""WASP against enumeration, `pie`, `gaussian-barycenter` and barycenters known in closed form."""

from __future__ import annotations

import dataclasses
import itertools
import sys
import tracemalloc

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from consilience.combine import combine, get_combiner
from consilience.combine.moments import shard_moments
from consilience.combine.pie import Pie
from consilience.combine.transport import (
    exact_barycenter,
    free_support_barycenter,
    squared_distances,
)
from consilience.combine.transport_problem import TransportProblem
from consilience.combine.wasp import Wasp
from consilience.draws import Subposteriors
from consilience.errors import InputError
from consilience.numerics import symmetric_root, weighted_covariance

Z_LIMIT = 4.5
WEIGHTS = np.array([0.2, 0.5, 0.3])


def objective(
    points: np.ndarray, masses: np.ndarray, samples: list[np.ndarray], weights: np.ndarray
) -> float:
    """sum w_b W_2²(points, sample b)."""
    import ot

    return sum(
        w * ot.emd2(masses, np.full(len(x), 1 / len(x)), squared_distances(points, x))
        for w, x in zip(weights, samples, strict=True)
    )


def test_exact_for_two_shards_is_the_assignment():
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(2, 40, 3))
    points, masses = exact_barycenter([first, second], np.array([0.3, 0.7]))
    rows, columns = linear_sum_assignment(squared_distances(first, second))
    expected = 0.3 * first[rows] + 0.7 * second[columns]
    np.testing.assert_allclose(np.sort(points, axis=0), np.sort(expected, axis=0))
    np.testing.assert_allclose(masses, 1 / 40)


def test_exact_for_three_shards_is_no_worse_than_any_pairing():
    rng = np.random.default_rng(1)
    for _ in range(5):
        samples = list(rng.normal(size=(3, 4, 2)))
        points, masses = exact_barycenter(samples, WEIGHTS)
        value = objective(points, masses, samples, WEIGHTS)
        pairings = []
        for second, third in itertools.product(itertools.permutations(range(4)), repeat=2):
            paired = [samples[0], samples[1][list(second)], samples[2][list(third)]]
            average = sum(w * x for w, x in zip(WEIGHTS, paired, strict=True))
            spread = [w * np.square(x - average).sum(axis=1) for w, x in zip(WEIGHTS, paired, strict=True)]
            pairings.append(float(np.sum(spread)) / 4)
        assert value <= min(pairings) + 1e-9
        # It is a barycenter and not only a bound: pairings come close, most by chance are far.
        assert value > 0.8 * min(pairings)
        assert value < 0.7 * np.mean(pairings)


def test_free_support_is_nearly_as_good_as_the_linear_programme():
    rng = np.random.default_rng(2)
    samples = [rng.normal(size=(30, 2)) @ np.diag([1.0, s]) + s for s in (0.5, 1.0, 2.0)]
    points, masses = exact_barycenter(samples, WEIGHTS)
    best = objective(points, masses, samples, WEIGHTS)
    points, rested = free_support_barycenter(samples, WEIGHTS, samples[1])
    value = objective(points, np.full(30, 1 / 30), samples, WEIGHTS)
    assert rested
    assert best - 1e-9 <= value < 1.02 * best
    # Averages of draws as they come are nothing of the kind.
    average = sum(w * x for w, x in zip(WEIGHTS, samples, strict=True))
    assert objective(average, np.full(30, 1 / 30), samples, WEIGHTS) > 1.2 * best


@pytest.mark.parametrize("sizes", [(30, 30, 30), (20, 30, 12)])
def test_in_one_dimension_all_ways_agree_with_pie(sizes):
    rng = np.random.default_rng(3)
    samples = [rng.exponential(size=(n, 1)) * s + s for n, s in zip(sizes, (1.0, 2.0, 0.5), strict=True)]
    shards = Subposteriors.of(samples, kind="inflated", weights=WEIGHTS)
    pie = np.sort(Pie().combine(shards).array[:, 0])
    rule = Wasp().combine(shards)
    np.testing.assert_allclose(np.sort(rule.array[:, 0]), pie, rtol=1e-12)
    assert "by sorting" in rule.notes[0]
    # The same through the linear programme and through free support, which know nothing of dimensions.
    points, masses = exact_barycenter(samples, WEIGHTS)
    order = np.argsort(points[:, 0])
    upper = np.cumsum(masses[order])
    levels = (np.arange(3_000) + 0.5) / 3_000
    quantile = points[order, 0][np.minimum(np.searchsorted(upper, levels), len(upper) - 1)]
    np.testing.assert_allclose(quantile.reshape(30, -1).mean(axis=1), pie, atol=1e-6)
    points, _ = free_support_barycenter(samples, WEIGHTS, np.sort(samples[1], axis=0))
    np.testing.assert_allclose(np.sort(points[:, 0]), pie, atol=1e-9)


def gaussian_shards(seed: int, d: int, sizes: tuple[int, ...]) -> Subposteriors:
    """Very different covariances, without common axes, of one shared scale."""
    known = np.random.default_rng(8)
    factors = np.eye(d) + 0.8 * known.normal(size=(3, d, d)) / np.sqrt(d)
    means = known.normal(size=(3, d))
    rng = np.random.default_rng([seed, 5])
    draws = [rng.normal(size=(n, d)) @ f.T + m for n, f, m in zip(sizes, factors, means, strict=True)]
    return Subposteriors.of(draws, kind="inflated", weights=WEIGHTS)


def gaussian_answer(shards: Subposteriors, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """What `gaussian-barycenter` says of these draws, in units of their average covariance for "pooled"."""
    root = np.eye(shards.dimension)
    if metric == "pooled":
        covariances = [np.cov(x, rowvar=False) for x in shards.draws]
        root, _ = symmetric_root(np.tensordot(shards.weights, covariances, 1))
    whitened = dataclasses.replace(shards, draws=tuple(x @ np.linalg.inv(root) for x in shards.draws))
    array = get_combiner("gaussian-barycenter").combine(whitened).array @ root
    # Its draws are the shards' own, so their mixture has between shards no more than rounding.
    return shards.weights @ [x.mean(axis=0) for x in shards.draws], np.cov(array, rowvar=False)


def disagreement(rule: Wasp, d: int, sizes: tuple[int, ...], replicates: int = 12) -> float:
    """Largest |z| of the differences of mean and covariance from the Gaussian barycenter of the same draws."""
    differences = []
    for seed in range(replicates):
        shards = gaussian_shards(seed, d, sizes)
        found = rule.combine(shards, seed=seed)
        mean, covariance = gaussian_answer(shards, rule.metric)
        np.testing.assert_allclose(np.average(found.array, axis=0, weights=_masses(found)), mean, atol=1e-9)
        apart = weighted_covariance(found.array, found.log_weights) / np.sqrt(
            np.outer(np.diagonal(covariance), np.diagonal(covariance))
        ) - covariance / np.sqrt(np.outer(np.diagonal(covariance), np.diagonal(covariance)))
        differences.append(apart[np.triu_indices(d)])
    table = np.array(differences)
    # Couplings are not known to better than this share of the variance.
    slack = 0.01
    error = np.sqrt(table.var(axis=0, ddof=1) / replicates + slack**2 / Z_LIMIT**2)
    return float(np.abs(table.mean(axis=0) / error).max())


def _masses(combined) -> np.ndarray | None:
    return None if combined.log_weights is None else np.exp(combined.log_weights)


@pytest.mark.parametrize("metric", ["pooled", "euclidean"])
@pytest.mark.parametrize(("d", "sizes"), [(2, (300, 300, 300)), (2, (200, 256, 120)), (5, (256, 256, 256))])
def test_on_gaussians_it_agrees_with_the_gaussian_barycenter(metric, d, sizes):
    assert disagreement(Wasp(metric=metric), d, sizes) < Z_LIMIT


def test_the_linear_programme_agrees_with_the_gaussian_barycenter_too():
    assert disagreement(Wasp(), 2, (24, 24, 24), replicates=8) < Z_LIMIT


def test_the_gaussian_oracle_rejects():
    assert disagreement(Wasp(restore_spread=False), 5, (256, 256, 256)) > 2 * Z_LIMIT
    assert disagreement(AverageOfPairs(), 5, (256, 256, 256)) > 2 * Z_LIMIT
    assert disagreement(OtherMetric(metric="euclidean"), 5, (256, 256, 256)) > 2 * Z_LIMIT


@dataclasses.dataclass(frozen=True)
class OtherMetric(Wasp):
    """Says one metric and uses the other."""

    def combine(self, subposteriors: Subposteriors, *, seed: int = 0):
        return Wasp(metric="pooled").combine(subposteriors, seed=seed)


@dataclasses.dataclass(frozen=True)
class AverageOfPairs(Wasp):
    """Averages draws as they come, as a stale coupling does."""

    def combine(self, subposteriors: Subposteriors, *, seed: int = 0):
        right = super().combine(subposteriors, seed=seed)
        array = sum(w * x for w, x in zip(subposteriors.weights, subposteriors.draws, strict=True))
        return dataclasses.replace(right, array=array, log_weights=None)


def bent(rng: np.random.Generator, n: int) -> np.ndarray:
    x = rng.normal(size=n)
    return np.stack([x, x**2 - 1.0 + 0.3 * rng.normal(size=n)], axis=1)


def bend(array: np.ndarray) -> float:
    """Correlation of x² and y about the mean: 0 for Gaussians, 0.98 for `bent`."""
    centred = array - array.mean(axis=0)
    return float(np.corrcoef(centred[:, 0] ** 2, centred[:, 1])[0, 1])


def test_a_shape_that_shards_share_stays():
    rng = np.random.default_rng(6)
    shifts = rng.normal(size=(5, 2))
    draws = [bent(rng, 1_000) + shift for shift in shifts]
    found = Wasp().combine(Subposteriors.of(draws, kind="inflated")).array
    # The barycenter of translates is their translate by the average shift.
    np.testing.assert_allclose(found.mean(axis=0), shifts.mean(axis=0), atol=Z_LIMIT / np.sqrt(5_000) * 1.5)
    assert bend(found) > 0.93
    assert bend(np.mean(draws, axis=0)) < 0.6
    for j in range(2):
        expected = bent(rng, 20_000)[:, j]
        levels = np.linspace(0.05, 0.95, 19)
        apart = np.quantile(found[:, j] - shifts[:, j].mean(), levels) - np.quantile(expected, levels)
        assert np.abs(apart).max() < 0.2


def test_the_way_is_chosen_by_size_and_said():
    rng = np.random.default_rng(0)

    def note(sizes: tuple[int, ...], rule: Wasp | None = None) -> str:
        shards = Subposteriors.of([rng.normal(size=(n, 2)) for n in sizes], kind="inflated")
        return (rule or Wasp()).combine(shards).notes[0]

    assert note((20, 30, 10)) == "The barycenter is exact: one linear programme of 6,000 variables."
    assert note((300, 200)) == "The barycenter is exact: one linear programme of 60,000 variables."
    assert "free support, in 2 blocks of 150 draws" in note((300, 200, 300))
    assert "would have 1.8e+07 variables" in note((300, 200, 300))
    assert "free support, in one block of 20" in note((20, 20), Wasp(largest_programme=0))
    assert "free support, in 6 blocks of 50" in note((300, 200, 300), Wasp(block=50))
    assert "would have over 1e300 variables" in note((100,) * 400, Wasp(restore_spread=False))


def test_blocks_use_every_draw_once_and_shorter_shards_again():
    rng = np.random.default_rng(0)
    shards = Subposteriors.of([rng.normal(size=(n, 2)) for n in (600, 90, 600)], kind="inflated")
    problem = TransportProblem.of(shard_moments(shards), shards.weights, [0, 1, 2], block=100)
    asked: list[list[int]] = [[], [], []]

    def draws(b: int, rows: np.ndarray) -> np.ndarray:
        asked[b] += rows.tolist()
        return problem.inside(shards.draws[b][rows])

    points, masses, rested = problem.solve(draws)
    assert rested
    assert sorted(asked[0]) == sorted(asked[2]) == list(range(600))
    assert sorted(asked[1]) == sorted(list(range(90)) * 6)
    assert points.shape == (600, 2)
    np.testing.assert_allclose(masses, 1 / 600)


def test_shorter_shards_are_gone_through_again_and_masses_may_differ():
    rng = np.random.default_rng(0)
    shards = Subposteriors.of(
        [rng.normal(size=(n, 2)) + b for b, n in enumerate((600, 60, 300))], kind="inflated", weights=WEIGHTS
    )
    found = Wasp().combine(shards)
    assert found.array.shape == (600, 2)
    assert found.log_weights is None
    expected = WEIGHTS @ [x.mean(axis=0) for x in shards.draws]
    np.testing.assert_allclose(found.array.mean(axis=0), expected, atol=1e-12)
    two = Wasp().combine(Subposteriors.of([shards.draws[0][:500], shards.draws[2]], kind="inflated"))
    assert two.log_weights is not None
    assert np.exp(two.log_weights).sum() == pytest.approx(1.0)
    mean = (shards.draws[0][:500].mean(axis=0) + shards.draws[2].mean(axis=0)) / 2
    np.testing.assert_allclose(np.exp(two.log_weights) @ two.array, mean, atol=1e-12)


def test_scales_do_not_matter_in_the_pooled_metric():
    rng = np.random.default_rng(0)
    scales = np.array([1.0, 1e-3, 1e6])
    draws = rng.normal(size=(4, 400, 3)) * scales
    shards = Subposteriors.of(draws, kind="inflated")
    found = Wasp().combine(shards).array.std(axis=0) / scales
    np.testing.assert_allclose(found, 1.0, atol=0.1)
    # As they are, couplings are decided by the last parameter, and the others are averaged at random.
    plain = Wasp(metric="euclidean", restore_spread=False).combine(shards).array.std(axis=0) / scales
    np.testing.assert_allclose(plain[:2], 0.5, atol=0.1)
    # What Gaussian shards lose by it is measured, and restored.
    restored = Wasp(metric="euclidean").combine(shards).array.std(axis=0) / scales
    np.testing.assert_allclose(restored, 1.0, atol=0.15)


def test_many_dimensions_are_warned_of():
    draws = np.random.default_rng(0).normal(size=(4, 150, 15))
    found = Wasp().combine(Subposteriors.of(draws, kind="inflated"))
    assert "Couplings of 150 draws in 15 dimensions are mostly noise" in found.warnings[0]
    covariance = np.cov(found.array, rowvar=False)
    assert np.trace(covariance) / 15 == pytest.approx(1.0, abs=0.1)


def test_one_shard_comes_out_as_it_went_in():
    draws = np.random.default_rng(0).normal(size=(50, 3))
    np.testing.assert_allclose(Wasp().combine(Subposteriors.of([draws], kind="inflated")).array, draws)


def test_order_of_shards_changes_no_bit():
    shards = gaussian_shards(0, 2, (100, 120, 90))
    other = Subposteriors.of(
        [shards.draws[b] for b in (2, 0, 1)], kind="inflated", weights=WEIGHTS[[2, 0, 1]]
    )
    first, second = Wasp().combine(shards, seed=1), Wasp().combine(other, seed=1)
    np.testing.assert_allclose(first.array, second.array, atol=1e-12)


def test_without_pot_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ot", None)
    with pytest.raises(
        InputError, match=r"Got 'wasp'\. It needs POT: run pip install 'consilience\[transport\]'"
    ):
        combine(np.random.default_rng(0).normal(size=(2, 50, 2)), method="wasp", kind="inflated")


@pytest.mark.parametrize(
    "options",
    [
        {"block": 1},
        {"block": 2.5},
        {"largest_programme": -1},
        {"restore_spread": "no"},
        {"metric": "manhattan"},
    ],
)
def test_options_are_checked(options):
    with pytest.raises(InputError, match=f"wasp: `{next(iter(options))}` must be"):
        Wasp(**options)


def test_memory_stays_below_three_copies_and_a_coupling():
    draws = np.random.default_rng(0).normal(size=(6, 6_000, 8))
    shards = Subposteriors.of(draws, kind="inflated")
    rule = Wasp(block=50, restore_spread=False)
    small = Subposteriors.of(draws[:, :100], kind="inflated")
    rule.combine(small)
    tracemalloc.start()
    rule.combine(shards)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * draws.nbytes
