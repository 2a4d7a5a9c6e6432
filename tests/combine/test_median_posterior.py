"""The geometric median against its closed forms, and the median posterior's robustness."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest

from consilience.combine import combine, get_combiner, kernel_embedding
from consilience.combine import median_posterior as module
from consilience.combine.geometric_median import hilbert_median, influence_on_shares, median_covariance
from consilience.combine.kernel_embedding import Embedding, median_distance
from consilience.draws import Subposteriors
from consilience.errors import InputError
from consilience.numerics import normalised_weights

# P(|t| > 6) is 4e-6 with 23 degrees of freedom.
Z_LIMIT = 6.0


def pulls(points: np.ndarray, weights: np.ndarray, shares: np.ndarray) -> float:
    """Length of the sum of weighted unit vectors at sum shares x: zero at the median, by its definition."""
    apart = points - shares @ points
    return float(np.linalg.norm((weights / np.linalg.norm(apart, axis=1)) @ apart))


def test_median_of_a_triangle_is_fermats_point():
    corners = np.array([[0.0, 0.0], [4.0, 0.0], [1.0, 3.0]])
    weights = np.full(3, 1 / 3)
    shares = hilbert_median(corners @ corners.T, weights).shares
    apart = corners - shares @ corners
    apart /= np.linalg.norm(apart, axis=1)[:, None]
    # Fermat's point sees all sides under 120 degrees.
    np.testing.assert_allclose((apart @ apart.T)[np.triu_indices(3, 1)], -0.5, atol=1e-6)
    # Shares by squared distances, which are easily written by mistake, are not the median.
    squares = np.full(3, 1 / 3)
    for _ in range(5):
        squares = weights / np.sum((corners - squares @ corners) ** 2, axis=1)
        squares /= squares.sum()
    assert pulls(corners, weights, shares) < 1e-8
    assert pulls(corners, weights, squares) > 0.01


def test_median_of_a_wide_triangle_is_its_corner():
    corners = np.array([[0.0, 0.0], [4.0, 0.1], [-4.0, 0.1]])
    found = hilbert_median(corners @ corners.T, np.full(3, 1 / 3))
    assert found.at_point
    np.testing.assert_array_equal(found.shares, [1.0, 0.0, 0.0])


def test_median_on_a_line_is_the_weighted_median():
    points = np.array([[3.0], [-1.0], [10.0], [4.0]])
    weights = np.array([0.2, 0.1, 0.3, 0.4])
    np.testing.assert_array_equal(hilbert_median(points @ points.T, weights).shares, [0, 0, 0, 1])


def test_half_of_the_weight_is_the_median_and_equal_halves_share():
    points = np.eye(2)
    np.testing.assert_array_equal(hilbert_median(points @ points.T, np.array([0.51, 0.49])).shares, [1, 0])
    np.testing.assert_allclose(hilbert_median(points @ points.T, np.array([0.5, 0.5])).shares, 0.5)


def test_points_that_coincide_hold_their_weights_together():
    points = np.array([[0.0, 0.0], [0.0, 0.0], [5.0, 0.0], [0.0, 5.0]])
    found = hilbert_median(points @ points.T, np.array([0.35, 0.25, 0.2, 0.2]))
    np.testing.assert_allclose(found.shares, np.array([0.35, 0.25, 0.0, 0.0]) / 0.6)


@pytest.mark.parametrize("num_points", [3, 40])
def test_median_in_space_balances_its_pulls(num_points):
    rng = np.random.default_rng(num_points)
    points, weights = rng.normal(size=(num_points, 5)), rng.dirichlet(np.full(num_points, 20.0))
    found = hilbert_median(points @ points.T, weights)
    assert found.converged
    assert pulls(points, weights, found.shares) < 1e-7


def test_influence_is_the_derivative():
    rng = np.random.default_rng(1)
    points, weights = rng.normal(size=(6, 8)), rng.dirichlet(np.full(6, 20.0))
    gram = points @ points.T
    found = hilbert_median(gram, weights)

    def shares_with(extra: np.ndarray) -> np.ndarray:
        shares = weights
        for _ in range(3_000):
            squared = shares @ gram @ shares - 2 * gram @ shares + np.diagonal(gram) + extra
            shares = weights / np.sqrt(squared)
            shares = shares / shares.sum()
        return shares

    slopes = rng.normal(size=(6, 2))
    steps = 1e-4 * np.eye(6)
    expected = [(shares_with(e) - shares_with(-e)) @ slopes / 2e-4 for e in steps]
    np.testing.assert_allclose(influence_on_shares(gram, found, slopes), expected, rtol=1e-5, atol=1e-7)


def test_median_covariance_follows_coordinates_and_breaks_down_at_half():
    rng = np.random.default_rng(2)
    factors = np.eye(3) + 0.3 * rng.normal(size=(11, 3, 3))
    covariances = factors @ np.swapaxes(factors, 1, 2)
    weights = np.full(11, 1 / 11)
    found = median_covariance(covariances, weights)
    turn = rng.normal(size=(3, 3)) * np.array([[1.0], [1e3], [1e-3]])
    np.testing.assert_allclose(
        median_covariance(turn @ covariances @ turn.T, weights), turn @ found @ turn.T, rtol=1e-4
    )
    spoiled = covariances.copy()
    spoiled[:5] *= 1e12
    change = np.linalg.eigvals(np.linalg.solve(found, median_covariance(spoiled, weights))).real
    assert 0.3 < change.min() < change.max() < 10.0
    # An average is carried off by one of them.
    assert spoiled[[0, *range(5, 11)]].mean(axis=0)[0, 0] > 1e10 * found[0, 0]


def test_kernels_in_blocks_are_the_kernels(monkeypatch):
    rng = np.random.default_rng(3)
    points, sizes, h = rng.normal(size=(30, 2)), (7, 12, 11), 1.3
    kernels = np.exp(-0.5 * np.sum((points[:, None] - points) ** 2, axis=2) / h**2)
    parts = [slice(*ends) for ends in itertools.pairwise(np.cumsum((0, *sizes)))]
    expected = np.array([[kernels[a, b].mean() for b in parts] for a in parts])
    monkeypatch.setattr(kernel_embedding, "COLUMNS", 15)
    for block in (1, 200, 10_000):
        np.testing.assert_allclose(Embedding(points, sizes, h, block).gram(), expected, rtol=1e-12)


def test_bandwidth_survives_less_than_half():
    rng = np.random.default_rng(4)
    points = rng.normal(size=(20, 10, 2))
    sizes, weights = (10,) * 20, np.full(20, 0.05)
    right = median_distance(points.reshape(-1, 2), sizes, weights)
    points[:9] += 1e8
    assert right < median_distance(points.reshape(-1, 2), sizes, weights) < 3 * right


def gaussian_gram(means: np.ndarray, h: float) -> np.ndarray:
    """Inner products of N(mean, 1): the kernel's mean has a closed form."""
    apart = means[:, None] - means
    return h / np.sqrt(h**2 + 2.0) * np.exp(-0.5 * apart**2 / (h**2 + 2.0))


