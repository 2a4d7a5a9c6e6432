"""Marginal views against closed forms, each with a variant that is wrong on purpose and must be rejected."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats

import consilience as cs
from consilience.combine import combine, views_completion, views_look
from consilience.combine.marginal_views import MarginalViews
from consilience.combine.views_density import factored
from consilience.draws import Subposteriors
from consilience.errors import ConsilienceWarning, InputError
from consilience.numerics import normalised_weights, weighted_covariance
from consilience.pareto import effective_draws, pareto_shape

CELLS = 40
# A distance has a standard error of a tenth of the floor; the rest is room for the kernel's bias.
LIMIT = 3.0


def shards_of(draws, names=None):
    return Subposteriors.of(draws, kind="subposterior", names=names)


def distance(combined, grid, log_density):
    """IAD over cells of equal probability, in units of what draws of the promised effective number would show."""
    density = np.exp(log_density - log_density.max())
    cumulative = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]) * np.diff(grid))])
    edges = np.interp(np.arange(1, CELLS) / CELLS, cumulative / cumulative[-1], grid)
    weights = np.full(len(combined.array), 1.0 / len(combined.array))
    if combined.log_weights is not None:
        weights = normalised_weights(combined.log_weights)
    cell = np.searchsorted(edges, combined.array[:, 0])
    found = np.bincount(cell, weights=weights, minlength=CELLS)
    floor = 0.5 * CELLS * np.sqrt(2.0 / np.pi * (1.0 / CELLS) / combined.effective_sizes[0])
    return 0.5 * np.abs(found - 1.0 / CELLS).sum() / floor


def test_gamma_shards_have_a_gamma_product():
    """prod Gamma(a_b, r_b) is Gamma(sum (a_b - 1) + 1, sum r_b)."""
    rng = np.random.default_rng(0)
    shapes = rng.uniform(2.0, 6.0, 8)
    rates = shapes * rng.uniform(0.8, 1.2, 8)
    sizes = rng.integers(3_000, 8_000, 8)
    draws = [rng.gamma(a, 1.0 / r, size=(n, 1)) for a, r, n in zip(shapes, rates, sizes, strict=True)]
    product = stats.gamma(np.sum(shapes - 1.0) + 1.0, scale=1.0 / rates.sum())
    grid = np.linspace(1e-3, 4.0, 8_001)
    combined = MarginalViews().combine(shards_of(draws))
    assert distance(combined, grid, product.logpdf(grid)) < LIMIT
    mean = normalised_weights(combined.log_weights) @ combined.array[:, 0]
    assert abs(mean - product.mean()) < 5.0 * product.std() / np.sqrt(combined.effective_sizes[0])
    # The powers of a rule for inflated draws, and a Gaussian product, are something else.
    eighth = stats.gamma(np.mean(shapes), scale=1.0 / np.mean(rates))
    assert distance(combined, grid, eighth.logpdf(grid)) > 1.5 * LIMIT
    gaussian = combine(draws, method="gaussian-product", kind="subposterior")
    assert abs(gaussian.mean()[0] - product.mean()) > 5.0 * product.std() / np.sqrt(
        combined.effective_sizes[0]
    )


def bent_shards(number=4_000, num_shards=5):
    """theta ~ N(m_b, 1), psi | theta ~ N(a_b theta², 1/4): psi integrates out of the product in closed form."""
    rng = np.random.default_rng(1)
    bends, middles = rng.uniform(0.5, 1.5, num_shards), rng.normal(0.0, 0.3, num_shards)
    draws = []
    for bend, middle in zip(bends, middles, strict=True):
        theta = middle + rng.normal(size=number)
        draws.append(np.stack([theta, bend * theta**2 + 0.5 * rng.normal(size=number)], axis=1))
    grid = np.linspace(-3.0, 3.0, 8_001)
    density = stats.norm.logpdf(grid[:, None], middles, 1.0).sum(axis=1)
    density -= 0.5 * grid**4 * np.sum((bends - bends.mean()) ** 2) / 0.25
    return shards_of(draws, ["theta", "psi"]), grid, density


def test_conditionals_that_bend_are_integrated_out(monkeypatch):
    shards, grid, density = bent_shards()
    rule = MarginalViews(functions={"theta": {"theta": 1}})
    assert distance(rule.combine(shards), grid, density) < LIMIT

    class AtTheCentre(views_look.Product):
        """The thesis' constant in the place of the product of local conditionals."""

        def __init__(self, versions, points, p, *, integrate):
            super().__init__(versions, points, p, integrate=False)

    monkeypatch.setattr(views_look, "Product", AtTheCentre)
    assert distance(rule.combine(shards), grid, density) > 1.5 * LIMIT


