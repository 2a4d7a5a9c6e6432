"""Roots, weighted moments and corrected precisions against independent answers."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.errors import DrawsError
from consilience.numerics import (
    estimate_precision,
    least_motion_map,
    log_sum_exp,
    precision_from_draws,
    symmetric_root,
    weighted_covariance,
    weighted_mean,
)


def spd(d: int, seed: int) -> np.ndarray:
    factor = np.eye(d) + 0.4 * np.random.default_rng(seed).normal(size=(d, d))
    return factor @ factor.T


@pytest.mark.parametrize("d", [1, 3, 20])
def test_symmetric_root_is_symmetric_and_squares_back(d):
    matrix = spd(d, 0)
    root, floored = symmetric_root(matrix)
    assert floored == 0
    np.testing.assert_allclose(root, root.T, atol=1e-12)
    np.testing.assert_allclose(root @ root, matrix, rtol=1e-10, atol=1e-10)
    assert np.linalg.eigvalsh(root).min() > 0
    inverse, _ = symmetric_root(matrix, power=-0.5)
    np.testing.assert_allclose(inverse @ root, np.eye(d), atol=1e-9)


def test_symmetric_root_floors_a_singular_matrix_and_says_so():
    singular = np.diag([4.0, 1.0, 0.0])
    inverse, floored = symmetric_root(singular, power=-0.5, floor=1e-8)
    assert floored == 1
    np.testing.assert_allclose(np.diagonal(inverse), [0.5, 1.0, 1.0 / np.sqrt(4e-8)])


def test_stacks_are_worked_on_matrix_by_matrix():
    stack = np.stack([spd(3, 1), spd(3, 2)])
    np.testing.assert_array_equal(symmetric_root(stack)[0][1], symmetric_root(stack[1])[0])
    maps, _ = least_motion_map(stack, spd(3, 3))
    np.testing.assert_allclose(maps[1], least_motion_map(stack[1], spd(3, 3))[0], rtol=1e-12)


def test_least_motion_map_moves_less_than_any_rotation_of_it():
    source, target = spd(3, 4), spd(3, 5)
    best, _ = least_motion_map(source, target)
    np.testing.assert_allclose(best @ source @ best.T, target, rtol=1e-10)

    def motion(map_: np.ndarray) -> float:
        apart = map_ - np.eye(3)
        return float(np.trace(np.linalg.solve(target, apart @ source @ apart.T)))

    root = np.linalg.cholesky(target)
    rng = np.random.default_rng(6)
    for _ in range(20):
        turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
        other = root @ turn @ np.linalg.solve(root, best)
        np.testing.assert_allclose(other @ source @ other.T, target, rtol=1e-8)
        assert motion(other) > motion(best)


def test_least_motion_map_follows_changes_of_coordinates():
    source, target = spd(3, 4), spd(3, 5)
    change = np.diag([1e-6, 1.0, 1e6]) @ (np.eye(3) + np.triu(np.ones((3, 3)), 1))
    mapped, floored = least_motion_map(change @ source @ change.T, change @ target @ change.T)
    expected = change @ least_motion_map(source, target)[0] @ np.linalg.inv(change)
    assert floored == 0
    np.testing.assert_allclose(
        np.linalg.solve(change, (mapped - expected) @ change), np.zeros((3, 3)), atol=1e-8
    )


def test_log_sum_exp():
    assert log_sum_exp([-np.inf, -np.inf]) == -np.inf
    assert log_sum_exp([np.inf, 0.0]) == np.inf
    np.testing.assert_allclose(
        log_sum_exp([[1e4, 1e4], [-1e4, -1e4]], axis=1), np.log(2) + np.array([1e4, -1e4])
    )
    assert np.isnan(log_sum_exp([np.nan, 0.0]))


def test_weighted_moments_agree_with_repeated_rows():
    x = np.random.default_rng(0).normal(size=(4, 2))
    counts = np.array([1, 2, 3, 1])
    repeated = np.repeat(x, counts, axis=0)
    shift = 1e4  # log densities of large data are of this size
    np.testing.assert_allclose(weighted_mean(x, np.log(counts) + shift), repeated.mean(axis=0))
    weights = counts / counts.sum()
    expected = np.cov(repeated, rowvar=False, ddof=0) / (1 - np.sum(weights**2))
    np.testing.assert_allclose(weighted_covariance(x, np.log(counts) - shift), expected)
    np.testing.assert_allclose(weighted_covariance(x), np.cov(x, rowvar=False))
    np.testing.assert_allclose(weighted_covariance(x, np.zeros(4)), np.cov(x, rowvar=False))


@pytest.mark.parametrize(("n", "d"), [(30, 5), (60, 20)])
def test_precision_is_unbiased_where_the_plain_inverse_is_not(n, d):
    truth = spd(d, 8)
    root = np.linalg.cholesky(truth)
    draws = np.random.default_rng(9).normal(size=(400, n, d)) @ root.T
    covariances = np.stack([np.cov(x, rowvar=False) for x in draws])

    def z(precisions: np.ndarray) -> float:
        traces = np.trace(precisions @ truth, axis1=1, axis2=2) / d
        return float((traces.mean() - 1.0) / (traces.std(ddof=1) / np.sqrt(len(traces))))

    assert abs(z(precision_from_draws(covariances, np.full(400, n)))) < 4.5
    assert z(np.linalg.inv(covariances)) > 20


def test_too_few_draws_are_refused_with_the_number_needed():
    with pytest.raises(DrawsError, match=r"more than 54 for 50 parameters. Got 40"):
        precision_from_draws(np.eye(50), 40)
    assert estimate_precision(np.eye(50), 60).factor == pytest.approx(8 / 59)
