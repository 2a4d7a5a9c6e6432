"""Partition trees: products known in closed form, what trees must be, and what the rule promises."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from consilience.combine import block_products, block_stages, combine, get_combiner
from consilience.combine.moments import shard_moments
from consilience.combine.random_trees import Tree, common_frame, grow_tree
from consilience.draws import Subposteriors
from consilience.errors import ConsilienceWarning, DrawsError, InputError

SHAPES, RATES = np.array([4.0, 9.0, 3.0]), np.array([1.0, 1.6, 0.9])
WEIGHTS = np.array([0.1, 0.75, 0.15])
SIZES = (6_000, 9_000, 4_000)


def gamma_shards(kind: str) -> tuple[Subposteriors, stats.rv_continuous]:
    """Gamma shards of unequal sizes and weights, and their product, which is a gamma law again."""
    rng = np.random.default_rng(11)
    draws = [rng.gamma(k, 1 / r, size=(n, 1)) for k, r, n in zip(SHAPES, RATES, SIZES, strict=True)]
    powers = WEIGHTS if kind == "inflated" else np.ones(3)
    law = stats.gamma(powers @ (SHAPES - 1.0) + 1.0, scale=1.0 / (powers @ RATES))
    return Subposteriors.of(draws, kind=kind, weights=WEIGHTS), law


def distance(shards: Subposteriors, law: stats.rv_continuous, **options: object) -> float:
    """Kolmogorov-Smirnov distance in units of its Monte Carlo error; 2.2 is p = 1e-4."""
    combined = get_combiner("partition-trees", **options).combine(shards, seed=1)
    worth = float(combined.effective_sizes.min())
    return float(stats.kstest(combined.array[:, 0], law.cdf).statistic * np.sqrt(worth))


FORMS = list(itertools.product(("shard-gaussian", "block-gaussian", "uniform"), ("median", "likelihood")))


@pytest.mark.parametrize("kind", ["subposterior", "inflated"])
@pytest.mark.parametrize(("within", "cut"), FORMS)
def test_product_of_gammas(kind, within, cut):
    shards, law = gamma_shards(kind)
    # Besides its noise a histogram has a bias of the order of its blocks: half as much again is allowed.
    assert distance(shards, law, within=within, cut=cut) < 1.5 * 2.2


@pytest.mark.parametrize("within", ["shard-gaussian", "uniform"])
def test_product_of_gammas_rejects_the_wrong_kind_and_equal_weights(within):
    shards, law = gamma_shards("inflated")
    other = gamma_shards("subposterior")[1]
    assert distance(shards, other, within=within) > 3 * 2.2
    equal = Subposteriors.of(list(shards.draws), kind="inflated")
    assert distance(equal, law, within=within) > 1.5 * 2.2


def test_product_of_gammas_rejects_histograms_whose_volumes_are_forgotten(monkeypatch):
    def forgetful(tree, counts, sizes, powers):
        logs = powers @ np.log((counts + 0.1) / sizes[:, None])
        return logs - np.log(np.sum(np.exp(logs)))

    shards, law = gamma_shards("subposterior")
    monkeypatch.setattr(block_products, "histogram_log_shares", forgetful)
    assert distance(shards, law, within="uniform") > 2 * 2.2


def test_product_of_gammas_rejects_the_gaussian_product():
    shards, law = gamma_shards("subposterior")
    drawn = get_combiner("gaussian-product", num_draws=4_000).combine(shards).array[:, 0]
    assert stats.kstest(drawn, law.cdf).statistic * np.sqrt(1_000) > 1.5 * 2.2


def test_shares_of_blocks_in_closed_form():
    # Two blocks of widths 1 and 3, and two shards.
    tree = Tree(
        np.array([0, -1, -1]),
        np.array([1.0, np.nan, np.nan]),
        np.array([1, 0, 1]),
        np.array([[0.0], [1.0]]),
        np.array([[1.0], [4.0]]),
    )
    counts, sizes = np.array([[30.0, 70.0], [50.0, 50.0]]) - 0.1, np.array([100.0, 100.0])
    shares = np.exp(block_products.histogram_log_shares(tree, counts, sizes, np.ones(2)))
    expected = np.array([0.3 * 0.5, 0.7 * 0.5 / 3.0])
    np.testing.assert_allclose(shares, expected / expected.sum())
    powers = np.array([0.25, 0.75])
    shares = np.exp(block_products.histogram_log_shares(tree, counts, sizes, powers))
    expected = np.array([0.3**0.25 * 0.5**0.75, 0.7**0.25 * 0.5**0.75])
    np.testing.assert_allclose(shares, expected / expected.sum())


@pytest.mark.parametrize("cut", ["median", "likelihood"])
def test_blocks_tile_the_box_and_hold_enough(cut):
    rng = np.random.default_rng(0)
    points, shards = rng.normal(size=(2_000, 3)), rng.integers(2, size=2_000)
    mass = np.where(shards == 0, 0.5 / np.sum(shards == 0), 0.5 / np.sum(shards == 1))
    tree = grow_tree(points, mass, shards, cut=cut, least_share=0.03, generator=rng)
    sides = tree.upper - tree.lower
    whole = np.prod(1.02 * np.ptp(points, axis=0))
    assert np.prod(sides, axis=1).sum() == pytest.approx(whole)
    blocks = tree.blocks_of(points)
    assert np.all((points >= tree.lower[blocks]) & (points <= tree.upper[blocks]))
    held = np.bincount(blocks, mass, tree.num_blocks)
    assert held.min() > 0.03 - 1e-9
    assert tree.num_blocks > 8


def test_likelihood_cuts_where_the_density_steps():
    # Nine tenths of the draws are in [0, 0.2]: the median is at 0.11, the step at 0.2.
    rng = np.random.default_rng(0)
    points = np.column_stack(
        [
            np.where(rng.random(4_000) < 0.9, rng.uniform(0, 0.2, 4_000), rng.uniform(0.2, 1.0, 4_000)),
            [0.0] * 4_000,
        ]
    )
    points[:, 1] = rng.random(4_000) * 1e-6
    arguments = (points, np.full(4_000, 1 / 4_000), np.zeros(4_000, dtype=int))
    by_likelihood = grow_tree(*arguments, cut="likelihood", least_share=0.05, generator=rng).cuts[0]
    by_median = grow_tree(*arguments, cut="median", least_share=0.05, generator=rng).cuts[0]
    assert by_likelihood == pytest.approx(0.2, abs=0.015)
    assert by_median == pytest.approx(0.1 / 0.9, abs=0.01)


def test_repeated_draws_are_not_cut_apart():
    points = np.repeat(np.arange(4.0), [10, 500, 10, 10])[:, None]
    mass = np.full(530, 1 / 530)
    for cut in ("median", "likelihood"):
        tree = grow_tree(
            points,
            mass,
            np.zeros(530, dtype=int),
            cut=cut,
            least_share=0.01,
            generator=np.random.default_rng(0),
        )
        blocks = tree.blocks_of(points)
        assert all(len(set(blocks[points[:, 0] == value])) == 1 for value in range(4))


def test_the_frame_follows_any_map():
    rng = np.random.default_rng(3)
    draws = [rng.normal(size=(500, 3)) @ rng.normal(size=(3, 3)) + rng.normal(size=3) for _ in range(4)]
    weights = np.full(4, 0.25)
    map_ = np.array([[1.0, 20.0, 0.0], [0.0, 1.0, 3.0], [0.5, 0.0, 100.0]])
    seen = []
    for shards in (draws, [x @ map_.T + 7.0 for x in draws]):
        frame = common_frame(shard_moments(Subposteriors.of(shards, kind="inflated")), weights)
        seen.append(np.concatenate([(x - frame.centre) @ frame.transform for x in shards]))
    np.testing.assert_allclose(np.abs(seen[0]), np.abs(seen[1]), atol=1e-8)
    assert np.cov(seen[0], rowvar=False) == pytest.approx(np.eye(3), abs=0.01)


@pytest.mark.parametrize("aggregation", ["pairwise", "one-stage"])
def test_modes_stay_where_they_are(aggregation):
    rng = np.random.default_rng(5)
    draws = [rng.choice([-2.0, 2.0], size=(3_000, 1)) + 0.6 * rng.normal(size=(3_000, 1)) for _ in range(6)]
    shards = Subposteriors.of(draws, kind="subposterior")
    found = get_combiner("partition-trees", aggregation=aggregation).combine(shards, seed=0).array[:, 0]
    # The sixth power of the mixture: modes of deviation 0.6 / sqrt(6) at -2 and 2, and nothing between.
    assert np.mean(np.abs(found) < 1.0) < 0.01
    assert np.std(np.abs(found)) == pytest.approx(0.6 / np.sqrt(6), rel=0.25)
    # Their shares: log odds have the noise of 6 counts of 3,000 each, 0.09, and of the draws.
    assert abs(np.mean(found > 0) - 0.5) < 0.15
    flat = get_combiner("gaussian-product").combine(shards, seed=0).array[:, 0]
    assert np.mean(np.abs(flat) < 1.0) > 0.5


def test_shards_far_apart_are_multiplied_as_gaussians():
    rng = np.random.default_rng(6)
    means = 6.0 * rng.normal(size=(5, 4))
    shards = Subposteriors.of([m + rng.normal(size=(2_000, 4)) for m in means], kind="subposterior")
    exact = means.mean(axis=0)
    right = get_combiner("partition-trees").combine(shards, seed=0)
    error = np.sqrt(0.2 / right.effective_sizes)
    assert np.abs((right.array.mean(axis=0) - exact) / error).max() < 4.5
    assert np.var(right.array, axis=0) == pytest.approx(np.full(4, 0.2), rel=0.2)
    # The blocks between shards are wide and nearly empty: the paper's forms cannot tell where the product is.
    blocks = get_combiner("partition-trees", within="uniform").combine(shards, seed=0).array
    assert np.var(blocks, axis=0).min() > 1.0


def test_correlated_draws_count_as_what_they_are_worth():
    rng = np.random.default_rng(7)
    fresh = [rng.gamma(4.0, size=(1_000, 1)) for _ in range(3)]
    slow = [np.repeat(x, 10, axis=0) for x in fresh]
    rule = get_combiner("partition-trees", num_draws=5_000)
    few, many = (rule.combine(Subposteriors.of(x, kind="inflated"), seed=0) for x in (fresh, slow))
    assert many.effective_sizes[0] < 1.5 * few.effective_sizes[0]


def test_effective_sizes_are_honest_where_blocks_matter():
    means, promised = [], []
    rule = get_combiner("partition-trees", num_trees=4)
    for seed in range(40):
        rng = np.random.default_rng([seed, 8])
        shards = Subposteriors.of([rng.gamma(3.0, size=(400, 1)) for _ in range(5)], kind="inflated")
        combined = rule.combine(shards, seed=seed)
        means.append(combined.array.mean())
        promised.append(combined.array.var() / combined.effective_sizes[0])
    # The ratio of 40 replicates has a standard error of sqrt(2 / 39) = 0.23.
    assert abs(np.var(means, ddof=1) / np.mean(promised) - 1.0) < 4 * 0.23


def test_notes_and_warnings_say_what_was_found():
    shards, _ = gamma_shards("subposterior")
    assert "differ from the shards' Gaussians" in get_combiner("partition-trees").combine(shards).notes[0]
    rng = np.random.default_rng(0)
    gaussians = rng.normal(size=(3, 1_000, 8))
    assert combine(gaussians, method="partition-trees", kind="inflated").info["notes"] == []
    with pytest.warns(ConsilienceWarning, match="choose within='shard-gaussian'"):
        combine(gaussians, method="partition-trees", kind="inflated", within="uniform")


def test_skewness_that_no_block_shows_is_warned_of():
    draws = np.random.default_rng(0).gamma(3.0, size=(20, 120, 3))
    with pytest.warns(ConsilienceWarning, match="is skewed in the shards .* but no block showed it"):
        combine(draws, method="partition-trees", kind="subposterior")


def test_progress_is_told(monkeypatch):
    told = []
    monkeypatch.setattr(block_stages, "tell", lambda *words: told.append(words))
    draws = np.random.default_rng(0).normal(size=(9, 200, 1))
    get_combiner("partition-trees", num_trees=2).combine(Subposteriors.of(draws, kind="inflated"))
    assert ("trees", 2, 2) in told
    assert max(done for what, done, _ in told if what == "products of pairs") == 7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"within": "kernel"}, "`within` must be one of 'shard-gaussian', 'block-gaussian', 'uniform'"),
        ({"aggregation": "all"}, "`aggregation` must be one of"),
        ({"cut": "mean"}, "`cut` must be one of 'median', 'likelihood'"),
        ({"num_trees": 0}, "`num_trees` must be a whole number, 1 or more"),
        ({"num_draws": 1}, "`num_draws` must be a whole number, 2 or more"),
        ({"least_share": 0.7}, "`least_share` must be between 0 and 0.5"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(InputError, match=message):
        get_combiner("partition-trees", **options)


def test_blocks_need_draws():
    draws = np.random.default_rng(0).normal(size=(3, 60, 1))
    with pytest.raises(DrawsError, match=r"at least 100 independent ones per shard.*within='shard-gaussian'"):
        combine(draws, method="partition-trees", kind="inflated", within="block-gaussian")