def test_conditionals_of_varying_width_are_integrated_out(monkeypatch):
    """psi | theta ~ N(0, exp(1.6 theta)) in B shards: their product has exp(-0.8 (B - 1) theta) more."""
    rng = np.random.default_rng(11)
    num_shards, draws = 3, []
    middles = rng.normal(0.0, 0.3, num_shards)
    for middle in middles:
        theta = middle + rng.normal(size=30_000)
        draws.append(np.stack([theta, np.exp(0.8 * theta) * rng.normal(size=30_000)], axis=1))
    law = stats.norm(middles.mean() - 0.8 * (num_shards - 1) / num_shards, num_shards**-0.5)
    grid = np.linspace(*law.ppf([1e-7, 1 - 1e-7]), 4_001)
    rule = MarginalViews(functions={"theta": {"theta": 1}}, num_draws=4_000)
    shards = shards_of(draws, ["theta", "psi"])
    assert distance(rule.combine(shards), grid, law.logpdf(grid)) < LIMIT
    right = views_look.Product.log_density

    def wrong_sign(self):
        log_determinant, _, _ = factored(self._precision, self._pull)
        return right(self) + log_determinant

    monkeypatch.setattr(views_look.Product, "log_density", wrong_sign)
    assert distance(rule.combine(shards), grid, law.logpdf(grid)) > 1.5 * LIMIT


def test_other_parameters_are_not_ignored():
    """The product of the shards' margins is not the margin of their product (thesis, 3.2)."""
    rng = np.random.default_rng(2)
    covariances = [np.array([[1.0, c], [c, 1.0]]) for c in (0.9, -0.7, 0.2)]
    means = rng.normal(0.0, 0.5, (3, 2))
    draws = [rng.multivariate_normal(m, v, size=4_000) for m, v in zip(means, covariances, strict=True)]
    precision = sum(np.linalg.inv(v) for v in covariances)
    covariance = np.linalg.inv(precision)
    mean = covariance @ sum(np.linalg.solve(v, m) for m, v in zip(means, covariances, strict=True))
    law = stats.norm(mean[0], np.sqrt(covariance[0, 0]))
    grid = np.linspace(*law.ppf([1e-7, 1 - 1e-7]), 4_001)
    right = MarginalViews(functions={"a": {"a": 1}}).combine(shards_of(draws, ["a", "b"]))
    assert distance(right, grid, law.logpdf(grid)) < LIMIT
    ignoring = MarginalViews().combine(shards_of([x[:, :1] for x in draws]))
    assert distance(ignoring, grid, law.logpdf(grid)) > 1.5 * LIMIT


@pytest.mark.parametrize("weights", [None, [0.1, 0.2, 0.3, 0.4]])
def test_functions_that_bend_keep_one_jacobian(weights, monkeypatch):
    """theta = exp(a): the margin is log-normal; the product of the shards' densities of theta is not."""
    rng = np.random.default_rng(3)
    middles = rng.normal(0.0, 0.5, 4)
    draws = [np.stack([m + rng.normal(size=5_000), rng.normal(size=5_000)], axis=1) for m in middles]
    law = stats.lognorm(0.5, scale=np.exp(middles.mean()))
    grid = np.linspace(*law.ppf([1e-6, 1 - 1e-6]), 8_001)
    shards = Subposteriors.of(draws, kind="subposterior", names=["a", "b"], weights=weights)
    rule = MarginalViews(functions={"e": lambda draws: np.exp(draws["a"])})
    assert distance(rule.combine(shards), grid, law.logpdf(grid)) < LIMIT
    monkeypatch.setattr(views_completion, "_log_volume", lambda *a: [np.zeros(len(x)) for x in a[2].draws])
    assert distance(rule.combine(shards), grid, law.logpdf(grid)) > 1.5 * LIMIT


def test_a_ratio_of_two_parameters():
    """Against many draws of the Gaussian product, which is exact here."""
    rng = np.random.default_rng(4)
    covariance = np.array([[0.3, 0.1], [0.1, 0.2]])
    middles = np.array([3.0, 5.0]) + 0.3 * rng.normal(size=(4, 2))
    draws = [rng.multivariate_normal(m, covariance, size=6_000) for m in middles]
    many = rng.multivariate_normal(middles.mean(axis=0), covariance / 4.0, size=400_000)
    ratio = many[:, 0] / many[:, 1]
    rule = MarginalViews(functions={"ratio": lambda draws: draws["a"] / draws["b"]})
    combined = rule.combine(shards_of(draws, ["a", "b"]))
    mean = normalised_weights(combined.log_weights) @ combined.array[:, 0]
    error = ratio.std() / np.sqrt(combined.effective_sizes[0])
    assert abs(mean - ratio.mean()) < 5.0 * error
    deviation = np.sqrt(weighted_covariance(combined.array, combined.log_weights)[0, 0])
    assert deviation == pytest.approx(ratio.std(), rel=0.1)


