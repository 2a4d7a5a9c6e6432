"""Curvature at the modes: it takes the noise out of covariances where it may, and keeps out where it must."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.combine import combine
from consilience.combine.curvature import pull_to_curvature
from consilience.combine.moments import shard_moments
from consilience.draws import Subposteriors
from consilience.errors import DrawsError

SHARDS, DRAWS, D = 20, 120, 15


def gaussian_shards(seed: int, apart: float = 3.0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Draws, their covariances, and mean and covariance of the product; means lie `apart` deviations apart."""
    rng = np.random.default_rng(seed)
    factors = np.eye(D) + 0.3 * np.tril(rng.normal(size=(SHARDS, D, D)))
    covariances = factors @ np.swapaxes(factors, 1, 2)
    means = apart * rng.normal(size=(SHARDS, D))
    draws = rng.normal(size=(SHARDS, DRAWS, D)) @ np.swapaxes(factors, 1, 2) + means[:, None]
    precisions = np.linalg.inv(covariances)
    covariance = np.linalg.inv(precisions.sum(axis=0))
    return draws, covariances, covariance @ np.einsum("bij,bj->i", precisions, means), covariance


def error_of_mean(
    draws: np.ndarray, curvatures: np.ndarray | None, truth: np.ndarray, v: np.ndarray
) -> float:
    shards = Subposteriors.of(draws, kind="subposterior", curvatures=curvatures)
    gap = combine(shards, method="consensus").mean() - truth
    return float(np.sqrt(gap @ np.linalg.solve(v, gap)))


def test_noise_of_the_weights_goes() -> None:
    with_it, without, wrong = [], [], []
    for seed in range(8):
        draws, covariances, truth, v = gaussian_shards(seed)
        with_it.append(error_of_mean(draws, covariances, truth, v))
        without.append(error_of_mean(draws, None, truth, v))
        # Another shard's curvature is of no use: hardly believed, it costs a part, not a multiple.
        wrong.append(error_of_mean(draws, covariances[::-1], truth, v))
    # Left are the noise of the shards' own means and, as r rests on p numbers, a share sqrt(2 / p) of the weights'.
    floor, share = np.sqrt(D / DRAWS), np.sqrt(2.0 / (D * (D + 1) / 2))
    assert np.mean(with_it) < 1.2 * np.hypot(floor, share * np.sqrt(2.0) * np.mean(without))
    assert np.mean(without) > 4.0 * np.mean(with_it)
    assert np.mean(wrong) < 1.5 * np.mean(without)


def test_curvature_taken_blindly_is_seen_to_be_wrong() -> None:
    """Shards with a body twice as wide as the curvature at the mode says: r must stay near 0."""
    rng = np.random.default_rng(5)
    draws = 2.0 * rng.normal(size=(SHARDS, 2_000, D))
    moments = shard_moments(Subposteriors.of(draws, kind="subposterior"))
    blind = np.stack([np.eye(D)] * SHARDS)
    known = pull_to_curvature(moments.covariances, moments.covariance_draws, blind)
    assert known.pulls.max() < 0.05
    widths = np.trace(known.covariances, axis1=1, axis2=2) / D
    np.testing.assert_allclose(widths, 4.0, rtol=0.1)
    assert abs(np.trace(blind[0]) / D - 4.0) > 1.0  # what believing it would give


def test_one_odd_shard_spoils_nobody_elses() -> None:
    draws, covariances, _, _ = gaussian_shards(1)
    moments = shard_moments(Subposteriors.of(draws, kind="subposterior"))
    odd = covariances.copy()
    odd[3] *= 9.0
    pulls = pull_to_curvature(moments.covariances, moments.covariance_draws, odd).pulls
    # Its estimate is 1/9 of the curvature: signal (8/9)² d, noise (d² + d) / n.
    signal, noise = (8 / 9) ** 2 * D, (D * D + D) / DRAWS
    assert pulls[3] < 1.3 * noise / (noise + signal)
    assert np.delete(pulls, 3).min() > 0.6


def test_a_shard_without_a_mode_keeps_its_estimate() -> None:
    draws, covariances, _, _ = gaussian_shards(2)
    given = covariances.copy()
    given[4] = np.nan
    moments = shard_moments(Subposteriors.of(draws, kind="subposterior", curvatures=given))
    np.testing.assert_array_equal(moments.known.covariances[4], moments.covariances[4])
    assert moments.known.draws[4] == moments.covariance_draws[4]
    assert np.all(np.isfinite(moments.precisions.precision))


def test_claims_are_not_smaller_than_errors() -> None:
    ratios = []
    for seed in range(20):
        draws, covariances, truth, v = gaussian_shards(100 + seed)
        posterior = combine(
            Subposteriors.of(draws, kind="subposterior", curvatures=covariances), method="gaussian-product"
        )
        claimed = np.diagonal(v) / posterior.effective_sizes
        ratios.append((posterior.mean() - truth) ** 2 / claimed)
    assert np.mean(ratios) < 1.3


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (np.ones((SHARDS, D, D)), "positive definite"),
        (np.ones((SHARDS, D)), "of shape"),
        (-np.stack([np.eye(D)] * SHARDS), "positive definite"),
    ],
)
def test_what_is_no_covariance_is_refused(given: np.ndarray, said: str) -> None:
    draws = gaussian_shards(3)[0]
    with pytest.raises(DrawsError, match=said):
        Subposteriors.of(draws, kind="subposterior", curvatures=given)
