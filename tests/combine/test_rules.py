"""Each rule against a plain transcription of its paper's formula, and each rule's own promises."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from consilience.combine import get_combiner
from consilience.combine.gaussian_barycenter import barycenter
from consilience.combine.permute import shard_generators
from consilience.draws import Subposteriors
from consilience.errors import InputError


def root(matrix: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.sqrt(values)) @ vectors.T


def skewed_shards(kind: str, sizes: tuple[int, ...] = (20_000, 15_000, 10_000), d: int = 3) -> Subposteriors:
    rng = np.random.default_rng(0)
    draws = []
    for n in sizes:
        factor = np.eye(d) + 0.5 * rng.normal(size=(d, d))
        draws.append((rng.exponential(size=(n, d)) - 1.0) @ factor.T + rng.normal(size=d))
    weights = np.arange(1.0, len(sizes) + 1.0)
    return Subposteriors.of(draws, kind=kind, weights=weights / weights.sum())


def parts(shards: Subposteriors) -> tuple[list[np.ndarray], list[np.ndarray]]:
    return [x.mean(axis=0) for x in shards.draws], [np.cov(x, rowvar=False) for x in shards.draws]


def naive_product(shards: Subposteriors, powers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    means, covariances = parts(shards)
    precisions = [a * np.linalg.inv(v) for a, v in zip(powers, covariances, strict=True)]
    covariance = np.linalg.inv(sum(precisions))
    return covariance @ sum(p @ m for p, m in zip(precisions, means, strict=True)), covariance


def test_swiss_is_algorithm_1():
    shards = skewed_shards("inflated")
    mean, covariance = naive_product(shards, shards.weights)
    outer = root(covariance)
    inverse = np.linalg.inv(outer)
    expected = []
    for x, m, v in zip(shards.draws, *parts(shards), strict=True):
        map_ = outer @ np.linalg.inv(root(inverse @ v @ inverse)) @ inverse
        expected.append((x - m) @ map_.T + mean)
    found = get_combiner("swiss").combine(shards).array
    # The corrections for estimated covariances are of the order d / n.
    np.testing.assert_allclose(found, np.concatenate(expected), rtol=2e-3, atol=2e-3)


def test_swiss_keeps_skewness_that_consensus_averages_away():
    draws = np.random.default_rng(1).exponential(size=(10, 4_000, 1))

    def skewness(array: np.ndarray) -> float:
        return float(np.mean(((array - array.mean()) / array.std()) ** 3))

    kept = get_combiner("swiss").combine(Subposteriors.of(draws, kind="inflated")).array
    averaged = get_combiner("consensus").combine(Subposteriors.of(draws, kind="subposterior")).array
    assert skewness(kept) > 1.6
    assert skewness(averaged) < 1.0


def test_swiss_on_one_shard_changes_nothing():
    shards = skewed_shards("inflated", sizes=(50,))
    np.testing.assert_allclose(get_combiner("swiss").combine(shards).array, shards.draws[0], atol=1e-12)


@pytest.mark.parametrize("weighting", ["full", "diagonal", "uniform"])
def test_consensus_is_the_weighted_average(weighting):
    shards = skewed_shards("subposterior", sizes=(20_000, 20_000, 20_000))
    permuted = [g.permutation(len(x)) for g, x in zip(shard_generators(shards, 3), shards.draws, strict=True)]
    weights = {
        "full": [np.linalg.inv(v) for v in parts(shards)[1]],
        "diagonal": [np.diag(1.0 / np.diagonal(v)) for v in parts(shards)[1]],
        "uniform": [w * np.eye(3) for w in shards.weights],
    }[weighting]
    total = sum(x[order] @ w.T for x, order, w in zip(shards.draws, permuted, weights, strict=True))
    expected = total @ np.linalg.inv(sum(weights)).T
    found = get_combiner("consensus", weighting=weighting).combine(shards, seed=3)
    np.testing.assert_allclose(found.array, expected, rtol=2e-3, atol=2e-3)


def test_consensus_goes_through_short_shards_again_and_says_so():
    rng = np.random.default_rng(2)
    sizes = (100, 250, 400)
    shards = Subposteriors.of([rng.normal(size=(n, 1)) for n in sizes], kind="subposterior")
    combined = get_combiner("consensus", weighting="uniform").combine(shards)
    assert len(combined.array) == 400
    assert "100 to 400" in combined.notes[0]
    # The average's error is that of the shards' means, whatever is gone through again.
    expected = np.sum(1 / 9) * 3 / (np.sum(1 / (9 * np.array(sizes))))
    assert combined.effective_sizes[0] == pytest.approx(expected, rel=0.25)


@pytest.mark.parametrize("centre", ["average", "precision"])
def test_recentering_shifts_and_weighs(centre):
    shards = skewed_shards("inflated")
    means, _ = parts(shards)
    middle = (
        shards.weights @ np.array(means) if centre == "average" else naive_product(shards, shards.weights)[0]
    )
    expected = np.concatenate([x - m + middle for x, m in zip(shards.draws, means, strict=True)])
    combined = get_combiner("recentering", centre=centre).combine(shards)
    np.testing.assert_allclose(combined.array, expected, atol=1e-3)
    weights = np.exp(combined.log_weights)
    ends = np.cumsum((0, *shards.num_draws))
    shares = [weights[a:b].sum() for a, b in itertools.pairwise(ends)]
    np.testing.assert_allclose(shares, shards.weights)


def test_pool_needs_no_weights_when_draws_follow_them():
    rng = np.random.default_rng(0)
    shards = Subposteriors.of(
        [rng.normal(size=(n, 1)) for n in (100, 300)], kind="inflated", weights=[0.25, 0.75]
    )
    combined = get_combiner("pool").combine(shards)
    assert combined.log_weights is None
    np.testing.assert_array_equal(combined.array, np.concatenate(shards.draws))


def test_product_of_either_kind():
    for kind in ("subposterior", "inflated"):
        shards = skewed_shards(kind)
        mean, covariance = naive_product(shards, shards.weights if kind == "inflated" else np.ones(3))
        drawn = get_combiner("gaussian-product", num_draws=50_000).combine(shards, seed=1).array
        z = (drawn.mean(axis=0) - mean) / np.sqrt(np.diagonal(covariance) / len(drawn))
        assert np.abs(z).max() < 4.5
        ratio = np.diagonal(np.cov(drawn, rowvar=False)) / np.diagonal(covariance)
        assert np.abs(ratio - 1.0).max() < 4.5 * np.sqrt(2 / len(drawn)) + 1e-3


def test_barycenter_of_commuting_covariances_averages_deviations():
    weights = np.array([0.2, 0.3, 0.5])
    deviations = np.array([[1.0, 4.0], [2.0, 0.5], [3.0, 1.0]])
    turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    covariances = np.stack([turn @ np.diag(s**2) @ turn.T for s in deviations])
    covariance, maps, warnings = barycenter(covariances, weights)
    np.testing.assert_allclose(covariance, turn @ np.diag((weights @ deviations) ** 2) @ turn.T, rtol=1e-10)
    assert warnings == ()
    # A plain average of covariances, which a stale iteration returns, is something else.
    assert np.abs(covariance - np.tensordot(weights, covariances, 1)).max() > 0.1
    for v, map_ in zip(covariances, maps, strict=True):
        np.testing.assert_allclose(map_ @ v @ map_.T, covariance, rtol=1e-8)


def test_barycenter_solves_its_equation_and_its_maps_average_to_the_identity():
    rng = np.random.default_rng(4)
    factors = np.eye(4) + 0.7 * rng.normal(size=(5, 4, 4))
    covariances = factors @ np.swapaxes(factors, 1, 2)
    weights = rng.dirichlet(np.ones(5))
    covariance, maps, _ = barycenter(covariances, weights)
    middle = root(covariance)
    np.testing.assert_allclose(
        sum(w * root(middle @ v @ middle) for w, v in zip(weights, covariances, strict=True)),
        covariance,
        rtol=1e-8,
    )
    np.testing.assert_allclose(np.tensordot(weights, np.linalg.inv(maps), 1), np.eye(4), atol=1e-8)


def test_barycenter_moved_and_gaussian_have_the_same_moments():
    shards = skewed_shards("inflated")
    moved = get_combiner("gaussian-barycenter").combine(shards).array
    drawn = get_combiner("gaussian-barycenter", output="gaussian").combine(shards, seed=0).array
    covariance = np.cov(moved, rowvar=False)
    z = (drawn.mean(axis=0) - moved.mean(axis=0)) / np.sqrt(np.diagonal(covariance) / len(drawn))
    assert np.abs(z).max() < 4.5
    assert np.abs(np.diagonal(np.cov(drawn, rowvar=False) / covariance) - 1).max() < 4.5 * np.sqrt(
        2 / len(drawn)
    )
    skew = np.mean(((moved - moved.mean(axis=0)) / moved.std(axis=0)) ** 3, axis=0)
    assert np.abs(skew).max() > 1.0


@pytest.mark.parametrize(
    ("name", "option"),
    [("consensus", "weighting"), ("recentering", "centre"), ("gaussian-barycenter", "output")],
)
def test_choices_are_checked_and_listed(name, option):
    with pytest.raises(InputError, match=f"`{option}` must be one of '.*Got 'sideways'"):
        get_combiner(name, **{option: "sideways"})