def two_modes(seed=0, number=6_000, num_shards=6):
    rng = np.random.default_rng(seed)
    modes = np.stack([rng.normal(0.0, 0.1, num_shards), rng.normal(1.0, 0.1, num_shards)])
    draws = [m[rng.integers(2, size=number)] + 0.1 * rng.normal(size=number) for m in modes.T]
    grid = np.linspace(-0.5, 1.5, 8_001)
    density = sum(
        np.logaddexp(stats.norm.logpdf(grid, a, 0.1), stats.norm.logpdf(grid, b, 0.1)) for a, b in modes.T
    )
    return [x[:, None] for x in draws], grid, density


def test_two_modes_stay_two():
    draws, grid, density = two_modes()
    combined = MarginalViews().combine(shards_of(draws))
    assert distance(combined, grid, density) < LIMIT
    averaged = cs.combine(draws, method="consensus", kind="subposterior")
    between = np.mean(np.abs(averaged.array[:, 0] - 0.5) < 0.3)
    assert between > 0.5
    assert normalised_weights(combined.log_weights) @ (np.abs(combined.array[:, 0] - 0.5) < 0.3) < 0.01


def test_points_are_drawn_again_where_the_first_ones_fit_badly():
    draws, _, _ = two_modes()
    combined = MarginalViews(num_draws=2_000).combine(shards_of(draws))
    assert effective_draws(combined.log_weights) > 0.8 * 2_000
    assert pareto_shape(combined.log_weights) < 0.7
    assert f"worth {effective_draws(combined.log_weights):.0f} draws, Pareto k-hat" in combined.notes[0]


@pytest.mark.parametrize("kernel", ["euwok", "gaussian"])
@pytest.mark.parametrize("bandwidth", ["sheather-jones", "silverman"])
def test_the_thesis_estimates_without_shrinkage(kernel, bandwidth):
    rng = np.random.default_rng(5)
    draws = [rng.multivariate_normal([0.1 * b, 0.0], [[1.0, 0.6], [0.6, 1.0]], size=2_000) for b in range(4)]
    rule = MarginalViews(functions={"a": {"a": 1}}, kernel=kernel, bandwidth=bandwidth, shrinkage=0.0)
    combined = rule.combine(shards_of(draws, ["a", "b"]))
    mean = normalised_weights(combined.log_weights) @ combined.array[:, 0]
    assert abs(mean - 0.15) < 5.0 * 0.5 / np.sqrt(combined.effective_sizes[0])
    assert np.sqrt(weighted_covariance(combined.array, combined.log_weights)[0, 0]) == pytest.approx(
        0.5, rel=0.2
    )


def test_a_function_of_two_columns():
    rng = np.random.default_rng(6)
    covariance = np.diag([1.0, 2.0, 0.5]) + 0.3
    draws = [rng.multivariate_normal(0.2 * rng.normal(size=3), covariance, size=3_000) for _ in range(4)]
    shards = shards_of(draws, ["a", "b", "c"])
    rule = MarginalViews(
        functions={"both": lambda x: np.stack([x["a"] + x["c"], x["b"]], axis=1)}, num_draws=1_500
    )
    combined = rule.combine(shards)
    assert combined.names == ("both[0]", "both[1]")
    exact = combine(shards, method="gaussian-product", num_draws=100_000)
    matrix = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    mean = normalised_weights(combined.log_weights) @ combined.array
    deviations = np.sqrt(np.diagonal(matrix @ exact.cov() @ matrix.T))
    assert np.all(np.abs(mean - matrix @ exact.mean()) < 5.0 * deviations / np.sqrt(combined.effective_sizes))
    ratio = weighted_covariance(combined.array, combined.log_weights) / (matrix @ exact.cov() @ matrix.T)
    assert np.abs(np.diagonal(ratio) - 1.0).max() < 0.2
    assert "several columns" in " ".join(combined.notes)


def test_several_views_keep_the_dependence_of_the_gaussian_product():
    rng = np.random.default_rng(7)
    draws = [rng.multivariate_normal([0.0, 0.0], [[1.0, 0.8], [0.8, 1.0]], size=3_000) for _ in range(4)]
    rule = MarginalViews(functions={"a": {"a": 1}, "minus b": {"b": -1}, "sum": {"a": 1, "b": 1}})
    posterior = combine(shards_of(draws, ["a", "b"]), method="marginal-views", functions=rule.functions)
    assert posterior.names == ("a", "minus b", "sum")
    assert posterior.log_weights is None
    correlation = np.corrcoef(posterior.array, rowvar=False)
    expected = [-0.8, 1.8 / np.sqrt(3.6), -1.8 / np.sqrt(3.6)]
    np.testing.assert_allclose(correlation[np.triu_indices(3, 1)], expected, atol=0.05)