MEANS, WEIGHTS = np.array([0.0, 1.0, -2.0, 4.0]), np.array([0.3, 0.2, 0.25, 0.25])


def share_errors(exact: np.ndarray, means: np.ndarray, bandwidth: float, sizes: tuple[int, ...]) -> float:
    """Largest |z| of the shares of N(mean, 1) against the exact ones, over fresh draws."""
    found = []
    for seed in range(24):
        rng = np.random.default_rng([seed, 5])
        draws = [m + rng.normal(size=(n, 1)) for m, n in zip(means, sizes, strict=True)]
        shards = Subposteriors.of(draws, kind="inflated", weights=WEIGHTS)
        combined = get_combiner("median-posterior", bandwidth=bandwidth, least_share=0.0).combine(shards)
        equal = np.zeros(len(combined.array))
        each = normalised_weights(equal if combined.log_weights is None else combined.log_weights)
        ends = np.cumsum(combined.chain_lengths)[:-1]
        shares = dict(zip(combined.chain_lengths, (part.sum() for part in np.split(each, ends)), strict=True))
        found.append([shares.get(n, 0.0) for n in sizes])
    errors = np.array(found) - exact
    return float(np.abs(errors.mean(axis=0) / (errors.std(axis=0, ddof=1) / np.sqrt(24) + 1e-9)).max())


def test_shares_of_gaussian_shards_are_those_of_the_closed_form():
    sizes = (600, 400, 500, 450)
    exact = hilbert_median(gaussian_gram(MEANS, 2.0), WEIGHTS).shares
    assert share_errors(exact, MEANS, 2.0, sizes) < Z_LIMIT
    # exp(-r²/h²) in the place of exp(-r²/2h²) is seen.
    assert share_errors(exact, MEANS, np.sqrt(2.0), sizes) > 2 * Z_LIMIT


def test_numbers_of_draws_say_nothing_about_shares(monkeypatch):
    # Shards of one law: their shares are their weights, however many draws they brought.
    sizes = (40, 600, 300, 400)
    assert share_errors(WEIGHTS, np.zeros(4), 0.5, sizes) < Z_LIMIT
    monkeypatch.setattr(module, "_evened_out", lambda embedding, moments: embedding.gram())
    assert share_errors(WEIGHTS, np.zeros(4), 0.5, sizes) > 2 * Z_LIMIT