def test_the_order_of_draws_within_shards_says_nothing():
    """Nothing is paired: permuted draws give the same estimate, but for the jackknife's runs."""
    rng = np.random.default_rng(8)
    draws = [rng.gamma(3.0, size=(1_000, 2)) for _ in range(3)]
    first = MarginalViews(functions={"t": {"theta[0]": 1}}).combine(shards_of(draws))
    second = MarginalViews(functions={"t": {"theta[0]": 1}}).combine(
        shards_of([rng.permutation(x) for x in draws])
    )
    means = [normalised_weights(x.log_weights) @ x.array[:, 0] for x in (first, second)]
    # Points are others: their error in one dimension is far under that of as many draws.
    assert abs(means[0] - means[1]) < 0.2 * first.array.std() / np.sqrt(1_000)


def test_shards_apart_are_warned_of():
    rng = np.random.default_rng(9)
    draws = [6.0 * b + rng.normal(size=(500, 1)) for b in range(4)]
    with pytest.warns(ConsilienceWarning, match="where a shard has few draws"):
        combine(draws, method="marginal-views", kind="subposterior")


@pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")
def test_record_of_functions_can_be_saved(tmp_path):
    draws = np.random.default_rng(0).normal(size=(3, 400, 2))
    functions = {"e": lambda x: np.exp(x["a"]), "sum": {"a": 1.0, "b": 2.0}}
    posterior = combine(
        draws, method="marginal-views", kind="subposterior", names=["a", "b"], functions=functions
    )
    json.dumps(posterior.info)
    posterior.save(tmp_path / "posterior.npz")
    assert cs.load(tmp_path / "posterior.npz").info["options"]["functions"]["sum"] == {"a": 1.0, "b": 2.0}


def test_weighted_draws_come_in_no_order():
    draws = np.random.default_rng(0).normal(size=(3, 800, 1))
    combined = MarginalViews().combine(shards_of(draws))
    ranks = np.argsort(np.argsort(combined.array[:, 0]))
    assert abs(np.corrcoef(ranks, np.arange(800))[0, 1]) < 5.0 / np.sqrt(800)


def test_one_shard_is_its_own_functions():
    draws = np.random.default_rng(0).normal(size=(1, 300, 2))
    combined = MarginalViews(functions={"s": {"a": 1, "b": 1}}).combine(shards_of(draws, ["a", "b"]))
    np.testing.assert_array_equal(combined.array[:, 0], draws[0].sum(axis=1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_draws": 3}, "`num_draws`"),
        ({"outside": 0.0}, "`outside`"),
        ({"fewest_draws": 0.0}, "`fewest_draws`"),
        ({"shrinkage": -1.0}, "`shrinkage`"),
        ({"kernel": "uniform"}, "`kernel` must be one of"),
        ({"functions": {"a": 3}}, "`functions`"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(InputError, match=message):
        MarginalViews(**options)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x["a"] ** 2, "strictly monotone"),
        (lambda x: np.stack([x["a"]] * 3, axis=1), "at most 2 columns"),
        (lambda x: np.log(np.minimum(x["a"], -5.0) * 0.0), "finite"),
        ({"c": 1}, "made of known parameters"),
    ],
)
def test_functions_that_cannot_be_viewed_are_refused(function, message):
    draws = np.random.default_rng(0).normal(size=(3, 300, 2))
    with np.errstate(all="ignore"), pytest.raises(InputError, match=message):
        MarginalViews(functions={"f": function}).combine(shards_of(draws, ["a", "b"]))


def test_effective_sizes_are_honest_for_skewed_shards():
    shapes = np.array([2.0, 4.0, 3.0])
    means, promised = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        draws = [rng.gamma(a, size=(300, 1)) for a in shapes]
        combined = MarginalViews(num_draws=300).combine(shards_of(draws))
        variance = weighted_covariance(combined.array, combined.log_weights)[0, 0]
        means.append(normalised_weights(combined.log_weights) @ combined.array[:, 0])
        promised.append(variance / combined.effective_sizes[0])
    # The ratio of variances of 40 replicates has a standard error of sqrt(2 / 39).
    assert abs(np.var(means, ddof=1) / np.mean(promised) - 1.0) < 4.0 * np.sqrt(2.0 / 39.0)