def twenty(spoil: str | None, d: int = 3) -> Subposteriors:
    """Twenty inflated shards as far apart as chance puts them, the seventh of them spoiled."""
    rng = np.random.default_rng(6)
    factor = np.eye(d) + 0.3 * rng.normal(size=(d, d))
    draws = (np.sqrt(19) * rng.normal(size=(20, 1, d)) + rng.normal(size=(20, 500, d))) @ factor.T
    if spoil == "far":
        draws[7] += 1e4
    elif spoil == "farther":
        draws[7] += 1e9
    elif spoil == "wide":
        draws[7] *= 1e5
    elif spoil == "narrow":
        draws[7] = 200.0 + 1e-4 * draws[7]
    if spoil == "absent":
        draws = np.delete(draws, 7, axis=0)
    return Subposteriors.of(draws, kind="inflated")


def moved_by(method: str, spoil: str) -> float:
    """How far a spoiled shard moves the mean, in standard deviations of the posterior without that shard."""
    without, spoiled = (combine(twenty(x), method=method) for x in ("absent", spoil))
    deviations = np.sqrt(np.diagonal(without.cov()))
    return float(np.abs((spoiled.mean() - without.mean()) / deviations).max())


@pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")
@pytest.mark.parametrize("spoil", ["far", "farther", "wide", "narrow"])
def test_one_corrupted_shard_of_twenty_does_not_move_it(spoil):
    # What is left is the pull of one shard in twenty on a median, however far away it is.
    assert moved_by("median-posterior", spoil) < 0.1
    if spoil != "wide":
        assert moved_by("pool", spoil) > 2.0
        assert moved_by("recentering", spoil) > 2.0
    notes = combine(twenty(spoil), method="median-posterior").info["notes"]
    assert notes[0] == "Left out, being far from the median: 1 of 20 shards (7)."


@pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")
def test_swiss_is_moved_by_a_corrupted_shard():
    assert moved_by("swiss", "far") > 100.0


def test_how_far_away_a_corrupted_shard_is_does_not_matter():
    far, farther = (combine(twenty(x), method="median-posterior") for x in ("far", "farther"))
    np.testing.assert_allclose(
        (farther.mean() - far.mean()) / np.sqrt(np.diagonal(far.cov())), 0.0, atol=1e-4
    )


def test_a_shard_at_the_threshold_comes_and_goes_gradually():
    rule = get_combiner("median-posterior")
    shares = np.array([0.35, 0.45, 0.5, 0.55, 0.65]) * 0.2
    kept, growth = rule._kept(shares, np.full(5, 0.2))
    np.testing.assert_allclose(kept, [0.0, 0.25, 0.5, 0.75, 1.0])
    np.testing.assert_allclose(growth, [0.0, 25.0, 25.0, 25.0, 0.0])


def test_draws_that_were_looked_at_are_named():
    shards = Subposteriors.of(np.random.default_rng(0).normal(size=(4, 300, 1)), kind="inflated")
    notes = get_combiner("median-posterior", kernel_draws=200).combine(shards).notes
    assert notes[-1] == "Distances between shards rest on 50 of the draws of each."
    assert not get_combiner("median-posterior").combine(shards).notes


def test_half_of_the_weight_is_warned_of():
    shards = Subposteriors.of(
        np.random.default_rng(0).normal(size=(3, 300, 1)) + np.array([[[0.0]], [[3.0]], [[9.0]]]),
        kind="inflated",
        weights=[0.6, 0.2, 0.2],
    )
    combined = get_combiner("median-posterior").combine(shards)
    assert "The median is shard 0 alone" in combined.warnings[0]
    np.testing.assert_array_equal(combined.array, shards.draws[0])


@pytest.mark.parametrize(("num_shards", "number", "d"), [(10, 5_000, 5), (2, 20_000, 4), (1_000, 200, 10)])
def test_memory_stays_within_three_copies(num_shards, number, d):
    draws = np.random.default_rng(0).normal(size=(num_shards, number, d))
    shards = Subposteriors.of(draws, kind="inflated")
    tracemalloc.start()
    get_combiner("median-posterior", kernel_draws=2_000).combine(shards)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # B x B inner products and what is made of them are counted apart.
    assert peak < 3 * draws.nbytes + 6 * 8 * num_shards**2


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("bandwidth", 0.0),
        ("bandwidth", "wide"),
        ("least_share", 1.0),
        ("kernel_draws", 0),
        ("kernel_draws", 2.5),
    ],
)
def test_options_are_checked(option, value):
    with pytest.raises(InputError, match=f"`{option}` must be"):
        get_combiner("median-posterior", **{option: value})
